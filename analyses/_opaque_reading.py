"""What the findings of `opaque` come to, in words.

Thresholds are our definition, fixed on planted and untrained networks (seeds from 100).
"""

import math

from valuelens.analyses._opaque_findings import UNTRAINED
from valuelens.analyses._opaque_quantities import VALUE
from valuelens.analyses._opaque_rules import SOFTMAX
from valuelens.analyses._result import Finding

READABLE = 0.95
"""R^2 whose lower limit a decoded iterate must pass to count as decodable."""

CAUSAL = 0.1
"""Patch gap that the upper limit must stay below for responses to count as TD's."""

FITS = 0.05
"""Held-out error above which the rule does not describe what is returned."""


def reading(findings: list[Finding], num_tasks: int) -> Finding:
    """The answer in words, from the findings alone."""
    error = _number(_softmax(findings, "returned_rule_error")[0].estimate)
    readable = _readable_layers(findings)
    if not error <= FITS:
        words = f"not decodable: {SOFTMAX} does not describe what is returned"
    elif not readable:
        words = f"not decodable: no layer shows iterates of {SOFTMAX} before its last step"
    else:
        words = f"decodable; patches move downstream {_causal(findings, readable)}"
    return Finding(
        name="opaque_reading",
        estimate=words,
        unit="reading",
        n=num_tasks,
        definition="choice",
        reasons={
            "interval": "a word; the numbers that it rests on have theirs",
            "control": "a word; the numbers that it rests on have theirs",
        },
    )


def _readable_layers(findings: list[Finding]) -> list[int | str]:
    """Layers whose iterates are above the threshold, and far better read than in an untrained network."""
    steps = _softmax(findings, "returned_rule_error")[0].index["steps"]
    blank = {
        f.index["layer"]: _number(f.control and f.control.estimate)
        for f in _softmax(findings, "selectivity", quantity=VALUE, against=UNTRAINED)
    }
    layers = []
    for f in _softmax(findings, "decodability", quantity=VALUE):
        layer, share = f.index["layer"], _number(f.estimate)
        low = f.interval[0] if f.interval else share
        left = 1 - share < (1 - blank[layer]) / 2
        if layer != "embedding" and low > READABLE and left and f.index["iterate"] != steps:
            layers.append(layer)
    return layers


def _causal(findings: list[Finding], layers: list[int | str]) -> str:
    """From the patches that there are: a memory that is not decodable was not patched, which says nothing."""
    patches = [
        f
        for f in findings
        if f.name == "patch_response" and f.estimate is not None and f.index["layer"] in layers
    ]
    limits = []
    for f in patches:
        if f.index["response"] == "returned values":
            beside = f.control.estimate if f.control and isinstance(f.control.estimate, list) else []
            upper = f.interval[1] if f.interval else _number(f.estimate)
            limits.append((upper, min(map(_number, beside), default=0.0)))
    if limits and all(upper < CAUSAL for upper, _ in limits):
        return "as TD predicts"
    if limits and all(upper < min(1.0, beside) for upper, beside in limits):
        return "in part as TD predicts"
    return "not as TD predicts"


def _softmax(findings: list[Finding], name: str, **index: str) -> list[Finding]:
    wanted = {"rule": SOFTMAX, **index}
    return [
        f
        for f in findings
        if f.name == name and all(f.index.get(key) == each for key, each in wanted.items())
    ]


def _number(estimate: object) -> float:
    return float(estimate) if isinstance(estimate, int | float) else math.nan
