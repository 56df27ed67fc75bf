"""Figures of an identification: what every rule leaves unexplained in each layer, and of each response."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from numpy.typing import NDArray

from valuelens.analyses._result import Result
from valuelens.analyses.report._hover import known, tell
from valuelens.analyses.report._style import colour_bar, plain_ticks

LEAST, MOST = 1e-6, 1.0
"""Errors below and above are drawn as these."""


def rule_error_figure(ax: Axes, result: Result) -> Axes:
    """Held-out error of every rule in every layer: dark where a rule explains what the layer does.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with the array `rule_errors`.
    """
    errors = result.arrays["rule_errors"].values.numpy()
    columns = [str(layer) for layer in range(errors.shape[1])] if errors.shape[1] > 1 else ["all"]
    _grid(ax, errors, _rules(result), columns)
    ax.set_xlabel("layer")
    return ax


def response_figure(ax: Axes, result: Result) -> Axes:
    """Squared error of every rule's response to every intervention, as a share of the network's response.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with the array `response_errors`.
    """
    errors = result.arrays["response_errors"].values.numpy().T
    names = [str(finding.index["intervention"]) for finding in result.find("rule_response")]
    _grid(ax, errors, _rules(result), names)
    ax.tick_params(axis="x", rotation=35)
    for label in ax.get_xticklabels():
        label.set_horizontalalignment("right")
    return ax


def _rules(result: Result) -> list[str]:
    return [str(finding.index["rule"]) for finding in result.find("rule_error", scored="layer by layer")]


def _grid(ax: Axes, errors: NDArray[np.float64], rows: list[str], columns: list[str]) -> Axes:
    drawn = np.clip(np.nan_to_num(errors, nan=np.nan, posinf=MOST), LEAST, MOST)
    edges = [np.arange(size + 1) - 0.5 for size in reversed(drawn.shape)]
    mesh = ax.pcolormesh(*edges, drawn, cmap="Blues_r", norm=LogNorm(LEAST, MOST))
    tell(
        mesh,
        [
            f"{rows[row]}, {columns[column]}\nunexplained: {known(float(error))}"
            for (row, column), error in np.ndenumerate(errors)
        ],
    )
    for (row, column), error in np.ndenumerate(errors):
        shade = "white" if drawn[row, column] < 1e-2 else "black"
        ax.text(column, row, _cell(float(error)), ha="center", va="center", fontsize=7, color=shade)
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    ax.invert_yaxis()
    ax.grid(visible=False)
    plain_ticks(colour_bar(ax, mesh).ax, "y")
    return ax


def _cell(error: float) -> str:
    if np.isnan(error):
        return "-"
    if error < LEAST:
        return "0"
    if error > MOST:
        return ">1"
    return f"{error:.0e}".replace("e-0", "e-") if error < 0.01 else f"{error:.2f}"
