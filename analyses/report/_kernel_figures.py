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
    RED,
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


def state_diagonal_figure(ax: Axes, result: Result, layer: int) -> Axes:
    """Mean diagonal of every state, in very long contexts and in the contexts that were seen.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with `population_diagonal`, `empirical_diagonal` and `stationary`.
        layer: Row of the arrays: always 0 where layers are tied.
    """
    population, empirical = (
        result.arrays[f"{name}_diagonal"].values.numpy()[layer] for name in ("population", "empirical")
    )
    states = np.arange(population.shape[-1])
    for values, label, color, marker, shift in (
        (population, "very long contexts", BLUE, "o", -0.1),
        (empirical, "the contexts seen, where visited", ORANGE, "s", 0.1),
    ):
        seen = np.where(
            np.isnan(values).all(0), 0.0, values
        )  # nanquantile warns of states that no context holds
        middle, low, high = np.where(
            np.isnan(values).all(0), np.nan, np.nanquantile(seen, [0.5, 0.05, 0.95], axis=0)
        )
        style: dict[str, Any] = {"color": color, "marker": marker, "linestyle": "none", "capsize": 2}
        ax.errorbar(states + shift, middle, [middle - low, high - middle], label=label, linewidth=1, **style)
    even = result.arrays["stationary"].values.numpy().mean(0)
    ax.plot(states, even, color=RED, marker="x", linestyle=":", linewidth=1, label="even attention (control)")
    gamma = discount_of(result)
    if gamma is not None:
        label = "(1 + gamma) / 2 of Assumption 5.1"
        ax.axhline((1 + gamma) / 2, color=INK, linestyle="--", linewidth=1.2, label=label)
    ax.set_xticks(states, [str(state) for state in states])
    ax.fmt_xdata = lambda x: str(round(x))
    ax.set(xlabel="state", ylabel="share of attention on itself", ylim=(0, 1.02))
    return ax


def contraction_share_figure(ax: Axes, result: Result) -> Axes:
    """On how many tasks Assumption 5.1 holds, and on how many the update contracts, with exact intervals.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with `assumption_share`; the last layer is drawn.
    """
    rows = {
        "Assumption 5.1 holds": result.find("assumption_share"),
        "infinity norm below 1": result.find("contraction_share", by="infinity norm"),
        "spectral radius below 1": result.find("contraction_share", by="spectral radius"),
    }
    known = {label: found[-1] for label, found in rows.items() if found and found[-1].interval}
    for place, finding in enumerate(known.values()):
        x, (low, high) = float(str(finding.estimate)), finding.interval or (np.nan, np.nan)
        ax.barh(place, x, height=0.5, color=BLUE, alpha=0.4)
        ax.errorbar(x, place, xerr=[[x - low], [high - x]], color=BLUE, marker="o", capsize=3, linewidth=1.2)
        control = float(str(finding.control.estimate)) if finding.control else np.nan
        label = "control: even attention, or w = (1, 1, -1)" if place == 0 else None
        ax.plot(control, place - 0.33, color=RED, marker="x", linestyle="none", label=label)
    ax.set_yticks(range(len(known)), list(known))
    ax.set(xlabel="share of tasks, in very long contexts", xlim=(-0.02, 1.03), ylim=(len(known) - 0.4, -0.6))
    ax.legend(loc="upper center", bbox_to_anchor=(0.4, -0.3))
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
    ax.collections[0].set_label("_share of attention")
    ax.set(xlabel="state that is attended to", ylabel="state that attends")
    return ax


def _histogram(ax: Axes, values: Float[ndarray, "x"], label: str, **style: Any) -> None:
    counts, edges = np.histogram(values, bins=np.linspace(0, 1, 41))
    ax.stairs(100 * counts / counts.sum(), edges, label=label, linewidth=1.2, **style)


def _sources(result: Result, count: int) -> list[int]:
    states = result.arrays.get("example_states")
    return list(range(count)) if states is None else [int(state) for state in states.values[:-1]]
