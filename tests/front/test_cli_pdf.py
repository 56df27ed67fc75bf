"""`report --pdf` as a user meets it: two files, or one line that says what to install and nothing written."""

import json
import sys
from pathlib import Path

import pytest

from valuelens.analyses import Control, Finding, Result, save_result
from valuelens.cli import main

VERDICT = "This verdict stands in the PDF."


@pytest.fixture
def results(tmp_path: Path) -> Path:
    error = Finding(
        **{"name": "context_msve_vs_constant", "estimate": 0.25, "unit": "1", "n": 8, "definition": "choice"},
        interval=(0.2, 0.3),
        control=Control(name="constant predictor", estimate=1.0),
    )
    save_result(Result(kind="in-context-rl", verdict=VERDICT, findings=(error,)), tmp_path / "results")
    return tmp_path / "results"


def called(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["valuelens", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.slow
def test_a_pdf_stands_beside_the_page(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, "report", results, "--pdf", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert {key: Path(name).name for key, name in told.items()} == {
        "report": "report.html",
        "pdf": "report.pdf",
    }
    assert VERDICT in Path(told["report"]).read_text(encoding="utf-8")
    assert Path(told["pdf"]).read_bytes()[:5] == b"%PDF-"


def test_without_the_library_nothing_is_written(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in results.iterdir())
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    assert called(monkeypatch, "report", results, "--pdf") == 2
    told = capsys.readouterr()
    assert told.err.startswith(
        "valuelens: error: a PDF needs weasyprint and pango; found no weasyprint: pip install "
    )
    assert told.err.count("\n") == 1
    assert told.out == ""
    assert sorted(path.name for path in results.iterdir()) == before
