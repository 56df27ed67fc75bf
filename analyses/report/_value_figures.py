"""Figures of values: the value lens, an example context column by column, and what the TD rule leaves over."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from valuelens.analyses._result import Finding, Result
from valuelens.analyses.report._numbers import readable
from valuelens.analyses.report._style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    RED,
    UNIT,
    named_line,
    plain_ticks,
)

FLOOR = 1e-9
"""Errors below it are drawn at it; exact zeros are not drawn."""

_REFERENCES = {
    "true value": (BLUE, "o", "-"),
    "TD iterate": (ORANGE, "s", "--"),
    "final layer": (GREEN, "^", ":"),
}
_FITS = {
    "weights": ("fitted with the layer's own attention", BLUE, "o", "-"),
    "function": ("fitted to the values alone", ORANGE, "s", "--"),
}


def value_lens_figure(ax: Axes, result: Result) -> Axes:
    """Error of what is read after every layer against each reference, with its controls, on a log scale.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with `value_lens`.
    """
    count = 0
    for k, finding in enumerate(result.find("value_lens")):
        reference, errors = str(finding.index["reference"]), _numbers(finding.estimate)
        color, marker, line = _REFERENCES.get(reference, (INK, "D", "-."))
        count = max(count, len(errors))
        ax.plot(
            _drawable(errors),
            color=color,
            marker=marker,
            linestyle=line,
            label=f"against the {reference}",
            gid=f"lens-{k}",
        )
        _lens_control(ax, finding, f"lens-{k}-control")
    _final_interval(ax, result, count)
    ax.set_yscale("log")
    plain_ticks(ax, "y")
    steps = sorted({0, *np.linspace(0, count - 1, min(count, 11)).round().astype(int).tolist()})
    ax.set_xticks(steps, ["input", *(str(step - 1) for step in steps[1:])])
    ax.fmt_xdata = lambda x: f"{round(x) - 1}" if round(x) else "input"
    ax.set(xlabel="layer after which the value is read", ylabel=UNIT)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    return ax


def _lens_control(ax: Axes, finding: Finding, gid: str) -> None:
    control = finding.control
    if control is None:
        return
    if isinstance(control.estimate, list):
        others = _drawable(_numbers(control.estimate))
        ax.plot(
            others,
            color=RED,
            marker="x",
            linestyle="-.",
            linewidth=1,
            label=f"against {control.name} (control)",
            gid=gid,
        )
    elif finding.index["reference"] == "true value" and isinstance(control.estimate, int | float):
        errors = _numbers(finding.estimate)
        under = errors[len(errors) // 3 :]  # where the words stand
        below = under[-1] > control.estimate or under.max() < control.estimate / 2
        named_line(
            ax, float(control.estimate), f"{control.name} against the true value (control)", above=not below
        )


def _final_interval(ax: Axes, result: Result, count: int) -> None:
    for finding in result.find("msve_ratio")[:1]:
        if finding.interval and isinstance(finding.estimate, int | float):
            low, high = finding.interval
            y = float(finding.estimate)
            ax.errorbar(count - 1, y, [[y - low], [high - y]], color=BLUE, capsize=3, linewidth=1.2)


def batch_td_figure(ax: Axes, result: Result) -> Axes:
    """Values of a linear model against those of batch TD, state by state.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with `state_values` and `batch_td_values`.
    """
    own, td = (result.arrays[name].values.flatten().numpy() for name in ("state_values", "batch_td_values"))
    limits = [float(min(own.min(), td.min())), float(max(own.max(), td.max()))]
    ax.plot(limits, limits, color=GREY, linewidth=1, label="equal values")
    ax.plot(td, own, color=BLUE, marker="o", markersize=2.5, alpha=0.5, linestyle="none", label="a state")
    ax.set(xlabel="value by batch TD", ylabel="value by the model")
    ax.legend(loc="upper left")
    return ax


def example_columns_figure(ax: Axes, result: Result, layer: int) -> Axes:
    """The model's value slots of the example context beside the TD iterates and the true values, by column.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with the example arrays.
        layer: After which the slots are read, from 0.
    """
    slots, iterates, truth = (result.arrays[name].values.numpy() for name in _EXAMPLE)
    columns = np.arange(len(truth))
    ax.step(columns, truth, where="mid", color=GREY, linewidth=1.2, label="true value")
    ax.plot(
        columns,
        iterates[layer + 1],
        color=ORANGE,
        marker="s",
        markersize=7,
        mfc="none",
        linestyle="none",
        label="TD iterate",
    )
    ax.plot(
        columns,
        slots[layer + 1],
        color=BLUE,
        marker="o",
        markersize=3.5,
        linestyle="none",
        label="current memory of the model",
    )
    states = (
        result.arrays["example_states"].values.tolist()
        if "example_states" in result.arrays
        else columns.tolist()
    )
    ax.set_xticks(columns, [str(state) for state in states], fontsize=7)
    ax.set(title=f"after layer {layer}", ylabel="value", xlim=(-0.7, len(truth) - 0.3))
    return ax


def example_scatter_figure(ax: Axes, result: Result, layer: int) -> Axes:
    """Value slots against TD iterates, one mark a column, on the line where both agree.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with the example arrays.
        layer: After which the slots are read, from 0.
    """
    slots, iterates, _ = (result.arrays[name].values.numpy() for name in _EXAMPLE)
    x, y = iterates[layer + 1], slots[layer + 1]
    ends = [min(x.min(), y.min()), max(x.max(), y.max())]
    ax.plot(ends, ends, color=GREY, linestyle=(0, (6, 3)), linewidth=1, label="equal")
    ax.plot(x, y, color=BLUE, marker="o", markersize=3.5, linestyle="none", alpha=0.7)
    ax.annotate(
        f"rms difference {readable(float(np.sqrt(np.mean((x - y) ** 2))))}",
        (0.04, 0.96),
        xycoords="axes fraction",
        va="top",
        fontsize=8,
    )
    ax.set(xlabel="TD iterate", ylabel="current memory")
    ax.xaxis.set_major_locator(MaxNLocator(4))
    return ax


def unexplained_figure(ax: Axes, result: Result) -> Axes:
    """Share of each layer's value updates that the fitted TD rule leaves unexplained, 1 - R2, on a log scale.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with `reparameterisation_r2`.
    """
    controls: dict[int, float] = {}
    for fit, (label, color, marker, line) in _FITS.items():
        known = [
            f for f in result.find("reparameterisation_r2", fit=fit) if isinstance(f.estimate, int | float)
        ]
        layers = [int(f.index["layer"]) for f in known]
        left = _left_over([f.estimate for f in known])
        ax.plot(layers, left, color=color, marker=marker, linestyle=line, label=label)
        for layer, finding in zip(layers, known, strict=True):
            if finding.interval:
                low, high = _left_over(finding.interval[::-1])
                ax.vlines(layer, low, high, color=color, linewidth=1.2)
            if finding.control and isinstance(finding.control.estimate, int | float):
                controls[layer] = float(1 - finding.control.estimate)
    ax.plot(
        list(controls),
        list(controls.values()),
        color=RED,
        marker="x",
        linestyle="-.",
        linewidth=1,
        label="with exchanged rewards (control)",
    )
    named_line(ax, 1.0, "predicting no update")
    ax.set_yscale("log")
    plain_ticks(ax, "y")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="layer", ylabel="unexplained share of updates, 1 - R2")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    return ax


_EXAMPLE = ("example_slots", "example_iterates", "example_truth")


def _left_over(r2: object) -> NDArray[np.float64]:
    unexplained: NDArray[np.float64] = np.maximum(1 - np.asarray(r2, dtype=float), FLOOR)
    return unexplained


def _numbers(estimate: object) -> NDArray[np.float64]:
    values = estimate if isinstance(estimate, list) else [estimate]
    return np.array([np.nan if x is None else x for x in values], dtype=float)


def _drawable(errors: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(errors > 0, np.maximum(errors, FLOOR), np.nan)
