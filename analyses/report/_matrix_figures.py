"""Figures of weights: the model's matrices beside those of theta*.

Shape legend: `D` slots (features, reward, target memory, current memory).
"""

from dataclasses import dataclass

import numpy as np
import seaborn as sns
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy import ndarray

from valuelens.analyses._result import Result
from valuelens.analyses.report._hover import known, tell
from valuelens.analyses.report._style import GREY, HATCH, LEGIBLE, cell_text, framed

Square = Float[ndarray, "D D"]

_LINEAR = ("P", "Q")
_PAPER = {
    "A": ("slot of the destination (query)", "slot of the source (key)"),
    "Q": ("slot of the destination (query)", "slot of the source (key)"),
    "V": ("slot that is read", "slot that is written"),
    "V_target": ("slot that is read", "slot that is written"),
    "P": ("slot that is read", "slot that is written"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A matrix of the model and the one that theory has in its place.

    Attributes:
        layer: From 0, or `all` where layers are tied.
        name: A, V, V_target, P or Q.
        own: The model's.
        theory: That of theta* (theta_TD), at the fitted scale if there is one.
        scale: In words, such as `alpha = 1.34`.
        hidden: Entries that are unidentified.
        slots: Names of rows and columns.
    """

    layer: int | str
    name: str
    own: Square
    theory: Square
    scale: str
    hidden: Bool[ndarray, "D D"]
    slots: list[str]


def matrix_pairs(result: Result) -> list[list[Pair]]:
    """Per layer (once for tied layers) every matrix beside that of theta*(alpha, c) or theta_TD(alpha).

    Entries are unidentified where the arrays `identified_A`, `identified_V` say so.

    Args:
        result: Of one checkpoint, with its matrices.
    """
    names = [name for name in _PAPER if name in result.arrays]
    if not names:
        return []
    tied = bool(result.find("step_size", layer="all") or result.find("sign_pattern", layer="all"))
    count = 1 if tied else len(result.arrays[names[0]].values)
    return [
        [_pair(result, name, layer, "all" if tied else layer) for name in names] for layer in range(count)
    ]


def matrix_figure(ax: Axes, pair: Pair, *, theory: bool = False, limit: float) -> Axes:
    """One matrix with slot names and values, blue below zero and red above; hatched where unidentified.

    Args:
        ax: Where to draw.
        pair: Matrix of the model and of theory.
        theory: Draw that of theory.
        limit: Value of the darkest colours.
    """
    values = pair.theory if theory else pair.own
    legible = len(values) <= LEGIBLE
    numbers = np.array([[cell_text(x) for x in row] for row in np.where(pair.hidden, 0, values)])
    sns.heatmap(
        np.where(pair.hidden, 0, values),
        ax=ax,
        annot=numbers if legible else None,
        fmt="",
        annot_kws={"fontsize": 7 if len(values) <= 8 else 5.5},
        cmap="RdBu_r",
        vmin=-limit,
        vmax=limit,
        cbar=False,
        square=True,
        linewidths=0.4,
        linecolor="#d8d8d8",
        xticklabels=False,
        yticklabels=False,
    )
    for i, j in zip(*np.nonzero(pair.hidden), strict=True):
        _hatch(ax, int(j), int(i))
    framed(ax, pair.slots)
    tell(ax.collections[0], _cell_words(pair, values))
    across, down = _PAPER[pair.name]
    where = "all layers" if pair.layer == "all" else f"layer {pair.layer}"
    title = f"{_theory(pair)}, {pair.scale}" if theory else f"{pair.name} of the model, {where}"
    ax.set(title=title, xlabel=across, ylabel=down)
    return ax


def _cell_words(pair: Pair, values: Square) -> list[str]:
    across, down = _PAPER[pair.name]
    return [
        f"{down}: {pair.slots[i]}\n{across}: {pair.slots[j]}\n"
        f"{'unidentified' if pair.hidden[i, j] else known(float(value))}"
        for (i, j), value in np.ndenumerate(values)
    ]


def _pair(result: Result, name: str, layer: int, index: int | str) -> Pair:
    own = result.arrays[name].values[layer].double().numpy()
    theory, scale = (_linear_theory if name in _LINEAR else _star)(result, name, own, index)
    return Pair(
        layer=index,
        name=name,
        own=own,
        theory=theory,
        scale=scale,
        hidden=_hidden(result, name, layer, len(own)),
        slots=_linear_slots(len(own)) if name in _LINEAR else _softmax_slots(len(own)),
    )


def _star(result: Result, name: str, own: Square, index: int | str) -> tuple[Square, str]:
    star = np.zeros_like(own)
    if name == "A":
        c, words = _fitted(result, "sharpness", "c", index)
        np.fill_diagonal(star[:-3, :-3], c)
        return star, words
    alpha, words = _fitted(result, "step_size", "alpha", index)
    star[-1 if name == "V" else -2, -3:] = np.array([1.0, 1.0, -1.0]) * alpha
    return star, words


def _linear_theory(result: Result, name: str, own: Square, index: int | str) -> tuple[Square, str]:
    star, d = np.zeros_like(own), len(own) // 2
    row = 0 if index == "all" else int(index)
    p = float(result.arrays["P"].values[row, -1, -1])
    if name == "P":
        star[-1, -1] = p
        return star, f"p = {p:.3g}"
    alpha, words = _fitted(result, "step_size", "alpha", index)
    star[range(d), range(d)], star[range(d), range(d, 2 * d)] = -alpha / (p or 1), alpha / (p or 1)
    return star, words


def _fitted(result: Result, name: str, symbol: str, index: int | str) -> tuple[float, str]:
    for finding in result.find(name, layer=index):
        if isinstance(finding.estimate, int | float) and finding.estimate > 0:
            return float(finding.estimate), f"{symbol} = {finding.estimate:.3g}"
    return 1.0, f"{symbol} = 1 (no fit)"


def _hidden(result: Result, name: str, layer: int, size: int) -> Bool[ndarray, "D D"]:
    known = result.arrays.get(f"identified_{name}")
    return np.zeros((size, size), dtype=bool) if known is None else ~known.values[layer].bool().numpy()


def _softmax_slots(size: int) -> list[str]:
    return [*(f"x{i + 1}" for i in range(size - 3)), "reward", "target", "current"]


def _linear_slots(size: int) -> list[str]:
    d = size // 2
    return [*(f"x{i + 1}" for i in range(d)), *(f"gamma x'{i + 1}" for i in range(d)), "reward"]


def _theory(pair: Pair) -> str:
    return "theta_TD" if pair.name in _LINEAR else "theta*"


def _hatch(ax: Axes, column: int, row: int) -> None:
    ax.add_patch(
        Rectangle((column, row), 1, 1, facecolor="#efefef", hatch=HATCH, edgecolor=GREY, linewidth=0)
    )
