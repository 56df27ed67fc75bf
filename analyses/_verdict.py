"""One or two plain sentences on what was found, how sure, and against which control."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from valuelens.analyses._question import Question
from valuelens.analyses._result import Finding, Result

_NEARLY_ALL = 0.999
_GROWN = 1.05
_UNNAMED = {
    "none of these": "None of the rules tried explains what its layers do",
    "different rules in different layers": "Its layers follow different rules",
    "cannot tell these apart": "Several rules explain it equally well: {members}",
}
_FREE = "weighted softmax TD"
"""The rule that is fitted here with three free weights; theta* and its iterates have one step size instead."""
_LIMITS = {"depth": "depth", "context": "the length of its contexts", "weights": "its learned weights"}


def learned_values(result: Result, **where: int | str) -> bool | None:
    """Whether the model learned to evaluate states: it beats the constant predictor and tells states apart.

    True if, over whole contexts, the 95 % interval of squared error / the constant predictor's lies below 1, and that
    of within-chain R^2 above 0; none if either was not measured. Our definition.

    Args:
        result: With value errors.
        **where: Index of one checkpoint in the result of a run.
    """
    versus, within = _last(result, "context_msve_vs_constant", where), _last(result, "within_chain_r2", where)
    if versus is None or within is None or versus.interval is None or within.interval is None:
        return None
    return versus.interval[1] < 1 and within.interval[0] > 0


def has_failed(result: Result, **where: int | str) -> bool:
    """Whether the model surely does not evaluate states: one of the two intervals lies on the wrong side.

    Where neither this nor `learned_values` holds, it cannot be told. Our definition.

    Args:
        result: With value errors.
        **where: Index of one checkpoint in the result of a run.
    """
    versus, within = _last(result, "context_msve_vs_constant", where), _last(result, "within_chain_r2", where)
    worse = versus is not None and versus.interval is not None and versus.interval[0] > 1
    return worse or (within is not None and within.interval is not None and within.interval[1] < 0)


def td_by_construction(model: Mapping[str, Any]) -> bool:
    """Whether any weights of this form give layers of the TD form, so that R^2 = 1 says nothing about training.

    So it is for restricted weights behind the temporal shift module; the free target head of `dual` can disagree.

    Args:
        model: Its configuration; of an empty one nothing is known, and it is false.
    """
    return bool(model.get("weights") == "restricted" and model.get("arch") == "tsm")


def verdict(result: Result, questions: Iterable[Question] = ()) -> str:
    """The verdict on the last checkpoint of a result.

    Args:
        result: All findings; the provenance need not be there yet.
        questions: That were asked; some have a sentence of their own to add.
    """
    where = _main(result)
    main = replace(result, findings=tuple(f for f in result.findings if where.items() <= f.index.items()))
    said = (
        _on_values(result, where),
        _on_weights(result, where),
        _on_algorithm(result, where),
        _on_opaque(result, where),
        _on_limits(result, where),
        *(question.verdict(main) for question in questions),
    )
    return " ".join(part for part in said if part) or ("Nothing was measured that supports a verdict.")


@dataclass(frozen=True, slots=True)
class _Range:
    low: float
    high: float

    def __str__(self) -> str:
        low, high = f"{self.low:.3g}", f"{self.high:.3g}"
        return low if low == high else f"{low} to {high}"


def _on_values(result: Result, where: dict[str, int | str]) -> str:
    learned = learned_values(result, **where)
    if learned is None:
        return ""
    versus, within = _last(result, "context_msve_vs_constant", where), _last(result, "within_chain_r2", where)
    if versus is None or within is None:
        return ""
    numbers = (
        f"over the states of its contexts its squared value error is {versus.estimate:.2f} of the constant predictor's "
        f"(95 % interval {_limits(versus)}) and it explains {within.estimate:.2f} of the differences within a chain "
        f"({_limits(within)})"
    )
    if learned:
        return f"This model evaluates states in context: {numbers}."
    if has_failed(result, **where):
        return f"This model has not learned to evaluate states: {numbers}."
    return f"Whether this model evaluates states cannot be told: {numbers}."


def _on_opaque(result: Result, where: dict[str, int | str]) -> str:
    found = result.find("opaque_reading", **where)
    read = "Its residual stream read for weighted softmax TD with one step size"
    return f"{read}: {found[-1].estimate}." if found else ""


def _on_weights(result: Result, where: dict[str, int | str]) -> str:
    signs = [finding for finding in result.find("sign_pattern", **where)]
    known = [finding for finding in signs if finding.estimate != "unidentified"]
    if not signs:
        return ""
    if not known:
        return "Its weights are not identified layer by layer, so only the functional distance speaks."
    cosines = _values(result, "weight_cosine", where)
    model = result.provenance.get("config", {}).get("model", {})
    r2 = [] if td_by_construction(model) else _values(result, "reparameterisation_r2", where, fit="weights")
    rule = f"Its update weights have {_signs([str(finding.estimate) for finding in known])}"
    parts = [rule]
    if cosines:
        comma = "" if rule.endswith("++-") else ","
        parts = [f"{rule}{comma} with cosine {_Range(min(cosines), max(cosines))} to (1, 1, -1)"]
    if r2:
        parts.append(
            f"weighted softmax TD with three free weights explains {_shares(min(r2), max(r2))} of each layer's value "
            "updates on held-out tasks"
        )
    discounts = _values(result, "effective_discount", where)
    if discounts:
        parts.append(f"its effective discount is {_Range(min(discounts), max(discounts))}")
    missing = len(signs) - len(known)
    tail = f" ({missing} of {len(signs)} layers unidentified)" if missing else ""
    return "; ".join(parts) + tail + "."


def _signs(known: list[str]) -> str:
    """The signs of all layers where they are identified, and whether they are those of TD."""
    others = [signs for signs in known if signs != "++-"]
    listed = " and ".join(dict.fromkeys(others))
    if not others:
        return "the TD signs ++-"
    if len(others) == len(known):
        return f"the signs {listed}, not the ++- of TD"
    return f"the TD signs ++- in {len(known) - len(others)} of {len(known)} identified layers, {listed} in the others"


def _on_algorithm(result: Result, where: dict[str, int | str]) -> str:
    """What it runs, with margin and effective discount, or what comes closest."""
    named, margin = _last(result, "algorithm", where), _last(result, "algorithm_margin", where)
    if named is None:
        return ""
    algorithm, members = str(named.estimate), str(_estimate(result, "algorithm_class", where))
    discount = _last(result, "identified_discount", where)
    if algorithm in _UNNAMED:
        known = result.find("rule_error", **where, scored="end to end")
        errors = {str(f.index["rule"]): x for f in known for x in _number(f)}
        closest = min(errors, key=errors.__getitem__, default="")
        tail = (
            f"; end to end {closest}{_free(closest)} comes closest, missing {errors[closest]:.2g} of its squared last "
            "values"
            if closest
            else ""
        )
        return f"{_UNNAMED[algorithm].format(members=members)}{tail}."
    free = _free(algorithm)
    parts = [f"It runs {algorithm}{free}"]
    if discount is not None and discount.interval is not None:
        low, high = discount.interval
        limits = str(_Range(low, high))
        told = f"95 % interval {limits}" if " to " in limits else "95 % interval within rounding"
        parts[0] += f" {'and' if free else 'with'} effective discount {discount.estimate:.3g} ({told})"
    if members != algorithm:
        parts.append(f"these prompts cannot tell it from the others of its class ({members})")
    if margin is not None and isinstance(margin.estimate, float):
        parts.append(
            f"next best is {margin.index['other']}, which leaves {margin.estimate:.2g} more of the squared updates "
            "unexplained"
        )
    return "; ".join(parts) + "."


def _free(rule: str) -> str:
    """In which of its two forms softmax TD was fitted here."""
    return " with three free weights" if rule == _FREE else ""


def _estimate(result: Result, name: str, where: dict[str, int | str]) -> object:
    found = _last(result, name, where)
    return None if found is None else found.estimate


def _on_limits(result: Result, where: dict[str, int | str]) -> str:
    """What limits the values, and a warning where depth must not be extrapolated (theory A5)."""
    parts, limit = [], _last(result, "bottleneck", where)
    if limit is not None and limit.estimate in _LIMITS:
        now, lifted = _lifted(limit)
        parts.append(
            f"What limits its values most is {_LIMITS[str(limit.estimate)]}: without that limit its squared error, "
            f"over all states weighted by the stationary distribution, would be {lifted:.2g} instead of {now:.2g} of "
            "the mean squared true value."
        )
    grown = _last(result, "depth_extrapolation", where)
    if grown is not None and isinstance(grown.estimate, int | float) and grown.estimate > _GROWN:
        depth, trained = grown.index["depth"], grown.index["trained"]
        parts.append(
            f"At {depth} layers instead of {trained} its error is {grown.estimate:.3g} times as large, so it must not "
            "be run deeper than it was trained."
        )
    elif grown is not None and grown.estimate is None:
        parts.append(
            "Its layer diverges when it is repeated, so it must not be run deeper than it was trained."
        )
    return " ".join(parts)


def _lifted(limit: Finding) -> tuple[float, float]:
    numbers = limit.control.estimate if limit.control else None
    found = (
        dict(zip(("now", "depth", "context", "weights"), numbers, strict=True))
        if isinstance(numbers, list)
        else {}
    )
    now, lifted = (found.get(name) for name in ("now", str(limit.estimate)))
    return tuple(float(x) if isinstance(x, int | float) else float("nan") for x in (now, lifted))  # type: ignore[return-value]


def _shares(low: float, high: float) -> str:
    """A range of shares that never rounds up to all."""
    if low > _NEARLY_ALL:
        return f"more than {_NEARLY_ALL}"
    return f"{low:.3g} to more than {_NEARLY_ALL}" if high > _NEARLY_ALL else str(_Range(low, high))


def _main(result: Result) -> dict[str, int | str]:
    """Index of the last checkpoint, of the first seed, in the result of a run."""
    places = [f.index for f in result.findings if "checkpoint" in f.index]
    if not places:
        return {}
    seed = places[0]["seed"]
    return {"seed": seed, "checkpoint": max(str(p["checkpoint"]) for p in places if p["seed"] == seed)}


def _last(result: Result, name: str, where: dict[str, int | str]) -> Finding | None:
    found = result.find(name, **where)
    return found[-1] if found else None


def _values(result: Result, name: str, where: dict[str, int | str], **more: str) -> list[float]:
    return [x for finding in result.find(name, **where, **more) for x in _number(finding)]


def _number(finding: Finding) -> list[float]:
    return [float(finding.estimate)] if isinstance(finding.estimate, int | float) else []


def _limits(finding: Finding) -> str:
    """With as many digits as its ends need to differ: it never reads -0.00 to 0.00."""
    low, high = finding.interval or (float("nan"), float("nan"))
    for digits in range(2, 6):
        words = [f"{end:.{digits}f}" for end in (low, high)]
        if float(words[0]) != float(words[1]):
            break
    return " to ".join(words)
