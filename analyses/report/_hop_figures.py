"""Figures of credit by hop: how much of it crosses how many sampled tokens, and where."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm

from valuelens.analyses._result import Result
from valuelens.analyses.report._costate_figures import chosen_layers, layer_name, number
from valuelens.analyses.report._hover import known, tell
from valuelens.analyses.report._style import (
    BLUE,
    BROWN,
    GREEN,
    INK,
    LINES,
    MARKERS,
    ORANGE,
    PURPLE,
    colour_bar,
)

_COLORS = (BLUE, ORANGE, GREEN, PURPLE, BROWN)
FAINTEST = 1e-4
"""Shares of the largest norm below it are drawn as it."""


def hop_share_figure(ax: Axes, result: Result) -> Axes:
    """Share of the relaxed sum by hop, a line a layer, with intervals.

    Args:
        ax: Where to draw.
        result: Of a language model, with `hop_share`.
    """
    found = [f for f in result.find("hop_share") if isinstance(f.estimate, int | float)]
    for k, layer in enumerate(chosen_layers([int(f.index["layer"]) for f in found])):
        mine = [f for f in found if f.index["layer"] == layer]
        shift = 0.06 * k  # so that intervals stand beside each other
        hops = [int(f.index["hop"]) + shift for f in mine]
        style: dict[str, Any] = {
            "color": _COLORS[k],
            "marker": MARKERS[k],
            "linestyle": LINES[k % len(LINES)],
        }
        ax.plot(hops, [number(f.estimate) for f in mine], **style, label=layer_name(result, layer))
        for hop, finding in zip(hops, mine, strict=True):
            if finding.interval:
                ax.vlines(hop, *finding.interval, color=_COLORS[k], linewidth=1.2)
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.set_xticks(sorted({int(f.index["hop"]) for f in found}))
    ax.fmt_xdata = lambda x: str(round(x))
    ax.set(xlabel="sampled tokens crossed", ylabel="share of the relaxed sum")
    ax.legend(loc="upper right")
    return ax


def hop_map_figure(ax: Axes, result: Result) -> Axes:
    """Norm of each hop's credit at each state of the lowest layer, over the largest.

    Args:
        ax: Where to draw.
        result: Of a language model, with the table `hops`.
    """
    table = result.tables["hops"]
    layer = int(table["layer"].min())
    grid = table[table["layer"] == layer].pivot(index="hop", columns="state", values="norm").to_numpy()
    drawn = np.clip(grid / max(float(grid.max()), 1e-300), FAINTEST, 1)
    edges = [np.arange(size + 1) - 0.5 for size in grid.shape[::-1]]
    mesh = ax.pcolormesh(*edges, drawn, cmap="Blues", norm=LogNorm(FAINTEST, 1))
    mesh.set_gid("hop-map")
    tell(mesh, [f"state {s}, hop {h}: norm {known(float(norm))}" for (h, s), norm in np.ndenumerate(grid)])
    bar = colour_bar(ax, mesh)
    bar.set_ticks([1e-4, 1e-3, 1e-2, 0.1, 1], labels=["0.0001", "0.001", "0.01", "0.1", "1"])
    bar.minorticks_off()
    ax.grid(visible=False)
    ax.set_yticks(range(grid.shape[0]))
    ax.set_xticks(np.unique(np.linspace(0, grid.shape[1] - 1, min(grid.shape[1], 8)).round().astype(int)))
    ax.set(xlabel="tokens sampled before it", ylabel="sampled tokens crossed")
    ax.set_title(f"norm / largest norm, {layer_name(result, layer)}").set_gid("hop-map-title")
    return ax
