"""Figures of the expected update: along the way from theta* to the checkpoint, over planes, and against depth."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.ticker import LogLocator
from numpy.typing import NDArray

from valuelens.analyses._result import Result
from valuelens.analyses.report._numbers import readable
from valuelens.analyses.report._style import (
    BLUE,
    GREY,
    INK,
    MARKERS,
    ORANGE,
    RED,
    SHADES,
    colour_bar,
    named_line,
    plain_ticks,
)

SMALLEST = 1e-16
"""NEU below it is drawn at it: rounding."""
DEEPEST = 100.0
"""Ratio of the darkest to the lightest value of a plane; larger values are as dark."""
_FLATTEST = 1.001
_PLANES = {
    "checkpoint": ("share of the way to the checkpoint", "random direction, same unit"),
    "discount": ("step size / fitted alpha", "effective discount"),
}
_QUANTITIES = ("NEU", "MSTDE")


def segment_figure(ax: Axes, result: Result, quantity: str) -> Axes:
    """NEU or MSTDE along the segment from theta* to the checkpoint, with the control and, for MSTDE, its minimum.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with `neu_segment`.
        quantity: `NEU` or `MSTDE`.
    """
    share, column = _array(result, "neu_segment_share"), _QUANTITIES.index(quantity)
    ax.plot(share, _array(result, "neu_segment")[:, column], color=BLUE, marker="o", label=_lengths(result))
    if "neu_segment_endless" in result.arrays:
        endless = _array(result, "neu_segment_endless")[:, column]
        ax.plot(share, endless, color=ORANGE, marker="s", linestyle="--", label="endless contexts")
    if quantity == "MSTDE":
        for at in ("the true value", "the least possible"):
            for finding in result.find("mstde", at=at):
                if (y := _number(finding.estimate)) > SMALLEST:  # without a discount the true value has none
                    named_line(ax, y, at, above=at == "the true value", place=0.6)
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    plain_ticks(ax, "y")
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["theta*", ".25", ".5", ".75", "checkpoint"])
    ax.set(title=quantity, xlabel="share of the way", ylabel="squared reward")
    ax.legend(loc="best")
    return ax


def plane_figure(ax: Axes, result: Result, plane: str, quantity: str) -> Axes:
    """NEU or MSTDE over a plane through theta*, darker where it is larger; its least cell is marked.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with `neu_plane_...`.
        plane: `checkpoint` or `discount`.
        quantity: `NEU` or `MSTDE`.
    """
    along, across = _array(result, f"neu_plane_{plane}_axes")
    height = _array(result, f"neu_plane_{plane}")[..., _QUANTITIES.index(quantity)].T
    finite = np.isfinite(height)
    low = max(float(height[finite].min(initial=1.0)), SMALLEST)
    high = float(height[finite].max(initial=low))
    norm = LogNorm(low, np.clip(high, _FLATTEST * low, DEEPEST * low))
    mesh = ax.pcolormesh(along, across, height, norm=norm, cmap="Blues")
    ax.contour(
        along, across, np.where(finite, height, np.nan), levels=_levels(norm), colors=GREY, linewidths=0.5
    )
    least = np.unravel_index(np.where(finite, height, np.inf).argmin(), height.shape)
    ax.plot(along[least[1]], across[least[0]], marker="x", color=RED, linestyle="none", label="least here")
    star = (0.0, 0.0) if plane == "checkpoint" else (1.0, float(across[len(across) // 2]))
    ax.plot(*star, marker="*", markersize=9, color=ORANGE, mec=INK, linestyle="none", label="theta*")
    if plane == "checkpoint":
        ax.plot(1, 0, marker="o", color=BLUE, mec=INK, linestyle="none", label="checkpoint")
    bar = colour_bar(ax, mesh)
    ticks = _levels(norm)[::2].tolist()
    bar.set_ticks(ticks)
    bar.set_ticklabels([readable(x) for x in ticks])
    bar.minorticks_off()
    ax.set(title=quantity, xlabel=_PLANES[plane][0], ylabel=_PLANES[plane][1])
    return ax


def depth_figure(ax: Axes, result: Result) -> Axes:
    """NEU of theta* against depth, one curve a context length: first n, then L to infinity.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with `neu_depth`.
    """
    curves, lengths = _array(result, "neu_depth"), _array(result, "neu_depth_lengths")
    depth = np.arange(curves.shape[1])
    for number, (curve, n) in enumerate(zip(curves, lengths, strict=True)):
        shade = INK if n == 0 else SHADES[number % len(SHADES)]
        ax.plot(
            depth,
            np.maximum(curve, SMALLEST),
            color=shade,
            marker=MARKERS[number],
            markevery=10,
            linestyle="--" if n == 0 else "-",
            label="endless contexts" if n == 0 else f"n = {int(n):,}",
        )
    if "neu_depth_checkpoint" in result.arrays:
        own = np.maximum(_array(result, "neu_depth_checkpoint"), SMALLEST)
        ax.plot(depth, own, color=RED, linestyle=":", label="checkpoint, endless contexts")
    ax.set_yscale("log")
    plain_ticks(ax, "y")
    ax.set(xlabel="layers L", ylabel="NEU of theta* (squared reward)")
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return ax


def _levels(norm: LogNorm) -> NDArray[np.float64]:
    return np.geomspace(float(norm.vmin or SMALLEST), float(norm.vmax or 1), 11)[1:-1]


def _array(result: Result, name: str) -> NDArray[np.float64]:
    values: NDArray[np.float64] = result.arrays[name].values.double().numpy()
    return values


def _lengths(result: Result) -> str:
    places = [str(f.index.get("contexts", "")) for f in result.find("neu_task")]
    return next(iter(places), "contexts of this length")


def _number(estimate: object) -> float:
    return float(estimate) if isinstance(estimate, int | float) else float("nan")
