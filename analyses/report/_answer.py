"""A short answer at the top of a report: what was found, how sure, and against which control."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from valuelens.analyses._result import Finding, Result
from valuelens.analyses.report._numbers import interval_words, readable

Sure = Literal["sure", "not sure", "no interval", "exact"]

SURENESS = {
    "sure": "sure: the whole 95 % interval lies on one side of where the answer would change",
    "not sure": "not sure: the 95 % interval reaches where the answer would change",
    "no interval": "no interval: nothing says how sure this is",
    "exact": "exact: a property of these weights, so nothing was sampled",
}
"""What the marks mean (our definition)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One question, answered.

    Attributes:
        question: As a newcomer would ask it.
        answer: In a word or two.
        found: The number behind it.
        control: What it stands beside, or why beside nothing.
        sure: How sure it is.
        why: The interval that decides, or why there is none.
    """

    question: str
    answer: str
    found: str
    control: str
    sure: Sure
    why: str = ""


def first_of(result: Result, name: str, **index: int | str) -> Finding | None:
    """The first finding of a name, if there is any.

    Args:
        result: Any.
        name: Of the finding.
        **index: What its index holds.
    """
    return next(iter(result.find(name, **index)), None)


def value_of(finding: Finding | None) -> float | None:
    """The estimate of a finding as a number; none where it is no number.

    Args:
        finding: Any, or none.
    """
    estimate = finding.estimate if finding else None
    return float(estimate) if isinstance(estimate, int | float) else None


def control_of(finding: Finding | None) -> float | None:
    """The estimate of a finding's control as a number; none where it is no number.

    Args:
        finding: Any, or none.
    """
    estimate = finding.control.estimate if finding and finding.control else None
    return float(estimate) if isinstance(estimate, int | float) else None


def control_words(finding: Finding, told: Callable[[float], str] = readable) -> str:
    """The control of a finding in words; why there is none where there is none.

    Args:
        finding: Any.
        told: How its number is written.
    """
    beside = control_of(finding)
    if finding.control is None or beside is None:
        return f"none: {finding.reasons.get('control', 'its control is no number')}"
    return f"{finding.control.name}: {told(beside)}"


def side(finding: Finding, border: float) -> int:
    """Whether an interval lies above a border (1), below it (-1), or on both sides (0).

    Args:
        finding: With an interval; without one it is 0.
        border: Where the answer changes.
    """
    low, high = finding.interval or (border, border)
    return int(low > border) - int(high < border)


def surely(finding: Finding, border: float) -> Sure:
    """How sure an answer is that changes at a border.

    Args:
        finding: What it rests on.
        border: Where it changes.
    """
    if finding.interval is None:
        return "no interval"
    return "sure" if side(finding, border) else "not sure"


def limits(finding: Finding, over: str) -> str:
    """The interval of a finding in words; why there is none where there is none.

    Args:
        finding: Any.
        over: What the interval is taken over.
    """
    if finding.interval is None:
        return f"no interval: {finding.reasons['interval']}"
    return f"95 % interval {interval_words(*finding.interval)}, over {finding.n:,} {over}"
