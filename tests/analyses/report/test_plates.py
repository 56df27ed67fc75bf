"""A question declares its own section: the words, the notes and the figure of a report come from it alone."""

from pathlib import Path
from typing import Any

import pytest

from valuelens.analyses import ANALYSES, Control, Drawing, Finding, Phrase, Question, Result
from valuelens.analyses.report import _phrases, sentence, write_report
from valuelens.analyses.report._plates import plates_of


def draw(ax: Any, result: Result) -> None:
    ax.plot([finding.estimate for finding in result.find("spread.width")], label="width")


SPREAD = Question(
    name="spread",
    ask=lambda subject: Result(kind="in-context-rl"),
    title="Spread of values",
    introduction="How wide is the range of values?",
    phrases={"spread.width": Phrase(noun="the width", text="values span {x}", beside="{name} spans {c}")},
    notes=("A wide range is not a right one.",),
    drawings={
        "width": Drawing(
            draw=draw, needs=("spread.width",), caption="Width of the values.", says=("spread.width",)
        )
    },
)


@pytest.fixture
def result(monkeypatch: pytest.MonkeyPatch) -> Result:
    """Its answer, as if the question were one of ours."""
    monkeypatch.setattr(_phrases, "ANALYSES", {**ANALYSES, "spread": SPREAD})
    monkeypatch.setattr(_phrases, "PHRASES", {**_phrases.PHRASES, **SPREAD.phrases})
    width = Finding(
        name="spread.width",
        estimate=1.5,
        unit="1",
        n=8,
        definition="choice",
        interval=(1.25, 1.75),
        control=Control(name="the truth", estimate=2.0),
    )
    return Result(kind="in-context-rl", verdict="Wide.", findings=(width,))


def test_its_sentence_is_its_phrase(result: Result) -> None:
    assert sentence(result.findings[0]).startswith(
        "Values span 1.50 (95 % interval 1.25 to 1.75); the truth spans"
    )


def test_its_figure_stands_after_all_others(result: Result) -> None:
    plates = plates_of(result)
    assert list(plates)[-1] == "spread_width"
    assert plates["spread_width"].section == "spread"


def test_its_section_is_on_the_page(result: Result, tmp_path: Path) -> None:
    page = write_report({"run": result}, tmp_path / "page.html").read_text(encoding="utf-8")
    for words in (
        SPREAD.title,
        SPREAD.introduction,
        SPREAD.notes[0],
        "Width of the values.",
        "alues span 1.50",
    ):
        assert words in page
    assert "Other findings" not in page
