"""NEU of a checkpoint against loops over its values, and what theta* must show."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from valuelens.analyses import Finding, Result, Subject, neu, subject
from valuelens.analyses._neu import ENDLESS
from valuelens.models.icrl import ModelConfig, TaskConfig, build, theta_star

ONE_HOT = TaskConfig(features="one-hot", num_states=5, context_length=8)
SPHERE = TaskConfig(num_states=5, context_length=8)
SHORT = "contexts of 8 transitions"


def star(task: TaskConfig, num_layers: int = 60, sharpness: float = 12.0) -> Subject:
    model = theta_star(
        feature_dim=task.feature_dim, num_layers=num_layers, gamma=task.gamma, alpha=0.8, sharpness=sharpness
    )
    return subject(model, task, num_tasks=16)


def other(**model: Any) -> Subject:
    learner = build(ModelConfig(**model), SPHERE, torch.Generator().manual_seed(0))
    return subject(learner, SPHERE, num_tasks=8)


def one(result: Result, name: str, **index: str) -> Finding:
    (finding,) = result.find(name, **index)
    return finding


def number(finding: Finding) -> float:
    return float(str(finding.estimate))


@pytest.fixture(scope="module")
def planted() -> tuple[Subject, Result]:
    studied = star(ONE_HOT)
    return studied, neu(studied)


def test_numbers_equal_loops_over_the_models_values() -> None:
    studied = star(SPHERE, num_layers=3, sharpness=2.0)
    result, mrp = neu(studied), studied.mrp
    v = studied.model.values(studied.context, mrp.features).detach()
    norms, squares = [], []
    for b in range(16):
        error = mrp.r[b][:, None] + 0.5 * v[b] - v[b][:, None]  # [state, next]
        mean = (mrp.P[b] * error).sum(-1)
        norms.append(float((mrp.stationary[b] * mean).square().sum()))
        squares.append(float(mrp.stationary[b] @ (mrp.P[b] * error.square()).sum(-1)))
    at = {"at": "the checkpoint"}
    assert_close(number(one(result, "neu_task", contexts=SHORT, **at)), sum(norms) / 16)
    assert_close(number(one(result, "mstde", **at)), sum(squares) / 16)


def test_theta_star_has_no_update_over_endless_contexts_and_a_floor_over_short_ones(
    planted: tuple[Subject, Result],
) -> None:
    _, result = planted
    for at in ("the checkpoint", "theta* with alpha = 1", "theta* with the fitted alpha"):
        assert number(one(result, "neu_task", at=at, contexts=ENDLESS)) < 1e-12
        assert number(one(result, "neu_gradient_norm", at=at, contexts=ENDLESS)) < 1e-6
        short = one(result, "neu_task", at=at, contexts=SHORT)
        assert number(short) > 1e-4
        assert short.control is not None
        assert short.control.name == "the constant predictor"
    depth = result.arrays["neu_depth"].values
    assert result.arrays["neu_depth_lengths"].values.tolist() == [30, 100, 300, 1000, 0]
    assert bool((depth[:-1, -1].diff() < 0).all())  # longer contexts, lower floor
    assert float(depth[-1, -1]) < 1e-12 < float(depth[-2, -1])
    assert_close(result.arrays["neu_depth_checkpoint"].values[-1], depth[-1, -1], atol=1e-12, rtol=0)


def test_the_true_value_is_above_the_minimum_of_mstde(planted: tuple[Subject, Result]) -> None:
    studied, result = planted
    truth, least = (one(result, "mstde", at=at) for at in ("the true value", "the least possible"))
    assert number(least) < number(truth)
    v, P = studied.mrp.value, studied.mrp.P
    variance = torch.einsum("bst,bt->bs", P, v.square()) - torch.einsum("bst,bt->bs", P, v).square()
    expected = (studied.mrp.stationary * variance).sum(-1).mean() * 0.25
    assert_close(number(truth), float(expected))


def test_the_parameter_form_equals_a_loop_over_tasks(planted: tuple[Subject, Result]) -> None:
    """Of the restricted form: gradients by A_features and w through the hooked model, task by task."""
    studied = star(SPHERE, num_layers=3, sharpness=2.0)
    finding = one(neu(studied), "neu_parameter", at="the checkpoint")
    mrp, model = studied.mrp, studied.model
    values = model.values(studied.context, mrp.features)
    delta = mrp.r + 0.5 * torch.einsum("bst,bt->bs", mrp.P, values) - values
    weight = (mrp.stationary * delta).detach()
    rows = []
    for b in range(16):
        gradients = torch.autograd.grad(
            (weight[b] * values[b]).sum(), list(model.parameters()), retain_graph=True
        )
        rows.append(torch.cat([g.flatten() for g in gradients]))
    g = torch.stack(rows)
    assert_close(number(finding), float(g[::2].mean(0) @ g[1::2].mean(0)))
    assert finding.control is not None
    assert_close(float(str(finding.control.estimate)), float(g.mean(0).square().sum()))
    assert finding.n == 16


def test_the_segment_ends_at_theta_star_and_at_the_checkpoint() -> None:
    studied = other(num_layers=3)
    result = neu(studied)
    for name, where in (("neu_segment", SHORT), ("neu_segment_endless", ENDLESS)):
        ends = result.arrays[name].values[[0, -1], 0].tolist()
        places = ("theta* with the fitted alpha", "the checkpoint")
        assert_close(ends, [number(one(result, "neu_task", at=at, contexts=where)) for at in places])
    plane, axes = (result.arrays[f"neu_plane_checkpoint{tail}"].values for tail in ("", "_axes"))
    i, j = axes[0].tolist().index(1.0), axes[1].tolist().index(0.0)
    assert_close(float(plane[i, j, 0]), number(one(result, "neu_task", at="the checkpoint", contexts=SHORT)))
    i = axes[0].tolist().index(0.0)
    assert_close(float(plane[i, j, 0]), float(result.arrays["neu_segment"].values[0, 0]))


def test_the_discount_plane_is_least_at_the_true_discount() -> None:
    """Known answer: on the planted model nothing beats the true effective discount."""
    studied = star(TaskConfig(features="one-hot", num_states=5, context_length=60), num_layers=10)
    result = neu(studied)
    plane, axes = (result.arrays[f"neu_plane_discount{tail}"].values for tail in ("", "_axes"))
    least = plane[2, :, 0].argmin()  # at the fitted step size
    assert_close(float(axes[1, least]), 0.5)
    assert axes[0, 2] == 1.0


@pytest.mark.parametrize(
    "model",
    [
        {"arch": "tsm", "weights": "full", "num_layers": 2},
        {"arch": "tsm", "weights": "restricted", "tied": False, "num_layers": 2},
        {"arch": "dual", "weights": "restricted", "num_layers": 2},
    ],
    ids=str,
)
def test_every_softmax_form_has_a_landscape(model: dict[str, Any]) -> None:
    result = neu(other(**model))
    assert {"neu_segment", "neu_plane_checkpoint", "neu_plane_discount", "neu_depth"} <= set(result.arrays)
    assert result.skipped == ()
    exact = model["arch"] == "tsm" and model["weights"] == "restricted"
    assert bool(result.find("neu_task", contexts=ENDLESS)) == exact


def test_free_slots_have_values_but_no_gradient_of_their_own() -> None:
    result = neu(other(arch="dual", weights="full", num_layers=2))
    assert {f.name for f in result.findings} == {"neu_task", "mstde"}
    assert not result.arrays
    assert "theta* with the fitted alpha" not in {f.index["at"] for f in result.findings}  # nothing is fitted
    assert "may mix its slots" in result.skipped[0]["why"]


@pytest.mark.parametrize(
    "model",
    [
        {"arch": "linear", "num_layers": 2},
        {"arch": "transformer", "num_layers": 1, "d_model": 8, "num_heads": 2},
    ],
    ids=str,
)
def test_other_architectures_have_neu_but_no_landscape(model: dict[str, Any]) -> None:
    result = neu(other(**model))
    assert {f.name for f in result.findings} == {"neu_task", "neu_parameter", "mstde", "neu_gradient_norm"}
    assert {f.index["at"] for f in result.findings} >= {"the checkpoint"}
    assert result.skipped[0]["what"] == "NEU landscape"
    assert not result.arrays


def test_without_a_discount_there_is_no_discount_plane() -> None:
    result = neu(star(TaskConfig(num_states=5, context_length=8, gamma=0.0), num_layers=2))
    assert "neu_plane_discount" not in result.arrays


def test_one_task_has_no_halves() -> None:
    studied = subject(theta_star(feature_dim=4, num_layers=2, gamma=0.5), SPHERE, num_tasks=1)
    finding = one(neu(studied), "neu_parameter", at="the checkpoint")
    assert finding.estimate is None
    assert "two halves need two tasks" in finding.reasons["estimate"]


def test_overflow_says_so() -> None:
    studied = star(SPHERE, num_layers=6)
    with torch.no_grad():
        studied.model.get_parameter("w").mul_(1e40)
    result = neu(studied)
    for finding in result.findings:
        if finding.index["at"] in ("the checkpoint", "theta* with the fitted alpha"):
            assert finding.estimate is None
            assert "the values overflow" in finding.reasons["estimate"]
    assert number(one(result, "neu_task", at="theta* with alpha = 1", contexts=ENDLESS)) < 1
    result.summary()
