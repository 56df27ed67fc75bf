"""What a page's script reads out is what the result holds, and a drawing is the same without it."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from valuelens.analyses import Control, Finding, Result
from valuelens.analyses.report import _interactive
from valuelens.analyses.report._figures import Picture, pictures
from valuelens.analyses.report._inline import figure_css, inline_svg
from valuelens.analyses.report._numbers import interval_words, readable
from valuelens.analyses.report._page import write_report
from valuelens.analyses.report._pdf import for_paper

LENS = {
    "true value": ([1.0, 0.5, 0.25], Control(name="constant </script> predictor", estimate=0.625)),
    "TD iterate": (
        [0.8, 0.1, 0.0123],
        Control(name="iterates with exchanged rewards", estimate=[0.8, 2.0, 3.0]),
    ),
}


@pytest.fixture(scope="module")
def lens_result() -> Result:
    common: dict[str, Any] = {"unit": "1", "n": 8, "definition": "choice"}
    lenses = [
        Finding(
            name="value_lens",
            estimate=estimate,
            index={"reference": reference},
            control=control,
            reasons={"interval": "none"},
            **common,
        )
        for reference, (estimate, control) in LENS.items()
    ]
    ratio = Finding(
        name="msve_ratio", estimate=0.25, interval=(0.125, 0.5), reasons={"control": "none"}, **common
    )
    return Result(kind="in-context-rl", verdict="So.", findings=(*lenses, ratio))


@pytest.fixture(scope="module")
def lens(lens_result: Result) -> Picture:
    return next(picture for picture in pictures(lens_result) if picture.name == "value_lens")


@pytest.fixture(scope="module")
def credit(language_result: Callable[..., Result]) -> Result:
    """Credit by hop and nothing else."""
    result = language_result(objective="reward")
    return replace(result, tables={"hops": result.tables["hops"]}, findings=tuple(result.find("hop_share")))


@pytest.fixture(scope="module")
def hops(credit: Result) -> Picture:
    told: list[tuple[int, int]] = []
    (drawn,) = pictures(credit, progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == list(range(told[0][1]))
    return drawn


def test_the_lens_holds_every_number_of_its_findings(lens: Picture) -> None:
    data = json.loads(lens.data)
    assert data["layers"] == ["the input", "layer 0", "layer 1"]
    for line, (reference, (estimate, control)) in zip(data["lines"], LENS.items(), strict=True):
        assert line["name"] == f"against the {reference}"
        assert line["values"] == [readable(x) for x in estimate]
        assert line["control"] == control.name
    assert [line["controls"] for line in data["lines"]] == [["0.625"] * 3, ["0.80", "2", "3"]]
    assert [line["last"] for line in data["lines"]] == ["0.125 to 0.50", ""]
    drawn = re.findall(r'<circle cx="([\d.]+)"[^>]*><title>against the true value\n', lens.svg)
    assert [float(x) for x in drawn] == data["x"]
    assert all(f'<g id="{line["id"]}">' in lens.svg for line in data["lines"])


def test_the_map_holds_every_number_of_its_table(hops: Picture, credit: Result) -> None:
    result, data = credit, json.loads(hops.data)
    assert data["layers"] == ["layer 0", "layer 15", "layer 22"]
    for row in result.tables["hops"].to_dict("records"):
        place = [0, 15, 22].index(row["layer"])
        for name in ("norm", "share"):
            assert data[name][place][row["hop"]][row["state"]] == float(f"{row[name]:.3g}")
    (found,) = result.find("hop_share", layer=15, hop=1)
    assert found.interval is not None
    assert data["whole"][1][1] == f"{readable(found.estimate)} (95 %: {interval_words(*found.interval)})"
    cells = re.search(r'<g id="hop-map"[^>]*>(.*?)</g>', hops.svg, flags=re.S)
    assert cells is not None
    assert cells[1].count("<path") == len(data["norm"][0]) * len(data["n"])
    assert len(hops.data) < 12_000


def test_of_too_many_layers_a_page_holds_a_few_and_says_so(
    language_result: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_interactive, "MOST_NUMBERS", 500)
    result = language_result(tuple(range(8)), objective="reward")
    data = json.loads(_interactive.hops_data(Figure(), result))
    assert (data["layers"], data["left"]) == ([f"layer {k}" for k in (0, 2, 4, 5, 7)], 3)


def test_data_cannot_close_their_element_and_paper_has_none(lens: Picture) -> None:
    html = inline_svg(lens, "p-")
    assert html.count("</script>") == 1
    assert html.endswith("</script>")
    plain = for_paper(f"<style>{figure_css()}</style>{html}")
    assert not re.search(r"<script|hover|var\(", plain)
    assert "#0065a2" in plain
    assert "#0065a2" not in html


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.xdist_group("browser")
def test_readers_choose_layers_and_cells(
    offline_browser: webdriver.Chrome,
    lens_result: Result,
    credit: Result,
    tmp_path: Path,
) -> None:
    results = {"lens": lens_result, "again": lens_result, "credit": credit}
    offline_browser.get(write_report(results, tmp_path / "a.html").as_uri())
    first, second, third = offline_browser.find_elements(By.CSS_SELECTOR, "figure:has(.explore)")
    layer = first.find_element(By.CSS_SELECTOR, "input.explore-layer")
    said = first.find_element(By.CSS_SELECTOR, ".explore-said")
    assert said.text.splitlines() == [
        "Read after layer 1:",
        "against the true value: 0.25 (95 %: 0.125 to 0.50); constant </script> predictor (control): 0.625",
        "against the TD iterate: 0.0123; iterates with exchanged rewards (control): 3",
    ]
    layer.send_keys(Keys.ARROW_LEFT)
    assert "against the TD iterate: 0.10; iterates with exchanged rewards (control): 2" in said.text
    assert layer.get_attribute("aria-valuetext") == "after layer 0"
    toggles = first.find_elements(By.CSS_SELECTOR, ".explore-toggle")
    toggles[1].send_keys(Keys.SPACE)
    assert "TD iterate" not in said.text
    hidden = [first, second]
    assert [
        each.find_element(By.CSS_SELECTOR, '[id$="-lens-1"]').value_of_css_property("display")
        for each in hidden
    ] == ["none", "inline"]
    Select(third.find_element(By.CSS_SELECTOR, ".explore-layer")).select_by_visible_text("layer 15")
    third.find_element(By.CSS_SELECTOR, ".explore-hop").send_keys(Keys.ARROW_RIGHT)
    table = results["credit"].tables["hops"].query("layer == 15 and hop == 1 and state == 0")
    told = third.find_element(By.CSS_SELECTOR, ".explore-said").text
    assert f"norm {float(f'{table.norm.item():.3g}'):g}, which is" in told
    assert third.find_element(By.CSS_SELECTOR, '[id$="hop-map-title"]').text.endswith("layer 15")
    card = third.find_element(By.CSS_SELECTOR, ".card")
    offline_browser.execute_script("arguments[0].focus()", card)
    card.send_keys(Keys.ARROW_RIGHT)
    offline_browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert offline_browser.find_element(By.CSS_SELECTOR, ".tip").text.startswith("layer 0\n")
