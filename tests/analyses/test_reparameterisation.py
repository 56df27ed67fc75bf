"""The rule behind each layer: found from values alone on theta*, and scored on tasks that it was not fitted to."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from valuelens.analyses import Result, reparameterisation, subject
from valuelens.models.icrl import (
    ModelConfig,
    SoftmaxTD,
    TaskConfig,
    build,
    softmax_td_from_matrices,
    theta_star,
)

SPHERE = TaskConfig()
ONE_HOT = TaskConfig(features="one-hot", num_states=6)
TD = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)


def scores(result: Result, fit: str) -> list[float]:
    return [float(str(finding.estimate)) for finding in result.find("reparameterisation_r2", fit=fit)]


@settings(max_examples=15)
@given(
    arch=st.sampled_from(["tsm", "dual"]),
    alpha=st.floats(0.1, 1.5),
    c=st.floats(0.5, 20),
    num_layers=st.integers(1, 6),
)
def test_theta_star_is_found_from_values_alone(arch: str, alpha: float, c: float, num_layers: int) -> None:
    model = theta_star(feature_dim=4, num_layers=num_layers, gamma=0.5, alpha=alpha, sharpness=c, arch=arch)
    found = reparameterisation(subject(model, SPHERE, num_tasks=64))
    assert min(scores(found, "function") + scores(found, "weights")) > 1 - 1e-8
    A, w = found.arrays["fitted_A"].values, found.arrays["fitted_w"].values
    assert_close(A / c, torch.eye(4, dtype=torch.float64).expand_as(A), atol=1e-6, rtol=0)
    assert_close(w[1:], (alpha * TD).expand(num_layers - 1, -1), atol=1e-6, rtol=0)
    assert_close(w[0], alpha * torch.tensor([1.0, 0, 0]).double(), atol=1e-6, rtol=0)
    assert_close(
        found.arrays["residual_by_column"].values, torch.zeros(num_layers, 31).double(), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("c", [0.5, 2.0, 5.0])
def test_one_hot_theta_star_is_found_up_to_its_gauge(c: float) -> None:
    model = theta_star(feature_dim=6, num_layers=3, gamma=0.5, alpha=0.9, sharpness=c)
    found = reparameterisation(subject(model, ONE_HOT, num_tasks=64))
    assert min(scores(found, "function")) > 1 - 1e-8
    A, w = found.arrays["fitted_A"].values, found.arrays["fitted_w"].values
    centred = torch.eye(6, dtype=torch.float64) - 1 / 6
    assert_close(A - A.mean(1, keepdim=True), (c * centred).expand_as(A), atol=1e-6, rtol=0)
    assert_close(w[1:], (0.9 * TD).expand(2, -1), atol=1e-6, rtol=0)


def test_a_saturated_kernel_is_reproduced_but_its_sharpness_is_not_identified() -> None:
    """exp(-20) of the attention is elsewhere: values say tabular TD, not which c."""
    model = theta_star(feature_dim=6, num_layers=3, gamma=0.5, sharpness=20.0)
    assert min(scores(reparameterisation(subject(model, ONE_HOT, num_tasks=64)), "function")) > 1 - 1e-4


def random_model(arch: str, weights: str, seed: int) -> SoftmaxTD:
    generator = torch.Generator().manual_seed(seed)
    config = ModelConfig.model_validate({"arch": arch, "weights": weights, "num_layers": 4})
    model = build(config, SPHERE, generator).double()
    assert isinstance(model, SoftmaxTD)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
    return model


@pytest.mark.parametrize("seed", range(3))
def test_restricted_layers_are_of_the_form_whatever_their_weights(seed: int) -> None:
    found = reparameterisation(subject(random_model("tsm", "restricted", seed), SPHERE, num_tasks=32))
    assert min(scores(found, "weights") + scores(found, "function")) > 1 - 1e-8


@pytest.mark.parametrize("seed", range(3))
def test_a_free_target_head_or_free_matrices_are_not(seed: int) -> None:
    for arch, weights in (("dual", "restricted"), ("tsm", "full")):
        found = reparameterisation(subject(random_model(arch, weights, seed), SPHERE, num_tasks=32))
        assert min(scores(found, "weights")) < 0.9999


def test_the_control_exchanges_rewards() -> None:
    model = theta_star(feature_dim=4, num_layers=2, gamma=0.5, sharpness=5.0)
    for finding in reparameterisation(subject(model, SPHERE, num_tasks=64)).findings:
        assert finding.control is not None
        assert finding.control.name == "exchanged rewards"
        assert float(str(finding.control.estimate)) < 0.2


def test_scores_are_held_out() -> None:
    """The second half decides the score and not the fit."""
    model = random_model("tsm", "full", 0)
    few, many = (reparameterisation(subject(model, SPHERE, num_tasks=n)) for n in (4, 128))
    assert all(finding.n == 2 for finding in few.findings)
    assert all(finding.n == 64 for finding in many.findings)
    assert min(scores(few, "function")) < min(
        scores(many, "function")
    )  # 16 entries of A fitted to two contexts
    assert min(scores(few, "function")) < 0


def test_a_layer_that_does_not_move_has_no_score() -> None:
    planted = theta_star(feature_dim=4, num_layers=2, gamma=0.5)
    V = planted.V.detach().clone()
    V[1] = 0
    model = softmax_td_from_matrices(planted.A.detach(), V, gamma=0.5)
    found = reparameterisation(subject(model, SPHERE, num_tasks=16)).find("reparameterisation_r2", layer=1)
    assert [finding.estimate for finding in found] == [None, None]
    assert found[0].reasons["estimate"] == "the layer does not move the values"


@pytest.mark.parametrize("arch", ["linear", "transformer"])
def test_other_architectures_are_skipped(arch: str) -> None:
    config = ModelConfig.model_validate({"arch": arch, "num_layers": 1, "d_model": 8, "num_heads": 2})
    found = reparameterisation(subject(build(config, SPHERE, torch.Generator()), SPHERE, num_tasks=4))
    assert found.findings == ()
    assert [each["what"] for each in found.skipped] == ["reparameterisation"]
