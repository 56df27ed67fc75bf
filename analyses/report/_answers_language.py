"""The answers at the top of a report on costates: what the backward pass of an update carries."""

from valuelens.analyses._costate_verdict import TARGETS, objective_of
from valuelens.analyses._result import Finding, Result
from valuelens.analyses.report._answer import (
    Answer,
    Sure,
    control_of,
    control_words,
    first_of,
    limits,
    side,
    surely,
    value_of,
)
from valuelens.analyses.report._numbers import interval_words, readable

_HIGH = 0.9
"""Cosine from which two directions are called the same (our definition)."""

_ABOVE_CHANCE = 2
"""A cosine without an interval counts only above so many times its control's (our definition)."""

_CARRIES = {
    "surrogate": "The update carries a value signal",
    "reward": "The gradient of the differentiable reward, which lacks the sampling path, carries a signal",
}


def language_headline(result: Result) -> str:
    """Whether these rollouts can teach, and whether a value signal stands out of the noise.

    Args:
        result: Of kind `costates`.
    """
    share, objective = value_of(first_of(result, "frac_reward_zero_std")), objective_of(result)
    if share == 1 and objective != "reward":
        return "These rollouts can teach nothing: within every group all rewards are equal."
    signal = _middle(result, "signal_to_noise")
    if signal is None or value_of(signal) is None:
        return ""
    layer = signal.index["layer"]
    what, named = _sought(result), f"(objective: {objective})"
    if signal.interval is None:
        return f"There are too few groups to tell whether layer {layer} receives a {what} {named}."
    if side(signal, 0) > 0:
        return f"{_CARRIES[objective]} to layer {layer} that stands out of the noise {named}."
    return f"At layer {layer} no {what} can be told from the noise of the rollouts {named}."


def language_answers(result: Result) -> list[Answer]:
    """What was found, how sure, and against which control.

    Args:
        result: Of kind `costates`.
    """
    asked = (_on_groups, _on_signal, _on_needed, _on_truth, _on_locality, _on_hops)
    return [answer for ask in asked if (answer := ask(result)) is not None]


def _middle(result: Result, name: str, **index: str) -> Finding | None:
    """Of the layer in the middle of those asked for, as in the verdict."""
    found = result.find(name, **index)
    return found[len(found) // 2] if found else None


def _sought(result: Result) -> str:
    """The costate of a differentiable reward estimates no value gradient (theory B2)."""
    return "signal" if objective_of(result) == "reward" else "value signal"


def _on_groups(result: Result) -> Answer | None:
    flat = first_of(result, "frac_reward_zero_std")
    share = value_of(flat)
    if flat is None or share is None:
        return None
    reward, best = first_of(result, "reward"), value_of(first_of(result, "best_of_k"))
    mean = value_of(reward)
    sampled = objective_of(result) == "reward"
    share_of = f"of the groups have equal {'sampled ' if sampled else ''}rewards"
    found = f"{share:.0%} {share_of}"
    found += f"; mean reward {readable(mean)}" if mean is not None else ""
    found += f", best of several rollouts {readable(best)}" if mean is not None and best is not None else ""
    return Answer(
        question=f"Can {'the sampled rewards of ' if sampled else ''}these rollouts teach anything?",
        answer="No" if share == 1 else "Yes" if share < 0.5 else "Little",
        found=found,
        control=f"of the mean reward, {control_words(reward)}" if reward else control_words(flat),
        sure="no interval" if flat.interval is None else surely(flat, 0.5),
        why=limits(flat, "groups")
        if flat.interval is None
        else f"{flat.interval[0]:.0%} to {flat.interval[1]:.0%} {share_of} (95 % interval, over {flat.n:,} groups)",
    )


def _on_signal(result: Result) -> Answer | None:
    signal = _middle(result, "signal_to_noise")
    ratio = value_of(signal)
    if signal is None or ratio is None:
        return None
    return Answer(
        question=f"Is there a {_sought(result)} above the noise?",
        answer={1: "Yes", 0: "Cannot be told", -1: "No"}[side(signal, 0)],
        found=f"signal-to-noise of one rollout {readable(ratio)} {_place(result, signal)}",
        control=control_words(signal),
        sure=surely(signal, 0),
        why=limits(signal, "groups"),
    )


def _on_needed(result: Result) -> Answer | None:
    signal = _middle(result, "signal_to_noise")
    if signal is None or side(signal, 0) <= 0:
        return None
    needed = first_of(result, "rollouts_needed", layer=signal.index["layer"])
    count = value_of(needed)
    if needed is None or count is None:
        return None
    low, high = (max(1.0, 0.81 / 0.19 / end) for end in reversed(signal.interval or (1.0, 1.0)))
    return Answer(
        question="How many rollouts of a prompt does it need?",
        answer=f"About {count:,.0f}",
        found=f"so that their mean has cosine 0.9 with {TARGETS[objective_of(result)]}, {_place(result, needed)}",
        control=f"{needed.control.name}: {_rollouts(control_of(needed))}"
        if needed.control
        else control_words(needed),
        sure="sure",
        why=f"95 % interval {interval_words(low, high)}, from that of the signal-to-noise",
    )


def _place(result: Result, finding: Finding) -> str:
    return f"at layer {finding.index['layer']} (objective: {objective_of(result)})"


def _rollouts(count: float | None) -> str:
    return "no number would do" if count is None else f"about {count:,.0f}"


def _on_truth(result: Result) -> Answer | None:
    cosine = _middle(result, "cosine", against="enumerated")
    found = value_of(cosine)
    if cosine is None or found is None:
        return None
    answer, sure = _along(cosine, found)
    return Answer(
        question="Does the mean costate point along the true value gradient?",
        answer=answer,
        found=f"cosine {readable(found, at_most_one=True)} {_place(result, cosine)}, all enumerated",
        control=control_words(cosine),
        sure=sure,
        why=_missed(result, cosine),
    )


def _along(cosine: Finding, found: float) -> tuple[str, Sure]:
    if cosine.interval is None:
        chance = _ABOVE_CHANCE * abs(control_of(cosine) or 0.0)
        return ("Yes" if found >= _HIGH else "In part" if found > chance else "No"), "no interval"
    high, zero = side(cosine, _HIGH), side(cosine, 0)
    if high > 0:
        return "Yes", "sure"
    if zero <= 0:
        return ("No", "sure") if zero < 0 else ("Cannot be told", "not sure")
    return "In part", "sure" if high < 0 else "not sure"


def _missed(result: Result, cosine: Finding) -> str:
    """The interval of a cosine; without one, the gap of its layer with that of the gap."""
    gap = first_of(result, "gap_discrete", layer=cosine.index["layer"])
    missed = value_of(gap)
    if cosine.interval is not None or gap is None or missed is None:
        return limits(cosine, "prompts")
    return (
        f"the cosine has no interval; the whole gap is {missed:.0%} of the value gradient "
        f"({control_words(gap, '{:.0%}'.format)}), {_limits(gap, 'prompts')}"
    )


def _on_locality(result: Result) -> Answer | None:
    local = first_of(result, "locality")
    share = value_of(local)
    if local is None or share is None:
        return None
    why = limits(local, "groups")
    if local.interval is not None:
        low, high = (_later(end) for end in reversed(local.interval))
        why = f"95 % interval {low} to {high} from later tokens, over {local.n:,} groups"
    own = f"the other {share:.0%} of a costate concern the next token alone"
    if not 0 <= share <= 1:  # one part points against the other
        own = f"the part of the next token alone is {share:.0%} of a costate, for the rest points against it"
    return Answer(
        question="Does credit come from later tokens?",
        answer=f"{_later(max(0.0, min(1.0, share)))} of it",
        found=f"{_place(result, local)}; {own}",
        control=control_words(local, lambda own: f"{_later(own)} of it from later tokens"),
        sure=surely(local, 1),
        why=why,
    )


def _limits(share: Finding, over: str) -> str:
    """The interval of a share on the scale on which the card tells it."""
    if share.interval is None:
        return limits(share, over)
    low, high = share.interval
    return f"95 % interval {low:.0%} to {high:.0%}, over {share.n:,} {over}"


def _later(own: float) -> str:
    """What is left of a costate beside the share of its own token, so that all numbers of the card have one scale."""
    return f"{1 - own:.0%}"


def _on_hops(result: Result) -> Answer | None:
    gap = first_of(result, "gap_relaxed")
    missed = value_of(gap)
    if gap is None or missed is None:
        return None
    return Answer(
        question="What does the path through sampling add?",
        answer=f"{missed:.0%} of the relaxed sum",
        found=f"without it the costate differs by so much from that sum over hops, {_place(result, gap)}",
        control=control_words(gap),
        sure="no interval",
        why=f"a size is never below 0, so its interval cannot tell it from nothing; {_limits(gap, 'groups')}",
    )
