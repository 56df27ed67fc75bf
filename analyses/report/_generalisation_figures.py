"""Figure of generalisation: how a model does on tasks unlike those of its training."""

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from valuelens.analyses._result import Finding, Result
from valuelens.analyses.report._hover import tell
from valuelens.analyses.report._numbers import interval_words, readable
from valuelens.analyses.report._style import BLUE, GREEN, GREY, ORANGE, RED, SOFT, plain_ticks

LIMIT = 20.0
"""Larger ratios are drawn here, as an arrow."""

_OWN = {
    "context": ("the model, whole contexts", "o", BLUE),
    "query": ("the model, at the query", "o", "white"),
}
_RIVALS = (("s", ORANGE), ("D", GREEN), ("x", RED))


def generalisation_figure(ax: Axes, result: Result) -> Axes:
    """Value error under every shift as a multiple of the constant predictor's, with rivals on the same contexts.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with `generalisation`.
    """
    names = list(dict.fromkeys(str(f.index["shift"]) for f in result.find("generalisation")))
    for of, (label, marker, face) in _OWN.items():
        for finding in result.find("generalisation", of=of):
            row = names.index(str(finding.index["shift"])) + (0.14 if of == "context" else -0.2)
            _model(ax, finding, row, marker, face, label)
    for finding in result.find("generalisation", of="context"):
        _rivals(ax, finding, names.index(str(finding.index["shift"])) + 0.14)
    ax.axvline(1, color=GREY, linestyle=(0, (6, 3)), linewidth=1, zorder=1)
    name = "constant predictor (control) "
    ax.annotate(name, (1, -0.85), ha="right", va="top", fontsize=8, color=SOFT)
    ax.set_xscale("log")
    ax.set_xlim(right=1.3 * LIMIT if ax.get_xlim()[1] > LIMIT else None)
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    plain_ticks(ax, "x")
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.9)
    ax.set(xlabel="mean squared value error / the constant predictor's")
    handles, labels = ax.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    ax.legend(once.values(), once.keys(), loc="upper center", bbox_to_anchor=(0.4, -0.12), ncols=2)
    return ax


def _model(ax: Axes, finding: Finding, row: float, marker: str, face: str, label: str) -> None:
    estimate = finding.estimate
    if not isinstance(estimate, int | float):
        return
    low, high = finding.interval or (estimate, estimate)
    ax.plot([min(low, LIMIT), min(high, LIMIT)], [row, row], color=BLUE, linewidth=1.2)
    beyond = estimate > LIMIT
    (mark,) = ax.plot(
        min(estimate, LIMIT),
        row,
        color=BLUE,
        marker=">" if beyond else marker,
        mfc=face,
        linestyle="none",
        label=f"_{label}" if beyond else label,
    )
    between = f" (95 %: {interval_words(low, high)})" if finding.interval else ""
    tell(mark, [f"{finding.index['shift']}: {readable(estimate)}{between}"])


def _rivals(ax: Axes, finding: Finding, row: float) -> None:
    control = finding.control
    if control is None or not isinstance(control.estimate, list):
        return
    for name, ratio, (marker, color) in zip(control.name.split(", "), control.estimate, _RIVALS, strict=True):
        if isinstance(ratio, int | float):
            beyond = ratio > LIMIT
            (mark,) = ax.plot(
                min(ratio, LIMIT),
                row,
                color=color,
                marker=">" if beyond else marker,
                linestyle="none",
                alpha=0.8,
                label=f"{'_' * beyond}{name}, whole contexts",
            )
            tell(mark, [f"{finding.index['shift']}: {readable(ratio)}"])
