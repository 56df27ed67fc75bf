"""The report as a PDF: whole, and a clear word where it cannot be made."""

import builtins
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import weasyprint

from valuelens.analyses import Result, load_result
from valuelens.analyses.report import require_pdf, write_pdf, write_report
from valuelens.analyses.report._pdf import for_paper
from valuelens.models import InputError

Make = Callable[..., Result]
DEFAULT = Path(__file__).parents[2] / "fixtures" / "default"


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """What stands in the PDF that was written last."""
    documents: list[weasyprint.Document] = []
    render = weasyprint.HTML.render

    def kept(self: weasyprint.HTML, **more: Any) -> weasyprint.Document:
        documents.append(render(self, **more))
        return documents[-1]

    monkeypatch.setattr(weasyprint.HTML, "render", kept)
    return lambda: " ".join(
        " ".join(text for p in documents[-1].pages for text in texts(p._page_box)).split()
    )


@pytest.mark.slow
def test_a_pdf_holds_verdict_and_folded_parts(
    tmp_path: Path, language_result: Make, words: Callable[[], str]
) -> None:
    result = language_result(flat=1.0, groups=3)
    page = write_report({"a": replace(result, tables={})}, tmp_path / "report.html")
    out = write_pdf(page)
    assert out == tmp_path / "report.pdf"
    assert out.read_bytes()[:5] == b"%PDF-"
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["report.html", "report.pdf"]
    told = words()
    assert result.verdict in told
    for opened in (
        "Groups with equal rewards are counted, not dropped",
        "sampling.temperature",
        "our definition",
    ):
        assert opened in told


def test_what_a_table_says_is_not_said_again_in_words(tmp_path: Path, words: Callable[[], str]) -> None:
    fold = "<details class='dump{}'><summary>F</summary><ul><li>{} words</li></ul><table><tr><td>{}</table></details>"
    page = tmp_path / "page.html"
    folds = fold.format("", "single", 7) + fold.format(" again", "double", 8)
    page.write_text(f"<html><head></head><body>{folds}</body></html>", encoding="utf-8")
    write_pdf(page)
    told = words()
    for shown in ("single words", "7", "8", "here in numbers only"):
        assert told.count(shown) == 1
    assert "double" not in told


def test_folds_that_say_a_table_again_are_marked(tmp_path: Path) -> None:
    """Those of other layers and checkpoints; not those that answer further, whose numbers stand beside words alone."""
    page = write_report({"a": load_result(DEFAULT)}, tmp_path / "a.html", drawn={"a": []})
    html = page.read_text(encoding="utf-8")
    found = dict[str, set[bool]]()
    for again, title in re.findall(r'<details class="(?:dump|read)( again)?">\s*<summary>([^<,]*)', html):
        found.setdefault(title, set()).add(bool(again))
    marked = ("Layers between", "Rules", "Checkpoint at step 0 of seed 0", "The same at the query")
    assert [found[title] for title in (*marked, "The other findings")] == [{True}] * len(marked) + [{False}]


def texts(box: Any) -> list[str]:
    """What stands in the boxes of a page."""
    if hasattr(box, "text"):
        return [box.text]
    return [text for child in getattr(box, "children", ()) for text in texts(child)]


def test_paper_has_no_script_no_hover_and_one_colour() -> None:
    page = (
        ":root { --f0: #111111; --f-card: #fff; } @media screen { :root { --f0: #eeeeee; } }"
        '<a href="#x">x</a><a href="../r.json">r</a><path style="fill: var(--f0)"/><p style="color: var(--ink)">'
        '<g class="hover"><path/></g><script type="application/json">1</script>.card { background: var(--f-card); }'
    )
    assert for_paper(page).endswith(
        '<a href="#x">x</a>r<path style="fill: #111111"/><p style="color: var(--ink)">.card { background: #fff; }'
    )


def test_a_pdf_needs_its_page(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a PDF is made from a report's HTML; found .*No such file"):
        write_pdf(tmp_path / "report.html")


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (ImportError("no"), "found no weasyprint: pip install "),
        (
            OSError("cannot load library 'libpango'\nsee"),
            r"found weasyprint without a library of the system \(cannot load library",
        ),
    ],
)
def test_what_is_missing_is_said_before_any_work(
    monkeypatch: pytest.MonkeyPatch, error: Exception, found: str
) -> None:
    real = builtins.__import__

    def broken(name: str, *rest: Any, **more: Any) -> Any:
        if name == "weasyprint":
            raise error
        return real(name, *rest, **more)

    monkeypatch.delitem(sys.modules, "weasyprint")
    monkeypatch.setattr(builtins, "__import__", broken)
    with pytest.raises(
        InputError, match=f"a PDF needs weasyprint and pango; {found}.*; option --pdf"
    ) as told:
        require_pdf()
    assert "pip install 'valuelens[pdf]'" in str(told.value)
    assert "apt install libpango-1.0-0" in str(told.value)
