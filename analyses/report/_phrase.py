"""A sentence with holes: what each name of a finding is turned into.

Holes: {x} the estimate, {c} the control and {name} its name, {unit}, the keys of the index, and the place as {whose}
(`layer 2's`), {inside} (`in layer 2, `) or {after} (`after layer 2`).
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Phrase:
    """A sentence with holes.

    Attributes:
        noun: Stands alone where there is no number.
        text: The sentence.
        beside: What the control gives.
        sampled: What `n` counts.
        comment: What the size of the number means.
    """

    noun: str
    text: str
    beside: str
    sampled: str = "tasks"
    comment: Callable[[float], str] = lambda x: ""


def radius(x: float) -> str:
    """What a spectral radius means."""
    return ", and below 1 they vanish" if x < 1 else ", and from 1 on they need not vanish"
