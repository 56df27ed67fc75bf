"""What an analysis declares beside what it measures: its name, and the words and figures of its section in a report.

One `Question` in an analysis' own file is all that the command line and the report know of it. Figures are drawn
by functions that are handed matplotlib's Axes, so no analysis imports a plotting library.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from valuelens.analyses._result import Result
from valuelens.analyses._subject import Subject


@dataclass(frozen=True, kw_only=True, slots=True)
class Phrase:
    """A sentence with holes, which a finding's numbers fill.

    Holes: {x} the estimate, {c} the control and {name} its name, {unit}, the keys of the index, and the place as
    {whose} (`layer 2's`), {inside} (`in layer 2, `) or {after} (`after layer 2`); in `worse` also {times}, the
    squared error over that of the baseline, 1 - R2.

    Attributes:
        noun: Stands alone where there is no number.
        text: The sentence.
        beside: What the control gives.
        sampled: What `n` counts.
        comment: What the size of the number means.
        worse: What the control gives, of an R2, where it is negative; `beside` if empty.
    """

    noun: str
    text: str
    beside: str
    sampled: str = "tasks"
    comment: Callable[[float], str] = lambda x: ""
    worse: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    """A figure of one panel that an analysis brings along.

    Attributes:
        draw: Called as draw(ax, result) with matplotlib's Axes and the result of one checkpoint.
        needs: Findings, arrays or tables without which it is left out.
        caption: What is shown and how to read it; its first sentence begins the text for those who cannot see it.
        says: Findings that tell in words what it shows.
        height: In inches; it is 6.6 wide.
    """

    draw: Callable[[Any, Result], Any]
    needs: tuple[str, ...]
    caption: str
    says: tuple[str, ...]
    height: float = 3.6


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """An analysis: what it is called, what it measures, and what a report says of it.

    Attributes:
        name: What `--only` takes.
        ask: Measures a model on tasks that it never trained on.
        title, introduction: Of its section.
        phrases: By name of the finding, in the order of the section.
        section: Key of the section; its name if empty, which that of an installed package must be.
        notes: How to read the numbers, always shown.
        drawings: Figures, by the name of their file.
        verdict: A sentence for the top of a report, from the findings on one checkpoint; empty: none.
        tenths: Of a second that it takes, about: progress counts in them.
        last_only: A run asks it of the last checkpoint of each seed only, unless it is analysed in full.
    """

    name: str
    ask: Callable[[Subject], Result]
    title: str
    introduction: str
    phrases: Mapping[str, Phrase]
    section: str = ""
    notes: tuple[str, ...] = ()
    drawings: Mapping[str, Drawing] = field(default_factory=dict)
    verdict: Callable[[Result], str] = lambda result: ""
    tenths: int = 3
    last_only: bool = False

    def __post_init__(self) -> None:
        """A question without a section of its own name says which."""
        object.__setattr__(self, "section", self.section or self.name)
