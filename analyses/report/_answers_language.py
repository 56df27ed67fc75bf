"""The answers at the top of a report on costates: what the backward pass of an update carries."""

from valuelens.analyses._result import Finding, Result
from valuelens.analyses.report._answer import (
    Answer,
    control_of,
    first_of,
    limits,
    side,
    surely,
    value_of,
)
from valuelens.analyses.report._numbers import interval_words, readable

_HIGH = 0.9
"""Cosine from which two directions are called the same (our definition)."""


def language_headline(result: Result) -> str:
    """Whether these rollouts can teach, and whether a value signal stands out of the noise.

    Args:
        result: Of kind `costates`.
    """
    share = value_of(first_of(result, "frac_reward_zero_std"))
    if share == 1:
        return "These rollouts can teach nothing: within every group all rewards are equal."
    signal = _middle(result, "signal_to_noise")
    if signal is None or value_of(signal) is None:
        return ""
    layer = signal.index["layer"]
    if signal.interval is None:
        return f"There are too few groups to tell whether layer {layer} receives a value signal."
    if side(signal, 0) > 0:
        return f"The update carries a value signal to layer {layer} that stands out of the noise."
    return f"At layer {layer} no value signal can be told from the noise of the rollouts."


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


def _on_groups(result: Result) -> Answer | None:
    flat = first_of(result, "frac_reward_zero_std")
    share = value_of(flat)
    if flat is None or share is None:
        return None
    reward, best = first_of(result, "reward"), value_of(first_of(result, "best_of_k"))
    mean, top = value_of(reward), control_of(reward)
    found = f"{share:.0%} of the groups have equal rewards"
    found += f"; mean reward {readable(mean)}" if mean is not None else ""
    found += f", best of several rollouts {readable(best)}" if mean is not None and best is not None else ""
    return Answer(
        question="Can these rollouts teach anything?",
        answer="No" if share == 1 else "Yes" if share < 0.5 else "Little",
        found=found,
        control=f"{reward.control.name}: {readable(top)}"
        if reward and reward.control and top is not None
        else "",
        sure="no interval" if flat.interval is None else surely(flat, 0.5),
        why=limits(flat, "groups"),
    )


def _on_signal(result: Result) -> Answer | None:
    signal = _middle(result, "signal_to_noise")
    ratio = value_of(signal)
    if signal is None or ratio is None:
        return None
    beside = control_of(signal)
    return Answer(
        question="Is there a value signal above the noise?",
        answer={1: "Yes", 0: "Cannot be told", -1: "No"}[side(signal, 0)],
        found=f"signal-to-noise of one rollout {readable(ratio)} at layer {signal.index['layer']}",
        control=f"{signal.control.name}: {readable(beside)}" if signal.control and beside is not None else "",
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
    low, high = (0.81 / 0.19 / end for end in reversed(signal.interval or (1.0, 1.0)))
    return Answer(
        question="How many rollouts of a prompt does it need?",
        answer=f"About {count:,.0f}",
        found="so that their mean has cosine 0.9 with the value gradient",
        control=f"{needed.control.name}: {_rollouts(control_of(needed))}" if needed.control else "",
        sure="sure",
        why=f"95 % interval {interval_words(low, high)}, from that of the signal-to-noise",
    )


def _rollouts(count: float | None) -> str:
    return "no number would do" if count is None else f"about {count:,.0f}"


def _on_truth(result: Result) -> Answer | None:
    cosine = _middle(result, "cosine", against="enumerated")
    found = value_of(cosine)
    if cosine is None or found is None:
        return None
    beside = control_of(cosine)
    return Answer(
        question="Does the mean costate point along the true value gradient?",
        answer="Yes" if side(cosine, _HIGH) > 0 else "In part" if side(cosine, 0) > 0 else "Cannot be told",
        found=f"cosine {readable(found, at_most_one=True)} at layer {cosine.index['layer']}, all enumerated",
        control=f"{cosine.control.name}: {readable(beside)}" if cosine.control and beside is not None else "",
        sure=surely(cosine, 0),
        why=limits(cosine, "groups"),
    )


def _on_locality(result: Result) -> Answer | None:
    local = first_of(result, "locality")
    share = value_of(local)
    if local is None or share is None:
        return None
    even = control_of(local)
    return Answer(
        question="Does credit come from later tokens?",
        answer=f"{max(0.0, 1 - share):.0%} of it",
        found=f"at layer {local.index['layer']} {share:.0%} of a costate concern the next token alone",
        control=f"{local.control.name}: {even:.0%}" if local.control and even is not None else "",
        sure=surely(local, 1),
        why=limits(local, "groups"),
    )


def _on_hops(result: Result) -> Answer | None:
    gap = first_of(result, "gap_relaxed")
    missed = value_of(gap)
    if gap is None or missed is None:
        return None
    return Answer(
        question="What does the path through sampling add?",
        answer=f"{missed:.0%} is missed without it",
        found=f"of the relaxed sum over hops at layer {gap.index['layer']}",
        control=f"{gap.control.name}: {readable(control_of(gap))}" if gap.control else "",
        sure=surely(gap, 0),
        why=limits(gap, "groups"),
    )
