"""What a mark says when it is pointed at: invisible targets over a drawing, each with its words, in SVG coordinates.

They are made from a drawn figure, so no figure has to name its marks twice. Browsers show the words of a target as
they are; the script of a page shows them at once.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle, StepPatch

from valuelens.analyses.report._mark_words import (
    Panel,
    hidden_label,
    label_of,
    line_color,
    line_points,
    marked_lines,
    named,
    panel,
)
from valuelens.analyses.report._numbers import interval_words, readable

MOST = 400
"""About so many marks of a figure answer; of more, every second, third, ... of each line."""

MOST_CELLS = 600
"""Cells of a figure that answer one by one; of more, each map is one target that holds the words of all its cells."""

MOST_HELD = 6000
"""Cells of a figure whose words are held; of more, none answers."""

_RADIUS = 5
_TOLD = "_valuelens_told"


def tell(artist: Artist, words: Sequence[str], *, whole: bool = True) -> None:
    """Say what the marks of an artist mean, where its axes do not: a name, the exact number behind a drawn one.

    Args:
        artist: A line, or the cells of a map.
        words: One for each point, or for each cell row by row; newlines part lines.
        whole: Instead of what the axes say; else above it.
    """
    setattr(artist, _TOLD, (list(words), whole))


def known(x: float | int) -> str:
    """A number for readers, also where there is none.

    Args:
        x: May be NaN or infinite.

    Example:
        >>> known(0.25), known(float("nan")), known(float("inf"))
        ('0.25', 'unknown', 'infinite')
    """
    return readable(x) if np.isfinite(x) else "unknown" if x != x else "infinite"


def hover_layer(figure: Figure) -> str:
    """An SVG group of invisible targets with their words; empty where a figure has no marks.

    Args:
        figure: Already drawn, so that everything has its place.
    """
    shown = [ax for ax in figure.axes if ax.get_visible() and ax.axison and ax.get_label() != "<colorbar>"]
    meshes = [(ax, each) for ax in shown for each in ax.collections if isinstance(each, QuadMesh)]
    cells = sum(int(np.size(np.asarray(mesh.get_array()))) for _, mesh in meshes)
    points = sum(int(np.size(line.get_xdata())) for ax in shown for line in marked_lines(ax))
    page = _Page(figure=figure, every=max(1, -(-points // MOST)))
    for ax in shown:
        words = panel(ax)
        for mesh in (each for at, each in meshes if at is ax and cells <= MOST_HELD):
            (_cells if cells <= MOST_CELLS else _plane)(page, ax, words, mesh)
        for container in ax.containers:
            if isinstance(container, BarContainer):
                _bars(page, ax, words, container)
        for patch in ax.patches:
            if isinstance(patch, StepPatch):
                _stairs(page, ax, words, patch)
        for line in marked_lines(ax):
            _line(page, ax, words, line)
    if not page.targets:
        return ""
    return f'<g class="hover" fill="none" stroke="none" pointer-events="all">{"".join(page.targets)}</g>'


def svg_places(figure: Figure, pixels: Any) -> Any:
    """Where pixels of a figure [point 2] stand in its SVG document, whose y runs down.

    Args:
        figure: Already drawn.
        pixels: As the transforms of an Axes give them.
    """
    points = np.asarray(pixels, dtype=float) * 72 / figure.dpi
    return np.column_stack([points[:, 0], 72 * figure.get_figheight() - points[:, 1]])


@dataclass(kw_only=True, slots=True)
class _Page:
    """Where targets are gathered, and the way from pixels to SVG coordinates."""

    figure: Figure
    every: int
    targets: list[str] = field(default_factory=list)

    def places(self, ax: Axes, points: Any) -> Any:
        return svg_places(self.figure, ax.transData.transform(points))

    def mark(self, place: Any, words: Sequence[str]) -> None:
        x, y = place
        self.targets.append(f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{_RADIUS}">{_titled(words)}</circle>')

    def cell(self, ax: Axes, corners: Sequence[Any], words: Sequence[str], more: str = "") -> None:
        """A rectangle between two corners, no larger than its panel; `more` attributes."""
        limits = np.sort([ax.get_xlim(), ax.get_ylim()], axis=1).T
        (x0, y0), (x1, y1) = self.places(ax, np.clip(np.asarray(corners, dtype=float), *limits))
        place = f'x="{min(x0, x1):.2f}" y="{min(y0, y1):.2f}"'
        size = f'width="{abs(x1 - x0):.2f}" height="{abs(y1 - y0):.2f}"'
        self.targets.append(f"<rect {place} {size}{more}>{_titled(words)}</rect>")


def _cells(page: _Page, ax: Axes, words: Panel, mesh: QuadMesh) -> None:
    corners = np.asarray(mesh.get_coordinates(), dtype=float)
    said = _cell_words(ax, words, mesh)
    for (row, column), lines in zip(
        np.ndindex(corners.shape[0] - 1, corners.shape[1] - 1), said, strict=True
    ):
        if lines:
            page.cell(ax, (corners[row, column], corners[row + 1, column + 1]), lines)


def _plane(page: _Page, ax: Axes, words: Panel, mesh: QuadMesh) -> None:
    """One target over a map: where its columns and rows end, and what its cells say, line by line.

    A line that is the same down every column is held once a column (`x`), one that is the same along every row once
    a row (`y`), any other once a cell (`v`).
    """
    corners = np.asarray(mesh.get_coordinates(), dtype=float)
    said = _cell_words(ax, words, mesh)
    across, up = (page.places(ax, edge)[:, k] for k, edge in enumerate((corners[0], corners[:, 0])))
    data = {
        "across": np.round(across, 2).tolist(),
        "up": np.round(up, 2).tolist(),
        "silent": [k for k, lines in enumerate(said) if not lines],
        "lines": _held(said, columns=len(across) - 1),
    }
    held = escape(json.dumps(data, ensure_ascii=False, separators=(",", ":")), quote=False).replace(
        "'", "&#39;"
    )
    summary = _title_of(ax, mesh)
    page.cell(ax, (corners[0, 0], corners[-1, -1]), [summary], more=f" data-plane='{held}'")


def _held(said: list[list[str]], *, columns: int) -> list[dict[str, list[str]]]:
    most = max(map(len, said))
    found: list[dict[str, list[str]]] = []
    for line in range(most):
        grid = [lines[line] if line < len(lines) else None for lines in said]
        rows = [grid[k : k + columns] for k in range(0, len(grid), columns)]
        for key, groups in (("x", list(zip(*rows, strict=True))), ("y", rows)):
            kinds = [{each for each in group if each is not None} for group in groups]
            if max(map(len, kinds)) <= 1:
                found.append({key: [next(iter(kind), "") for kind in kinds]})
                break
        else:
            found.append({"v": [each or "" for each in grid]})
    return found


def _cell_words(ax: Axes, words: Panel, mesh: QuadMesh) -> list[list[str]]:
    """What each cell says, row by row, in lines; nothing where it has no number."""
    corners = np.asarray(mesh.get_coordinates(), dtype=float)
    values: Any = np.ma.filled(np.ma.asarray(mesh.get_array(), dtype=float), np.nan)
    values = values.reshape(corners.shape[0] - 1, corners.shape[1] - 1)
    name, said, nothing = _title_of(ax, mesh), list[list[str]](), 1e-9 * np.ptp(corners, axis=(0, 1))
    for k, ((row, column), value) in enumerate(np.ndenumerate(values)):
        said.append([])
        if not np.isfinite(value):
            continue
        middle = (corners[row, column] + corners[row + 1, column + 1]) / 2
        x, y = np.where(np.abs(middle) < nothing, 0.0, middle).tolist()
        told = _told(mesh, k, [*words.where(x, y), named(name, readable(float(value)))])
        said[-1] += [line for each in told for line in each.split("\n")]
    return said


def _title_of(ax: Axes, mesh: QuadMesh) -> str:
    return hidden_label(mesh, "") or ax.get_title(loc="left") or ax.get_title()


def _bars(page: _Page, ax: Axes, words: Panel, container: BarContainer) -> None:
    along, up = (1, 0) if container.orientation == "horizontal" else (0, 1)
    scales = (words.x, words.y)
    boxes = [patch for patch in container.patches if isinstance(patch, Rectangle)]
    for box in boxes:
        low = np.array(box.get_xy(), dtype=float)
        high = low + np.array([box.get_width(), box.get_height()])
        middle, size = float(low[along] + high[along]) / 2, float((high - low)[up])
        span = interval_words(float(low[along]), float(high[along]))
        place = named(scales[along].title, span) if len(boxes) > 1 else scales[along].words(middle)
        if size:
            said = [label_of(container), place, named(scales[up].title, readable(size))]
            page.cell(ax, (low, high), said)


def _stairs(page: _Page, ax: Axes, words: Panel, patch: StepPatch) -> None:
    values, edges, base = patch.get_data()
    for value, low, high in zip(values, edges[:-1], edges[1:], strict=True):
        if value:
            place = named(words.x.title, interval_words(float(low), float(high)))
            said = [label_of(patch), place, named(words.y.title, readable(float(value)))]
            page.cell(ax, ((low, base or 0), (high, value)), said)


def _line(page: _Page, ax: Axes, words: Panel, line: Line2D) -> None:
    points, name, color = line_points(line), words.name(line), line_color(line)
    places = page.places(ax, points)
    low, high = np.sort([ax.get_xlim(), ax.get_ylim()], axis=1).T
    seen = np.isfinite(places).all(-1) & (points >= low).all(-1) & (points <= high).all(-1)
    for k in np.flatnonzero(seen)[:: page.every].tolist():
        x, y = map(float, points[k])
        said = _told(line, k, [*words.where(x, y), *words.spans(color, x, y)])
        page.mark(places[k], [name, *said])


def _told(artist: Artist, k: int, axes: Sequence[str]) -> list[str]:
    words, whole = getattr(artist, _TOLD, (None, False))
    return [*axes] if words is None else [words[k]] if whole else [words[k], *axes]


def _titled(words: Sequence[str]) -> str:
    said = "\n".join(filter(None, words))
    return f"<title>{escape(said, quote=False)}</title>"
