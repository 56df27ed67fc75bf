"""Where to start RL, how sure that is, and what it costs, in sentences."""

from typing import Any

from valuelens.analyses._result import Finding, Result
from valuelens.analyses.report._numbers import interval_words, readable
from valuelens.analyses.report._prediction_figures import best_rival, cheapest_rivals
from valuelens.analyses.report._predictors import (
    RECOMMENDS,
    TARGETS,
    checkpoint_words,
    isolated,
    predictor_name,
)
from valuelens.analyses.report._ranking import has_gains, is_number, of_series, series_names

_POOLED = "pooled"


def choice_words(result: Result) -> list[str]:
    """The recommendation of every series with its certainty and price; then what other choices cost.

    Args:
        result: Of kind `impact`.
    """
    names = series_names(result)
    several = len(names) > 1
    told = [
        _start(result, name, target, _POOLED if not several else name) for name in names for target in TARGETS
    ]
    if several:
        labels = [f"{isolated(name)}: " for name in names for _ in TARGETS]
        told = [f"{label}{word}" for label, word in zip(labels, told, strict=True)]
    if not has_gains(result):
        some = any(f.estimate for f in result.find("recommended"))
        return [*told, *(["How sure that is, nothing says: no RL was run."] if some else [])]
    whole = [_others(result, target) for target in TARGETS]
    return [
        *told,
        *(f"On average over series, {word}" if several else f"I{word[1:]}" for word in whole if word),
    ]


def chosen(result: Result, predictor: str, series: str) -> str:
    """Label of the checkpoint that a predictor chooses; empty where there is none.

    Args:
        result: Of kind `impact`.
        predictor: Which.
        series: One of `series_names`.
    """
    found = [f.estimate for f in result.find("recommended", predictor=predictor) if of_series(f, series)]
    if found:
        return str(found[0]) if found[0] is not None else ""
    rows = [judged_regret(result, predictor, series, target) for target in TARGETS]
    labels = [row["checkpoint"] for row in rows if row is not None and row["checkpoint"] == row["checkpoint"]]
    return str(labels[0]) if labels else ""


def judged_regret(result: Result, predictor: str, series: str, target: str) -> dict[str, Any] | None:
    """The row of the table of judgements about a predictor's regret in a series, of the main recipe.

    Args:
        result: Of kind `impact`.
        predictor: Which.
        series: One of `series_names`.
        target: `gain` or `final_reward`.
    """
    judged = result.tables.get("judgement")
    if judged is None or not len(judged):
        return None
    rows = judged[
        (judged["statistic"] == "regret")
        & (judged["predictor"] == predictor)
        & (judged["series"].astype(str) == series)
        & (judged["target"] == target)
    ]
    return {str(key): value for key, value in rows.iloc[0].items()} if len(rows) else None


def of_predictor(result: Result, finding: str, predictor: str, **index: str) -> list[Finding]:
    """Findings of a name about one predictor.

    Args:
        result: Of kind `impact`.
        finding: Its name.
        predictor: Which.
        **index: What else its index holds.
    """
    return result.find(finding, predictor=predictor, **index)


def pooled(findings: list[Finding], series: str = _POOLED) -> Finding | None:
    """The one over all series (or of one) and of the main recipe, which comes first.

    Args:
        findings: About one predictor.
        series: Whose.
    """
    return next((f for f in findings if f.index.get("series", _POOLED) == series), None)


def _start(result: Result, series: str, target: str, judged: str) -> str:
    """Where to start for one target, what it costs and how likely it is the best."""
    who, what = RECOMMENDS[target], TARGETS[target]
    found = [f for f in result.find("recommended", predictor=who, target=target) if of_series(f, series)]
    where = found[0].estimate if found else None
    if not isinstance(where, str):
        why = found[0].reasons.get("estimate") if found else None
        return f"For the most {what} no checkpoint is recommended: {why or 'the score is not known'}."
    by = predictor_name(who).removesuffix(" (the score)")
    start = f"For the most {what} start RL at {checkpoint_words(where)}, where {by} is largest."
    return " ".join(filter(None, (start, _sure(result, target, judged))))


def _sure(result: Result, target: str, series: str) -> str:
    own = _regret(result, RECOMMENDS[target], target, series)
    told = f"It falls {own} short of the best checkpoint" if own else ""
    told = "In these runs it is the best checkpoint" if own == "0" else told
    likely = pooled(of_predictor(result, "probability_best", RECOMMENDS[target], target=target), series)
    if likely is None or not is_number(likely.estimate):
        return f"{told}." if told else ""
    guess = likely.control.estimate if likely.control else None
    beside = f" (one at random: {readable(guess)})" if is_number(guess) else ""
    return f"{told}{'; it' if told else 'It'} is the best one with probability {readable(likely.estimate)}{beside}."


def _others(result: Result, target: str) -> str:
    """What other choices cost: the last, a random one, the best rivals', the update-aligned signal's."""
    aligned = "update_aligned" if target == "gain" else "reward + update_aligned"
    rivals = (best_rival(result, target), *cheapest_rivals(result, target))
    names = dict.fromkeys(("last checkpoint", "random checkpoint", *rivals, aligned))
    prices = [(name, _regret(result, name, target, _POOLED)) for name in names]
    told = [f"{predictor_name(name)} {price}" for name, price in prices if price]
    return f"in {TARGETS[target]} other choices fall short by: {'; '.join(told)}." if told else ""


def _regret(result: Result, predictor: str, target: str, series: str) -> str:
    found = pooled(of_predictor(result, "regret", predictor, target=target), series)
    if found is None or not is_number(found.estimate):
        return ""
    ends = f" (95 %: {interval_words(*found.interval)})" if found.interval else ""
    return f"{readable(found.estimate)}{ends}"
