"""Figures of costates: their size and reach by position, their signal by layer, and what more rollouts would give."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator
from numpy.typing import NDArray

from valuelens.analyses._result import Finding, Result
from valuelens.analyses.report._notes_costates import of_prompts
from valuelens.analyses.report._numbers import readable
from valuelens.analyses.report._style import (
    BLUE,
    BROWN,
    FAINT,
    GREEN,
    GREY,
    INK,
    LINES,
    MARKERS,
    ORANGE,
    PURPLE,
    RED,
    SOFT,
    named_line,
    plain_ticks,
)

AIM = 0.9
"""The cosine between a mean costate and its expectation that `rollouts_needed` asks for."""

_COLORS = (BLUE, ORANGE, GREEN, PURPLE, BROWN)
_SMALL: dict[str, Any] = {"fontsize": 8, "color": SOFT}
_DRAWN = 200
"""Of more states than that, so many are drawn."""


def costate_norm_figure(ax: Axes, result: Result) -> Axes:
    """Norm of a rollout's costate by position, a line a layer; at the shared start state also that of the mean.

    Args:
        ax: Where to draw.
        result: Of a language model, with the table `positions`.
    """
    _by_position(ax, result, "norm")
    table = _positions(result)
    shared = (table["state"] == 0) & (not of_prompts(result.findings))
    start = table[shared & (table["mean_norm"] > 0)]
    for k, layer in enumerate(chosen_layers(table["layer"].unique().tolist())):
        mean = start.loc[start["layer"] == layer, "mean_norm"]
        ax.plot([0] * len(mean), mean, color=_COLORS[k], marker=MARKERS[k], mfc="none", markersize=8)
    if len(start):
        label = "mean of a group at the start state"
        ax.plot([], [], color=INK, marker="o", mfc="none", markersize=8, linestyle="none", label=label)
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_minor_locator(NullLocator())
    plain_ticks(ax, "y")
    ax.set_ylabel("norm of the costate")
    return ax


def locality_figure(ax: Axes, result: Result) -> Axes:
    """Share of a costate that comes from its own token by position, beside credit that is spread evenly.

    Args:
        ax: Where to draw.
        result: Of a language model, with the table `positions`.
    """
    _by_position(ax, result, "locality")
    controls = [f.control for f in result.find("locality") if f.control]
    evens = [c.estimate for c in controls if isinstance(c.estimate, int | float)]
    if evens:
        even, shown = float(np.mean(evens)), _positions(result)["locality"]
        over = min(shown[shown >= even] - even, default=1.0)
        under = min(even - shown[shown < even], default=1.0)
        named_line(ax, even, f"{controls[0].name} (control)", above=even < 0.1 or over > under)
        ax.axhspan(min(evens), max(evens), color=GREY, alpha=0.15, linewidth=0)
    low, high = (_positions(result)["locality"].agg(each) for each in ("min", "max"))
    ax.set(ylim=(min(-0.03, low - 0.05), max(1.05, high + 0.05)), ylabel="share from the own token")
    return ax


def by_layer_figure(ax: Axes, result: Result, name: str, **index: str) -> Axes:
    """A quantity of the start state by layer, with its intervals and beside its controls.

    Args:
        ax: Where to draw.
        result: Of a language model.
        name: Of the findings.
        **index: What their index must hold.
    """
    known = [f for f in result.find(name, **index) if isinstance(f.estimate, int | float)]
    layers = [_layer(f) for f in known]
    ax.plot(layers, [number(f.estimate) for f in known], color=BLUE, marker="o", label="measured", zorder=3)
    for control in dict.fromkeys(f.control.name for f in known if f.control):
        beside = [f for f in known if f.control and f.control.name == control]
        ax.plot(
            [_layer(f) for f in beside],
            [number(f.control.estimate if f.control else None) for f in beside],
            color=RED,
            marker="x",
            linestyle=":",
            label=f"{control} (control)",
        )
    for finding, layer in zip(known, layers, strict=True):
        if finding.interval:
            ax.vlines(layer, *finding.interval, color=BLUE, linewidth=1.2)
    _layer_ticks(ax, result, sorted(set(layers)))
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=1)
    return ax


def rollouts_figure(ax: Axes, result: Result) -> Axes:
    """Cosine with its expectation that the mean of so many rollouts would have, with intervals.

    From the signal-to-noise alone: sqrt(n snr / (1 + n snr)).

    Args:
        ax: Where to draw.
        result: Of a language model, with `signal_to_noise`.
    """
    found = {_layer(f): f for f in result.find("signal_to_noise")}
    drawn = [found[layer] for layer in chosen_layers(list(found))]
    used = group_size(result)
    n = _grid(drawn, used)
    for k, finding in enumerate(drawn):
        _curve(ax, result, finding, n, k)
    _chance(ax, drawn, n)
    named_line(ax, AIM, f"cosine {AIM}", above=False)
    if used:
        ax.axvline(used, color=GREY, linestyle=(0, (2, 2)), linewidth=1, zorder=1)
        ax.annotate(f"{used:,} used", (used, 0), xytext=(3, 3), textcoords="offset points", **_SMALL)
    ax.set_xscale("log")
    plain_ticks(ax, "x")
    ax.set(xlabel="rollouts of one prompt", ylabel="expected cosine", ylim=(0, 1.02), xlim=(1, n[-1]))
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=1)
    return ax


def expected_cosine(signal_to_noise: float, rollouts: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Cosine between the mean of so many rollouts and what they estimate, for a signal-to-noise a rollout.

    The ratio of norms sqrt(|mean|^2 / (|mean|^2 + tr(covariance) / n)): our definition, near the expectation where
    the noise has many directions.

    Args:
        signal_to_noise: Squared norm of the mean / trace of the covariance; below 0 counts as 0.
        rollouts: Numbers of rollouts.

    Example:
        >>> expected_cosine(0.01, 426.3).round(3).item()
        0.9
    """
    times = max(signal_to_noise, 0.0) * np.asarray(rollouts, dtype=float)
    return np.asarray(np.sqrt(times / (1 + times)))


def chosen_layers(layers: list[int]) -> list[int]:
    """At most five of the layers, evenly apart, first and last among them.

    Args:
        layers: Their numbers, in any order.

    Example:
        >>> chosen_layers([0, 15, 22]), chosen_layers(list(range(31)))
        ([0, 15, 22], [0, 8, 15, 22, 30])
    """
    ordered = sorted(set(layers))
    places = np.linspace(0, len(ordered) - 1, min(len(ordered), len(_COLORS))).round().astype(int)
    return [ordered[place] for place in places]


def layer_name(result: Result, layer: int) -> str:
    """A layer in words; the one past the last block is after the final norm.

    Args:
        result: Whose provenance knows how many blocks there are.
        layer: Its number.
    """
    return "after the final norm" if layer == _num_layers(result) else f"layer {layer}"


def group_size(result: Result) -> int | None:
    """Rollouts of a prompt, the median over prompts; none if it was not recorded.

    Args:
        result: Of a language model.
    """
    if "groups" in result.tables:
        return int(result.tables["groups"]["n"].median())
    recorded = result.provenance.get("rollouts", {})
    count, groups = recorded.get("count"), recorded.get("groups")
    return round(count / groups) if count and groups else None


def _by_position(ax: Axes, result: Result, column: str) -> None:
    table = _positions(result).dropna(subset=[column])
    layers = table["layer"].unique().tolist()
    chosen = chosen_layers(layers)
    others = [layer for layer in layers if layer not in chosen]
    for k, layer in enumerate(chosen):
        rows = _thinned(table[table["layer"] == layer])
        ax.plot(
            rows["state"],
            rows[column],
            color=_COLORS[k],
            marker=MARKERS[k],
            markevery=max(1, len(rows) // 12),
            linestyle=LINES[k % len(LINES)],
            label=layer_name(result, layer),
        )
    for k, layer in enumerate(others):
        rows = _thinned(table[table["layer"] == layer])
        label = f"the other {len(others)} layers" if k == 0 else None
        ax.plot(rows["state"], rows[column], color=FAINT, linewidth=0.7, zorder=1, label=label)
    if not of_prompts(result.findings):
        _ended(ax, table)
    ax.set_xlabel("position in the prompt" if of_prompts(result.findings) else "tokens sampled before it")


def _ended(ax: Axes, table: pd.DataFrame) -> None:
    """Where fewer than half of the rollouts are left."""
    n = table.groupby("state")["n"].max()
    left = n[n < n.max() / 2]
    if len(left) and left.index[0] > 0:
        ax.axvline(left.index[0], color=GREY, linestyle=(0, (2, 2)), linewidth=1, zorder=1)
        ax.annotate(
            "fewer than half\nof the rollouts left",
            (left.index[0], 0.02),
            xycoords=("data", "axes fraction"),
            xytext=(3, 0),
            textcoords="offset points",
            **_SMALL,
        )


def _curve(ax: Axes, result: Result, finding: Finding, n: NDArray[np.float64], k: int) -> None:
    name, snr = layer_name(result, _layer(finding)), number(finding.estimate)
    if not snr > 0:
        ax.plot([], [], linestyle="none", label=f"{name}: no signal above 0")
        return
    needed = [number(f.estimate) for f in result.find("rollouts_needed", layer=_layer(finding))]
    known = f": {AIM} at {readable(needed[0])}" if needed and needed[0] > 0 else ""
    style: dict[str, Any] = {"color": _COLORS[k], "linestyle": LINES[k % len(LINES)], "marker": MARKERS[k]}
    ax.plot(n, expected_cosine(snr, n), **style, markevery=(k, len(_COLORS)), label=f"{name}{known}")
    if finding.interval:
        low, high = (expected_cosine(end, n) for end in finding.interval)
        ax.fill_between(n, low, high, color=_COLORS[k], alpha=0.12, linewidth=0)
    at = AIM**2 / (1 - AIM**2) / snr
    ax.plot(at, AIM, color=_COLORS[k], marker=MARKERS[k], mfc="white", markersize=8, zorder=5)


def _chance(ax: Axes, drawn: list[Finding], n: NDArray[np.float64]) -> None:
    """The curve of the largest control, which is noise."""
    controls = [(number(f.control.estimate), f.control.name) for f in drawn if f.control]
    above = [each for each in controls if each[0] > 0]
    if above:
        snr, name = max(above)
        ax.plot(n, expected_cosine(snr, n), color=RED, linestyle=":", label=f"{name} (largest control)")


def _grid(drawn: list[Finding], used: int | None) -> NDArray[np.float64]:
    needed = [AIM**2 / (1 - AIM**2) / snr for f in drawn if (snr := number(f.estimate)) > 0]
    last = np.clip(3 * max([1000, used or 0, *needed]), 1e3, 1e6)
    return np.geomspace(1, last, 60)


def _layer_ticks(ax: Axes, result: Result, layers: list[int]) -> None:
    places = np.linspace(0, len(layers) - 1, min(len(layers), 9)).round().astype(int)
    shown = [layers[place] for place in places]
    names = ["norm" if layer == _num_layers(result) else str(layer) for layer in shown]
    ax.set_xticks(shown, names)
    ax.set_xlabel("layer")
    if len(layers) == 1:
        ax.set_xlim(layers[0] - 1, layers[0] + 1)


def _positions(result: Result) -> pd.DataFrame:
    return result.tables["positions"].sort_values(["layer", "state"])


def _thinned(rows: pd.DataFrame) -> pd.DataFrame:
    places = np.linspace(0, len(rows) - 1, min(len(rows), _DRAWN)).round().astype(int)
    return rows.iloc[places]


def _num_layers(result: Result) -> int | None:
    found = result.provenance.get("model", {}).get("num_layers")
    return found if isinstance(found, int) else None


def _layer(finding: Finding) -> int:
    return int(finding.index["layer"])


def number(estimate: object) -> float:
    """A number, or one that is none, so that a line has a gap there.

    Args:
        estimate: Of a finding.
    """
    return float(estimate) if isinstance(estimate, int | float) else float("nan")
