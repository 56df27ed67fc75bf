"""The register of questions: ours, and those that installed packages bring along."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from valuelens.analyses._question import Question
from valuelens.models import InputError, import_named
from valuelens.models.icrl import content_hash

_OURS = (
    "slots",
    "distance",
    "reparameterisation",
    "diagonality",
    "convergence",
    "neu",
    "identify",
    "opaque",
    "credit",
    "generalisation",
)
"""Files of this folder with a `QUESTION` of that name, in the order of a report; a new analysis is one more line."""

ANALYSES: Mapping[str, Question] = {
    name: import_module(f"valuelens.analyses._{name}").QUESTION for name in _OURS
}
"""Our questions on one checkpoint, by the name that `--only` takes."""

RUN_ANALYSES = ("emergence",)
"""Questions on a whole run."""

GROUP = "valuelens.analyses"
"""Of the entry points by which other packages bring questions; the name of one is that of its question."""

SECTIONS = frozenset(
    {
        *(each.section for each in ANALYSES.values()),
        *("training", "diagnosis", "flat", "costates", "hops", "heads", "choice", "arc", "judgement", "runs"),
        *("other", "verdict", "skipped", "limitations", "provenance", "glossary"),
    }
)
"""Of a report that are ours."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """A question that an installed package brings along.

    Attributes:
        question: As declared there.
        code: `package.module:NAME` that it was imported as.
        package: Name and version of what was installed.
        file: Where its code stands, if in a file.
    """

    question: Question
    code: str
    package: str
    file: Path | None

    @property
    def sha256(self) -> str | None:
        """Of all Python files of its package, or of its module if that stands alone; none if it is in no file."""
        if self.file is None:
            return None
        depth = self.code.partition(":")[0].count(".")
        own = self.file.parent if self.file.name == "__init__.py" else self.file
        return content_hash(own.parents[depth - 1] if depth else own, "*.py")


def installed_names() -> tuple[str, ...]:
    """Names of the questions that installed packages bring along; nothing is imported for it."""
    ours = {*ANALYSES, *RUN_ANALYSES}
    return tuple(sorted({each.name for each in entry_points(group=GROUP)} - ours))


def question(name: str) -> Question:
    """A question by its name; that of another package is imported.

    Args:
        name: Ours, or one of `installed_names`.

    Raises:
        InputError: There is none, or it cannot be used.
    """
    return ANALYSES[name] if name in ANALYSES else installed(name).question


def installed(name: str) -> Installed:
    """A question that an installed package brings along, imported.

    Args:
        name: That of its entry point in the group `valuelens.analyses`.

    Raises:
        InputError: No package brings it, or two do; it cannot be imported or is no `Question`; or it, its findings
            or its section are not named as they must.
    """
    found = sorted(set(entry_points(group=GROUP, name=name)), key=lambda each: each.value)
    if len(found) != 1:
        brought = " and ".join(_package(each) for each in found) or "none"
        raise InputError(
            "one installed package must bring the analysis", f"found {brought}", f"analysis {name}"
        )
    return _imported(name, found[0].value, _package(found[0]))


@cache
def _imported(name: str, value: str, package: str) -> Installed:
    code = import_named(value, "analysis")
    where = f"analysis {name}, {value}"
    if not isinstance(code.value, Question):
        raise InputError("an analysis must be a Question", f"found {type(code.value).__name__}", where)
    if code.value.name != name or not _NAME.fullmatch(name):
        must = "a Question must have the name of its entry point: small letters, digits and _"
        raise InputError(must, f"found {code.value.name!r} and {name!r}", where)
    refuse_strange(name, code.value.phrases, where=where)
    if code.value.section != name or name in SECTIONS:
        must = f"the section of an installed analysis must be its name, and none of {', '.join(sorted(SECTIONS))}"
        raise InputError(must, f"found {code.value.section!r}", where)
    return Installed(question=code.value, code=value, package=package, file=code.file)


def refuse_strange(name: str, findings: Mapping[str, object] | list[str], *, where: str) -> None:
    """Findings of a question that another package brings along are called `question.finding`.

    Args:
        name: Of the question.
        findings: Their names.
        where: Stands in the error.

    Raises:
        InputError: One is called otherwise.
    """
    for each in findings:
        if not (each.startswith(f"{name}.") and _NAME.fullmatch(each.removeprefix(f"{name}."))):
            must = f"findings of an installed analysis must be named {name}.something"
            raise InputError(must, f"found {each!r}", where)


def _package(entry: Any) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
