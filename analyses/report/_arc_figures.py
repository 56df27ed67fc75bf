"""Figures of a ranking over pretraining: the arc of signal, headroom and their product, the gain, and the rewards."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from valuelens.analyses._result import Result
from valuelens.analyses.report._numbers import readable
from valuelens.analyses.report._ranking import checkpoints, has_gains, largest, pretraining_axis
from valuelens.analyses.report._style import BLUE, GREEN, GREY, INK, LINES, MARKERS, ORANGE, PURPLE, SOFT

_PARTS = (
    ("signal", "signal", BLUE, "o", "--"),
    ("headroom", "headroom", ORANGE, "s", ":"),
    ("impact", "signal x headroom", INK, "D", "-"),
)


def score_arc_figure(ax: Axes, result: Result, series: str) -> Axes:
    """Signal, headroom and their product over pretraining, each over its largest value in the series.

    Args:
        ax: Where to draw.
        result: Of kind `impact`.
        series: Which.
    """
    table = checkpoints(result, series)
    tops = []
    for column, label, color, marker, line in _PARTS:
        values = table[column].astype(float)
        top = float(values.max())
        tops.append(f"{label} {readable(top)}" if top == top else f"{label} unknown")
        style: dict[str, Any] = {"color": color, "marker": marker, "linestyle": line, "label": label}
        shares = values / (top if top > 0 else 1)
        ax.plot(table["place"], shares, zorder=4 if column == "impact" else 3, **style)
    _choice(ax, table)
    pretraining_axis(ax, table)
    ax.set(ylim=(-0.05, 1.22), yticks=[0, 0.5, 1], ylabel="share of the largest")
    _told(ax, "largest: " + ", ".join(tops[:2]) + f",\n{tops[2]}")
    return ax


def gain_arc_figure(ax: Axes, result: Result, series: str) -> Axes:
    """Realised gain over pretraining with its interval over RL seeds, and that without temporal credit.

    Args:
        ax: Where to draw.
        result: Of kind `impact`.
        series: Which.
    """
    table = checkpoints(result, series)
    gap = 0.012
    _with_intervals(ax, table, "gain", "gain", (GREEN, "^", "-", -gap))
    if table["gain_cut"].notna().any():
        _with_intervals(ax, table, "gain_cut", "gain, credit through time cut", (PURPLE, "X", ":", gap))
    ax.axhline(0, color=INK, linewidth=0.8, zorder=1)
    best = largest(table, "gain")
    if best:
        around: dict[str, Any] = {
            "markersize": 13,
            "mfc": "none",
            "mec": INK,
            "linestyle": "none",
            "zorder": 5,
        }
        ax.plot(best["place"], best["gain"], marker="^", **around, label="most gain")
    _choice(ax, table)
    pretraining_axis(ax, table)
    low, high = ax.get_ylim()
    ax.set(ylim=(low, high + 0.16 * (high - low)), ylabel="realised gain in reward")
    return ax


def reward_arc_figure(ax: Axes, result: Result, series: str) -> Axes:
    """Mean reward over pretraining before RL, and after it where RL was run.

    Args:
        ax: Where to draw.
        result: Of kind `impact`.
        series: Which.
    """
    table = checkpoints(result, series)
    before, after = table["reward"].astype(float), table["final_reward"].astype(float)
    ax.plot(table["place"], before, color=GREY, marker="o", linestyle="--", label="reward before RL (R_0)")
    if after.notna().any():
        ax.plot(table["place"], after, color=GREEN, marker="v", label="reward after RL")
        ax.fill_between(
            table["place"], before, after, color=GREEN, alpha=0.1, linewidth=0, label="_before and after RL"
        )
    _choice(ax, table, "final_reward")
    pretraining_axis(ax, table)
    low, high = ax.get_ylim()
    ax.set(ylim=(low, high + 0.16 * (high - low)), ylabel="mean reward")
    return ax


def flat_groups_figure(ax: Axes, result: Result, series: Sequence[str]) -> Axes:
    """Share of groups with equal rewards over pretraining, a line a series.

    Args:
        ax: Where to draw.
        result: Of kind `impact`.
        series: Which.
    """
    colors = (BLUE, ORANGE, GREEN, PURPLE)
    tables = [checkpoints(result, name) for name in series]
    for k, (name, table) in enumerate(zip(series, tables, strict=True)):
        style: dict[str, Any] = {"color": colors[k % len(colors)], "marker": MARKERS[k % len(MARKERS)]}
        line = LINES[(k // len(colors) + k) % len(LINES)]
        ax.plot(
            table["place"], table["frac_reward_zero_std"].astype(float), **style, linestyle=line, label=name
        )
    pretraining_axis(ax, max(tables, key=len))
    ax.set(ylim=(-0.03, 1.05), ylabel="share of groups")
    if len(series) == 1:
        _choice(ax, tables[0])
        ax.set_ylim(-0.03, 1.2)
        ax.set_yticks(np.linspace(0, 1, 6))
    return ax


def arc_panels(result: Result) -> int:
    """How many panels the arc of a series has: gains are drawn where there are any.

    Args:
        result: Of kind `impact`.
    """
    return 3 if has_gains(result) else 2


def _with_intervals(
    ax: Axes, table: pd.DataFrame, column: str, label: str, style: tuple[str, str, str, float]
) -> None:
    color, marker, line, shift = style
    width = float(np.ptp(table["place"])) or 1.0
    moved = (
        table["place"] * (1 + 2 * shift)
        if table["stepped"].all() and table["place"].min() > 0
        else table["place"] + shift * width
    )
    ax.plot(moved, table[column], color=color, marker=marker, linestyle=line, label=label, zorder=3)
    ax.vlines(moved, table[f"{column}_low"], table[f"{column}_high"], color=color, linewidth=1.1, zorder=2)


def _choice(ax: Axes, table: pd.DataFrame, target: str = "gain") -> None:
    """A line at the recommended checkpoint, with its name."""
    for place in table.loc[table[f"best_for_{target}"], "place"].astype(float):
        ax.axvline(place, color=INK, linestyle=(0, (1, 1.5)), linewidth=1.3, zorder=1)
        late = place > float(table["place"].median())
        ax.annotate(
            "recommended",
            (place, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if late else 3, -2),
            textcoords="offset points",
            ha="right" if late else "left",
            va="top",
            fontsize=8,
            fontweight="bold",
        )


def _told(ax: Axes, words: str) -> None:
    ax.annotate(
        words,
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 3),
        textcoords="offset points",
        va="bottom",
        fontsize=7.5,
        color=SOFT,
    )
