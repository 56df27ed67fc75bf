"""Plain sentences on a ranking: which checkpoint, how sure, and whether one line of code would have done as well."""

import pandas as pd

from valuelens.analyses._result import Finding, Result
from valuelens.analyses.impact._choices import LAST, RANDOM
from valuelens.analyses.impact._config import RIVALS, ScoreConfig
from valuelens.analyses.impact._predictors import PRIMARY
from valuelens.analyses.impact._rows import POOLED
from valuelens.analyses.impact._spoken import checkpoint_words, isolated, predictor_name

_SMALL_GAP, _LARGE_GAP = 0.1, 0.3
"""Relaxed gap that looks closed, and discrete gap that is not (our definition)."""

_LISTED = 3
"""Series whose checkpoint is named."""


def variants(result: Result, config: ScoreConfig) -> tuple[str, str]:
    """Names of the signal and the headroom that the score is the product of.

    Series on different tasks that are judged together may have been scored by either signal that `auto` takes.

    Args:
        result: With a table of scores.
        config: What was asked.
    """
    table = result.tables["scores"]
    known = table["signal_subtractive"].notna() if "signal_subtractive" in table else pd.Series([False])
    automatic = "subtractive" if known.all() else "subtractive or usable" if known.any() else "usable"
    return automatic if config.signal == "auto" else config.signal, config.headroom


def impact_verdict(result: Result, config: ScoreConfig) -> str:
    """The recommendations and how sure they are; whether the score beats the best rival; what stands in the way.

    Args:
        result: With its findings and tables.
        config: What was asked.
    """
    score = "{} signal x {} headroom".format(*variants(result, config))
    nothing = _nothing(result)
    picks = [_on_pick(result, "gain", score), _on_pick(result, "final_reward", score)]
    picked = nothing or ", and ".join(pick for pick in picks if pick) + "."
    return " ".join(part for part in (picked, _on_rivals(result), _on_gaps(result)) if part)


def _on_pick(result: Result, target: str, score: str) -> str:
    """Which checkpoint promises most: by gain, or by the reward after RL, for which counts where one starts."""
    predictor = PRIMARY if target == "gain" else f"reward + {PRIMARY}"
    found = result.find("recommended", predictor=predictor, target=target)
    lead = (
        f"By {score}, RL should gain most from"
        if target == "gain"
        else "end highest, by reward + score, from"
    )
    if len(found) == 1 and found[0].estimate is None:
        return (
            f"By {score} no checkpoint is recommended: {found[0].reasons['estimate']}"
            if target == "gain"
            else ""
        )
    return f"{lead} {_picks(found)} ({_how_sure(result, target, predictor, found)})"


def _picks(found: list[Finding]) -> str:
    if len(found) == 1:
        return checkpoint_words(str(found[0].estimate))
    told = [
        f"{checkpoint_words(str(each.estimate or 'none'))} in {isolated(str(each.index['series']))}"
        for each in found[:_LISTED]
    ]
    return ", ".join(told) + (f" and so on in {len(found)} series" if len(found) > _LISTED else "")


def _how_sure(result: Result, target: str, predictor: str, found: list[Finding]) -> str:
    sure = _first(result, "probability_best", predictor=predictor, target=target, series=POOLED)
    regret = _first(result, "regret", predictor=predictor, target=target, series=POOLED)
    if sure is None or regret is None or not isinstance(regret.estimate, float):
        other = found[0].control
        shown = f"{other.name}: {checkpoint_words(str(other.estimate))}; " if other else ""
        beside = shown if len(found) == 1 else ""
        why = "nothing says how sure" if sure is None else sure.reasons.get("estimate", "")
        return f"{beside}{why}"
    probability = f"no probability: {sure.reasons.get('estimate', '')}"
    if isinstance(sure.estimate, float):
        chance = sure.control.estimate if sure.control else None
        probability = f"the best with probability {sure.estimate:.2f}" + (
            f", by chance {chance:.2f}" if chance else ""
        )
    whole = "means over series: " if len(found) > 1 else ""
    return f"{whole}{probability}; regret {regret.estimate:.3f}, {_other_regrets(result, target)}"


def _other_regrets(result: Result, target: str) -> str:
    """Of the rival whose choice costs least, and of rules that need no score."""
    found = {name: _regret(result, target, name) for name in (*RIVALS, LAST, RANDOM)}
    known = {name: each for name, each in found.items() if each is not None}
    cheapest = min((name for name in RIVALS if name in known), key=lambda name: known[name], default=None)
    told = [f"of rivals at least {known[cheapest]:.3f} ({predictor_name(cheapest)})"] if cheapest else []
    return ", ".join([*told, *(f"{name} {known[name]:.3f}" for name in (LAST, RANDOM) if name in known)])


def _regret(result: Result, target: str, predictor: str) -> float | None:
    found = _first(result, "regret", predictor=predictor, target=target, series=POOLED)
    return found.estimate if found is not None and isinstance(found.estimate, float) else None


def _nothing(result: Result) -> str:
    """Where no checkpoint has headroom, or none a signal."""
    scores = result.tables["scores"]
    if (scores["frac_reward_zero_std"] == 1).all():
        return (
            "Nothing to gain is visible: at every checkpoint all rollouts of a prompt earn the same reward, so neither "
            "the score nor GRPO has anything to work with (reward saturated, constant, or out of reach)."
        )
    if (scores["headroom"] == 0).all():
        return "Headroom is 0 at every checkpoint: re-weighting what these models sample gains nothing."
    if (scores["signal"] == 0).all():
        return "No checkpoint has a signal above the noise of its rollouts, so the score ranks nothing."
    return ""


def _on_rivals(result: Result) -> str:
    mine = _first(result, "spearman", predictor=PRIMARY, target="gain", series=POOLED)
    if mine is None:
        return ""
    if not isinstance(mine.estimate, float):
        return f"Whether the score ranks gains was not asked: {mine.reasons['estimate']}."
    told = f"The score's rank correlation with gain is {mine.estimate:.2f}{_limits(mine)}"
    once = _first(result, "spearman_difference", predictor=PRIMARY, target="gain", chosen="once")
    if once is None or once.control is None or not isinstance(once.control.estimate, float):
        return f"{told}; there is no rival to compare it with."
    named = predictor_name(str(once.index["rival"]))
    rival = f"the best one-line rival, {named}, at {once.control.estimate:.2f}"
    again = _first(result, "spearman_difference", predictor=PRIMARY, target="gain", chosen="in each resample")
    low, high = once.interval or (float("-inf"), float("inf"))
    difference = f"difference {once.estimate:.2f}{_limits(once)}"
    if low > 0:
        firm = again is not None and again.interval is not None and again.interval[0] > 0
        tail = "" if firm else ", though not if the best rival is chosen anew in each resample"
        return f"{told} and beats {rival} ({difference}){tail}."
    if high < 0:
        return f"{told} and does worse than {rival} ({difference})."
    return f"{told}; whether it beats {rival}, cannot be told ({difference})."


def _on_gaps(result: Result) -> str:
    """A warning where low entropy closes the relaxed gap and leaves the discrete one open (theory B4)."""
    scores = result.tables["scores"]
    if not {"gap_relaxed", "gap_discrete"} <= set(scores):
        return ""
    hidden = scores[(scores["gap_relaxed"] < _SMALL_GAP) & (scores["gap_discrete"] > _LARGE_GAP)]
    if hidden.empty:
        return ""
    names = ", ".join(map(checkpoint_words, hidden["checkpoint"].astype(str).unique()[:3])) + (
        " and others" if len(hidden) > 3 else ""
    )
    worst = hidden.sort_values("gap_discrete").iloc[-1]
    return (
        f"Warning: at {names} costates look complete (relaxed gap {worst['gap_relaxed']:.2f}) but miss the "
        f"discrete value gradient (gap {worst['gap_discrete']:.2f}): low entropy closes only the first."
    )


def _first(result: Result, name: str, **index: str) -> Finding | None:
    return next(iter(result.find(name, **index)), None)


def _limits(finding: Finding) -> str:
    if finding.interval is None:
        return f" (no interval: {finding.reasons['interval']})"
    return " (95 % interval {:.2f} to {:.2f})".format(*finding.interval)
