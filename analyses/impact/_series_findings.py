"""Findings over whole series: which checkpoint is recommended, at what regret, and whether the score beats rivals."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from valuelens.analyses._result import Control, Finding
from valuelens.analyses.impact._choices import LAST, NO_RUNS, RANDOM, recommended
from valuelens.analyses.impact._judgement import Judgement
from valuelens.analyses.impact._predictions import CONSTANT_PREDICTOR
from valuelens.analyses.impact._predictors import (
    CLAIMED,
    CLAIMED_BY_TARGET,
    PRIMARY,
    of_final_reward,
    predictors,
)
from valuelens.analyses.impact._rows import NO_SPREAD, POOLED

_UNITS = {"loo_error": "reward", "regret": "reward"}
_OF_CHOICES = ("regret", "probability_best")
_DIFFERENCES = {"spearman_difference": "once", "spearman_difference_rechosen": "in each resample"}
RECOMMENDING = {"gain": CLAIMED[:2], "final_reward": tuple(f"reward + {name}" for name in CLAIMED[:2])}
"""By target, scores that recommend a checkpoint."""

_SHOWN = (*CLAIMED_BY_TARGET["final_reward"], LAST, RANDOM)


def recommended_findings(judged: Judgement, scores: pd.DataFrame) -> list[Finding]:
    """The checkpoint that each score recommends in each series, beside the best rival's choice or the last one.

    Args:
        judged: Realised gains beside scores; they name the best rival.
        scores: Table of scores, in order.
    """
    x = predictors(scores)
    several, findings = scores["series"].nunique() > 1, []
    for target, names in RECOMMENDING.items():
        table = pd.concat([scores[["series", "checkpoint"]], _of(target, x, scores)], axis="columns")
        rival = best_rival(judged, target=target)
        for series, own in table.groupby("series", sort=False):
            last = str(own["checkpoint"].iloc[-1])
            choice = (recommended(own, rival)[0] or last) if rival else last
            index: dict[str, int | str] = {"target": target, **({"series": str(series)} if several else {})}
            for name in names:
                label, why = recommended(own, name)
                findings.append(
                    Finding(
                        name="recommended",
                        estimate=label,
                        unit="name",
                        n=len(own),
                        definition="choice",
                        index={"predictor": name, **index},
                        control=Control(name=f"choice of {rival}" if rival else LAST, estimate=choice),
                        reasons={"interval": "a name; probability_best says how sure"}
                        | ({"estimate": why} if why else {}),
                    )
                )
    return findings


def _of(target: str, x: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    return x if target == "gain" else of_final_reward(x, scores["reward"].astype(float))


def judgement_findings(judged: Judgement) -> list[Finding]:
    """Rows of the table of judgements as findings: all that is pooled, and of single series what is compared.

    Args:
        judged: Realised gains beside scores.
    """
    if not judged.recipes:
        return [_absent(name, index) for name, index in _ABSENT]
    several = judged.table["series"].nunique() > 2  # one series and `pooled` are the same
    wanted = [
        at
        for at in judged.table.to_dict("records")
        if at["predictor"] not in (CONSTANT_PREDICTOR,) and _wanted(at, judged, several=several)
    ]
    values = {_key(at): at["estimate"] for at in judged.table.to_dict("records")}
    order = {name: place for place, name in enumerate(_NAMES)}
    wanted.sort(key=lambda at: order[at["statistic"]])
    return [_finding(at, judged, values) for at in wanted]


def best_rival(judged: Judgement, recipe: str | None = None, target: str = "gain") -> str | None:
    """The rival with the largest pooled correlation; none where nothing was correlated.

    Args:
        judged: Realised gains beside scores.
        recipe: Of RL; the main one if not given.
        target: `gain` or `final_reward`.
    """
    main = judged.recipes[0] if judged.recipes else ""
    return judged.best_rivals.get((main if recipe is None else recipe, target))


_NAMES = (
    *("probability_best", "regret", "spearman_difference", "spearman_difference_rechosen"),
    *("spearman", "spearman_partial", "loo_error"),
)
"""In the order of a report."""

_COMPARED = {"gain": CLAIMED, "final_reward": tuple(f"reward + {name}" for name in CLAIMED)}
"""By target, scores whose difference to the best rival is a finding; the table has all."""

_ABSENT: tuple[tuple[str, Mapping[str, int | str]], ...] = (
    ("spearman", {"predictor": PRIMARY, "target": "gain", "series": POOLED, "role": "primary"}),
    ("loo_error", {"predictor": PRIMARY, "series": POOLED}),
    *(
        (name, {"predictor": predictor, "target": target, "series": POOLED})
        for name in _OF_CHOICES
        for target, predictor in (("gain", PRIMARY), ("final_reward", f"reward + {PRIMARY}"))
    ),
)


def _absent(name: str, index: Mapping[str, int | str]) -> Finding:
    return Finding(
        name=name,
        estimate=None,
        unit=_UNITS.get(name, "1"),
        n=0,
        definition="choice",
        index=index,
        reasons=dict.fromkeys(("estimate", "interval", "control"), NO_RUNS),
    )


def _wanted(at: dict[Any, Any], judged: Judgement, *, several: bool) -> bool:
    rival = best_rival(judged, at["recipe"], at["target"])
    statistic = at["statistic"]
    if statistic in _DIFFERENCES:
        return at["rival"] == rival and at["predictor"] in _COMPARED[at["target"]]
    if (statistic, at["predictor"]) == ("probability_best", RANDOM):
        return False
    if at["series"] == POOLED:
        return True
    compared = at["predictor"] in (*_SHOWN, rival)
    return several and compared and (at["target"] == "gain" or statistic in _OF_CHOICES)


def _key(at: dict[Any, Any], **changes: str) -> tuple[Any, ...]:
    row = {**at, **changes}
    rival = row["rival"] if row["statistic"] in _DIFFERENCES else ""
    return (*(row[name] for name in ("statistic", "predictor", "target", "series", "recipe")), rival)


def _finding(at: dict[Any, Any], judged: Judgement, values: dict[tuple[Any, ...], float]) -> Finding:
    statistic = str(at["statistic"])
    low, high, why = float(at["low"]), float(at["high"]), str(at["reason"])
    interval = (low, high) if pd.notna(low) else None
    control = _control(at, judged, values)
    return Finding(
        name="spearman_difference" if statistic in _DIFFERENCES else statistic,
        estimate=float(at["estimate"]),
        unit=_UNITS.get(statistic, "1"),
        n=int(at["n"]),
        definition="choice",
        index=_index(at, judged),
        interval=interval,
        control=control,
        reasons=({} if pd.notna(at["estimate"]) else {"estimate": why})
        | ({} if interval else {"interval": why or _NO_INTERVAL.get(statistic, NO_SPREAD)})
        | {"control": "nothing was correlated, so no rival is the best"},
    )


_NO_INTERVAL = {"probability_best": "a probability"}


def _index(at: dict[Any, Any], judged: Judgement) -> dict[str, int | str]:
    statistic = at["statistic"]
    index: dict[str, int | str] = {"predictor": at["predictor"]}
    if statistic != "loo_error":
        index["target"] = at["target"]
    if statistic in _DIFFERENCES:
        index |= {"rival": at["rival"], "chosen": _DIFFERENCES[statistic]}
    index["series"] = at["series"]
    if statistic.startswith("spearman"):
        index["role"] = "primary" if at["primary"] else "exploratory"
    return index | ({"recipe": at["recipe"]} if len(judged.recipes) > 1 else {})


def _control(at: dict[Any, Any], judged: Judgement, values: dict[tuple[Any, ...], float]) -> Control | None:
    statistic = at["statistic"]
    if statistic == "loo_error":
        return Control(name=CONSTANT_PREDICTOR, estimate=values[_key(at, predictor=CONSTANT_PREDICTOR)])
    if statistic == "probability_best":
        return Control(name=RANDOM, estimate=values[_key(at, predictor=RANDOM)])
    if statistic in _DIFFERENCES:
        name = _key(at, statistic="spearman", predictor=at["rival"])
        return Control(name=f"correlation of {at['rival']}", estimate=values[name])
    rival = best_rival(judged, at["recipe"], at["target"])
    if rival is None:
        if statistic != "regret":
            return None
        rival = RANDOM
    estimate = values.get(_key(at, predictor=rival), float("nan"))
    return Control(name=rival, estimate=estimate) if estimate == estimate else None
