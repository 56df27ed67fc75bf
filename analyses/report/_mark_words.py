"""What a mark of a panel is called and where it stands, in the words of its axes, its legend and its bars."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from valuelens.analyses.report._numbers import interval_words, readable

_NEAR = 1e-6
_BESIDE = 0.45
"""How far from its row or column a mark may stand beside others."""

_INTERVAL = "interval"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Bar:
    """A straight line from low to high at a place across (`along` 0) or up (1)."""

    along: int
    place: float
    low: float
    high: float
    what: str
    color: str

    def holds(self, point: tuple[float, float]) -> bool:
        across, value = point[self.along], point[1 - self.along]
        return abs(self.place - across) <= _NEAR * max(1.0, abs(across)) and self.low <= value <= self.high


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """How a reader names places on an axis.

    Attributes:
        title: Of the axis, or of the outer panel that speaks for it.
        told: Words of a place, where the panel has its own.
        named: Ticks that were given a text each.
        near: How far from a tick its name holds.
    """

    title: str
    told: Callable[[float], str] | None
    named: dict[float, str]
    near: float

    def words(self, value: float) -> str:
        """A place with the axis' title, or nothing where neither a tick nor a number can name it.

        Args:
            value: In data units.
        """
        return named(self.title, self.reading(value))

    def reading(self, value: float) -> str:
        """A place alone.

        Args:
            value: In data units.
        """
        if self.told is not None:
            return str(self.told(value))
        if not self.named:
            return readable(value)
        nearest = min(self.named, key=lambda tick: abs(tick - value))
        if abs(nearest - value) <= self.near:
            return self.named[nearest]
        return readable(value) if _is_number(self.named[nearest], nearest) else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """The words of one panel, gathered once.

    Attributes:
        x: Names places across.
        y: Names places up.
        bars: Intervals.
        labels: Of looks, as a legend has them.
    """

    x: Scale
    y: Scale
    bars: list[_Bar]
    labels: dict[tuple[Any, ...], str]

    def where(self, x: float, y: float) -> list[str]:
        """A place on both axes.

        Args:
            x, y: In data units.
        """
        return [self.x.words(x), self.y.words(y)]

    def spans(self, color: str, x: float, y: float) -> list[str]:
        """The bars of a mark's own colour that hold it.

        Args:
            color: Of the mark.
            x, y: In data units.
        """
        held = [bar for bar in self.bars if bar.color == color and bar.holds((x, y))]
        return list(dict.fromkeys(f"{bar.what}: {interval_words(bar.low, bar.high)}" for bar in held))

    def name(self, line: Line2D) -> str:
        """The label of a line; of one without, that of a line of the same looks.

        Args:
            line: In the panel.
        """
        return label_of(line) or hidden_label(line, "") or self.labels.get(_looks(line), "")


def panel(ax: Axes) -> Panel:
    """The words of a panel.

    Args:
        ax: Already drawn.
    """
    return Panel(x=_scale(ax, ax.xaxis), y=_scale(ax, ax.yaxis), bars=_bars(ax), labels=_labels(ax))


def marked_lines(ax: Axes) -> list[Line2D]:
    """Lines whose points are data: not thresholds, not the bars of intervals, not their caps.

    Args:
        ax: A panel.
    """
    errors = [each for each in ax.containers if isinstance(each, ErrorbarContainer)]
    caps = {id(cap) for container in errors for cap in container.lines[1]}
    return [
        line
        for line in ax.lines
        if type(line) is Line2D
        and line.get_visible()
        and line.get_transform() == ax.transData
        and id(line) not in caps
        and not _is_guide(line)
    ]


def line_points(line: Line2D) -> Any:
    """Its data [point 2] as float64.

    Args:
        line: Of numbers.
    """
    return np.column_stack([np.asarray(each, dtype=float) for each in line.get_data(orig=False)])


def line_color(line: Line2D) -> str:
    """As #rrggbb.

    Args:
        line: Any.
    """
    return to_hex(line.get_color())


def label_of(artist: Artist | BarContainer | ErrorbarContainer) -> str:
    """What a legend would say; empty if nothing.

    Args:
        artist: Any.
    """
    label = str(artist.get_label())
    return "" if label.startswith("_") or label == "None" else label


def hidden_label(artist: Artist, default: str) -> str:
    """A label that no legend shows, for marks that need words there only: it begins with `_`.

    Args:
        artist: Any.
        default: Where it has none.
    """
    label = str(artist.get_label())
    made = label.startswith(("_child", "_nolegend_")) or not label.startswith("_")
    return default if made else label[1:]


def named(name: str, value: str) -> str:
    """`name: value`, or what there is of it.

    Example:
        >>> named("layer", "3"), named("", "3"), named("layer", "")
        ('layer: 3', '3', '')
    """
    return ": ".join(filter(None, (name, value))) if value else ""


def _scale(ax: Axes, axis: Axis) -> Scale:
    across = axis is ax.xaxis
    names = _named_ticks(axis)
    apart = np.diff(sorted(names))
    told = ax.fmt_xdata if across else ax.fmt_ydata
    near = _BESIDE if np.allclose(apart, 1) else _NEAR
    return Scale(title=_title(ax, across=across), told=told, named=names, near=near)


def _named_ticks(axis: Axis) -> dict[float, str]:
    formatter = axis.get_major_formatter()
    if not (isinstance(formatter, FuncFormatter) and isinstance(formatter.func, functools.partial)):
        return {}
    texts = [label.get_text() for label in axis.get_ticklabels()]
    return dict(zip(map(float, axis.get_majorticklocs()), texts, strict=False))


def _title(ax: Axes, *, across: bool) -> str:
    """Of an axis, or of the nearest panel of its column (row) that has one: outer panels speak for inner ones."""
    own, place = _own_title(ax, across=across), _place(ax)
    spec = ax.get_subplotspec()
    if own or place is None or spec is None:
        return own
    found = []
    for each in ax.figure.axes:
        other, there = each.get_subplotspec(), _place(each)
        if other is None or there is None or other.get_gridspec() is not spec.get_gridspec():
            continue
        if there[not across] == place[not across] and _own_title(each, across=across):
            found.append((abs(there[across] - place[across]), _own_title(each, across=across)))
    return min(found, default=(0, ""))[1]


def _own_title(ax: Axes, *, across: bool) -> str:
    return ax.get_xlabel() if across else ax.get_ylabel()


def _place(ax: Axes) -> tuple[int, int] | None:
    """Column and row of a panel."""
    spec = ax.get_subplotspec()
    return None if spec is None else (spec.colspan.start, spec.rowspan.start)


def _bars(ax: Axes) -> list[_Bar]:
    found = []
    for each in ax.collections:
        if isinstance(each, LineCollection) and each.get_transform() == ax.transData:
            color, what = to_hex(np.asarray(each.get_color())[0]), hidden_label(each, _INTERVAL)
            found += [bar for segment in each.get_segments() for bar in _straight(segment, what, color)]
        elif isinstance(each, PolyCollection):
            found += _band(each)
    for line in ax.lines:
        if _is_guide(line) and line.get_transform() == ax.transData and not label_of(line):
            found += _straight(line_points(line), hidden_label(line, _INTERVAL), line_color(line))
    return found


def _straight(segment: Any, what: str, color: str) -> list[_Bar]:
    """A segment as a bar, if it stands upright or lies flat."""
    ends = np.asarray(segment, dtype=float)
    for along in (0, 1) if len(ends) == 2 else ():
        if ends[0, along] == ends[1, along] and ends[0, 1 - along] != ends[1, 1 - along]:
            low, high = sorted(ends[:, 1 - along].tolist())
            return [
                _Bar(along=along, place=float(ends[0, along]), low=low, high=high, what=what, color=color)
            ]
    return []


def _band(band: PolyCollection) -> list[_Bar]:
    """The height of a shaded band at each of its corners."""
    faces, found = np.asarray(band.get_facecolor()), []
    for path in band.get_paths() if len(faces) else []:
        corners = np.asarray(path.vertices, dtype=float)
        for place in np.unique(corners[np.isfinite(corners).all(-1), 0]):
            there = corners[corners[:, 0] == place, 1]
            low, high = float(there.min()), float(there.max())
            what = hidden_label(band, _INTERVAL)
            if low < high:
                color = to_hex(faces[0])
                found.append(_Bar(along=0, place=float(place), low=low, high=high, what=what, color=color))
    return found


def _is_guide(line: Line2D) -> bool:
    """Two points, joined, without marks."""
    return len(np.asarray(line.get_xdata())) == 2 and line.get_marker() in ("None", "none", None, "", " ")


def _labels(ax: Axes) -> dict[tuple[Any, ...], str]:
    """What the panel's own lines and the legends of the figure say of looks; the panel's own word counts."""
    found = {}
    root = ax.get_figure(root=True)
    for legend in root.legends if root is not None else ():
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            if isinstance(handle, Line2D):
                found[_looks(handle)] = text.get_text()
    for container in ax.containers:
        if isinstance(container, ErrorbarContainer) and isinstance(container.lines[0], Line2D):
            found[_looks(container.lines[0])] = label_of(container)
    return {**found, **{_looks(line): label_of(line) for line in reversed(ax.lines) if label_of(line)}}


def _looks(line: Line2D) -> tuple[Any, ...]:
    face = line.get_markerfacecolor()
    filled = "none" if str(face) == "none" else to_hex(face)
    return line_color(line), str(line.get_marker()), str(line.get_linestyle()), line.get_linewidth(), filled


def _is_number(text: str, tick: float) -> bool:
    """Whether a tick is named by its own number."""
    try:
        return abs(float(text.replace(",", "")) - tick) <= _NEAR * max(1.0, abs(tick))
    except ValueError:
        return False
