"""`report --pdf` as a user meets it: two files, or one line that says what to install and nothing written."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from valuelens.analyses import Control, Finding, Result, save_result

Run = Callable[..., tuple[int, str, str]]
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


@pytest.mark.slow
def test_a_pdf_stands_beside_the_page(results: Path, valuelens: Run, shares: list[tuple[str, float]]) -> None:
    code, out, _ = valuelens("report", results, "--pdf", "--json")
    assert code == 0
    told = json.loads(out)
    assert {key: Path(name).name for key, name in told.items()} == {
        "report": "report.html",
        "pdf": "report.pdf",
    }
    assert VERDICT in Path(told["report"]).read_text(encoding="utf-8")
    assert Path(told["pdf"]).read_bytes()[:5] == b"%PDF-"
    done = [share for _, share in shares]
    assert done == sorted(done)
    assert done[-1] > 0.98
    assert len({share for doing, share in shares if doing == "laying out the PDF"}) >= 6  # of seven steps


def test_without_the_library_nothing_is_written(
    results: Path, valuelens: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(path.name for path in results.iterdir())
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    code, out, err = valuelens("report", results, "--pdf")
    assert code == 2
    assert err.startswith(
        "valuelens: error: a PDF needs weasyprint and pango; found no weasyprint: pip install "
    )
    assert err.count("\n") == 1
    assert out == ""
    assert sorted(path.name for path in results.iterdir()) == before
