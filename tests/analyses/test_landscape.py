"""Values as a function of weights: the model's own at its own point, theta* in the same gauge, directions between."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from valuelens.analyses import Subject, subject, weights_of
from valuelens.analyses._landscape import (
    Point,
    chain_of,
    inner,
    landscape,
    mixed,
    moved,
    own_point,
    population_landscape,
    random_direction,
    star_point,
    star_scales,
)
from valuelens.models.icrl import ModelConfig, SoftmaxTD, TaskConfig, build, theta_star

SPHERE = TaskConfig(num_states=5, context_length=8)
ONE_HOT = TaskConfig(features="one-hot", num_states=5, context_length=8)
FORMS: list[dict[str, Any]] = [
    {"arch": "tsm", "weights": weights, "tied": tied, "num_layers": 2}
    for weights in ("restricted", "full", "factored")
    for tied in (True, False)
] + [
    {"arch": "dual", "weights": "restricted", "num_layers": 2},
    {"arch": "dual", "weights": "full", "tied": False, "num_layers": 2},
    {"arch": "linear", "weights": "full", "num_layers": 2},
    {"arch": "transformer", "num_layers": 1, "d_model": 8, "num_heads": 2},
]


def untrained(task: TaskConfig, **model: Any) -> Subject:
    learner = build(ModelConfig(**model), task, torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.mul_(3)
    return subject(learner, task, num_tasks=6)


def own_of(studied: Subject) -> Point:
    return own_point(studied, weights_of(studied) if isinstance(studied.model, SoftmaxTD) else None)


@pytest.mark.parametrize("model", FORMS, ids=str)
def test_at_its_own_point_a_landscape_is_the_model(model: dict[str, Any]) -> None:
    studied = untrained(SPHERE, **model)
    values = landscape(studied).values(own_of(studied))
    expected = studied.model.values(studied.context, studied.mrp.features)
    assert_close(values, expected.detach(), check_stride=False)
    assert_close(landscape(studied).first(2).values(own_of(studied)), expected[:2].detach())


@pytest.mark.parametrize("task", [SPHERE, ONE_HOT], ids=["sphere", "one-hot"])
@pytest.mark.parametrize("arch", ["tsm", "dual"])
def test_the_nearest_theta_star_of_theta_star_is_itself(task: TaskConfig, arch: Any) -> None:
    model = theta_star(
        feature_dim=task.feature_dim, num_layers=2, gamma=0.5, alpha=0.7, sharpness=4.0, arch=arch
    )
    studied = subject(model, task, num_tasks=6)
    way = moved(own_of(studied), (-1.0, star_point(studied, weights_of(studied))))
    assert inner(way, way) < 1e-18


def test_what_leaves_theta_star_the_same_function_stays_the_checkpoints() -> None:
    """One-hot gauge A + u0 u' and scale s of the target slot: the nearest theta* has both, and is the same model."""
    model = theta_star(feature_dim=5, num_layers=2, gamma=0.5, alpha=0.7, sharpness=4.0, arch="dual")
    plain = subject(model, ONE_HOT, num_tasks=6)
    before = landscape(plain).values(own_of(plain))
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        model.A_features.add_(torch.randn(1, 1, 5, generator=g, dtype=torch.float64))
        model.w_target.mul_(3.0)
        model.w_target[:, 1] /= 3.0
        model.w[:, 1] /= 3.0
    moved_on = subject(model, ONE_HOT, num_tasks=6)
    star = star_point(moved_on, weights_of(moved_on))
    way = moved(own_of(moved_on), (-1.0, star))
    assert inner(way, way) < 1e-18
    assert_close(landscape(moved_on).values(star), before)


def test_free_slots_and_negative_scales_leave_theta_star_as_published() -> None:
    free = untrained(SPHERE, arch="dual", weights="full", num_layers=2)
    c, alpha = star_scales(free, weights_of(free))
    assert_close(torch.stack([c, alpha]), torch.ones(2, 1).double())
    model = theta_star(feature_dim=4, num_layers=2, gamma=0.5)
    with torch.no_grad():
        model.A_features.mul_(-2)
        model.w.mul_(-1)
    negative = subject(model, SPHERE, num_tasks=6)
    star = star_point(negative, weights_of(negative))
    assert_close(star["A"][0, :4, :4], torch.eye(4).double())
    assert_close(star["V"][0, -1, -3:], torch.tensor([1.0, 1.0, -1.0]).double())


def test_a_given_step_size_replaces_the_fitted_one() -> None:
    studied = subject(
        theta_star(feature_dim=4, num_layers=2, gamma=0.5, alpha=0.7, sharpness=4.0), SPHERE, num_tasks=6
    )
    star = star_point(studied, weights_of(studied), alpha=1.0)
    assert_close(star["V"][0, -1, -3:], torch.tensor([1.0, 1.0, -1.0]).double())
    assert_close(star["A"][0, :4, :4], 4 * torch.eye(4).double())


def test_endless_contexts_at_great_depth_give_the_true_value() -> None:
    model = theta_star(feature_dim=5, num_layers=80, gamma=0.5, sharpness=12.0)
    studied = subject(model, ONE_HOT, num_tasks=6)
    values = population_landscape(studied).values(own_of(studied))
    assert_close(values, studied.mrp.value, atol=1e-9, rtol=0)
    chain = chain_of(studied)
    assert float(chain.neu(values).max()) < 1e-18
    assert_close(chain.residual(values[:2]), torch.zeros(2, 5).double(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("model", FORMS[:8], ids=str)
def test_directions_have_norm_one_and_stay_in_the_form(model: dict[str, Any]) -> None:
    studied = untrained(SPHERE, **model)
    own = own_of(studied)
    direction = random_direction(studied, torch.Generator().manual_seed(1), own)
    assert_close(inner(direction, direction), 1.0)
    assert isinstance(studied.model, SoftmaxTD)
    for name, mask in studied.model.support().items():
        assert_close(direction[name] * (1 - mask), torch.zeros_like(direction[name]))
    halfway = mixed(own, moved(own, (2.0, direction)), 0.5)
    assert_close(dict(halfway), dict(moved(own, (1.0, direction))))


def test_a_direction_needs_softmax_td() -> None:
    linear = untrained(SPHERE, arch="linear", weights="full", num_layers=2)
    with pytest.raises(TypeError, match="random_direction needs SoftmaxTD; found LinearAttention"):
        random_direction(linear, torch.Generator(), own_of(linear))


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_no_perturbation_of_theta_star_is_below_it_over_endless_contexts(alpha: float) -> None:
    """What `benchmarks/neu.py` shows at length: NEU at depth 60 is zero, moving A alone ties, moving w too is worse."""
    studied = subject(
        theta_star(feature_dim=5, num_layers=60, gamma=0.5, alpha=alpha, sharpness=12.0), ONE_HOT, num_tasks=8
    )
    ground, star, chain = population_landscape(studied), own_of(studied), chain_of(studied)
    own, g = float(chain.neu(ground.values(star)).mean()), torch.Generator().manual_seed(0)
    assert own < 1e-12
    for radius in (0.01, 0.03, 0.1, 0.3, 1.0):
        for _ in range(4):
            way = random_direction(studied, g, star)
            scaled = {name: x * star[name].norm() / x.norm() for name, x in way.items()}
            both = float(chain.neu(ground.values(moved(star, (radius, scaled)))).mean())
            assert both > 1e-12
            only_A = {**scaled, "V": torch.zeros_like(star["V"])}
            if radius < 0.3:
                assert float(chain.neu(ground.values(moved(star, (radius, only_A)))).mean()) < 1e-12
