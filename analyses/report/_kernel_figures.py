"""Figures of attention: between the states of the example context, and in very long contexts.

Shape legend: `x` any number of values.
"""

from typing import Any

import numpy as np
import seaborn as sns
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy import ndarray

from valuelens.analyses._result import Result
from valuelens.analyses.report._style import (
    BLUE,
    GREY,
    HATCH,
    INK,
    LEGIBLE,
    ORANGE,
    cell_text,
    discount_of,
    framed,
)


def population_diagonal_figure(ax: Axes, result: Result, layer: int) -> Axes:
    """How much of its attention a state gives to itself in very long contexts, against Assumption 5.1.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with `population_diagonal`.
        layer: Row of the array: always 0 where layers are tied.
    """
    diagonal = result.arrays["population_diagonal"].values.numpy()[layer]
    _histogram(ax, diagonal.ravel(), "every state of every task", color=BLUE, fill=True, alpha=0.4)
    _histogram(ax, diagonal.min(-1), "least state of each task", color=ORANGE, hatch=HATCH, linestyle="--")
    marks = [(1 / diagonal.shape[-1], "even attention (control)", ":")]
    gamma = discount_of(result)
    if gamma is not None:
        marks.append(((1 + gamma) / 2, "threshold (1 + gamma) / 2 of Assumption 5.1", "--"))
    for x, label, line in marks:
        ax.axvline(x, color=INK, linestyle=line, linewidth=1.2, label=f"{label} = {x:.3g}")
    ax.set(xlabel="population kernel diagonal (share of attention)", ylabel="share (%)", xlim=(0, 1))
    return ax


def example_kernel_figure(ax: Axes, result: Result) -> Axes:
    """Attention between the states of the example context; hatched are states that never were a source.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with `example_kernel`.
    """
    kernel = result.arrays["example_kernel"].values.numpy()
    states = range(len(kernel))
    legible = len(kernel) <= LEGIBLE
    sns.heatmap(
        kernel,
        ax=ax,
        annot=np.array([[cell_text(x) for x in row] for row in kernel]) if legible else None,
        fmt="",
        annot_kws={"fontsize": 6.5},
        cmap="Blues",
        vmin=0,
        vmax=1,
        cbar=False,
        square=True,
        linewidths=0.4,
        linecolor="#d8d8d8",
        xticklabels=False,
        yticklabels=False,
    )
    for state in sorted(set(states) - set(_sources(result, len(kernel)))):
        ax.add_patch(
            Rectangle((state, 0), 1, len(kernel), fill=False, hatch=HATCH, edgecolor=GREY, linewidth=0)
        )
    framed(ax, [str(state) for state in states])
    ax.set(xlabel="state that is attended to", ylabel="state that attends")
    return ax


def _histogram(ax: Axes, values: Float[ndarray, "x"], label: str, **style: Any) -> None:
    counts, edges = np.histogram(values, bins=np.linspace(0, 1, 41))
    ax.stairs(100 * counts / counts.sum(), edges, label=label, linewidth=1.2, **style)


def _sources(result: Result, count: int) -> list[int]:
    states = result.arrays.get("example_states")
    return list(range(count)) if states is None else [int(state) for state in states.values[:-1]]
