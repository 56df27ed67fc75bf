"""Figures of a diagnosis: what rewards each prompt gives, how much they vary, and how sure the policy is."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from valuelens.analyses._result import Result
from valuelens.analyses.report._numbers import readable
from valuelens.analyses.report._style import BLUE, GREY, HATCH, INK, ORANGE, RED, SOFT, named_line

_BINS = 12


def group_rewards_figure(ax: Axes, result: Result) -> Axes:
    """Every group's mean reward with its spread, in the order of the means; flat groups have a mark of their own.

    Args:
        ax: Where to draw.
        result: Of a language model, with the table `groups`.
    """
    groups = ordered_groups(result)
    places, flat = np.arange(len(groups)), _flat(groups)
    mean, std = groups["reward_mean"].to_numpy(), groups["reward_std"].to_numpy()
    size = float(np.clip(160 / len(groups), 1.5, 5))
    ax.vlines(places, groups["reward_min"], groups["reward_max"], color=GREY, linewidth=0.8)
    ax.vlines(
        places, mean - std, mean + std, color=BLUE, linewidth=min(size, 3), label="_one standard deviation"
    )
    ax.plot(
        places[~flat], mean[~flat], color=BLUE, marker="o", markersize=size, linestyle="none", label="mean"
    )
    ax.plot(
        places[flat],
        mean[flat],
        color=ORANGE,
        marker="s",
        mfc="none",
        markersize=size + 1,
        linestyle="none",
        label="all rewards equal",
    )
    ax.plot([], [], color=BLUE, linewidth=3, label="one standard deviation")
    ax.plot([], [], color=GREY, linewidth=0.8, label="least to largest")
    _levels(ax, result)
    ax.set(xlabel="group, ordered by its mean", ylabel="reward")
    _few_places(ax, len(groups))
    ax.fmt_xdata = lambda x: str(round(x) + 1)
    return ax


def reward_std_figure(ax: Axes, result: Result) -> Axes:
    """How many groups have which standard deviation of rewards; those with none are a bar of their own.

    Args:
        ax: Where to draw.
        result: Of a language model, with the table `groups`.
    """
    groups = ordered_groups(result)
    equal, std = _flat(groups), groups["reward_std"].to_numpy()
    varied, flat = std[~equal], int(equal.sum())
    top = float(varied.max()) if len(varied) else 1.0
    width = top / _BINS
    ax.hist(varied, bins=np.linspace(0, top, _BINS + 1).tolist(), color=BLUE, edgecolor="white")
    ax.bar(-width, flat, width=width, color="white", edgecolor=ORANGE, hatch=HATCH, label="all rewards equal")
    ax.annotate(str(flat) if flat else "", (-width, flat), ha="center", va="bottom", fontsize=8)
    for control in (f.control for f in result.find("reward_std") if f.control):
        if isinstance(control.estimate, int | float):
            label = f"{control.name} (control)"
            ax.axvline(control.estimate, color=RED, linestyle=":", label=label)
    ax.set(xlabel="standard deviation in a group", ylabel="groups")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    return ax


def group_entropy_figure(ax: Axes, result: Result) -> Axes:
    """Every group's mean entropy against its mean reward; a uniform policy's is written where it is off the scale.

    Args:
        ax: Where to draw.
        result: Of a language model, with the table `groups`.
    """
    groups = ordered_groups(result)
    flat = _flat(groups)
    for which, color, marker, fill in ((~flat, BLUE, "o", BLUE), (flat, ORANGE, "s", "none")):
        chosen = groups[which]
        ax.plot(
            chosen["reward_mean"], chosen["entropy"], color=color, marker=marker, mfc=fill, linestyle="none"
        )
    highest = float(groups["entropy"].max())
    for control in (f.control for f in result.find("entropy") if f.control):
        if not isinstance(control.estimate, int | float):
            continue
        if control.estimate < 3 * highest:
            named_line(ax, float(control.estimate), f"{control.name} (control)")
        else:
            name = f"{control.name} (control):\n{readable(control.estimate)}, off the scale"
            ax.annotate(
                name,
                (0.98, 0.98),
                xycoords="axes fraction",
                ha="right",
                va="top",
                fontsize=8,
                color=SOFT,
            )
            ax.set_ylim(0, 1.35 * highest or 1.0)
    ax.set_ylim(bottom=0)
    if groups["reward_mean"].nunique() == 1:
        ax.set_xlim(groups["reward_mean"].iloc[0] - 0.5, groups["reward_mean"].iloc[0] + 0.5)
    ax.set(xlabel="mean reward of a group", ylabel="entropy, nats a token")
    return ax


def ordered_groups(result: Result) -> pd.DataFrame:
    """The groups whose rewards are known, by mean reward.

    Args:
        result: Of a language model, with the table `groups`.
    """
    known = result.tables["groups"].dropna(subset=["reward_mean"])
    return known.sort_values(["reward_mean", "group"]).reset_index(drop=True)


def _flat(groups: pd.DataFrame) -> NDArray[np.bool_]:
    """Whether all rewards of a group are equal: exact, where a standard deviation rounds."""
    return (groups["reward_min"] == groups["reward_max"]).to_numpy(dtype=bool)


def _levels(ax: Axes, result: Result) -> None:
    """The mean over all rollouts and the largest reward possible, as far as they are known."""
    for finding in result.find("reward"):
        possible = finding.control.estimate if finding.control else None
        for y, name, dashes in (
            (finding.estimate, "mean over all", (0, (6, 3))),
            (possible, "largest reward possible", (0, (1, 1.5))),
        ):
            if isinstance(y, int | float):
                ax.axhline(y, color=INK, linestyle=dashes, linewidth=1, zorder=1, label=name)


def _few_places(ax: Axes, count: int) -> None:
    ax.set_xlim(-0.8, count - 0.2)
    places = np.linspace(0, count - 1, min(count, 9)).round().astype(int)
    ax.set_xticks(places, [str(place + 1) for place in places])
