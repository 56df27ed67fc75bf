"""What RL gained from each checkpoint: gains over seeds, with and without temporal credit, joined to the scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from valuelens.analyses.impact._predictors import of_final_reward, predictors
from valuelens.models import InputError
from valuelens.probe import Interval, student_interval

_NONE = (np.nan, np.nan)
_DIGITS = 12

OUTCOMES = (
    *("recipe", "series", "checkpoint", "step", "reward", "seeds", "reward_before", "final_reward"),
    *("final_low", "final_high", "gain", "gain_low", "gain_high"),
    *("gain_cut", "cut_low", "cut_high", "cut_seeds", "credit_gain", "credit_low", "credit_high", "pairs"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One series as far as RL was run from its checkpoints, in the order of training.

    Attributes:
        series: Its name.
        table: A row a checkpoint, columns OUTCOMES.
        x: Predictors in the same rows, by target.
        runs: By target, `gain` and `final_reward`, that of each checkpoint (rows) and RL seed (columns); NaN where a
            run is missing.
    """

    series: str
    table: pd.DataFrame
    x: Mapping[str, pd.DataFrame]
    runs: Mapping[str, NDArray[np.float64]]


def recipes(gains: pd.DataFrame) -> list[str]:
    """Recipes of RL: the main one first, which is `default` or else the first that is there.

    Args:
        gains: Table of gains.
    """
    found = [str(each) for each in dict.fromkeys(gains["recipe"])]
    return sorted(found, key=lambda recipe: recipe != "default")


def in_order(scores: pd.DataFrame) -> pd.DataFrame:
    """Scores with series as they come and checkpoints by step; the order stays where a step is unknown.

    Args:
        scores: Table of scores.
    """
    scores = scores.reset_index(drop=True).astype({"series": str, "checkpoint": str})
    step = pd.to_numeric(scores["step"], errors="coerce")
    place = step if step.notna().all() else pd.Series(range(len(scores)), dtype=float)
    series = pd.factorize(scores["series"])[0]
    return scores.iloc[np.lexsort((place, series))].reset_index(drop=True)


def joined_gains(scores: pd.DataFrame, gains: pd.DataFrame) -> pd.DataFrame:
    """Gains with the series, step and current reward of their checkpoint, and the final reward of each run.

    The final reward is `reward_after`, or current reward plus gain where only the gain is known (our definition). A
    gain without a series belongs to the one that has its checkpoint. Gains of checkpoints without a score are left out.

    Args:
        scores: Table of scores, in order.
        gains: Table of gains.

    Raises:
        InputError: No gain is of a scored checkpoint, or one without a series might belong to several.
    """
    known: dict[str, list[str]] = {}
    for name, series in zip(scores["checkpoint"], scores["series"], strict=True):
        known.setdefault(name, []).append(series)
    words = {"checkpoint": gains["checkpoint"].astype(str), "series": gains["series"].fillna("").astype(str)}
    numbers = {name: gains[name].astype(float) for name in ("reward_before", "reward_after", "gain")}
    gains = gains.assign(**words, **numbers, cut=gains["cut"].astype(bool))
    pairs = zip(gains["checkpoint"], gains["series"], strict=True)
    gains["series"] = [series or _only(name, known.get(name, [])) for name, series in pairs]
    about = scores[["series", "checkpoint", "step", "reward"]]
    table = gains.merge(about, on=["series", "checkpoint"], how="inner", validate="many_to_one")
    table = table.sort_values(
        ["rl_seed", "cut"], kind="stable", ignore_index=True
    )  # sums hang on their order
    if table.empty:
        one = gains.iloc[0]
        found = f"found {one['checkpoint']}" + (f" of series {one['series']}" if one["series"] else "")
        there = f"series {', '.join(dict.fromkeys(scores['series']))}"
        raise InputError("gains must be of checkpoints that were scored", found, there)
    return table.assign(final=table["reward_after"].fillna(table["reward"].astype(float) + table["gain"]))


def unscored(scores: pd.DataFrame, gains: pd.DataFrame) -> list[str]:
    """Checkpoints with a gain and without a score, whose gains say nothing here.

    Args:
        scores: Table of scores.
        gains: Table of gains.

    Example:
        >>> scores = pd.DataFrame({"series": ["a"], "checkpoint": ["step-1"]})
        >>> unscored(scores, pd.DataFrame({"series": ["a", ""], "checkpoint": ["step-1", "step-2"]}))
        ['step-2']
    """
    scored = set(zip(scores["series"].astype(str), scores["checkpoint"].astype(str), strict=True))
    names = {name for _, name in scored}
    there = zip(gains["series"].fillna("").astype(str), gains["checkpoint"].astype(str), strict=True)
    lost = [
        (series, name)
        for series, name in there
        if (series, name) not in scored and (series or name not in names)
    ]
    return list(dict.fromkeys(f"{name} of {series}" if series else name for series, name in lost))


def outcomes(scores: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each recipe and checkpoint: means over RL seeds with Student's intervals.

    Runs with and without temporal credit are paired by their seed.

    Args:
        scores: Table of scores, in order.
        runs: From `joined_gains`.
    """
    rows: list[dict[Any, Any]] = []
    for recipe in recipes(runs):
        of_recipe = runs[runs["recipe"] == recipe]
        groups = {key: group for key, group in of_recipe.groupby(["series", "checkpoint"])}
        for at in scores[["series", "checkpoint", "step", "reward"]].to_dict("records"):
            group = groups.get((at["series"], at["checkpoint"]))
            if group is not None:
                rows.append({"recipe": recipe, **at, **_outcome(group)})
    return pd.DataFrame(rows, columns=list(OUTCOMES))


def panels(scores: pd.DataFrame, runs: pd.DataFrame, table: pd.DataFrame, recipe: str) -> list[Panel]:
    """The series in which RL was run by a recipe, without temporal credit being cut.

    Args:
        scores: Table of scores, in order.
        runs: From `joined_gains`.
        table: From `outcomes`.
        recipe: Of RL.
    """
    of_gain = predictors(scores)
    x = {"gain": of_gain, "final_reward": of_final_reward(of_gain, scores["reward"].astype(float))}
    full = runs[(runs["recipe"] == recipe) & ~runs["cut"]]
    found = []
    for series in dict.fromkeys(scores["series"]):
        here = table[(table["recipe"] == recipe) & (table["series"] == series) & (table["seeds"] > 0)]
        if here.empty:
            continue
        names = list(here["checkpoint"])
        rows = scores[scores["series"] == series]
        order = [rows.index[list(rows["checkpoint"]).index(name)] for name in names]
        own = full[full["series"] == series]
        seeds = {
            target: own.pivot_table(index="checkpoint", columns="rl_seed", values=column).reindex(names)
            for target, column in (("gain", "gain"), ("final_reward", "final"))
        }
        found.append(
            Panel(
                series=series,
                table=here.reset_index(drop=True),
                x={target: each.loc[order].reset_index(drop=True) for target, each in x.items()},
                runs={target: each.to_numpy(dtype=np.float64) for target, each in seeds.items()},
            )
        )
    return found


def seed_interval(values: Sequence[float]) -> Interval | None:
    """Student's interval of a mean over RL seeds; none for one seed or without spread.

    Args:
        values: One a seed.
    """
    return student_interval(torch.tensor(list(values), dtype=torch.float64))


def _only(name: str, series: list[str]) -> str:
    if len(series) > 1:
        must = "gains must have a column series where several series have the same checkpoint"
        raise InputError(must, f"found {name} in {', '.join(series)}", "gains")
    return series[0] if series else ""


def _outcome(group: pd.DataFrame) -> dict[str, float]:
    full, cut = (group[group["cut"] == which].set_index("rl_seed") for which in (False, True))
    paired = (
        (full["gain"] - cut["gain"]).dropna()
        if full.index.is_unique and cut.index.is_unique
        else cut["gain"][:0]
    )
    return {
        "seeds": len(full),
        "reward_before": full["reward_before"].mean(),
        **dict(zip(("final_reward", "final_low", "final_high"), _summary(full["final"]), strict=True)),
        **dict(zip(("gain", "gain_low", "gain_high"), _summary(full["gain"]), strict=True)),
        **dict(zip(("gain_cut", "cut_low", "cut_high"), _summary(cut["gain"]), strict=True)),
        "cut_seeds": len(cut),
        **dict(zip(("credit_gain", "credit_low", "credit_high"), _summary(paired), strict=True)),
        "pairs": len(paired),
    }


def _summary(values: "pd.Series[float]") -> tuple[float, float, float]:
    numbers = [float(each) for each in values]
    if not numbers:
        return (np.nan, *_NONE)
    mean = round(
        float(np.mean(numbers)), _DIGITS
    )  # a mean of gains that cancel is 0, and equal ones are ties
    return (mean, *(seed_interval(numbers) or _NONE))
