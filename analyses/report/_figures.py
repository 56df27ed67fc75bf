"""Every figure that a result has the numbers for, as SVG with a caption and a text for those who cannot see it.

Figures need a result and nothing else; what was not measured is left out.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from valuelens.analyses._result import Finding, Result
from valuelens.analyses.report._checkpoints import main_checkpoint
from valuelens.analyses.report._plate import Plate
from valuelens.analyses.report._plates import plates_of
from valuelens.analyses.report._sentences import sentence
from valuelens.analyses.report._style import styled, svg_text
from valuelens.models import atomic_path

LONGEST = 300
"""Characters of a text alternative."""

_ENOUGH = 25


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """A drawn figure.

    Attributes:
        name: Of its file, without ending.
        section: Of the report.
        svg: The document.
        caption: What is shown and how to read it.
        alt: What it shows in this result, for those who cannot see it.
        data: JSON for the script of a page; empty where there is nothing to choose.
    """

    name: str
    section: str
    svg: str
    caption: str
    alt: str
    data: str = ""


def pictures(result: Result, *, progress: Callable[[int, int], None] | None = None) -> list[Picture]:
    """All figures of a result: those of its main checkpoint, and those of the run.

    Args:
        result: Of a checkpoint or a run.
        progress: Called as progress(done, total) before each that may be drawn.
    """
    main = main_checkpoint(result)[1]
    drawn, plates = [], plates_of(result)
    for done, (name, plate) in enumerate(plates.items()):
        if progress:
            progress(done, len(plates))
        subject = result if plate.run else main
        if _has(subject, plate.needs) and plate.applies(subject):
            with styled():
                figure = plate.draw(subject)
                svg = svg_text(figure)
            drawn.append(
                Picture(
                    name=name,
                    section=plate.section,
                    svg=svg,
                    caption=plate.caption + (plate.remark(subject) if plate.remark else ""),
                    alt=_alt(plate, subject),
                    data=plate.explored(figure, subject) if plate.explored else "",
                )
            )
    return drawn


def save_figures(result: Result, folder: str | Path, *, drawn: Sequence[Picture] | None = None) -> list[Path]:
    """Write every figure as an SVG file, each whole or not at all.

    Args:
        result: Of a checkpoint or a run.
        folder: Created if needed.
        drawn: Its `pictures`, where they were drawn before.

    Returns:
        The files.
    """
    paths = []
    for picture in pictures(result) if drawn is None else drawn:
        paths.append(Path(folder) / f"{picture.name}.svg")
        with atomic_path(paths[-1]) as temporary:
            temporary.write_text(picture.svg, encoding="utf-8")
    return paths


def _has(result: Result, needs: tuple[str, ...]) -> bool:
    found = {finding.name for finding in result.findings if finding.estimate is not None}
    return set(needs) <= found | set(result.arrays) | set(result.tables)


def _alt(plate: Plate, result: Result) -> str:
    """What a figure is, and its finding: as many sentences as a listener bears."""
    told = plate.tells(result).split(". ") if plate.tells else [_short(f) for f in _spoken(plate, result)]
    alt = f"{_head(plate.caption)}."
    for k, words in enumerate(dict.fromkeys(filter(None, told))):
        longer = f"{alt} {words.rstrip('.')}."
        if k == 0 or len(longer) <= LONGEST:
            alt = longer
        elif plate.tells:
            break  # what follows leans on what went before
    return alt if len(alt) <= LONGEST else f"{alt[: LONGEST - 1].rsplit(' ', 1)[0].rstrip(',;:')}…"


def _head(caption: str) -> str:
    """What a figure is: the caption up to its first full stop or colon, or to a comma where that says enough."""
    sentence_end = re.split(r"[.:;](?: |$)", caption)[0]
    parts = sentence_end.split(", ")
    count = next((k for k in range(1, len(parts)) if len(", ".join(parts[:k])) >= _ENOUGH), len(parts))
    return ", ".join(parts[:count])


def _spoken(plate: Plate, result: Result) -> list[Finding]:
    """Of every name first and last finding with a number, those first that have an interval or a control."""
    spoken: list[Finding] = []
    for name in plate.says:
        known = [f for f in result.find(name) if f.estimate is not None] or list(result.find(name))
        beside = [f for f in known if f.interval or f.control] or known
        spoken += [f for f in (*beside[:1], *beside[-1:]) if f not in spoken]
    return spoken


def _short(finding: Finding) -> str:
    """Its sentence without what stands in the last brackets: how many there were, and whose definition it is."""
    return re.sub(r" \([^()]*\)\.$", ".", sentence(finding))
