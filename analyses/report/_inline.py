"""Drawings inside a page, and the one script that the page may run."""

import base64
import hashlib
import re
from importlib.resources import files

from markupsafe import Markup

from valuelens.analyses.report._figures import Picture
from valuelens.analyses.report._style import CARD, PAGE_COLOURS


def inline_svg(picture: Picture, prefix: str) -> Markup:
    """The drawing of a picture for use inside a page: its ids are its own, its text alternative is on it.

    Its colours follow the page (`figure_css`), its coordinates keep two decimals of a point, and the data for the
    page's script stand behind it.

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
    svg = re.sub(r' (?:d|x|y)="[^"]*"', lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found[0]), svg)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}", _themed(svg))
    width, height = (float(x) for x in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0])
    head = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 {} {}" '
        'role="img" aria-label="{}" style="width:{}px;min-width:{}px">'
    ).format(width, height, picture.alt, round(1.45 * width), round(width))
    whole = head + Markup(svg[svg.index(">") + 1 :])
    return whole + _data_block(picture.data) if picture.data else whole


def figure_css() -> Markup:
    """The colours of drawings as variables, light ones and, on dark screens, dark ones; paper is light."""
    light, dark = (
        "".join(f"--f{k}: {shade}; " for k, shade in enumerate(shades))
        for shades in zip(*PAGE_COLOURS, strict=True)
    )
    return Markup(
        f":root {{ {light}--f-card: {CARD[0]}; }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark}--f-card: {CARD[1]}; }} }}\n"
    )


def _themed(svg: str) -> str:
    """Colours as variables of the page; words on coloured cells keep theirs, as the cells do."""
    names = {light: f"var(--f{k})" for k, (light, _) in enumerate(PAGE_COLOURS)}
    shapes = {**names, CARD[0]: "var(--f-card)"}

    def coloured(tag: re.Match[str]) -> str:
        known = names if tag[0].startswith("<text") else shapes
        return re.sub(r'(?<=: |=")#[0-9a-f]{6}\b', lambda shade: known.get(shade[0], shade[0]), tag[0])

    return re.sub(r"<(?:path|use|text|g|rect)\b[^>]*>", coloured, svg)


def _data_block(data: str) -> Markup:
    return Markup('<script type="application/json" class="explore-data">{}</script>').format(Markup(data))


def page_script() -> Markup:
    """The script at the end of a page: what figures do beyond being seen; a page is complete without it.

    Indentation and lines of comment stay in its file.
    """
    return Markup(re.sub(r"^ *(//.*\n)?", "", template_text("report.js"), flags=re.M))


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
