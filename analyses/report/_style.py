"""How every figure looks: one palette, one type size, marks that differ by more than colour, and SVG text.

Figures are drawn on `Figure` objects inside `styled()`, never through pyplot, so nothing stays behind.
"""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from valuelens.analyses._result import Result
from valuelens.analyses.report._hover import hover_layer

BLUE, ORANGE, GREEN, RED, PURPLE, BROWN = "#0065a2", "#c57a04", "#22a172", "#c03a00", "#c872bc", "#996a3d"
INK, GREY, SOFT, FAINT, GRID = "#222222", "#767676", "#555555", "#949494", "#e4e4e4"
SHADES = ("#07295c", "#0b4fa0", "#2a75c8", "#5a97d8")
"""Blues for what grows, beside marks that differ."""
CARD = ("#ffffff", "#1b2026")
"""What figures lie on in a page, light and dark."""
PAGE_COLOURS = (
    (BLUE, "#4f9fe0"),
    (ORANGE, "#f2b040"),
    (GREEN, "#35c495"),
    (RED, "#e8672e"),
    (PURPLE, "#e8a3de"),
    (BROWN, "#b98a60"),
    (INK, "#e4e7eb"),
    (GREY, "#98a2ad"),
    (SOFT, "#b4bcc6"),
    (FAINT, "#757f8a"),
    (GRID, "#333a43"),
    *zip(SHADES, ("#d3e6f8", "#a6cdf2", "#79b3ea", "#4d95d8"), strict=True),
)
"""Every colour of lines, marks and words, and what stands for it on a dark page: a test measures their contrast, and
that no two look alike to those who see fewer colours."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", ":", "-.")
HATCH = "////"
LEGIBLE = 13
"""Larger matrices are drawn without numbers in their cells."""
UNIT = "mean squared difference / mean squared true value"

_FAMILY = "DejaVu Sans"
_SYSTEM_FONTS = "Helvetica, Arial, sans-serif"
_STYLE: dict[Any, Any] = {
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "figure.facecolor": "none",
    "font.family": [_FAMILY],
    "font.size": 9,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "valuelens",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
}


@contextmanager
def styled() -> Iterator[None]:
    """The look of our figures, for the length of a block."""
    with matplotlib.rc_context({**sns.axes_style("ticks"), **_STYLE}):
        yield


def blank(width: float, height: float) -> Figure:
    """An empty figure of so many inches that arranges itself."""
    return Figure(figsize=(width, height), layout="constrained")


def svg_text(figure: Figure) -> str:
    """The figure as an SVG document, the same bytes every time; text stays text in a font that every system has.

    Over it lie the targets of `hover_layer`, which say what is pointed at.

    Args:
        figure: Drawn inside `styled()`; call this inside it too.
    """
    buffer = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "Glyph .* missing from font"
        )  # it only measures; the browser has the glyphs
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = re.sub(rf"'{_FAMILY}'(, [a-z-]+)?", _SYSTEM_FONTS, buffer.getvalue())
    return svg.replace("</svg>", f"{hover_layer(figure)}</svg>")


def plain_ticks(ax: Axes, axis: str) -> None:
    """Numbers instead of powers on a logarithmic axis, and no minor ticks.

    Args:
        ax: Whose axis.
        axis: `x` or `y`.
    """
    which = ax.xaxis if axis == "x" else ax.yaxis
    which.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,g}".replace("e-0", "e-")))
    which.set_minor_locator(NullLocator())


def named_line(ax: Axes, y: float, name: str, *, place: float = 0.99, above: bool = True) -> None:
    """A horizontal line with its name on it: thresholds and controls.

    Args:
        ax: Where.
        y: Height in data units.
        name: Written on the line.
        place: Of the name's end, as a share of the width.
        above: Whether the name stands above the line.
    """
    ax.axhline(y, color=GREY, linestyle=(0, (6, 3)), linewidth=1, zorder=1)
    ax.annotate(
        name,
        (place, y),
        xycoords=("axes fraction", "data"),
        xytext=(0, 2 if above else -2),
        textcoords="offset points",
        ha="right",
        va="bottom" if above else "top",
        fontsize=8,
        color=SOFT,
    )


def discount_of(result: Result) -> float | None:
    """gamma of the tasks, as far as a result tells.

    Args:
        result: From its configuration, else from the control of the effective discount.
    """
    gamma = result.provenance.get("config", {}).get("task", {}).get("gamma")
    controls = [f.control.estimate for f in result.find("effective_discount") if f.control]
    found = gamma if gamma is not None else next(iter(controls), None)
    return float(found) if isinstance(found, int | float) else None


def few_layers(count: int) -> list[int]:
    """First, middle and last of so many layers.

    Example:
        >>> few_layers(10), few_layers(2), few_layers(1)
        ([0, 4, 9], [0, 1], [0])
    """
    return sorted({0, (count - 1) // 2, count - 1})


def cell_text(x: float) -> str:
    """What stands in the cell of a matrix: nothing where it is exactly zero."""
    return "" if x == 0 else f"{x:.2f}".replace("-0.00", "0.00")


def colour_bar(ax: Axes, mesh: ScalarMappable) -> Colorbar:
    """A colour bar that stays a drawing: SVG without an image in it.

    Args:
        ax: Beside which it stands.
        mesh: Whose colours it explains.
    """
    bar = ax.figure.colorbar(mesh, ax=ax, pad=0.02)
    bar.outline.set_visible(False)
    if bar.solids is not None:
        bar.solids.set_rasterized(False)
    return bar


def framed(ax: Axes, names: list[str]) -> None:
    """Names of rows and columns on a square matrix, long ones tilted below it; numbers in cells need no room.

    Args:
        ax: With a heat map.
        names: Of the rows, and of the columns.
    """
    for text in ax.texts:
        text.set_in_layout(False)
    centres = [position + 0.5 for position in range(len(names))]
    tilt: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    ax.set_yticks(centres, names)
    ax.set_xticks(centres, names, **(tilt if max(map(len, names)) > 2 else {}))
    ax.tick_params(length=0)
