"""The answers at the top of a report on in-context learners, and the sentence above them for every kind of result."""

from valuelens.analyses._result import Finding, Result
from valuelens.analyses._verdict import has_failed, learned_values
from valuelens.analyses.report._answer import (
    Answer,
    Sure,
    control_of,
    control_words,
    limits,
    side,
    surely,
    value_of,
)
from valuelens.analyses.report._answers_impact import impact_answers, impact_headline
from valuelens.analyses.report._answers_language import language_answers, language_headline
from valuelens.analyses.report._checkpoints import at_checkpoint, last_checkpoints, main_checkpoint
from valuelens.analyses.report._numbers import interval_words, readable

_UNNAMED = {
    "none of these": "None of the rules that were tried",
    "different rules in different layers": "Different rules in different layers",
    "cannot tell these apart": "Several rules, which cannot be told apart",
}
_LIMITS = {
    "depth": "Too few layers",
    "context": "Too short contexts",
    "weights": "Its weights",
    "none": "Nothing that was tried",
}
_LISTED = 3


def headline(result: Result) -> str:
    """The one thing to know, in a sentence; empty where nothing was measured that supports one.

    Args:
        result: Of any kind.
    """
    if result.kind == "costates":
        return language_headline(result)
    if result.kind == "impact":
        return impact_headline(result)
    main = main_checkpoint(result)[1]
    versus, within = _last(main, "context_msve_vs_constant"), _last(main, "within_chain_r2")
    learned = learned_values(main)
    if learned is None or versus is None or within is None:
        return ""
    said = "This model learned to evaluate states in context."
    if not learned:
        said = (
            "This model has not learned to evaluate states."
            if has_failed(main)
            else "Whether this model evaluates states cannot be told from these tasks."
        )
    return f"{said}{_over_seeds(result)}{_rule_words(main) if learned else ''}"


def _rule_words(main: Result) -> str:
    """Which rule the layers follow, for the headline; empty where that was not asked."""
    rule = _on_rule(main)
    if rule is None:
        return ""
    doubt = ", which is not sure" if rule.sure == "not sure" else ""
    return f" Its layers follow {rule.answer[0].lower()}{rule.answer[1:]}{doubt}."


def answers(result: Result) -> list[Answer]:
    """What was found, how sure, and against which control: a few short answers, as far as they were measured.

    Args:
        result: Of any kind; of a run those of its main checkpoint.
    """
    if result.kind == "costates":
        return language_answers(result)
    if result.kind == "impact":
        return impact_answers(result)
    main = main_checkpoint(result)[1]
    asked = (_on_values, _on_rule, _on_weights, _on_kernel, _on_limits, _on_other_tasks, _on_opaque)
    return [answer for ask in asked if (answer := ask(main)) is not None]


def _over_seeds(result: Result) -> str:
    """Of how many training seeds the same holds."""
    labels = last_checkpoints(result)
    if len(labels) < 2:
        return ""
    learned = [learned_values(at_checkpoint(result, label)) for label in labels]
    return f" Of {len(labels)} training seeds {sum(each is True for each in learned)} learned it."


def _last(result: Result, name: str, **index: str) -> Finding | None:
    found = result.find(name, **index)
    return found[-1] if found else None


def _on_values(result: Result) -> Answer | None:
    versus, within = _last(result, "context_msve_vs_constant"), _last(result, "within_chain_r2")
    error, explained = value_of(versus), value_of(within)
    learned = learned_values(result)
    if versus is None or within is None or error is None or explained is None or learned is None:
        return None
    no = has_failed(result)
    return Answer(
        question="Does it evaluate states?",
        answer="Yes" if learned else "No" if no else "Cannot be told",
        found=f"over the states of its contexts {readable(error)} of the constant predictor's squared error; "
        f"{readable(explained, at_most_one=True)} of value differences explained",
        control="the constant predictor, which sees no state: 1 and 0",
        sure="sure" if learned or no else "not sure",
        why=f"{limits(versus, 'tasks')}; of value differences {interval_words(*within.interval)}"
        if within.interval
        else limits(versus, "tasks"),
    )


def _on_rule(result: Result) -> Answer | None:
    named, margin = _last(result, "algorithm"), _last(result, "algorithm_margin")
    if named is None or not isinstance(named.estimate, str):
        return None
    answer = _UNNAMED.get(named.estimate, named.estimate)
    discount, beside = value_of(_last(result, "identified_discount")), named.control
    found = "" if discount is None else f"effective discount {readable(discount)}"
    if named.estimate == "weighted softmax TD":
        found = "; ".join(filter(None, ("with three free weights a layer, not one step size", found)))
    more = value_of(margin)
    if margin is not None and more is not None:
        lead = f"{margin.index['rule']} fits best" if named.estimate in _UNNAMED else "it fits best"
        next_best = (
            f"{lead}; {margin.index['other']} leaves {readable(more)} more of the squared updates unexplained"
        )
        found = "; ".join(filter(None, (found, next_best)))
    return Answer(
        question="Which rule do its layers follow?",
        answer=f"{answer[0].upper()}{answer[1:]}",
        found=found,
        control=f"{beside.name}: {beside.estimate}" if beside else control_words(named),
        sure="no interval" if margin is None or named.estimate in _UNNAMED else surely(margin, 0),
        why="the name rests on fixed thresholds (our definition)"
        if margin is None or named.estimate in _UNNAMED
        else f"lead over the next rule: {limits(margin, 'tasks')}",
    )


def _on_weights(result: Result) -> Answer | None:
    signs = result.find("sign_pattern")
    known = [f for f in signs if isinstance(f.estimate, str) and f.estimate != "unidentified"]
    cosines = [x for f in result.find("weight_cosine") if (x := value_of(f)) is not None]
    beside = next((x for f in result.find("weight_cosine") if (x := control_of(f)) is not None), None)
    if not signs:
        return None
    if not known or not cosines or beside is None:
        return Answer(
            question="Do its weights have the form of TD?",
            answer="Not identified",
            found="many weights give the same function here",
            control="none: an unidentified direction has no angle to compare",
            sure="exact",
        )
    signs_right = [f.estimate == "++-" for f in known]
    td = all(signs_right) and min(cosines) > beside
    nowhere = not any(signs_right) or max(cosines) <= beside
    missing = len(signs) - len(known)
    discounts = [x for f in result.find("effective_discount") if (x := value_of(f)) is not None]
    gamma = next((x for f in result.find("effective_discount") if (x := control_of(f)) is not None), None)
    found = f"cosine {_span(cosines, at_most_one=True)} with the TD direction"
    found += f"; effective discount {_span(discounts)}" if discounts else ""
    found += f" (the tasks': {readable(gamma)})" if discounts and gamma is not None else ""
    found += f"; {missing} of {len(signs)} layers not identified" if missing else ""
    return Answer(
        question="Do its weights have the form of TD?",
        answer="Yes" if td else "No" if nowhere else "Not in every layer",
        found=found,
        control=f"95 % of random directions stay below {readable(beside)}",
        sure="exact",
    )


def _on_kernel(result: Result) -> Answer | None:
    found = [f for f in result.find("kernel_diagonal_mean") if value_of(f) is not None]
    if not found:
        return None
    lowest = min(found, key=lambda f: value_of(f) or 0.0)
    even = control_of(lowest)
    if even is None:
        return None
    where = f", lowest in layer {lowest.index['layer']}" if len(found) > 1 else ""
    above = side(lowest, even)
    return Answer(
        question="Does attention tell states apart?",
        answer="Yes" if above > 0 else "No" if above < 0 else "Cannot be told",
        found=f"a visited state gives {_span([value_of(f) or 0.0 for f in found])} of its attention to itself{where}",
        control=f"{lowest.control.name if lowest.control else 'control'}: {readable(even)}",
        sure=surely(lowest, even),
        why=limits(lowest, "tasks"),
    )


def _on_limits(result: Result) -> Answer | None:
    limit = _last(result, "bottleneck")
    if limit is None or not isinstance(limit.estimate, str):
        return None
    lifted = limit.control.estimate if limit.control else None
    found = ""
    if isinstance(lifted, list) and limit.estimate in ("depth", "context", "weights"):
        numbers = dict(zip(("now", "depth", "context", "weights"), lifted, strict=True))
        now, then = numbers["now"], numbers[limit.estimate]
        if isinstance(now, int | float) and isinstance(then, int | float):
            found = (
                f"without it the squared error, over all states weighted by the stationary distribution, would be "
                f"{readable(then)} instead of {readable(now)} of the mean squared true value"
            )
    return Answer(
        question="What limits its values most?",
        answer=_LIMITS.get(limit.estimate, limit.estimate),
        found=found,
        control="the other limits, each lifted alone",
        sure="no interval",
        why=f"no interval: {limit.reasons['interval']}" if "interval" in limit.reasons else "",
    )


def _on_other_tasks(result: Result) -> Answer | None:
    wider = _last(result, "generalises_to")
    if wider is None or not isinstance(wider.estimate, str):
        return None
    names = _other_kinds(wider.estimate)
    asked = [f for f in result.find("generalisation", of="context") if f.index["shift"] != "own tasks"]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    if not asked:
        return None
    return Answer(
        question="Does it work on tasks it was not trained on?",
        answer=f"On {len(names)} of {len(asked)} kinds",
        found="over the states of whole contexts better than the constant predictor on "
        f"{', '.join(names[:_LISTED])}{more}"
        if names
        else "nowhere better than the constant predictor",
        control=_solved_by(wider),
        sure=_all_sure(asked),
        why="a kind counts only where the whole 95 % interval of the error lies below the constant predictor's",
    )


def _solved_by(wider: Finding) -> str:
    """Where the rival does the same."""
    beside = wider.control
    if beside is None or not isinstance(beside.estimate, str):
        return control_words(wider)
    return f"{beside.name}, which is no network, on {len(_other_kinds(beside.estimate))}"


def _other_kinds(listed: str) -> list[str]:
    """Kinds of tasks in a list of names, without those of the training."""
    return [name for name in listed.split(", ") if name not in ("own tasks", "none of them")]


def _all_sure(ratios: list[Finding]) -> Sure:
    """Of a count: sure only if no interval reaches the constant predictor's error."""
    if all(f.interval is None for f in ratios):
        return "no interval"
    return "sure" if all(side(f, 1) for f in ratios) else "not sure"


def _on_opaque(result: Result) -> Answer | None:
    read = _last(result, "opaque_reading")
    if read is None or not isinstance(read.estimate, str):
        return None
    return Answer(
        question="What does its residual stream show of TD?",
        answer=read.estimate,
        found="",
        control=f"{read.control.name}: {read.control.estimate}" if read.control else control_words(read),
        sure="no interval",
        why="rests on fixed thresholds (our definition)",
    )


def _span(numbers: list[float], *, at_most_one: bool = False) -> str:
    low, high = (readable(x, at_most_one=at_most_one) for x in (min(numbers), max(numbers)))
    return low if low == high else f"{low} to {high}"
