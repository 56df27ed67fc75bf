"""The report as a PDF, for a paper's appendix: every number is there, nothing is folded, nothing is interactive."""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from valuelens.models import InputError, atomic_path

_HOW = (
    "found {}: pip install 'valuelens[pdf]', and pango of the system (Debian: apt install libpango-1.0-0 "
    "libpangoft2-1.0-0; macOS: brew install pango)"
)

_OPEN = """
details.dump > summary::after { content: none }
details.again > summary::after { content: " (here in numbers only: see the table)"; font-weight: 400 }
details.again > ul { display: none }
html { font-size: 12.5px }
body { font-size: 8.5pt; line-height: 1.45 }
table { font-size: 6.8pt; line-height: 1.3 }
th, td { padding-top: 1.2pt; padding-bottom: 1.2pt }
.told ul { line-height: 1.4 }
"""
"""On paper from a browser these parts stay closed and say so. Here nothing is closed, but no number is said twice: in
a report of three checkpoints the same in sentences was half of all pages."""

_SHARE = 0.82
"""Of their width on a screen: then two figures of usual height share a page."""

_STEPS = {1: (0, 0), 2: (4, 4), 3: (5, 5), 4: (19, 19), 5: (21, 70), 6: (70, 70), 7: (98, 98)}
"""Percent of the time at the begin and the end of each of the library's steps, about: parsing, CSS, boxes, pages."""

_PAGE = 6000
"""Characters of HTML without figures that fill a page, about: 4,900 and 7,300 in two reports."""


def require_pdf() -> Any:
    """The library that writes PDFs; call it before any work, so that nothing is half done without it.

    Raises:
        InputError: weasyprint is not installed, or pango is not.
    """
    try:
        import weasyprint
    except ImportError:
        found = "no weasyprint"
    except OSError as error:  # it looks for pango when it is imported
        found = f"weasyprint without a library of the system ({str(error).splitlines()[0][:80]})"
    else:
        return weasyprint
    raise InputError("a PDF needs weasyprint and pango", _HOW.format(found), "option --pdf")


def write_pdf(page: str | Path, *, progress: Callable[[float, float], None] | None = None) -> Path:
    """Write a report as a PDF beside its HTML, with every number: folded parts are open.

    Sentences that repeat a table of numbers (of other checkpoints, layer by layer) stand in the HTML alone.

    Args:
        page: The HTML file that `write_report` wrote.
        progress: Called as progress(done, total); pages are counted, how many they will be is guessed from the text.

    Returns:
        The same name with `.pdf`.

    Raises:
        InputError: weasyprint or pango is not installed, the page cannot be read, or the PDF cannot be written.
    """
    weasyprint = require_pdf()
    # it names every CSS rule that only browsers know
    for name in ("weasyprint", "fontTools"):
        logging.getLogger(name).setLevel(logging.ERROR)
    out = Path(page).with_suffix(".pdf")
    try:
        html = Path(page).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("a PDF is made from a report's HTML", f"found {error}", str(page)) from None
    paper = for_paper(html).replace("</head>", f"<style>{_OPEN}</style></head>", 1)
    with _watched(progress, paper), atomic_path(out) as temporary:
        document = weasyprint.HTML(string=paper).render()
        document.write_pdf(str(temporary))
    return out


@contextmanager
def _watched(progress: Callable[[float, float], None] | None, html: str) -> Iterator[None]:
    """Tell what the library logs of its steps and pages."""
    if progress is None:
        yield
        return
    pages = max(1.0, len(re.sub(r"<(svg|style)\b.*?</\1>", "", html, flags=re.S)) / _PAGE)
    log, listener = logging.getLogger("weasyprint.progress"), _Listener(progress, pages)
    before, up = log.level, log.propagate
    log.addHandler(listener)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(listener)
        log.setLevel(before)
        log.propagate = up


class _Listener(logging.Handler):
    """Steps and pages as a share of the whole."""

    def __init__(self, progress: Callable[[float, float], None], pages: float) -> None:
        super().__init__()
        self.progress, self.pages = progress, pages

    def emit(self, record: logging.LogRecord) -> None:
        """A step begins, or a page of the layout."""
        said = re.match(r"Step (\d)(?:.*Page (\d+))?", record.getMessage())
        if said is None or int(said[1]) not in _STEPS:
            return
        begin, end = _STEPS[int(said[1])]
        inside = min(1.0, int(said[2] or 0) / self.pages)
        self.progress(begin + (end - begin) * inside, 100.0)


def for_paper(html: str) -> str:
    """A report without what only a screen has: scripts, places to point at, colours that change, links to files.

    Figures are somewhat smaller than on a screen.

    Args:
        html: The page.
    """
    html = re.sub(r'<script\b.*?</script>|<g class="hover".*?</g>', "", html, flags=re.S)
    html = re.sub(r'<a href="(?!#|https:)[^"]*">(.*?)</a>', r"\1", html)
    html = re.sub(
        r'(role="img"[^>]* style="width:)(\d+)px', lambda w: f"{w[1]}{round(_SHARE * int(w[2]))}px", html
    )
    shades: dict[str, str] = {}
    for name, shade in re.findall(r"(--f[\w-]+): ([^;]+);", html):
        shades.setdefault(name, shade)  # light ones come first
    return re.sub(r"var\((--f[\w-]+)\)", lambda found: shades.get(found[1], found[0]), html)
