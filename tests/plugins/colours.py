"""What in a figure only its colour tells from another."""

from collections.abc import Callable
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure


def colours_alone(figure: Figure) -> list[str]:
    """Lines (bars) of one panel that differ in colour and in nothing else: mark, dash, filling (hatch, edge)."""
    from valuelens.analyses.report._mark_words import line_color, marked_lines  # not before the type checks

    found = []
    for ax in figure.axes:
        looks: dict[tuple[Any, ...], set[str]] = {}
        for line in (each for each in marked_lines(ax) if len(each.get_xdata())):
            hollow, joined = str(line.get_markerfacecolor()) == "none", line.get_linestyle() != "None"
            dash = line._unscaled_dash_pattern if joined else None
            looks.setdefault((line.get_marker(), hollow, str(dash)), set()).add(line_color(line))
        for patch in ax.patches:
            shape = (type(patch).__name__, patch.get_hatch() or "", patch.get_linestyle(), patch.get_fill())
            looks.setdefault(shape, set()).add(to_hex(patch.get_facecolor()))
        found += [f"{ax.get_title(loc='left')}: {look}" for look, shades in looks.items() if len(shades) > 1]
    return found


@pytest.fixture(scope="session")
def told_by_colour_alone() -> Callable[[Figure], list[str]]:
    """What in a figure only its colour tells from another; of a good one nothing."""
    return colours_alone
