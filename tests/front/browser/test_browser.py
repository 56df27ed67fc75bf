"""Every kind of report in a real browser, from a file: silent, alone, within its window, and usable by everybody."""

import re
from typing import Any

import pytest

NAMES = (
    *("default", "untrained", "all but one failed", "1 layer", "60 layers"),
    *("LM of 30 layers", "ranking", "two", "four", "names"),
)
pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]
COLOURS = ("all but one failed", "LM of 30 layers")
FOLDED = ("default", "ranking", "two")
"""Whose contrast is measured, which takes its time: with folds open, or closed; the others have no other colours."""
each_case = pytest.mark.parametrize("name", NAMES)

WIDER = """
const edge = document.documentElement.clientWidth;
const boxed = e => e.ownerSVGElement || e.parentElement.closest('.scroll');
return [...document.querySelectorAll('body *')]
  .filter(e => !boxed(e) && e.getBoundingClientRect().right > edge + 1).map(e => e.outerHTML.slice(0, 120));
"""
DRAWN = (
    "return [...document.querySelectorAll('svg')].filter(e => e.getBoundingClientRect().height > 50).length"
)
FIGURES = """
return [...document.querySelectorAll('figure')]
  .map(e => [e.getBoundingClientRect().height, getComputedStyle(e).breakInside]);
"""
HIDDEN = """
const folds = [...document.querySelectorAll('details')].filter(e => !e.closest('details details'));
return folds.filter(e => /How to read/.test(e.querySelector('summary').innerText))
  .filter(e => [...e.querySelectorAll('li, p')].some(x => x.getBoundingClientRect().height === 0))
  .map(e => e.innerText.slice(0, 80));
"""
SHADES = """
const painted = e => { const c = getComputedStyle(e).backgroundColor; return /, 0\\)$/.test(c) ? null : c; };
const behind = e => { for (; e; e = e.parentElement) { const c = painted(e); if (c) return c; } return 'none'; };
const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const found = {};
while (words.nextNode()) {
  const e = words.currentNode.parentElement;
  if (!words.currentNode.data.trim() || e.closest('svg, script') || !e.getClientRects().length) continue;
  found[getComputedStyle(e).color + ' on ' + behind(e)] ??= words.currentNode.data.trim().slice(0, 80);
}
return found;
"""
"""Colours of words and what lies behind them, each pair once, with words that have it."""
PAGE = 1001
"""Pixels of height between the margins of A4: 297 mm less twice 16."""
RULES = {
    *("document-title", "heading-order", "html-has-lang", "landmark-one-main", "region"),
    *("link-name", "list", "meta-viewport", "nested-interactive", "page-has-heading-one", "summary-name"),
    *("scope-attr-valid", "tabindex", "td-headers-attr", "th-has-data-cells"),
}


@each_case
def test_it_stays_within_its_window_and_axe_is_content(viewer, case, name):
    made = case(name)
    viewer.open(made.report)
    for width in (360, 1440):
        for unfolded in (False, True):
            viewer.resize(width).unfold(yes=unfolded)
            assert viewer(WIDER) == []
            assert viewer("return document.documentElement.scrollWidth") <= width
    assert viewer(DRAWN) == made.report.read_text(encoding="utf-8").count("<svg ")
    found = viewer.audit()
    assert violations(found) == []
    assert RULES - {each["id"] for each in (*found["passes"], *found["incomplete"])} == set()
    assert faint(viewer.scheme("light")) == {}
    assert faint(viewer.scheme("dark")) == {}
    viewer.scheme("light")
    if name in (*COLOURS, *FOLDED):
        viewer.unfold(yes=name in COLOURS)
        assert violations(viewer.contrast()) == []


def test_names_and_prompts_are_shown_as_they_are(viewer, case):
    made = case("names")
    viewer.open(made.report).unfold()
    shown = viewer("return document.body.innerText.replace(/\\s+/g, ' ')")
    prompts = [
        str(each) for one in made.results.values() for each in one.tables.get("groups", {}).get("prompt", ())
    ]
    checkpoints = [
        str(each)
        for one in made.results.values()
        for each in one.tables.get("scores", {}).get("checkpoint", ())
    ]
    assert [
        words
        for words in (*made.results, *prompts, *checkpoints)
        if " ".join(words[:40].split()) not in shown
    ] == []
    assert len(prompts) > 2 < len(checkpoints)


@pytest.mark.parametrize("name", COLOURS)
def test_it_can_be_read_in_the_dark(viewer, case, name):
    viewer.open(case(name).report).scheme("dark").resize(1440).unfold()
    found = viewer.contrast()
    assert violations(found) == []
    assert [each["id"] for each in found["passes"]] == ["color-contrast"]
    ink, paper = viewer("const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]")
    assert brightness(ink) > 180 > 60 > brightness(paper)


@pytest.mark.parametrize("name", ["default", "LM of 30 layers", "ranking"])
def test_it_can_be_printed(viewer, case, name):
    """What is folded to be read stands open; nothing is wider than paper, no figure taller or split."""
    viewer.open(case(name).report).paper()
    assert viewer(WIDER) == []
    assert viewer("return document.documentElement.scrollWidth") <= 672
    heights, kept = zip(*viewer(FIGURES), strict=True)
    assert 0 < min(heights) < max(heights) < PAGE
    assert set(kept) == {"avoid"}
    assert viewer(HIDDEN) == []
    assert viewer("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_no_script_but_its_own_runs(viewer, case, offline_browser):
    viewer.open(case("all but one failed").report)
    viewer(
        "const s = document.createElement('script'); s.textContent = 'foreign = 1'; document.body.append(s)"
    )
    assert viewer("return window.foreign") is None
    assert ["script-src" in each["message"] for each in offline_browser.get_log("browser")] == [True]


def test_a_default_report_is_small(case):
    assert 1_000_000 < case("default").report.stat().st_size < 3_000_000


def brightness(color: str) -> float:
    parts = [float(x) for x in color[color.index("(") + 1 : -1].split(",")]
    return sum(parts[:3]) / 3


def faint(viewer: Any) -> dict[str, str]:
    """Words less than 4.5 to 1 from what lies behind them: what axe measures in some cases, in all of them."""
    pairs = viewer(SHADES)
    assert len(pairs) > 5
    return {pair: words for pair, words in pairs.items() if contrast(*pair.split(" on ")) < 4.5}


def contrast(*colors: str) -> float:
    """As WCAG has it, of two opaque colours."""
    shares = [[float(x) / 255 for x in re.findall(r"[\d.]+", color)] for color in colors]
    assert [len(each) for each in shares] == [3, 3], colors
    linear = [[x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in each] for each in shares]
    low, high = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in linear)
    return (high + 0.05) / (low + 0.05)


def violations(found: dict[str, Any]) -> list[str]:
    return [
        f"{each['impact']} {each['id']}: {each['nodes'][0]['html'][:200]} {each['nodes'][0]['failureSummary']}"
        for each in found["violations"]
    ]
