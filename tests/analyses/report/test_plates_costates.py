"""Pages on language models: complete and safe with any prompt."""

from collections.abc import Callable
from dataclasses import replace
from html import escape, unescape
from pathlib import Path

import pytest

from valuelens.analyses import Result, load_result, save_result
from valuelens.analyses.report._comparison import comparisons
from valuelens.analyses.report._figures import pictures
from valuelens.analyses.report._page import write_report
from valuelens.analyses.report._sentences import sentence
from valuelens.analyses.report._table import findings_table

Make = Callable[..., Result]
FIGURES = ["group_rewards", "costate_norms", "costate_locality", "costate_signal", "costate_enumerated"]


def page(folder: Path, **results: Result) -> str:
    return write_report(results, folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def whole(language_result: Make, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, str]:
    """Everything that can be found, through its files, and its page."""
    folder = tmp_path_factory.mktemp("costates")
    save_result(language_result(enumerated=True), folder)
    result = load_result(folder)
    return result, page(folder, a=result)


@pytest.mark.slow
def test_there_is_a_figure_for_what_was_measured(language_result: Make) -> None:
    assert [each.name for each in pictures(language_result((0,), enumerated=True))] == FIGURES
    result = language_result((0,))
    prompt = {"positions": result.tables["positions"].assign(locality=None)}
    kept = [f for f in result.findings if f.name in ("objective", "costate_norm")]
    (shown,) = pictures(replace(result, findings=tuple(kept), tables=prompt))
    assert shown.name == "costate_norms"


def test_the_page_says_every_finding_in_its_section(whole: tuple[Result, str]) -> None:
    result, html = whole[0], unescape(whole[1])
    assert [sentence(each) for each in result.findings if sentence(each) not in html] == []
    for words in (
        result.verdict,
        ">Why is the reward flat?</h2>",
        ">Costates</h2>",
        "Shown is one checkpoint of a language model on 512 rollouts of 32 prompts.",
        '<dt>Model</dt><dd dir="auto">HuggingFaceTB/SmolLM2-135M-Instruct',
        "arXiv 2605.21654",
        "Prompt by prompt, 32 groups",
    ):
        assert words in html
    assert "Other findings" not in html
    assert "2405.13861" not in html


def test_prompts_are_not_markup_and_keep_their_direction(whole: tuple[Result, str]) -> None:
    result, html = whole
    prompts = result.tables["groups"]["prompt"].unique().tolist()
    assert html.count("<script") == 1
    assert "<b>" not in html
    for prompt in prompts:
        assert f"<bdi>{escape(prompt)[:30]}".replace("&quot;", "&#34;").replace("&#x27;", "&#39;") in html


def test_a_diagnosis_alone_is_a_page(tmp_path: Path, language_result: Make) -> None:
    html = unescape(page(tmp_path, a=language_result(flat=1.0)))
    assert "so that every advantage is 0 and nothing is learnt" in html
    assert ">Costates</h2>" not in html
    assert html.count("<svg ") == 1


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"layers": (15,), "groups": 1}, "(1 group; our definition)"),
        ({"layers": tuple(range(31))}, "Layers between, "),
    ],
)
def test_one_layer_and_all_layers_are_pages(
    tmp_path: Path, language_result: Make, made: dict, words: str
) -> None:
    result = replace(language_result(**made), tables={})
    html = unescape(page(tmp_path, a=result))
    assert words in html
    assert [sentence(each) for each in result.findings if sentence(each) not in html] == []


def test_many_layers_stand_down_the_table(language_result: Make) -> None:
    result = language_result(tuple(range(31)))
    table = findings_table(f for f in result.findings if "layer" in f.index)
    assert table.columns[:3] == ("layer", "costate norm, surrogate", "standard error, surrogate, start")
    assert [row.name for row in table.rows] == ["in every row", *(f"layer {k}" for k in range(31))]
    assert table.rows[0].cells[0].small == ("control: own token alone", "n 32, derived")
    few = findings_table(f for f in language_result().findings if "layer" in f.index)
    assert few.columns == ("quantity", "layer 0", "layer 15", "layer 22")
    down, across = (each.rows[1 + k].cells[j] for each, k, j in ((table, 15, 0), (few, -1, 1)))
    assert down.small[0].startswith("95 %: ")
    assert across.small[0].startswith("95 %: ")


def test_language_models_are_compared_with_each_other(language_result: Make) -> None:
    flat, deep = language_result(flat=1.0), language_result(tuple(range(31)))
    (found,) = comparisons({"a": language_result(), "flat": flat, "deep": deep})
    assert found.notes[0].startswith("Intervals are over prompts.")
    signals = [group for group in found.groups if group.head == "signal-to-noise"]
    assert [group.place for group in signals] == ["layer 0", "layer 15", "layer 22"]
    assert [[line.model for line in group.lines] for group in signals] == [["a", "deep"]] * 3


def test_other_kinds_are_not_compared_with_them(tmp_path: Path, language_result: Make) -> None:
    other = Result(kind="in-context-rl", verdict="Of another kind.")
    undrawn = replace(language_result(flat=1.0), tables={})
    mixed = {"a": undrawn, "b": other}
    assert comparisons(mixed) == []
    html = page(tmp_path, **mixed)
    assert "Of another kind." in html
    assert ">Side by side</h2>" not in html
    twice = comparisons({**mixed, "c": other, "d": undrawn})
    assert [each.models for each in twice] == [("b", "c"), ("a", "d")]
