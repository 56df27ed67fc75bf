"""The report as a PDF, for a paper's appendix: everything is open, nothing is interactive."""

import logging
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
        InputError: weasyprint or pango is not installed, or the file cannot be written.
    """
    weasyprint = require_pdf()
    # it names every CSS rule that only browsers know
    for name in ("weasyprint", "fontTools"):
        logging.getLogger(name).setLevel(logging.ERROR)
    out = Path(page).with_suffix(".pdf")
    document = weasyprint.HTML(filename=str(page)).render(stylesheets=[weasyprint.CSS(string=_OPEN)])
    with atomic_path(out) as temporary:
        document.write_pdf(str(temporary))
    return out
