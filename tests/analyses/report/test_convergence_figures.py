"""Figures of convergence show the arrays of a result, and leave diverged values out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from valuelens.analyses import Array, Result, convergence, diagonality, merged, subject
from valuelens.analyses.report._convergence_figures import (
    context_error_figure,
    depth_error_figure,
    extrapolation_figure,
)
from valuelens.analyses.report._kernel_figures import contraction_share_figure, state_diagonal_figure
from valuelens.models.icrl import ModelConfig, TaskConfig, build, theta_star

TASK = TaskConfig(num_states=5, context_length=12)


@pytest.fixture(scope="module")
def star() -> Result:
    model = theta_star(feature_dim=4, num_layers=4, gamma=0.5, alpha=0.9, sharpness=6.0)
    studied = subject(model, TASK, num_tasks=24)
    measured = merged([convergence(studied), diagonality(studied)])
    return replace(measured, provenance={"config": {"task": {"gamma": 0.5}}})


@pytest.fixture
def ax() -> Axes:
    return Figure().subplots()


def line(ax: Axes, start: str) -> np.ndarray:
    """Heights of the line whose label starts so."""
    (found,) = (each for each in ax.lines if str(each.get_label()).startswith(start))
    return np.asarray(found.get_ydata(), dtype=float)


def close(shown: np.ndarray, result: Result, name: str, row: int | None = 0) -> None:
    values = result.arrays[name].values.numpy()
    np.testing.assert_allclose(shown, values if row is None else values[row])


def test_errors_against_depth_are_measured_and_predicted(ax: Axes, star: Result) -> None:
    depth_error_figure(ax, star)
    close(line(ax, "measured, to the true value"), star, "depth_true_value")
    close(line(ax, "measured, to the fixed point"), star, "depth_fixed_point")
    close(line(ax, "predicted: start times spectral"), star, "depth_predicted_radius", None)
    close(line(ax, "predicted bound: start times infinity"), star, "depth_predicted_norm", None)
    close(line(ax, "predicted bound from the kernel"), star, "depth_predicted_bound", None)
    words = {text.get_text() for text in ax.texts}
    assert words == {"constant predictor (control)", "fixed point to true value (floor)"}
    assert len(ax.collections) == 2  # an interval around each measured curve


def test_errors_against_context_have_slopes_and_the_law(ax: Axes, star: Result) -> None:
    context_error_figure(ax, star)
    for start, name in (
        ("model, every state visited, slope", "context_error_covered"),
        ("model, all contexts", "context_error"),
        ("model to its own limit, slope", "context_limit_covered"),
        ("empirical chain (control), slope", "context_chain_covered"),
    ):
        close(line(ax, start), star, name)
    law, n = line(ax, "law"), star.arrays["context_lengths"].values.numpy()
    np.testing.assert_allclose(law, law[-1] * (n / n[-1]) ** -0.5)
    np.testing.assert_allclose(law[-1], star.arrays["context_chain_covered"].values[0, -1])


def test_repeated_layers_beside_their_control(ax: Axes, star: Result) -> None:
    extrapolation_figure(ax, star)
    close(line(ax, "the model's layer, repeated"), star, "extrapolation")
    close(line(ax, "the same kernel with w"), star, "extrapolation_control", None)
    np.testing.assert_allclose(
        [each.get_xdata()[0] for each in ax.lines if str(each.get_label()).startswith("trained depth, 4")],
        [4],
    )


def test_what_diverged_leaves_the_frame_alone(ax: Axes, star: Result) -> None:
    grown = star.arrays["extrapolation"].values.clone()
    grown[:, 10:] = torch.inf
    grown[:, 9] = 1e200
    arrays = {**star.arrays, "extrapolation": Array(axes="band iterate", values=grown)}
    extrapolation_figure(ax, replace(star, arrays=arrays))
    shown = line(ax, "the model's layer, repeated")
    assert bool(np.isnan(shown[9:]).all())
    assert bool(np.isfinite(shown[:9]).all())
    assert ax.get_ylim()[1] < 1e3


def test_a_model_without_a_rule_has_no_predictions(ax: Axes) -> None:
    config = ModelConfig(arch="linear", num_layers=2)
    result = convergence(subject(build(config, TASK, torch.Generator()), TASK, num_tasks=12))
    depth_error_figure(ax, result)
    assert next(str(each.get_label()) for each in ax.lines) == "measured, to the true value"
    assert not any("predicted" in str(each.get_label()) for each in ax.lines)
    context_error_figure(Figure().subplots(), result)


def test_states_show_both_kernels_and_the_threshold(ax: Axes, star: Result) -> None:
    state_diagonal_figure(ax, star, 0)
    population = star.arrays["population_diagonal"].values[0].numpy()
    medians = ax.containers[0].lines[0].get_ydata()
    np.testing.assert_allclose(medians, np.median(population, 0))
    np.testing.assert_allclose(line(ax, "even attention"), star.arrays["stationary"].values.numpy().mean(0))
    np.testing.assert_allclose(line(ax, "(1 + gamma) / 2 of Assumption 5.1"), 0.75)


def test_shares_are_bars_with_their_control(ax: Axes, star: Result) -> None:
    contraction_share_figure(ax, star)
    found = [
        star.find("assumption_share")[-1],
        star.find("contraction_share", by="infinity norm")[-1],
        star.find("contraction_share", by="spectral radius")[-1],
    ]
    assert [bar.get_width() for bar in ax.patches] == [finding.estimate for finding in found]
    assert [text.get_text() for text in ax.get_yticklabels()] == [
        "Assumption 5.1 holds",
        "infinity norm below 1",
        "spectral radius below 1",
    ]


def test_too_few_tasks_for_a_curve_leave_the_frame_empty(ax: Axes) -> None:
    model = theta_star(feature_dim=4, num_layers=2, gamma=0.5, sharpness=8.0)
    context_error_figure(ax, convergence(subject(model, TaskConfig(), num_tasks=3)))
    assert ax.get_legend() is None  # a warning would be an error
