"""Figures of the RL runs behind realised gains: reward by RL step, with credit through time and with it cut."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from valuelens.analyses._result import Result
from valuelens.analyses.report._ranking import checkpoints, largest, series_names
from valuelens.analyses.report._style import GREEN, PURPLE

_KINDS: tuple[tuple[bool, str, dict[str, Any]], ...] = (
    (False, "full credit", {"color": GREEN, "linestyle": "-"}),
    (True, "credit through time cut", {"color": PURPLE, "linestyle": "--"}),
)


def learning_panels(result: Result, series: str) -> list[tuple[str, list[str]]]:
    """Checkpoints of a series whose RL runs are drawn, each with why: recommended, best, last, first.

    Args:
        result: Of kind `impact`.
        series: One of `series_names`.
    """
    table = checkpoints(result, series)
    curves = _curves(result, series)
    known = table[table["checkpoint"].isin(curves["checkpoint"])]
    chosen: dict[str, list[str]] = {}
    for target, what in (("gain", "gain"), ("final_reward", "reward")):
        for label in known.loc[known[f"best_for_{target}"], "checkpoint"]:
            chosen.setdefault(label, []).append(f"recommended for {what}")
    best = largest(known, "final_reward")
    if best:
        chosen.setdefault(best["checkpoint"], []).append("best after RL")
    for place, why in ((-1, "last"), (0, "first")):
        if len(known):
            chosen.setdefault(known["checkpoint"].iloc[place], []).append(why)
    return list(chosen.items())


def learning_figure(ax: Axes, result: Result, series: str, checkpoint: str) -> Axes:
    """Reward by RL step from one checkpoint: thin lines are seeds, thick ones their mean.

    Args:
        ax: Where to draw.
        result: Of kind `impact`.
        series: One of `series_names`.
        checkpoint: One of its checkpoints.
    """
    curves = _curves(result, series)
    mine = curves[curves["checkpoint"] == checkpoint]
    for cut, label, style in _KINDS:
        runs = mine[mine["cut"].astype(bool) == cut]
        for _, run in runs.groupby("rl_seed", sort=True):
            ax.plot(run["step"], run["reward"], **style, linewidth=0.6, alpha=0.5)
        if len(runs):
            mean = runs.groupby("step")["reward"].mean()
            count = runs["rl_seed"].nunique()
            ax.plot(
                mean.index,
                mean,
                **style,
                linewidth=2,
                label=f"{label}, mean of {count} RL seeds" if count > 1 else f"{label}, 1 RL seed",
            )
    ax.set_xlabel("RL step")
    return ax


def mean_curves(result: Result, series: str, checkpoint: str) -> dict[str, pd.Series]:
    """Mean reward over RL seeds by RL step, by kind of credit.

    Args:
        result: With the table `curves`.
        series: One of `series_names`.
        checkpoint: One of its checkpoints.
    """
    curves = _curves(result, series)
    mine = curves[curves["checkpoint"] == checkpoint]
    kinds = {label: mine[mine["cut"].astype(bool) == cut] for cut, label, _ in _KINDS}
    return {label: runs.groupby("step")["reward"].mean() for label, runs in kinds.items() if len(runs)}


def drawn_recipe(result: Result) -> str:
    """The recipe whose runs are drawn: the default where it was run, else the first.

    Args:
        result: With the table `curves`.
    """
    recipes = [str(each) for each in result.tables["curves"]["recipe"].drop_duplicates()]
    return "default" if "default" in recipes or not recipes else recipes[0]


def learning_series(result: Result) -> list[str]:
    """The series whose RL runs left a learning curve.

    Args:
        result: Of kind `impact`.
    """
    return [name for name in series_names(result) if len(_curves(result, name))]


def _curves(result: Result, series: str) -> pd.DataFrame:
    curves = result.tables["curves"]
    known = curves[
        (curves["series"].astype(str) == series) & (curves["recipe"].astype(str) == drawn_recipe(result))
    ]
    known = known.assign(checkpoint=known["checkpoint"].astype(str), reward=pd.to_numeric(known["reward"]))
    return known.dropna(subset=["reward"])
