"""Drawings inside a page keep to themselves, and a page runs its own script only."""

import base64
import hashlib
import re
from pathlib import Path

from valuelens.analyses import Result
from valuelens.analyses.report._figures import Picture
from valuelens.analyses.report._inline import inline_svg
from valuelens.analyses.report._page import write_report


def test_inlined_drawings_lose_what_would_leak() -> None:
    svg = (
        '<?xml version="1.0"?><!DOCTYPE svg><svg width="9pt" viewBox="0 0 9 8" version="1.1"><metadata>http://x</metadata>'
        '<defs><style type="text/css">*{a: b}</style></defs><g id="a"/><use xlink:href="#a" clip-path="url(#a)"/></svg>'
    )
    picture = Picture(name="n", section="values", svg=svg, caption="", alt='says "so" & <that>')
    html = inline_svg(picture, "p-")
    assert html.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    assert "metadata" not in html
    assert "style type" not in html
    assert '<g id="p-a"/><use xlink:href="#p-a" clip-path="url(#p-a)"/></svg>' in html
    assert 'aria-label="says &#34;so&#34; &amp; &lt;that&gt;"' in html


def test_the_page_allows_its_own_script_and_no_other(tmp_path: Path) -> None:
    html = write_report({"a": Result(kind="in-context-rl")}, tmp_path / "a.html").read_text(encoding="utf-8")
    (script,) = re.findall(r"<script>(.*?)</script>", html, flags=re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    assert f"default-src 'none'; script-src 'sha256-{digest}'; style-src" in policy
    assert len(script.encode()) < 10_000
    assert not re.search(r"\son[a-z]+=|javascript:|eval\(|innerHTML|https?:", script)
