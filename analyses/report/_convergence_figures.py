"""Figures of convergence: errors against depth, against context length, and beyond the trained depth.

Shape legend: `band` mean, lower and upper limit; `point` of a curve.
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy import ndarray

from valuelens.analyses._result import Result
from valuelens.analyses.report._numbers import readable
from valuelens.analyses.report._style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, named_line, plain_ticks

_LAW = -0.5
_PREDICTED = {
    "depth_predicted_radius": ("predicted: start times spectral radius^l", GREEN, "--"),
    "depth_predicted_norm": ("predicted bound: start times infinity norm^l", RED, ":"),
    "depth_predicted_bound": ("predicted bound from the kernel diagonal alone", PURPLE, "-."),
}
_BELOW, _ABOVE = 0.3, 3.0
"""How far the drawn range reaches beyond the measured curves, as factors: bounds may leave it."""
_BOTTOM, _TOP, _CEILING = 1e-10, 1e6, 1e12
"""Range in which measured curves are shown; what is larger than the ceiling has diverged and is not drawn."""


def depth_error_figure(ax: Axes, result: Result) -> Axes:
    """Largest errors after every layer, measured and predicted, and the floor that depth cannot pass.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with `depth_true_value`.
    """
    truth = _array(result, "depth_true_value")
    drawn = [_banded(ax, np.arange(truth.shape[1]), truth, "measured, to the true value", BLUE, "o")]
    if "depth_fixed_point" in result.arrays:
        own = _array(result, "depth_fixed_point")
        label = "measured, to the fixed point of the context"
        drawn.append(_banded(ax, np.arange(own.shape[1]), own, label, ORANGE, "s"))
        for name, (label, color, line) in _PREDICTED.items():
            curve = _array(result, name)
            ax.plot(curve, color=color, linestyle=line, linewidth=1.2, label=label)
            drawn.append(curve[:1])
        floor = float(_array(result, "depth_floor")[0])
        named_line(ax, floor, "fixed point to true value (floor)", place=0.45, above=False)
        drawn.append(np.array([floor]))
    controls = [f.control for f in result.find("depth_error", reference="true value") if f.control]
    if controls and isinstance(controls[0].estimate, int | float):
        named_line(ax, float(controls[0].estimate), f"{controls[0].name} (control)")
    _logarithmic(ax, drawn)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="layers so far", ylabel="largest error over the states of a context")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    return ax


def context_error_figure(ax: Axes, result: Result) -> Axes:
    """Largest errors against context length, with the slope of the statistical law.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with `context_lengths`.
    """
    lengths = _array(result, "context_lengths")
    curves = {
        "context_error_covered": ("model, every state visited", BLUE, "o"),
        "context_error": ("model, all contexts", GREEN, "^"),
        "context_limit_covered": ("model to its own limit", ORANGE, "s"),
        "context_chain_covered": ("empirical chain (control)", GREY, "x"),
    }
    drawn = []
    for name, (label, color, marker) in curves.items():
        curve = _array(result, name)
        if np.isfinite(curve[0]).any():
            drawn.append(_banded(ax, lengths, curve, f"{label}{_slope_words(result, name)}", color, marker))
    chain = _array(result, "context_chain_covered")[0]
    last = np.flatnonzero(np.isfinite(chain))[-1:]
    for place in last:
        law = chain[place] * (lengths / lengths[place]) ** _LAW
        ax.plot(lengths, law, color=GREY, linestyle=":", linewidth=1, label="law, slope -0.5")
    ax.set_xscale("log")
    _logarithmic(ax, drawn)
    ax.set_xticks(lengths, [f"{int(n):,}" for n in lengths])
    ax.minorticks_off()
    ax.set(xlabel="transitions in a context", ylabel="largest error over the states of a context")
    if drawn:
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    return ax


def extrapolation_figure(ax: Axes, result: Result) -> Axes:
    """Largest errors of the tied layer repeated up to 60 times.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with `extrapolation`.
    """
    own = _array(result, "extrapolation")
    trained = int(result.arrays["trained_depth"].values[0])
    drawn = [_banded(ax, np.arange(own.shape[1]), own, "the model's layer, repeated", BLUE, "")]
    if "extrapolation_control" in result.arrays:
        control = _array(result, "extrapolation_control")
        label = "the same kernel with w = (1, 1, -1) (control)"
        ax.plot(control, color=RED, linestyle="-.", linewidth=1.2, label=label)
        drawn.append(control)
    controls = [f.control for f in result.find("depth_error", reference="true value") if f.control]
    if controls and isinstance(controls[0].estimate, int | float):
        named_line(ax, float(controls[0].estimate), f"{controls[0].name} (control)")
    ax.axvline(trained, color=GREY, linestyle=(0, (6, 3)), linewidth=1, label=f"trained depth, {trained}")
    _logarithmic(ax, drawn)
    ax.set(xlabel="layers", ylabel="largest error over the states of a context")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    return ax


_SLOPES = {
    "context_error_covered": "true value",
    "context_limit_covered": "limit of its own values in endless contexts",
}


def _slope_words(result: Result, curve: str) -> str:
    found = result.find("floor_slope", reference=_SLOPES.get(curve, ""))
    for estimate in [finding.estimate for finding in found]:
        if isinstance(estimate, int | float):
            return f", slope {readable(estimate)}"
    for finding in result.find("floor_slope")[:1] if curve == "context_chain_covered" else []:
        if finding.control and isinstance(finding.control.estimate, int | float):
            return f", slope {readable(finding.control.estimate)}"
    return ""


def _array(result: Result, name: str) -> Any:
    values = result.arrays[name].values.double().numpy()
    return np.where(values < _CEILING, values, np.nan)


def _banded(
    ax: Axes,
    x: Float[ndarray, "point"] | Any,
    band: Float[ndarray, "3 point"],
    label: str,
    color: str,
    marker: str,
) -> Any:
    """A curve with its 95 % interval over tasks shaded."""
    mean, low, high = band
    ax.plot(x, mean, color=color, marker=marker or None, label=label)
    ax.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)
    return mean


def _logarithmic(ax: Axes, drawn: list[Any]) -> None:
    """A logarithmic scale that shows the measured curves; predictions may leave it."""
    values = np.concatenate([*drawn, np.empty(0)])
    shown = values[(values > _BOTTOM) & (values < _TOP)]
    ax.set_yscale("log")
    if len(shown):
        ax.set_ylim(_BELOW * shown.min(), _ABOVE * shown.max())
    plain_ticks(ax, "y")
