"""Convergence of a whole checkpoint: planted numbers, slow loops, honest subsets, and contexts too short to tell."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch.testing import assert_close

from valuelens.analyses import Finding, Result, convergence, diagonality, merged, subject
from valuelens.models.icrl import ModelConfig, TaskConfig, build, theta_star

SPHERE = TaskConfig(num_states=5, context_length=12)
ONE_HOT = TaskConfig(features="one-hot", num_states=6, context_length=30)
OF_A_RULE = {
    "contraction_ratio",
    "contraction_violations",
    "depth_rate",
    "context_floor",
    "fixed_point_error",
    "population_radius",
    "divergence_share",
    "bottleneck",
}


def one(result: Result, name: str, **index: str) -> Finding:
    (finding,) = result.find(name, **index)
    return finding


def number(finding: Finding) -> float:
    return float(str(finding.estimate))


def control(finding: Finding) -> float:
    assert finding.control is not None
    return float(str(finding.control.estimate))


@pytest.fixture(scope="module")
def planted() -> Result:
    model = theta_star(feature_dim=6, num_layers=20, gamma=0.5, sharpness=8.0)
    return convergence(subject(model, ONE_HOT, num_tasks=96))


def test_theta_star_contracts_as_predicted(planted: Result) -> None:
    assert number(one(planted, "contraction_violations")) == 0
    assert (
        control(one(planted, "contraction_violations")) > 0.5
    )  # towards the true value nothing is forbidden
    norm = control(one(planted, "contraction_ratio"))
    assert number(one(planted, "contraction_ratio")) <= norm < 1
    early, late = (one(planted, "depth_rate", layers=layers) for layers in ("all", "the later"))
    assert number(early) < norm
    assert number(late) == pytest.approx(control(late), abs=0.01)
    bound = planted.arrays["depth_predicted_norm"].values
    measured = planted.arrays["depth_fixed_point"].values[0]
    assert bool((measured <= bound + 1e-14).all())
    assert bool((bound <= planted.arrays["depth_predicted_bound"].values + 1e-14).all())


def test_theta_star_is_limited_by_its_context_alone(planted: Result) -> None:
    assert one(planted, "bottleneck").estimate == "context"
    assert number(one(planted, "fixed_point_error")) < 1e-20
    slope = one(planted, "floor_slope", reference="true value")
    assert slope.interval is not None
    assert abs(number(slope) + 0.5) < 0.1
    assert number(slope) == pytest.approx(control(slope), abs=1e-3)
    floor = one(planted, "context_floor")
    assert number(floor) == pytest.approx(control(floor), abs=1e-4)
    last = planted.arrays["depth_true_value"].values[:, -1]
    assert_close(last, planted.arrays["depth_true_value"].values[:, -4], rtol=1e-3, atol=0)


def test_distances_equal_loops() -> None:
    model = theta_star(feature_dim=4, num_layers=3, gamma=0.5, alpha=0.8, sharpness=5.0)
    studied = subject(model, SPHERE, num_tasks=12)
    result = convergence(studied)
    for layer in range(4):
        largest = []
        for b in range(12):
            columns = range(SPHERE.context_length)  # S_n is no source
            off = [abs(float(studied.lens[layer, b, 1 + j] - studied.truth[b, j])) for j in columns]
            largest.append(max(off))
        estimate = one(result, "depth_error", reference="true value", measure="largest distance").estimate
        assert isinstance(estimate, list)
        assert_close(estimate[layer], sum(largest) / 12)
        assert_close(float(result.arrays["depth_true_value"].values[0, layer]), sum(largest) / 12)
    square = studied.truth[:, :-1].square().sum()
    mean_square = one(result, "depth_error", measure="relative mean square distance").estimate
    assert isinstance(mean_square, list)
    assert_close(mean_square[0], 1.0)  # values start at 0
    last = (studied.lens[-1, :, 1:-1] - studied.truth[:, :-1]).square().sum() / square
    assert_close(mean_square[-1], float(last))


def test_other_weights_cost_their_effective_discount() -> None:
    model = theta_star(feature_dim=4, num_layers=4, gamma=0.5, sharpness=5.0)
    with torch.no_grad():
        model.w.copy_(torch.tensor([[0.9, 1.2, -1.0]]))
    studied = subject(model, SPHERE, num_tasks=12)
    mrp, mu = studied.mrp, studied.mrp.stationary
    eye = torch.eye(5, dtype=torch.float64)
    limit = 0.9 * torch.linalg.solve(eye - 0.6 * mrp.P, mrp.r)
    expected = (mu * (limit - mrp.value).square()).sum() / (mu * mrp.value.square()).sum()
    finding = one(convergence(studied), "fixed_point_error")
    assert_close(number(finding), float(expected))
    assert control(finding) < 1e-20


def test_untied_layers_are_judged_one_by_one() -> None:
    model = theta_star(feature_dim=4, num_layers=3, gamma=0.5, alpha=[1, 0.8, 0.6], sharpness=[4, 5, 6])
    result = convergence(subject(model, SPHERE, num_tasks=24))
    assert number(one(result, "contraction_violations")) == 0
    assert [finding.index["layer"] for finding in result.find("fixed_point_error")] == [1, 2]
    assert not result.find("depth_rate")
    skipped = {each["what"] for each in result.skipped}
    assert skipped == {"depth extrapolation", "rate and errors towards the empirical fixed point"}


@pytest.mark.parametrize(
    "config",
    [
        ModelConfig(arch="dual", weights="full", num_layers=2),
        ModelConfig(weights="factored", num_layers=2, tied=False),
        ModelConfig(arch="linear", num_layers=2),
        ModelConfig(arch="transformer", num_layers=1, d_model=8, num_heads=2),
    ],
)
def test_other_models_give_what_is_defined_for_them(config: ModelConfig) -> None:
    result = convergence(subject(build(config, SPHERE, torch.Generator()), SPHERE, num_tasks=12))
    found = {finding.name for finding in result.findings}
    assert {"depth_error", "context_error", "floor_slope"} <= found
    assert not found & OF_A_RULE
    assert any("bottleneck" in each["what"] for each in result.skipped)
    result.summary()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_contexts_too_short_to_tell_say_so(n: int) -> None:
    task = TaskConfig(num_states=8, context_length=n)
    model = theta_star(feature_dim=4, num_layers=2, gamma=0.5, sharpness=5.0)
    studied = subject(model, task, num_tasks=8)
    result = merged([convergence(studied), diagonality(studied)])
    result.summary()
    for name in ("contraction_ratio", "context_floor", "contraction_norm", "spectral_radius"):
        finding = one(result, name)
        if finding.n == 0:
            assert finding.estimate is None
            assert "never was a source" in finding.reasons["estimate"]
    assert n > 1 or one(result, "contraction_ratio").n == 0
    errors = one(result, "context_error", contexts="that visit every state")
    assert isinstance(errors.estimate, list)
    assert errors.estimate[0] is None
    assert "fewer than 8 contexts visit every state" in errors.reasons["estimate"]


def test_features_that_tell_nothing_are_no_limit_that_can_be_lifted(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    P = torch.rand(4, 4, generator=generator, dtype=torch.float64) + 0.1
    tensors = {
        "P": P / P.sum(1, keepdim=True),
        "r": torch.tensor([1.0, -0.5, 0.25, 2.0], dtype=torch.float64),
        "p0": torch.full((4,), 0.25, dtype=torch.float64),
        "features": torch.ones(4, 2, dtype=torch.float64) + 1e-14 * torch.eye(4, 2, dtype=torch.float64),
    }
    save_file(tensors, tmp_path / "blind.safetensors")
    task = TaskConfig(
        env=str(tmp_path / "blind.safetensors"), num_states=4, feature_dim=2, context_length=150
    )
    model = theta_star(feature_dim=2, num_layers=12, gamma=0.5, sharpness=4.0)
    studied = subject(model, task, num_tasks=8)
    result = merged([convergence(studied), diagonality(studied)])
    result.summary()
    assert one(result, "bottleneck").estimate == "none"  # all states look alike, so nothing helps
    assert number(one(result, "divergence_share")) == 1  # an eigenvalue 1: differences never move


def test_single_precision_is_no_excuse_for_rounding() -> None:
    """In float32 rounding would look like layers that stretch errors beyond their norm."""
    task = TaskConfig(num_states=6, features="one-hot", context_length=300)
    model = theta_star(feature_dim=6, num_layers=40, gamma=0.5, sharpness=8.0)
    result = convergence(subject(model, task, num_tasks=16, dtype=torch.float32))
    assert number(one(result, "contraction_violations")) == 0
    ratio = one(result, "contraction_ratio")
    assert number(ratio) <= control(ratio) < 1
    assert next(model.parameters()).dtype == torch.float32  # the model itself is left alone


def test_too_few_layers_for_a_late_rate_say_so() -> None:
    model = theta_star(feature_dim=4, num_layers=3, gamma=0.5, sharpness=8.0)
    result = convergence(subject(model, TaskConfig(), num_tasks=16))
    (late,) = result.find("depth_rate", layers="the later")
    assert late.estimate is None
    assert late.reasons["estimate"] == "no context shows three errors in a row above rounding"
    assert number(result.find("depth_rate", layers="all")[0]) < 1
