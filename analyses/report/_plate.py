"""A figure yet to be drawn."""

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from valuelens.analyses._result import Result
from valuelens.analyses.report._style import blank


@dataclass(frozen=True, kw_only=True, slots=True)
class Plate:
    """A figure yet to be drawn.

    Attributes:
        section: Of the report.
        needs: Findings, arrays or tables without which it is left out.
        draw: Called inside `styled()`.
        caption: What is shown and how to read it.
        says: Findings that tell in words what it shows.
        run: Whether it is about a whole run.
        applies: Whether what it needs is enough: a table may be empty.
        tells: What it shows in this result, in words, instead of what the findings say.
        remark: What the caption adds for this result, such as what was left out.
        explored: Numbers for the script of a page, of the drawn figure; a drawing is complete without.
    """

    section: str
    needs: tuple[str, ...]
    draw: Callable[[Result], Figure]
    caption: str
    says: tuple[str, ...]
    run: bool = False
    applies: Callable[[Result], bool] = lambda result: True
    tells: Callable[[Result], str] | None = None
    remark: Callable[[Result], str] | None = None
    explored: Callable[[Figure, Result], str] | None = None


def one(
    draw: Callable[[Axes, Result], Axes], height: float, *, width: float = 6.6
) -> Callable[[Result], Figure]:
    """A figure of one panel."""

    def plate(result: Result) -> Figure:
        figure = blank(width, height)
        draw(figure.subplots(), result)
        return figure

    return plate
