"""Linear attention beside batch TD: theta_TD is batch TD, random weights are not, and where nothing is defined."""

import math

import pytest
import torch
from torch.testing import assert_close

from valuelens.analyses import Finding, subject
from valuelens.analyses._batch_td import beside_batch_td
from valuelens.analyses._distance import distance
from valuelens.models.icrl import LinearAttention, ModelConfig, TaskConfig, theta_td

TASK = TaskConfig(num_states=5, context_length=10, gamma=0.9, features="uniform")
NAMES = ("value_difference", "implicit_weight_similarity", "sensitivity_similarity")
each_step_size = pytest.mark.parametrize("alpha", [0.7, -0.4, [0.1, 0.9, -0.3]])


def findings(model: LinearAttention) -> dict[str, Finding]:
    found = distance(subject(model, TASK, num_tasks=16)).findings
    return {each.name: each for each in found if each.name in NAMES}


def trainable(*, weights: str = "full", seed: int = 0) -> LinearAttention:
    config = ModelConfig.model_validate({"arch": "linear", "weights": weights, "num_layers": 3})
    generator = torch.Generator().manual_seed(seed)
    return LinearAttention(config, feature_dim=4, gamma=0.9, generator=generator)


@each_step_size
def test_theta_td_is_batch_td(alpha: float | list[float]) -> None:
    found = findings(theta_td(feature_dim=4, num_layers=3, gamma=0.9, alpha=alpha))
    estimates = torch.tensor([found[name].estimate for name in NAMES], dtype=torch.float64)
    assert_close(estimates, torch.tensor([0.0, 1.0, 1.0]).double(), atol=1e-12, rtol=0)
    for each in found.values():
        assert abs(each.control.estimate) < 0.5
        assert each.control.estimate != 0


def test_a_wrong_scale_of_the_fitted_step_size_is_mended() -> None:
    studied = subject(theta_td(feature_dim=4, num_layers=3, gamma=0.9, alpha=0.6), TASK, num_tasks=16)
    found = beside_batch_td(studied, studied.model, torch.tensor([0.2, 0.2, 0.2]).double())
    assert_close(found.arrays["batch_td_step_size"].values, torch.full((3,), 0.6).double(), atol=1e-6, rtol=0)
    assert found.find("value_difference")[0].estimate == pytest.approx(0, abs=1e-12)


def test_a_constructed_mixture_lies_between() -> None:
    model = theta_td(feature_dim=4, num_layers=3, gamma=0.9, alpha=0.7)
    noisy = trainable()
    with torch.no_grad():
        noisy.P_full.copy_(
            model.P[:1] + 0.05 * torch.randn(1, 9, 9, generator=torch.Generator().manual_seed(1))
        )
        noisy.Q_full.copy_(model.Q[:1])
    found = findings(noisy)
    assert 0 < found["value_difference"].estimate < 0.1
    assert 0.8 < found["implicit_weight_similarity"].estimate < 1
    low, high = found["implicit_weight_similarity"].interval
    assert low < found["implicit_weight_similarity"].estimate < high


@pytest.mark.parametrize("seed", range(3))
def test_linear_attention_is_linear_in_the_query_so_the_two_similarities_agree(seed: int) -> None:
    found = findings(trainable(seed=seed))
    one, other = (found[name] for name in NAMES[1:])
    assert one.estimate == pytest.approx(other.estimate, abs=1e-9)
    assert -1 < one.estimate < 1


def test_values_that_stay_zero_have_no_direction() -> None:
    found = findings(theta_td(feature_dim=4, num_layers=3, gamma=0.9, alpha=0.0))
    assert found["value_difference"].estimate == 0
    for name in NAMES[1:]:
        assert found[name].estimate is None
        assert "stay zero" in found[name].reasons["estimate"]


def test_entries_stand_once_for_tied_layers_and_for_each_untied_one() -> None:
    for alpha, places in ((0.5, ["all"]), ([0.5, 0.2, 0.1], [0, 1, 2])):
        model = theta_td(feature_dim=4, num_layers=3, gamma=0.9, alpha=alpha)
        found = distance(subject(model, TASK, num_tasks=4)).find("sparsity")
        assert [each.index["layer"] for each in found if each.index["matrix"] == "Q"] == places
        steps = alpha if isinstance(alpha, list) else [alpha]
        for each, step in zip([x for x in found if x.index["matrix"] == "Q"], steps, strict=True):
            assert each.estimate == pytest.approx([-4 * step, 4 * step, 0])
            assert each.control.estimate[2] > 0
            assert math.isfinite(sum(each.control.estimate))
