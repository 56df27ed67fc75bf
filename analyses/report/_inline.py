"""Drawings inside a page, and the one script that the page may run."""

import base64
import hashlib
import re
from importlib.resources import files

from markupsafe import Markup

from valuelens.analyses.report._figures import Picture


def inline_svg(picture: Picture, prefix: str) -> Markup:
    """The drawing of a picture for use inside a page: its ids are its own, its text alternative is on it.

    Args:
        picture: With an SVG document.
        prefix: Unlike that of every other picture on the page.
    """
    svg = re.sub(
        r"<metadata>.*?</metadata>|<style.*?</style>",
        "",
        picture.svg[picture.svg.index("<svg") :],
        flags=re.S,
    )
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}", svg)
    width, height = (float(x) for x in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0])
    head = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 {} {}" '
        'role="img" aria-label="{}" style="width:{}px;min-width:{}px">'
    ).format(width, height, picture.alt, round(1.45 * width), round(width))
    return head + Markup(svg[svg.index(">") + 1 :])


def page_script() -> Markup:
    """The script at the end of a page: what figures do beyond being seen; a page is complete without it."""
    return Markup(template_text("report.js"))


def script_source(script: str) -> str:
    """The one script that a page's Content-Security-Policy allows: the hash of its text.

    Args:
        script: All that stands between the tags.
    """
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def template_text(name: str) -> str:
    """The text of a file in `templates/`.

    Args:
        name: With its ending.
    """
    return files("valuelens.analyses.report").joinpath("templates", name).read_text(encoding="utf-8")
