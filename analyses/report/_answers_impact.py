"""The answers at the top of a report on a ranking of checkpoints: where to start RL, and what that rests on."""

from valuelens.analyses._result import Finding, Result
from valuelens.analyses.report._answer import Answer, Sure, control_words, limits, side, value_of
from valuelens.analyses.report._choice_words import of_predictor, pooled
from valuelens.analyses.report._numbers import readable
from valuelens.analyses.report._predictors import (
    OURS,
    RECOMMENDS,
    TARGETS,
    checkpoint_words,
    isolated,
    predictor_name,
)
from valuelens.analyses.report._ranking import has_gains

_SURE = 0.95
_NAMED = 2
"""Series whose checkpoint is named."""


def impact_headline(result: Result) -> str:
    """Where to start RL, in a sentence, and whether that is more than a forecast.

    Args:
        result: Of kind `impact`.
    """
    gain, reward = (_picked(result, target) for target in TARGETS)
    if not gain:
        return "No checkpoint is recommended." if result.find("recommended") else ""
    said = f"Start RL at {gain} for the most gain" + (
        f", at {reward} for the highest reward after it." if reward and reward != gain else "."
    )
    if not has_gains(result):
        return f"{said} This is a forecast: no RL was run."
    chances = {target: value_of(_likely(result, target)) for target in TARGETS}
    if chances["gain"] is None:
        return f"{said} How sure that is cannot be told from these runs."
    unsure = [
        TARGETS[target]
        + (f" (the best one with probability {readable(chance)})" if chance is not None else "")
        for target, chance in chances.items()
        if chance is None or chance < _SURE
    ]
    return f"{said} Not sure, by the runs: the start for {' and for '.join(unsure)}." if unsure else said


def impact_answers(result: Result) -> list[Answer]:
    """What was found, how sure, and against which control.

    Args:
        result: Of kind `impact`.
    """
    picks = [_on_start(result, target) for target in TARGETS]
    return [answer for answer in (*picks, _on_rival(result), _on_credit(result)) if answer is not None]


def _picked(result: Result, target: str) -> str:
    """The recommended checkpoint of every series, in words; empty where there is none."""
    found = result.find("recommended", predictor=RECOMMENDS[target], target=target)
    told = [
        checkpoint_words(f.estimate)
        + (f" in {isolated(str(f.index['series']))}" if "series" in f.index and len(found) > 1 else "")
        for f in found
        if isinstance(f.estimate, str)
    ]
    more = f" (and so on, {len(told)} series)" if len(told) > _NAMED else ""
    return ", ".join(told[:_NAMED]) + more


def _likely(result: Result, target: str) -> Finding | None:
    return pooled(of_predictor(result, "probability_best", RECOMMENDS[target], target=target))


def _on_start(result: Result, target: str) -> Answer | None:
    found = result.find("recommended", predictor=RECOMMENDS[target], target=target)
    if not found:
        return None
    where = _picked(result, target)
    goal = "the most gain" if target == "gain" else "the highest reward after it"
    likely = _likely(result, target)
    chance = value_of(likely)
    return Answer(
        question=f"Where should RL start for {goal}?",
        answer=f"{where[0].upper()}{where[1:]}" if where else "Nowhere in particular",
        found=_price(result, target) if where else found[0].reasons.get("estimate", ""),
        control=_others(result, target),
        sure=_certain(chance),
        why=_probability(likely, chance) if has_gains(result) else "no RL was run, so this is a forecast",
    )


def _certain(chance: float | None) -> Sure:
    return "no interval" if chance is None else "sure" if chance >= _SURE else "not sure"


def _probability(likely: Finding | None, chance: float | None) -> str:
    if likely is None:
        return ""
    if chance is None:
        return f"no probability: {likely.reasons['estimate']}"
    random = likely.control.estimate if likely.control else None
    beside = f" (by chance {readable(random)})" if isinstance(random, int | float) else ""
    return f"it is the best one with probability {readable(chance)}{beside}"


def _price(result: Result, target: str) -> str:
    regret = value_of(pooled(of_predictor(result, "regret", RECOMMENDS[target], target=target)))
    if regret is None:
        return ""
    if regret == 0:
        return f"in these runs it is the best checkpoint in {TARGETS[target]}"
    return f"it falls {readable(regret)} short of the best checkpoint in {TARGETS[target]}"


def _others(result: Result, target: str) -> str:
    names = ("last checkpoint", "random checkpoint")
    found = {name: pooled(of_predictor(result, "regret", name, target=target)) for name in names}
    prices = {name: price for name, f in found.items() if (price := value_of(f)) is not None}
    told = ", ".join(f"{predictor_name(name)} falls {readable(x)} short" for name, x in prices.items())
    return told or f"none: {'the price is not known' if has_gains(result) else 'no RL was run'}"


def _on_rival(result: Result) -> Answer | None:
    mine = pooled(of_predictor(result, "spearman", OURS, target="gain"))
    if mine is None:
        return None
    once = next(iter(result.find("spearman_difference", predictor=OURS, target="gain", chosen="once")), None)
    ours, more = value_of(mine), value_of(once)
    if ours is None or once is None or more is None:
        return Answer(
            question="Does the score foretell gain better than one-line rivals?",
            answer="Not known",
            found="" if ours is None else f"rank correlation with gain {readable(ours)}",
            control="the standard deviation of rewards, the reward itself and other one-line rivals",
            sure="no interval",
            why=(mine if ours is None else once or mine).reasons.get("estimate", "there is no rival"),
        )
    rival, way = predictor_name(str(once.index.get("rival"))), "above" if more >= 0 else "below"
    which = side(once, 0)
    beside = once.control.estimate if once.control else None
    return Answer(
        question="Does the score foretell gain better than one-line rivals?",
        answer={1: "Yes", 0: "Cannot be told", -1: "No, worse"}[which],
        found=f"rank correlation with gain {readable(ours)}, {readable(abs(more))} {way} the best rival's",
        control=f"{rival}: {readable(beside)}" if isinstance(beside, int | float) else control_words(once),
        sure="no interval" if once.interval is None else "sure" if which else "not sure",
        why=f"of the difference: {limits(once, 'checkpoints')}",
    )


def _on_credit(result: Result) -> Answer | None:
    found = [f for f in result.find("credit_gain") if value_of(f) is not None]
    found = [f for f in found if f.index.get("recipe") == found[0].index.get("recipe")]
    if not found:
        return None
    known = [f for f in found if f.interval]
    above, below = (sum(side(f, 0) == sign for f in known) for sign in (1, -1))
    return Answer(
        question="Does RL need credit that crosses time?",
        answer=f"At {above} of {len(found)} checkpoints" if known else "Not known",
        found=f"there it adds to the gain beyond its interval; at {below} it takes from it" if known else "",
        control="the same RL with credit through time cut",
        sure="no interval" if not known else "sure" if above + below == len(known) else "not sure",
        why="95 % intervals over RL seeds, one a checkpoint"
        if known
        else "one RL seed says nothing about others",
    )
