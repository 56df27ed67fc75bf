"""Findings of each checkpoint: its scores, the rivals on the same rollouts, and what RL gained from it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from valuelens.analyses._result import Control, Definition, Finding
from valuelens.analyses.impact._judgement import Judgement
from valuelens.analyses.impact._predictions import CONSTANT_PREDICTOR
from valuelens.analyses.impact._predictors import PRIMARY
from valuelens.analyses.impact._remarks import remarks
from valuelens.probe import share_interval

_SCORED: dict[str, tuple[str, Definition]] = {
    "reward": ("reward", "derived"),
    "reward_std": ("reward", "derived"),
    "frac_reward_zero_std": ("1", "derived"),
    "signal": ("objective", "choice"),
    "headroom": ("reward", "choice"),
    "impact": ("objective x reward", "choice"),
    "update_aligned": ("reward / unit of the step", "derived"),
    "entropy": ("nats", "derived"),
    "best_of_k": ("reward above the mean", "derived"),
    "pass_at_k": ("share above pass@1", "derived"),
    "gradient_norm": ("objective / unit of a parameter", "derived"),
    "held_out_loss": ("nats", "derived"),
    "gap_relaxed": ("1", "choice"),
    "gap_discrete": ("1", "choice"),
}
"""Unit and standing of what is known without RL, in the order of a report."""

_CUT = "gain with temporal credit cut"
_ONE_SET = "one set of rollouts a checkpoint"
_BESIDE = "stands beside the rivals on the same rollouts"
_FEW_SEEDS = "one RL seed, or seeds that do not differ"

Index = dict[str, int | str]


def score_findings(scores: pd.DataFrame) -> list[Finding]:
    """What rollouts and costates say of each checkpoint; a column without a number gives no finding.

    Args:
        scores: Table of scores, in order.
    """
    several, findings = scores["series"].nunique() > 1, []
    for name, (unit, definition) in _SCORED.items():
        if name not in scores or scores[name].isna().all():
            continue
        for at in scores.to_dict("records"):
            estimate = float(at[name])
            interval = _share(at) if name == "frac_reward_zero_std" else None
            findings.append(
                Finding(
                    name=name,
                    estimate=estimate,
                    unit=unit,
                    n=int(at["rollouts"]),
                    definition=definition,
                    index=place(at, several=several),
                    interval=interval,
                    reasons={"control": _BESIDE}
                    | ({} if interval else {"interval": _ONE_SET})
                    | ({} if np.isfinite(estimate) else {"estimate": "not measured"}),
                )
            )
    return [*_diagnoses(scores, several=several), *findings]


def gain_findings(judged: Judgement, scores: pd.DataFrame) -> list[Finding]:
    """What RL gained from each checkpoint, with and without temporal credit, and what the score foretold.

    Args:
        judged: Realised gains beside scores.
        scores: Table of scores, in order.
    """
    several = {"series": scores["series"].nunique() > 1, "recipe": len(judged.recipes) > 1}
    table = judged.outcomes
    mine = judged.predictions[judged.predictions["predictor"] == PRIMARY]
    constant = judged.predictions[judged.predictions["predictor"] == CONSTANT_PREDICTOR]
    keys = ["recipe", "series", "checkpoint"]
    foretold = {
        of: each.set_index(keys)["predicted_gain"].to_dict()
        for of, each in (("score", mine), ("mean", constant))
    }
    findings = []
    for at in table.to_dict("records"):
        key = tuple(at[name] for name in keys)
        at |= {of: each.get(key, np.nan) for of, each in foretold.items()}
        index = place(at, several=several["series"]) | ({"recipe": at["recipe"]} if several["recipe"] else {})
        findings += [made for make in _OF_GAINS if (made := make(at, index)) is not None]
    return sorted(findings, key=lambda each: _ORDER.index(each.name))


def place(at: dict[Any, Any], *, several: bool) -> Index:
    """Index of a checkpoint, with its series where there are several.

    Args:
        at: A row with `series` and `checkpoint`.
        several: Whether there are several series.
    """
    index: Index = {"checkpoint": str(at["checkpoint"])}
    return index | ({"series": str(at["series"])} if several else {})


def _diagnoses(scores: pd.DataFrame, *, several: bool) -> list[Finding]:
    """Why a score is 0 and what it cannot see, in words, of checkpoints of which there is something to say."""
    said = [(at, " ".join(remarks(_numbers(at)))) for at in scores.to_dict("records")]
    return [
        Finding(
            name="diagnosis",
            estimate=words,
            unit="words",
            n=int(at["rollouts"]),
            definition="choice",
            index=place(at, several=several),
            reasons=dict.fromkeys(("interval", "control"), "words"),
        )
        for at, words in said
        if words
    ]


def _numbers(at: dict[Any, Any]) -> dict[str, float]:
    words = ("series", "checkpoint", "step")
    return {str(name): float(value) for name, value in at.items() if name not in words}


def _share(at: dict[Any, Any]) -> tuple[float, float] | None:
    prompts = int(at["prompts"])
    return share_interval(round(float(at["frac_reward_zero_std"]) * prompts), prompts)


def _mean(
    name: str, at: dict[Any, Any], index: Index, columns: tuple[str, str, str, str], control: Control | None
) -> Finding:
    estimate, low, high = (float(at[column]) for column in columns[:3])
    known = np.isfinite(low)
    return Finding(
        name=name,
        estimate=estimate,
        unit="reward",
        n=int(at[columns[3]]),
        definition="derived",
        index=index,
        interval=(low, high) if known else None,
        control=control,
        reasons={"control": "too few checkpoints"}
        | ({} if known else {"interval": _FEW_SEEDS})
        | ({} if np.isfinite(estimate) else {"estimate": "a run has no reward"}),
    )


def _gain(at: dict[Any, Any], index: Index) -> Finding | None:
    if not at["seeds"]:
        return None
    cut = Control(name=_CUT, estimate=float(at["gain_cut"]))
    control = cut if at["cut_seeds"] else Control(name=CONSTANT_PREDICTOR, estimate=float(at["mean"]))
    return _mean("gain", at, index, ("gain", "gain_low", "gain_high", "seeds"), control)


def _gain_cut(at: dict[Any, Any], index: Index) -> Finding | None:
    control = Control(name="gain", estimate=float(at["gain"]))
    columns = ("gain_cut", "cut_low", "cut_high", "cut_seeds")
    return _mean("gain_cut", at, index, columns, control) if at["cut_seeds"] else None


def _credit_gain(at: dict[Any, Any], index: Index) -> Finding | None:
    control = Control(name=_CUT, estimate=float(at["gain_cut"]))
    columns = ("credit_gain", "credit_low", "credit_high", "pairs")
    return _mean("credit_gain", at, index, columns, control) if at["pairs"] else None


def _final(at: dict[Any, Any], index: Index) -> Finding | None:
    before = at["reward_before"] if np.isfinite(at["reward_before"]) else at["reward"]
    control = Control(name="reward before RL", estimate=float(before))
    columns = ("final_reward", "final_low", "final_high", "seeds")
    return _mean("final_reward", at, index, columns, control) if at["seeds"] else None


def _predicted(at: dict[Any, Any], index: Index) -> Finding | None:
    if not at["seeds"]:
        return None
    return Finding(
        name="predicted_gain",
        estimate=float(at["score"]),
        unit="reward",
        n=int(at["seeds"]),
        definition="choice",
        index=index,
        control=Control(name=CONSTANT_PREDICTOR, estimate=float(at["mean"])),
        reasons={"interval": "loo_error says how far off", "control": "fewer than 3 checkpoints"}
        | (
            {}
            if np.isfinite(at["score"])
            else {"estimate": "fewer than 3 checkpoints, or one without a score"}
        ),
    )


_OF_GAINS: tuple[Callable[[dict[Any, Any], Index], Finding | None], ...] = (
    *(_gain, _gain_cut, _credit_gain, _final, _predicted),
)
_ORDER = ("gain", "gain_cut", "credit_gain", "final_reward", "predicted_gain")
