"""Figure of emergence: from which optimiser step on each property lasts."""

from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from valuelens.analyses._result import Result
from valuelens.analyses.report._hover import tell
from valuelens.analyses.report._numbers import readable
from valuelens.analyses.report._style import BLUE, GREY, INK, plain_ticks
from valuelens.analyses.report._training_figures import seed_marks

_NEVER = 2.2
"""Where a property that does not last is drawn, in units of the last step."""

_WIDE = 28
"""Characters of a line of a property's name: on a phone its marks shall not lie far off the screen."""

_SPREAD = 0.6
"""Height over which the seeds of one property are spread, so that those at one checkpoint do not hide each other."""


def timeline_figure(ax: Axes, result: Result) -> Axes:
    """From which step each property lasts, every seed a mark, with the mean over seeds and its interval.

    Args:
        ax: Where to draw.
        result: Of a run, with `emergence_step` and the table `emergence`.
    """
    names, marks = _in_order(result), seed_marks(result)
    last = max(1, int(result.tables["emergence"]["step"].max()))
    for place, (seed, marker) in enumerate(marks):
        shift = _SPREAD * (place / (len(marks) - 1) - 0.5) if len(marks) > 1 else 0.0
        for finding in result.find("emergence_step", seed=seed):
            row = names.index(str(finding.index["property"])) + shift
            mark = _seed(ax, finding.estimate, _NEVER * last, row, marker)
            step = readable(finding.estimate) if isinstance(finding.estimate, int | float) else "never"
            tell(mark, [f"{finding.index['property']}\nseed {seed}, from step: {step}"])
    for finding in result.find("emergence_over_seeds"):
        if isinstance(finding.estimate, int | float):
            row = names.index(str(finding.index["property"]))
            ax.plot(
                finding.estimate,
                row,
                color=INK,
                marker="|",
                markersize=13,
                zorder=3,
                label="_mean over seeds",
            )
            if finding.interval:
                ax.plot(finding.interval, [row, row], color=INK, linewidth=1.2, zorder=3)
    return _finished(ax, names, last)


def _seed(ax: Axes, step: object, never: float, row: float, marker: str) -> Line2D:
    if isinstance(step, int | float):
        return ax.plot(step, row, color=BLUE, marker=marker, linestyle="none")[0]
    return ax.plot(never, row, color=GREY, marker=marker, mfc="none", linestyle="none")[0]


def _in_order(result: Result) -> list[str]:
    """Properties as `emergence_order` has them, then the others."""
    order = [f.estimate for f in result.find("emergence_order") if isinstance(f.estimate, list)]
    names = [str(name) for ordered in order for name in ordered]
    every = dict.fromkeys(str(f.index["property"]) for f in result.find("emergence_step"))
    return names + [name for name in every if name not in names]


def _finished(ax: Axes, names: list[str], last: int) -> Axes:
    ax.axvline(1.5 * last, color=GREY, linewidth=1)
    ax.annotate("never", (_NEVER * last, -0.75), ha="center", va="top", fontsize=8)
    ax.set_yticks(range(len(names)), [fill(name, _WIDE) for name in names])
    ax.set_ylim(len(names) - 0.5, -0.8)
    ax.set_xscale("symlog", linthresh=1)
    ax.set_xlim(-0.2, 1.5 * _NEVER * last)
    plain_ticks(ax, "x")
    ax.set(xlabel="optimiser step from which the property lasts")
    return ax
