"""The report as a PDF, for a paper's appendix: everything is open, nothing is interactive."""

import logging
import re
from pathlib import Path
from typing import Any

from valuelens.models import InputError, atomic_path

_HOW = (
    "found {}: pip install 'valuelens[pdf]', and pango of the system (Debian: apt install libpango-1.0-0 "
    "libpangoft2-1.0-0; macOS: brew install pango)"
)

_OPEN = "details.dump > summary::after { content: none !important }"
"""On paper from a browser these parts stay closed and say so; here nothing is closed."""


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


def write_pdf(page: str | Path) -> Path:
    """Write a report as a PDF beside its HTML, complete: folded parts are open.

    Args:
        page: The HTML file that `write_report` wrote.

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
    document = weasyprint.HTML(string=for_paper(html)).render(stylesheets=[weasyprint.CSS(string=_OPEN)])
    with atomic_path(out) as temporary:
        document.write_pdf(str(temporary))
    return out


def for_paper(html: str) -> str:
    """A report without what only a screen has: scripts, places to point at, colours that change, links to files.

    Args:
        html: The page.
    """
    html = re.sub(r'<script\b.*?</script>|<g class="hover".*?</g>', "", html, flags=re.S)
    html = re.sub(r'<a href="(?!#|https:)[^"]*">(.*?)</a>', r"\1", html)
    shades: dict[str, str] = {}
    for name, shade in re.findall(r"(--f[\w-]+): ([^;]+);", html):
        shades.setdefault(name, shade)  # light ones come first
    return re.sub(r"var\((--f[\w-]+)\)", lambda found: shades.get(found[1], found[0]), html)
