"""Figures of the expected update and of credit show the arrays and findings of a result."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from valuelens.analyses import Array, Result, credit, merged, neu, subject
from valuelens.analyses.report._credit_figures import costate_figure, gap_figure
from valuelens.analyses.report._figures import pictures
from valuelens.analyses.report._neu_figures import depth_figure, plane_figure, segment_figure
from valuelens.models.icrl import ModelConfig, TaskConfig, build, theta_star

NAMES = {"neu_depth", "neu_segment", "neu_planes", "credit_gap", "costates"}
TASK = TaskConfig(num_states=5, context_length=8)


@pytest.fixture(scope="module")
def tied() -> Result:
    model = theta_star(feature_dim=4, num_layers=3, gamma=0.5, alpha=0.5, sharpness=4.0)
    with torch.no_grad():
        model.w.copy_(torch.tensor([[0.6, 0.5, -0.4]]))
    studied = subject(model, TASK, num_tasks=8)
    return merged([neu(studied), credit(studied)])


@pytest.fixture
def ax() -> Axes:
    return Figure().subplots()


def line(ax: Axes, label: str) -> np.ndarray:
    return np.asarray(next(each for each in ax.lines if each.get_label() == label).get_ydata(), dtype=float)


def close(shown: object, expected: object) -> None:
    torch.testing.assert_close(
        torch.as_tensor(shown, dtype=torch.float64), torch.as_tensor(expected, dtype=torch.float64)
    )


def test_every_figure_is_there_and_speaks(tied: Result) -> None:
    drawn = {picture.name: picture for picture in pictures(tied)}
    assert set(drawn) == NAMES
    assert "NEU, task form" in drawn["neu_depth"].alt
    assert "credit of each state" in drawn["credit_gap"].alt
    assert not any("<image" in picture.svg for picture in drawn.values())


def test_other_architectures_have_none_of_the_landscape() -> None:
    model = build(ModelConfig(arch="linear", num_layers=2), TASK, torch.Generator().manual_seed(0))
    assert pictures(merged([neu(subject(model, TASK, num_tasks=4))])) == []


@pytest.mark.parametrize(("quantity", "column"), [("NEU", 0), ("MSTDE", 1)])
def test_segments_are_the_arrays(ax: Axes, tied: Result, quantity: str, column: int) -> None:
    segment_figure(ax, tied, quantity)
    close(line(ax, "contexts of 8 transitions"), tied.arrays["neu_segment"].values[:, column])
    close(line(ax, "endless contexts"), tied.arrays["neu_segment_endless"].values[:, column])
    names = {text.get_text() for text in ax.texts}
    assert names == ({"the true value", "the least possible"} if quantity == "MSTDE" else set())


@pytest.mark.parametrize("plane", ["checkpoint", "discount"])
def test_planes_mark_their_least_cell(ax: Axes, tied: Result, plane: str) -> None:
    plane_figure(ax, tied, plane, "NEU")
    along, across = tied.arrays[f"neu_plane_{plane}_axes"].values
    height = tied.arrays[f"neu_plane_{plane}"].values[..., 0]
    i, j = np.unravel_index(int(height.argmin()), height.shape)
    (mark,) = (each for each in ax.lines if each.get_label() == "least here")
    close([mark.get_xdata()[0], mark.get_ydata()[0]], [along[i], across[j]])
    close(ax.collections[0].get_array().data.ravel(), height.T.ravel())
    labels = {each.get_label() for each in ax.lines}
    assert ("checkpoint" in labels) == (plane == "checkpoint")


def test_planes_bear_overflow(ax: Axes, tied: Result) -> None:
    height = tied.arrays["neu_plane_checkpoint"].values.clone()
    height[0, 0] = torch.inf
    broken = Array(axes="along across quantity", values=height)
    plane_figure(
        ax, replace(tied, arrays={**tied.arrays, "neu_plane_checkpoint": broken}), "checkpoint", "NEU"
    )
    assert np.isfinite(ax.collections[0].get_clim()).all()


def test_depth_has_a_curve_for_every_length(ax: Axes, tied: Result) -> None:
    depth_figure(ax, tied)
    curves = tied.arrays["neu_depth"].values
    for row, label in zip(
        curves, ("n = 30", "n = 100", "n = 300", "n = 1,000", "endless contexts"), strict=True
    ):
        close(line(ax, label), row)
    close(line(ax, "checkpoint, endless contexts"), tied.arrays["neu_depth_checkpoint"].values)


def test_gaps_stand_beside_their_controls(ax: Axes, tied: Result) -> None:
    gap_figure(ax, tied)
    fitted = tied.find("credit_adjoint_gap", weights="fitted")
    close(line(ax, "fitted weights"), [f.estimate for f in fitted])
    controls = [f.control.estimate for f in fitted if f.control]
    close(line(ax, "the update of another context (control)"), controls)
    assert (line(ax, "own weights") >= 1e-16).all()


def test_costates_are_in_units_of_the_largest_measured(ax: Axes, tied: Result) -> None:
    costate_figure(ax, tied, "example_costates_fitted")
    own, fitted = (tied.arrays[name].values for name in ("example_costates", "example_costates_fitted"))
    close(ax.collections[0].get_array().data, (fitted / own.abs().amax(-1, keepdim=True)).T)
