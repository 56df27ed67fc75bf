"""One plain sentence for every finding: its number, interval, control and standing, or why there is none."""

from collections.abc import Callable, Sequence
from itertools import takewhile

from valuelens.analyses._question import Phrase
from valuelens.analyses._result import Finding, Scalar
from valuelens.analyses.report._numbers import interval_words, readable
from valuelens.analyses.report._phrases import phrase_of
from valuelens.analyses.report._phrases_impact import ARC, CHOICE, JUDGEMENT
from valuelens.analyses.report._predictors import TARGETS, checkpoint_words, isolated, predictor_name


def sentence(finding: Finding) -> str:
    """What a finding says, for somebody who has not read the papers.

    Layers are counted from 0, as in hook names. A name without a phrase of its own gets its raw words.

    Args:
        finding: Any; without a number the sentence gives the reason.

    Example:
        >>> from valuelens.analyses import Control, Finding
        >>> print(sentence(Finding(name="weight_cosine", estimate=0.98851, unit="1", n=0, definition="derived",
        ...     index={"layer": 2}, control=Control(name="95 % quantile of random directions", estimate=0.9),
        ...     reasons={"interval": "nothing is sampled"})))
        Layer 2's update weights point along the TD direction (1, 1, -1) with cosine 0.989; 95 % of random
        directions stay below 0.90.
    """
    phrase, words = phrase_of(finding.name) or _unknown(finding), _words(finding)
    text = (
        _missing(finding, phrase.noun.format(**words))
        if is_missing(finding)
        else _found(finding, phrase, words)
    )
    return f"{text[0].upper()}{text[1:]}; {_tail(finding)}."


def told_once(findings: Sequence[Finding]) -> list[str]:
    """A sentence for every finding; those without a number that share all but a few words share one.

    Args:
        findings: In the order in which they are told.
    """
    alike: dict[object, list[Finding]] = {}
    for k, finding in enumerate(findings):
        without = is_missing(finding) and not isinstance(finding.estimate, list)
        parts = (finding.name, finding.index.get("target"), _reason(finding), _tail(finding))
        alike.setdefault(parts if without else k, []).append(finding)
    return [text for group in alike.values() for text in _together(group)]


def is_missing(finding: Finding) -> bool:
    """Whether a finding has no estimate at all: none, unidentified, or a list of nothing."""
    estimate = finding.estimate
    if isinstance(estimate, list):
        return all(x is None for x in estimate)
    return estimate is None or estimate == "unidentified"


def shown(finding: Finding) -> str:
    """The estimate of a finding in readable digits, without its interval.

    Shares and cosines that reach 1 by rounding are `>0.999`: they were measured, not defined.

    Args:
        finding: Any.
    """
    estimate = finding.estimate
    if isinstance(estimate, list):
        return _by_length(finding, estimate) or _LISTS.get(finding.name, _plain_list)(estimate)
    if is_missing(finding):
        return "unidentified" if _reason(finding).startswith("unidentified") else "none"
    if finding.name == "recommended":
        return checkpoint_words(str(estimate))
    return readable(estimate, at_most_one=finding.name in _AT_MOST_ONE)


def shown_interval(finding: Finding) -> str:
    """The interval of a finding in words, empty if there is none.

    Args:
        finding: Any.
    """
    if finding.interval is None:
        return ""
    return interval_words(*finding.interval, at_most_one=finding.name in _AT_MOST_ONE)


def shown_control(finding: Finding) -> str:
    """The control of a finding in readable digits; of a list over layers its last.

    Args:
        finding: Any.
    """
    if finding.control is None:
        return ""
    estimate = finding.control.estimate
    if finding.name == "recommended":
        return checkpoint_words(str(estimate))
    if not isinstance(estimate, list):
        return readable(estimate)
    if finding.name in _NAMED:
        names = finding.control.name.split(", ")
        return ", ".join(f"{name} {readable(x)}" for name, x in zip(names, estimate, strict=True))
    if by_length := _by_length(finding, estimate):
        return by_length
    if finding.name == "bottleneck":
        named = zip(_LIFTED, estimate, strict=True)
        return ", ".join(f"{readable(x) if x is not None else 'not defined'} {name}" for name, x in named)
    if finding.name in ("value_lens", "depth_error"):
        return f"{readable(estimate[-1])} after the last layer"
    if str(finding.index.get("property", "")).startswith("signs"):
        return " and ".join("yes" if x else "no" for x in estimate)
    return (" and " if finding.name.startswith("emergence") else ", ").join(readable(x) for x in estimate)


def _together(findings: list[Finding]) -> list[str]:
    """One sentence for findings that differ in a few words of their noun, with a list of these words."""
    nouns = [(phrase_of(f.name) or _unknown(f)).noun.format(**_words(f)).split() for f in findings]
    before = _shared_words(nouns)
    rests = [noun[before:] for noun in nouns]
    after = _shared_words([rest[::-1] for rest in rests])
    words = [" ".join(rest[: len(rest) - after]) for rest in rests]
    if len(findings) < _SHARED or not all(words):
        return [sentence(finding) for finding in findings]
    noun = " ".join([*nouns[0][:before], "...", *rests[0][len(rests[0]) - after :]])
    text = _missing(findings[0], noun)
    listed = "; ".join(words)
    return [f"{text[0].upper()}{text[1:]}; {_tail(findings[0])}. So it is for {len(findings)}: {listed}."]


def _shared_words(texts: list[list[str]]) -> int:
    """With how many same words all begin."""
    return len([*takewhile(lambda words: len({*words}) == 1, zip(*texts, strict=False))])


def _tail(finding: Finding) -> str:
    """What the control gives, how many there were, and whose definition it is."""
    phrase, words = phrase_of(finding.name) or _unknown(finding), _words(finding)
    details = "; ".join(_details(finding, phrase.sampled))
    return f"{_beside(finding, phrase, words)}{f' ({details})' if details else ''}"


def _found(finding: Finding, phrase: Phrase, words: dict[str, str]) -> str:
    text, estimate = phrase.text.format(**words), finding.estimate
    if isinstance(estimate, int | float):
        text += phrase.comment(estimate)
    return f"{text} ({_reason(finding)})" if isinstance(estimate, list) and None in estimate else text


def _beside(finding: Finding, phrase: Phrase, words: dict[str, str]) -> str:
    why = finding.reasons.get("control")
    if finding.control is None:
        return f"no control: {why}"
    beside = finding.control.estimate
    if phrase.worse and isinstance(beside, int | float) and beside < 0:
        return phrase.worse.format(**words, times=readable(1 - beside))
    told = isinstance(finding.estimate, list) and why == finding.reasons.get("estimate")
    if beside is None and why and not told:  # "misses it by none" would read as a hit
        nothing = why.removeprefix("not applicable: ")
        return f"for {finding.control.name} there is none ({nothing})"
    return phrase.beside.format(**words) + (f" ({why})" if why and not told else "")


def _missing(finding: Finding, noun: str) -> str:
    reason = _reason(finding)
    is_state = reason.startswith(("unidentified", "not defined"))
    return f"{noun} is {reason}" if is_state else f"{noun} has no number: {reason}"


def _words(finding: Finding) -> dict[str, str]:
    index = {key: str(value) for key, value in finding.index.items()}
    interval = shown_interval(finding)
    return (
        _ABSENT
        | index
        | _place(finding)
        | {
            "fit": _FITS.get(index.get("fit", ""), ""),
            "reference": _REFERENCES.get(
                index.get("reference", "reference"), index.get("reference", "reference")
            ),
            "weights": _WEIGHTS.get(index.get("weights", "own"), index.get("weights", "own")),
            "of": _COLUMNS.get(index.get("of", ""), ""),
            "x": shown(finding).removesuffix(".") + (f" (95 % interval {interval})" if interval else ""),
            "c": shown_control(finding),
            "name": finding.control.name if finding.control else "the control",
            "unit": finding.unit,
            "memory": "both memories"
            if index.get("memory") == "both"
            else f"{index.get('memory', 'current')} memory",
            "which": f" (iterate {index['iterate']} of {index['rule']})" if "iterate" in index else "",
        }
        | _ranked(finding)
    )


def _place(finding: Finding) -> dict[str, str]:
    layer, head = finding.index.get("layer"), finding.index.get("head")
    if layer is None:
        return {"whose": "the model's", "inside": "", "after": "after the last layer"}
    if layer == "embedding":
        return {"whose": "the embedding's", "inside": "in the embedding, ", "after": "after the embedding"}
    if layer == "all":
        return {"whose": "the tied layers'", "inside": "in the tied layers, ", "after": "after every layer"}
    where = f"layer {layer}" if head is None else f"layer {layer}, head {head}"
    return {"whose": f"{where}'s", "inside": f"in {where}, ", "after": f"after {where}"}


def _ranked(finding: Finding) -> dict[str, str]:
    """Words of a ranking: whose choice or forecast it is, of what, and against whom."""
    index = finding.index
    words = {key: predictor_name(str(index[key])) for key in ("predictor", "rival") if key in index}
    if finding.name in (*CHOICE, *ARC, *JUDGEMENT) and finding.control:
        words["name"] = predictor_name(finding.control.name)
    return words | ({"target": TARGETS.get(str(index["target"]), "")} if "target" in index else {})


def _details(finding: Finding, sampled: str) -> list[str]:
    index, parts = finding.index, []
    if "checkpoint" in index:
        step = str(index["checkpoint"]).removeprefix("step-")
        parts.append(f"step {step.lstrip('0') or '0'}" if step.isdecimal() else isolated(str(step)))
    if "seed" in index:
        parts.append(f"seed {index['seed']}")
    if index.get("series", "pooled") != "pooled":
        parts.append(f"series {isolated(str(index['series']))}")
    parts += [f"recipe {index['recipe']}"] if "recipe" in index else []
    parts += [str(index["role"])] if "role" in index else []
    if finding.n and not is_missing(finding):
        parts.append(f"{finding.n:,} {sampled if finding.n > 1 else sampled.removesuffix('s')}")
    return parts + ([_STANDING[finding.definition]] if finding.definition in _STANDING else [])


def _reason(finding: Finding) -> str:
    return finding.reasons.get("estimate", _EMPTY_MEMORIES)


def _unknown(finding: Finding) -> Phrase:
    name = finding.name.replace("_", " ").replace(".", " ")
    return Phrase(noun=f"{{whose}} {name}", text=f"{{whose}} {name} is {{x}}", beside="{name}: {c}")


def _lens_list(values: list[Scalar]) -> str:
    last = len(values) - 1
    chosen = sorted({0, (last + 1) // 2, last})
    parts = [f"{readable(values[i])} {'at the input' if i == 0 else f'after layer {i - 1}'}" for i in chosen]
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _by_length(finding: Finding, values: list[Scalar]) -> str:
    """A number for each context length, and at which there is none; empty if it is no such list."""
    lengths = str(finding.index.get("lengths", "")).split(", ")
    if finding.name != "context_error" or len(lengths) != len(values):
        return ""
    known = [f"{readable(x)} at {n}" for n, x in zip(lengths, values, strict=True) if x is not None]
    lost = [n for n, x in zip(lengths, values, strict=True) if x is None]
    none = " and ".join(filter(None, (", ".join(lost[:-1]), *lost[-1:])))
    return ", ".join([*known, *([f"not known at {none}"] if none else [])])


def _weights_list(values: list[Scalar]) -> str:
    named = zip(("w_R", "w_T", "w_C"), values, strict=True)
    return ", ".join(f"{name} unknown" if w is None else f"{name} = {readable(w)}" for name, w in named)


def _order_list(values: list[Scalar]) -> str:
    return "; ".join(f"({place}) {readable(name)}" for place, name in enumerate(values, 1))


def _plain_list(values: list[Scalar]) -> str:
    return ", ".join(readable(x) for x in values)


_SHARED = 3
"""Findings that miss a number for one reason, from which on they are told together."""
_AT_MOST_ONE = (
    "within_chain_r2",
    "weight_cosine",
    "reparameterisation_r2",
    "decodability",
    "decoded_increment",
    "cosine",
)
_LISTS: dict[str, Callable[[list[Scalar]], str]] = {
    "value_lens": _lens_list,
    "depth_error": _lens_list,
    "weights": _weights_list,
    "emergence_order": _order_list,
}
_NAMED = ("generalisation", "decodability", "patch_response", "head_agreement")
_LIFTED = ("now", "with endless depth", "with endless context", "with the weights of theta*")
_FITS = {"weights": "with the layer's own attention", "function": "to the values alone"}
_REFERENCES = {"TD iterate": "TD iterate (weighted softmax TD with one fitted step size a layer)"}
_WEIGHTS = {"own": "layer's own update weights", "fitted": "weights (alpha, alpha, -alpha) of one step size"}
_COLUMNS = {"query": "at the query", "context": "over whole contexts"}
_ABSENT = {
    "rule": "the rule",
    "other": "another rule",
    "scored": "on held-out tasks",
    "seen": "layers",
    "intervention": "a change",
    "matrix": "the matrices",
    "property": "the property",
    "shift": "other tasks",
    "first": "one property",
    "second": "another",
    "measure": "distance",
    "layers": "all",
    "depth": "more",
    "trained": "fewer",
    "by": "norm",
    "at": "the model",
    "contexts": "its contexts",
    "steps": "some",
    "hop": "so many",
    "form": "one",
    "block": "a block",
    "head": "a head",
    "path": "one",
    "way": "changed",
    "ablated": "some",
    "heads": "some",
    "layer": "a layer",
    "quantity": "a quantity",
    "against": "a control",
    "response": "returned values",
    "from": "one",
    "to": "the next",
    "asks": "S_j",
    "objective": "update's",
    "k": "several",
    "predictor": "the score",
    "rival": "a rival",
    "chosen": "once",
    "target": "gain",
}
_STANDING = {"choice": "our definition", "audit": "second-hand equation"}
_EMPTY_MEMORIES = (
    "unidentified: an entry that it needs has exactly zero gradient (in the first of several untied layers both "
    "memories are still empty)"
)
