"""Figures of opaque models: what each layer shows, how patches are answered, and where heads look."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from valuelens.analyses._result import Finding, Result
from valuelens.analyses.report._hover import known, tell
from valuelens.analyses.report._numbers import interval_words, readable
from valuelens.analyses.report._style import BLUE, GREEN, GREY, MARKERS, ORANGE, PURPLE, RED, named_line

QUANTITIES = (
    "v_l(S_j)",
    "v_l(S_j+1)",
    "TD error of v_l",
    "x(S_j+1)",
    "R_j+1",
    "R_j, one column late",
    "v_pi(S_j)",
    "v_pi(S_j+1)",
)
"""What is drawn, each in its own panel; iterates are those of weighted softmax TD."""

_RULE = "weighted softmax TD"
_LAYERS = (BLUE, GREEN, PURPLE, ORANGE)


def decoding_figure(ax: Axes, result: Result, quantity: str) -> Axes:
    """R^2 of one quantity by layer, beside an untrained network and the labels of another context.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with `decodability` and `selectivity`.
        quantity: One of `QUANTITIES`.
    """
    found = [f for f in result.find("decodability", quantity=quantity) if f.index.get("rule", _RULE) == _RULE]
    layers = [_place(f) for f in found]
    for against, color, marker in (("an untrained network", ORANGE, "s"), ("another context", GREY, "x")):
        beside = [f for f in result.find("selectivity", quantity=quantity, against=against) if f.control]
        ax.plot(
            [_place(f) for f in beside],
            [_number(f.control.estimate if f.control else None) for f in beside],
            color=color,
            marker=marker,
            mfc="none",
            linestyle=":",
            label=f"{against} (control)" if against.startswith("an ") else f"labels of {against} (control)",
        )
    ax.plot(layers, [_number(f.estimate) for f in found], color=BLUE, marker="o", label="the model")
    for finding, layer in zip(found, layers, strict=True):
        if finding.interval:
            ax.vlines(layer, *finding.interval, color=BLUE, linewidth=1.2)
        if "iterate" in finding.index:
            ax.annotate(
                f"v{finding.index['iterate']}",
                (layer, max(_number(finding.estimate), 0.0)),
                xytext=(0, 5),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=7.5,
            )
    ax.set_ylim(-0.12, 1.18)
    ax.set_xticks(layers, ["emb." if layer < 0 else str(layer) for layer in layers])
    ax.set_title(quantity)
    return ax


def patch_figure(ax: Axes, result: Result) -> Axes:
    """Changes of returned values, predicted and measured, with a random direction of the same norm.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with the array `patch_responses`.
    """
    layers = [int(f.index["layer"]) for f in _patched(result)]
    values = result.arrays["patch_responses"].values.numpy()
    limit = 1.1 * float(np.quantile(np.abs(values[:, 0]), 0.999)) or 1.0
    ax.axline((0, 0), slope=1, color=GREY, linestyle=(0, (6, 3)), linewidth=1)
    for k, (layer, (predicted, measured, random)) in enumerate(zip(layers, values, strict=True)):
        step = max(1, predicted.size // 250)
        x = predicted.ravel()[::step]
        ax.plot(
            x,
            np.clip(random.ravel()[::step], -limit, limit),
            color=RED,
            marker="x",
            markersize=2.5,
            alpha=0.35,
            linestyle="none",
            label=None if k else "a random direction (control)",
        )
        ax.plot(
            x,
            np.clip(measured.ravel()[::step], -limit, limit),
            color=_LAYERS[k % len(_LAYERS)],
            marker=MARKERS[k % len(MARKERS)],
            markersize=3,
            alpha=0.6,
            linestyle="none",
            label=f"patched after layer {layer}",
        )
    ax.fmt_ydata = lambda y: readable(y) if abs(y) < limit else f"{readable(y)} or beyond"
    ax.set(
        xlim=(-limit, limit),
        ylim=(-1.05 * limit, 1.05 * limit),
        xlabel="change that TD predicts",
        ylabel="measured change",
    )
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    return ax


def head_figure(ax: Axes, result: Result) -> Axes:
    """Attention that each head shares with the kernel of the rule, beside even attention.

    Args:
        ax: Where to draw.
        result: Of one checkpoint, with `head_agreement`.
    """
    found = result.find("head_agreement")
    for asks, color, marker in (("S_j", BLUE, "o"), ("S_j+1", GREEN, "^")):
        for k, finding in enumerate(f for f in found if f.index["asks"] == asks):
            place = int(finding.index["layer"]) + 0.16 * (int(finding.index["head"]) - 1.5)
            label = None if k else f"a head, kernel asked with {asks}"
            (mark,) = ax.plot(
                place, _number(finding.estimate), color=color, marker=marker, linestyle="none", label=label
            )
            where = f"layer {finding.index['layer']}, head {finding.index['head']}"
            between = f" (95 %: {interval_words(*finding.interval)})" if finding.interval else ""
            tell(mark, [f"{where}: {known(_number(finding.estimate))}{between}"])
            if finding.interval:
                ax.vlines(place, *finding.interval, color=color, linewidth=1.2)
    evens = [
        _number(f.control.estimate[0]) for f in found if f.control and isinstance(f.control.estimate, list)
    ]
    named_line(ax, float(np.mean(evens)), "even attention (control)")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="layer, its heads side by side", ylabel="shared attention", ylim=(0, 1.05))
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=1)
    return ax


def _patched(result: Result) -> list[Finding]:
    found = result.find("patch_response", memory="current", response="returned values")
    return [f for f in found if f.estimate is not None]


def _place(finding: Finding) -> int:
    layer = finding.index["layer"]
    return layer if isinstance(layer, int) else -1


def _number(estimate: object) -> float:
    return float(estimate) if isinstance(estimate, int | float) else float("nan")
