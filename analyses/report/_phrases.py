"""The phrases of all findings, and the sections of a report that they stand in."""

from collections.abc import Iterable
from functools import cache

from valuelens.analyses._question import Phrase, Question
from valuelens.analyses._questions import ANALYSES, installed_names, question
from valuelens.analyses._result import Finding
from valuelens.analyses.report._phrases_costates import COSTATES, DIAGNOSIS
from valuelens.analyses.report._phrases_credit import HEADS, HOPS
from valuelens.analyses.report._phrases_impact import ARC, CHOICE, JUDGEMENT
from valuelens.analyses.report._phrases_training import TRAINING
from valuelens.models import InputError

PHRASES: dict[str, Phrase] = {
    **{name: phrase for each in ANALYSES.values() for name, phrase in each.phrases.items()},
    **TRAINING,
    **DIAGNOSIS,
    **COSTATES,
    **HOPS,
    **HEADS,
    **CHOICE,
    **ARC,
    **JUDGEMENT,
}
"""By name of the finding; those of installed packages: `phrase_of`."""

_SECTIONS: dict[str, tuple[str, ...]] = {
    "training": ("emergence_order", "emergence_over_seeds", "emergence_precedes", "emergence_step"),
    "diagnosis": tuple(DIAGNOSIS),
    "costates": tuple(COSTATES),
    "hops": tuple(HOPS),
    "heads": tuple(HEADS),
    "choice": tuple(CHOICE),
    "arc": tuple(ARC),
    "judgement": tuple(JUDGEMENT),
}


def phrase_of(name: str) -> Phrase | None:
    """The phrase of a finding, also of one whose question an installed package brings along.

    Args:
        name: Of the finding.
    """
    brought = None if name in PHRASES else _brought(name.partition(".")[0])
    return PHRASES.get(name) if brought is None else brought.phrases.get(name)


def questions_of(findings: Iterable[Finding]) -> dict[str, Question]:
    """By section: our questions on a checkpoint, then those of installed packages that some findings answer.

    Args:
        findings: Of a result.
    """
    names = dict.fromkeys(f.name.partition(".")[0] for f in findings if f.name not in PHRASES)
    brought = [found for name in names if (found := _brought(name)) is not None]
    return {each.section: each for each in (*ANALYSES.values(), *brought)}


def sections_of(findings: Iterable[Finding]) -> dict[str, tuple[str, ...]]:
    """Names of findings by section of the report.

    Args:
        findings: Of a result.
    """
    return {key: tuple(each.phrases) for key, each in questions_of(findings).items()} | _SECTIONS


@cache
def _brought(name: str) -> Question | None:
    """A result may come from elsewhere: what is not installed here, or broken, is told in raw words."""
    try:
        return question(name) if name in installed_names() else None
    except InputError:
        return None
