"""Names beside points, each where it covers no other and no point."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from valuelens.analyses.report._predictors import checkpoint_name
from valuelens.analyses.report._style import SOFT

_SIZE = 7.0
"""Points of the type; a letter is about .58 of it wide."""

_PLACES = ((5, 2), (5, -9), (-5, 2), (-5, -9), (6, 10), (6, -17), (-6, 10), (-6, -17))
"""Of a name's lower near corner, in points from its mark; the sign across says on which side the name stands."""

Box = tuple[float, float, float, float]


def named_points(ax: Axes, x: Sequence[float], y: Sequence[float], labels: Sequence[str]) -> None:
    """Write checkpoints' names beside their marks.

    Args:
        ax: Where; its limits must be set across, and its figure's size known.
        x, y: The marks, in data units.
        labels: Checkpoints.
    """
    across, up = _scales(ax)
    edges = (ax.get_xlim()[0] * across, ax.get_xlim()[1] * across)
    marks = [(a * across, b * up) for a, b in zip(x, y, strict=True)]
    taken: list[Box] = [(a - 3, b - 3, a + 3, b + 3) for a, b in marks]
    for k in sorted(range(len(marks)), key=lambda k: (marks[k][0], -marks[k][1])):
        name = checkpoint_name(labels[k])
        boxes = [_box(marks[k], len(name), place) for place in _PLACES]
        covered = [sum(_overlap(box, other) for other in taken) + _outside(box, edges) for box in boxes]
        best = covered.index(min(covered))
        taken.append(boxes[best])
        side, lift = _PLACES[best]
        style: dict[str, Any] = {"fontsize": _SIZE, "color": SOFT, "zorder": 5}
        ax.annotate(
            name,
            (x[k], y[k]),
            xytext=(side, lift),
            textcoords="offset points",
            ha="left" if side > 0 else "right",
            va="bottom",
            **style,
        )


def _scales(ax: Axes) -> tuple[float, float]:
    """Points of a data unit across and up, from the room that a panel of the figure has, about."""
    width, height = ax.bbox.width / ax.figure.dpi * 72, ax.bbox.height / ax.figure.dpi * 72
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    return width / ((right - left) or 1), height / ((high - low) or 1)


def _box(mark: tuple[float, float], letters: int, place: tuple[int, int]) -> Box:
    width = 0.58 * _SIZE * letters
    left = mark[0] + place[0] if place[0] > 0 else mark[0] + place[0] - width
    return left, mark[1] + place[1], left + width, mark[1] + place[1] + _SIZE


def _outside(box: Box, edges: tuple[float, float]) -> float:
    return _SIZE * (max(0.0, edges[0] - box[0]) + max(0.0, box[2] - edges[1]))


def _overlap(one: Box, other: Box) -> float:
    across = min(one[2], other[2]) - max(one[0], other[0])
    up = min(one[3], other[3]) - max(one[1], other[1])
    return across * up if across > 0 and up > 0 else 0.0
