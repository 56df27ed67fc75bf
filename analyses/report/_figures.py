"""Every figure that a result has the numbers for, as SVG with a caption and a text for those who cannot see it.

Figures need a result and nothing else; what was not measured is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from valuelens.analyses._result import Result
from valuelens.analyses.report._checkpoints import main_checkpoint
from valuelens.analyses.report._plate import Plate
from valuelens.analyses.report._plates import plates_of
from valuelens.analyses.report._sentences import sentence
from valuelens.analyses.report._style import styled, svg_text
from valuelens.models import atomic_path


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


def pictures(result: Result) -> list[Picture]:
    """All figures of a result: those of its main checkpoint, and those of the run.

    Args:
        result: Of a checkpoint or a run.
    """
    main = main_checkpoint(result)[1]
    drawn = []
    for name, plate in plates_of(result).items():
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
                    caption=plate.caption,
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
    if plate.tells:
        return f"{plate.caption.split('. ')[0].rstrip('.')}. {plate.tells(result)}"
    said = [sentence(finding) for name in plate.says for finding in result.find(name)]
    shown = said if len(said) <= 3 else [said[0], said[-1]]
    return " ".join((plate.caption.split(". ")[0].rstrip(".") + ".", *shown))
