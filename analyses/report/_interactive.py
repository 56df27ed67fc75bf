"""What the script of a page needs to let readers choose: the numbers behind the value lens and the map of hops.

The drawings are complete without it. Numbers are those of the result, rounded as everywhere in a report.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from valuelens.analyses._result import Finding, Result
from valuelens.analyses.report._costate_figures import chosen_layers, layer_name
from valuelens.analyses.report._hop_figures import FAINTEST
from valuelens.analyses.report._hover import svg_places
from valuelens.analyses.report._mark_words import marked_lines
from valuelens.analyses.report._numbers import interval_words, readable

MOST_NUMBERS = 20_000
"""Cells of all maps that a page holds; of more, only the layers of the figure beside them."""

_SHADES = 32


def lens_data(figure: Figure, result: Result) -> str:
    """Every reference's values by layer, with controls and intervals, in words, and where layers stand in the drawing.

    Args:
        figure: The value lens, drawn.
        result: Of one checkpoint, with `value_lens`.
    """
    ax = figure.axes[0]
    found = result.find("value_lens")
    count = max(len(_listed(f.estimate)) for f in found)
    return _embedded(
        {
            "kind": "lens",
            "title": "Value lens, layer by layer",
            "layers": ["the input", *(f"layer {layer}" for layer in range(count - 1))],
            "x": np.round(_across(figure, ax, count), 2).tolist(),
            "y": np.round(svg_places(figure, ax.transAxes.transform([[0, 0], [0, 1]]))[:, 1], 2).tolist(),
            "lines": [_line(ax, result, finding, count) for finding in found],
        }
    )


def hops_data(figure: Figure, result: Result) -> str:
    """Norm and share of every layer, hop and state, and the colours of the map.

    Args:
        figure: The figures of credit by hop.
        result: Of a language model, with the table `hops`.
    """
    table = result.tables["hops"].sort_values(["layer", "hop", "state"])
    layers = sorted(int(layer) for layer in table["layer"].unique())
    shown = layers if len(table) <= MOST_NUMBERS else chosen_layers(layers)
    grids = {layer: table[table["layer"] == layer] for layer in shown}
    first = grids[shown[0]]
    shape = (first["hop"].nunique(), first["state"].nunique())
    blues = colormaps["Blues"](np.linspace(0, 1, _SHADES))
    return _embedded(
        {
            "kind": "hops",
            "title": "Credit by hop, layer by layer",
            "layers": [layer_name(result, layer) for layer in shown],
            "left": len(layers) - len(shown),
            "norm": [_grid(grid["norm"], shape) for grid in grids.values()],
            "share": [_grid(grid["share"], shape) for grid in grids.values()],
            "n": first["n"].tolist()[: shape[1]],
            "whole": [[_share(result, layer, hop) for hop in range(shape[0])] for layer in shown],
            "floor": FAINTEST,
            "shades": [to_hex(shade) for shade in blues],
        }
    )


def _line(ax: Axes, result: Result, finding: Finding, count: int) -> dict[str, Any]:
    reference, control = str(finding.index["reference"]), finding.control
    name = f"against the {reference}"
    drawn = [line.get_gid() for line in marked_lines(ax) if line.get_label() == name]
    beside = control.estimate if control else None
    return {
        "name": name,
        "id": drawn[0] if drawn else "",
        "values": _words(finding.estimate, count),
        "control": control.name if control else "",
        "controls": _words(beside if isinstance(beside, list) else [beside] * count, count),
        "last": _interval(result) if reference == "true value" else "",
    }


def _interval(result: Result) -> str:
    """That of the last layer, the only one that has it."""
    for finding in result.find("msve_ratio")[:1]:
        if finding.interval:
            return interval_words(*finding.interval)
    return ""


def _share(result: Result, layer: int, hop: int) -> str:
    for finding in result.find("hop_share", layer=layer, hop=hop)[:1]:
        between = f" (95 %: {interval_words(*finding.interval)})" if finding.interval else ""
        return f"{readable(finding.estimate if isinstance(finding.estimate, int | float) else None)}{between}"
    return ""


def _across(figure: Figure, ax: Axes, count: int) -> Any:
    middle = np.full(count, sum(ax.get_ylim()) / 2)
    return svg_places(figure, ax.transData.transform(np.column_stack([np.arange(count), middle])))[:, 0]


def _grid(column: Any, shape: tuple[int, int]) -> list[list[float | None]]:
    """Three digits are kept."""
    values = column.to_numpy(dtype=float).reshape(shape)
    return [[float(f"{x:.3g}") if np.isfinite(x) else None for x in row] for row in values]


def _words(estimate: object, count: int) -> list[str]:
    numbers = _listed(estimate)
    return [readable(x) if isinstance(x, int | float) else "" for x in [*numbers, *[None] * count][:count]]


def _listed(estimate: object) -> Sequence[object]:
    return estimate if isinstance(estimate, list) else [estimate]


def _embedded(data: dict[str, Any]) -> str:
    """JSON that may stand inside a script element: no `<` in it."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace(
        "<", "\\u003c"
    )
