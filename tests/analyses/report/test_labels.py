"""Names beside points cover neither each other nor a point, as far as there is room."""

from itertools import combinations

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from valuelens.analyses.report._labels import named_points

WIDE = 3.7


@pytest.fixture
def ax() -> Axes:
    ax = Figure(figsize=(WIDE, 3)).subplots()
    ax.set(xlim=(0, 10), ylim=(0, 1))
    return ax


def test_names_do_not_cover_each_other(ax: Axes) -> None:
    x, y = [5.0, 5.0, 5.3, 9.7], [0.5, 0.53, 0.51, 0.5]
    named_points(ax, x, y, [f"step-{k}000" for k in range(1, 5)])
    ax.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert sorted(text.get_text() for text in ax.texts) == ["1,000", "2,000", "3,000", "4,000"]
    assert [one.overlaps(other) for one, other in combinations(boxes, 2)] == [False] * 6
    assert max(box.x1 for box in boxes) <= ax.bbox.x1


def test_one_name_stands_right_above_its_point(ax: Axes) -> None:
    named_points(ax, [5.0], [0.5], ["base"])
    (text,) = ax.texts
    assert (text.get_text(), text.xy, text.get_ha(), text.get_va()) == ("base", (5.0, 0.5), "left", "bottom")
