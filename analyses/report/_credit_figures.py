"""Figures of credit: costates of states through depth beside their recursion, and the gap of each layer."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from valuelens.analyses._result import Finding, Result
from valuelens.analyses.report._style import BLUE, ORANGE, RED, colour_bar, plain_ticks

FLOOR = 1e-16
"""Gaps below it are drawn at it."""
_WEIGHTS = {"own": (BLUE, "o", "-"), "fitted": (ORANGE, "s", "--")}


def costate_figure(ax: Axes, result: Result, name: str) -> Axes:
    """Costate of each state before every layer, red above 0 and blue below, in units of the largest measured there.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with the array `example_costates`.
        name: `example_costates`, or `example_costates_fitted` for the recursion.
    """
    costates = result.arrays[name].values.numpy()
    unit = np.abs(result.arrays["example_costates"].values.numpy()).max(-1, keepdims=True)
    scaled = costates / np.where(unit > 0, unit, 1)
    mesh = ax.pcolormesh(*map(np.arange, scaled.shape), scaled.T, cmap="RdBu_r", vmin=-1, vmax=1)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    colour_bar(ax, mesh)
    ax.grid(visible=False)
    ax.set(xlabel="before layer (the last: read-out)", ylabel="state")
    return ax


def gap_figure(ax: Axes, result: Result) -> Axes:
    """Relative gap between costates and their recursion by layer, with both controls, on a log scale.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with `credit_adjoint_gap`.
    """
    for weights, (color, marker, line) in _WEIGHTS.items():
        found = result.find("credit_adjoint_gap", weights=weights)
        layers = [int(f.index["layer"]) for f in found]
        ax.plot(
            layers, _drawable(found), color=color, marker=marker, linestyle=line, label=f"{weights} weights"
        )
        controls = [f.control.estimate if f.control else None for f in found]
        name = found[0].control.name if found and found[0].control else "control"
        ax.plot(
            layers,
            _floats(controls),
            color=RED,
            marker=marker,
            mfc="none",
            linestyle=":",
            label=f"{name} (control)",
        )
        for layer, finding in zip(layers, found, strict=True):
            if finding.interval:
                ax.vlines(layer, *np.maximum(finding.interval, FLOOR), color=color, linewidth=1.2)
    ax.set_yscale("log")
    if not any(np.isfinite(each.get_ydata()).any() for each in ax.lines):
        ax.set_ylim(FLOOR, 1)
    plain_ticks(ax, "y")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="layer", ylabel="gap / norm of the costate")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    return ax


def _drawable(findings: list[Finding]) -> NDArray[np.float64]:
    return np.maximum(_floats([f.estimate for f in findings]), FLOOR)


def _floats(values: Sequence[object]) -> NDArray[np.float64]:
    return np.array([x if isinstance(x, int | float) else np.nan for x in values], dtype=float)
