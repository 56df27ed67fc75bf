"""Pages on rankings: complete, safe with any name, and deterministic."""

import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path

import pandas as pd
import pytest

from valuelens.analyses import Control, Finding, Result, load_result, save_result
from valuelens.analyses.report import save_figures
from valuelens.analyses.report._comparison import comparisons
from valuelens.analyses.report._figures import pictures
from valuelens.analyses.report._page import write_report
from valuelens.analyses.report._predictors import predictor_name
from valuelens.analyses.report._ranking import series_names
from valuelens.analyses.report._sections_impact import ranking_sections
from valuelens.analyses.report._sentences import sentence, shown

Make = Callable[..., Result]
FIGURES = ["flat_groups", "impact_arc", "predicted_gain", "spearman", "learning_curves"]


def page(folder: Path, **results: Result) -> str:
    return write_report(results, folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def whole(ranked_result: Make, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, str]:
    """Everything that can be found, through its files, and its page."""
    folder = tmp_path_factory.mktemp("impact")
    save_result(ranked_result(), folder)
    result = load_result(folder)
    return result, page(folder, a=result)


def test_the_page_answers_in_order(whole: tuple[Result, str]) -> None:
    result, html = whole[0], unescape(whole[1])
    titles = [
        "Verdict",
        "Where to start RL",
        "Can RL learn anything there?",
        "Signal, headroom and gain over pretraining",
    ]
    titles += [
        "Does the score foretell the gain?",
        "The RL runs",
        "Skipped",
        "Limitations",
        "Provenance",
        "Glossary",
    ]
    assert re.findall(r'<h2 class="section">(.*?)</h2>', html) == titles
    assert html.count("<summary>How to read this</summary>") == 5
    assert result.verdict in html
    assert html.count('<tr class="marked">') == 5
    assert '<dt>Ranked by</dt><dd dir="auto">subtractive signal x tilt headroom (our definition)' in html
    alts = re.findall(r'role="img" aria-label="(.*?)" style', whole[1])
    assert "RL gained most at step " in alts[1]
    assert "signal x headroom (the score): Spearman " in alts[2]


def test_every_finding_is_on_the_page(whole: tuple[Result, str]) -> None:
    result, html = whole[0], unescape(whole[1])
    over_series = [f for f in result.findings if "checkpoint" not in f.index]
    shared = re.findall(r"<li>([^<]* has no number: [^<]* So it is for \d+: [^<]*)</li>", html)
    left = [f for f in over_series if sentence(f) not in html]
    assert [f for f in left if not any(_holds(text, f) for text in shared)] == []
    assert len(left) == sum(int(re.search(r"So it is for (\d+)", text)[1]) for text in shared) > 0
    numbers = html.split("<summary>Every number of every checkpoint</summary>")[1].split("</details>")[0]
    of_one = [f for f in result.findings if f.index.get("checkpoint") == "step-00000020"]
    (row,) = re.findall(r"<bdi>step 20</bdi>(.*?)</tr>", numbers)
    assert [f.name for f in of_one if f"<td>{shown(f)}<" not in row and f">{shown(f)}<" not in row] == []


def _holds(text: str, finding: Finding) -> bool:
    """Whether a sentence that several findings share is also of this one."""
    listed = text.rstrip(".").split(": ")[-1].split("; ")
    return finding.reasons["estimate"] in text and predictor_name(str(finding.index["predictor"])) in listed


@pytest.mark.slow
def test_figures_say_what_they_show_and_are_the_same_every_time(tmp_path: Path, ranked_result: Make) -> None:
    result = ranked_result(checkpoints=8, seeds=2)
    paths = save_figures(result, tmp_path / "once")
    again = save_figures(result, tmp_path / "twice")
    assert [path.stem for path in paths] == FIGURES
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    assert not any("<dc:date>" in path.read_text(encoding="utf-8") for path in paths)


@pytest.mark.parametrize(
    ("made", "figures"),
    [
        ({"seeds": 0, "checkpoints": 6}, FIGURES[:2]),
        ({"checkpoints": 6, "seeds": 1}, [*FIGURES[:3], FIGURES[4]]),
        ({"seeds": 0, "checkpoints": 6, "flat": tuple(range(6))}, FIGURES[:2]),
        ({"seeds": 0, "checkpoints": 3, "lost": ("signal", "impact", "frac_reward_zero_std")}, FIGURES[:2]),
    ],
    ids=["scores alone", "six checkpoints", "flat", "lost columns"],
)
def test_less_is_a_page_too(tmp_path: Path, ranked_result: Make, made: dict, figures: list[str]) -> None:
    result = ranked_result(**made)
    assert [each.name for each in pictures(result)] == figures
    html = unescape(page(tmp_path, a=result))
    assert not re.search(
        r"\bnan\b|\bNone\b|[{}]",
        re.sub(r"<style>.*?</style>|<script>.*?</script>|<svg.*?</svg>", "", html, flags=re.S),
    )
    assert ("fewer than 8 checkpoints" in html) == ("predicted_gain" in figures)
    if "lost" in made:
        assert "no checkpoint is recommended" in html


def test_names_are_not_markup_and_keep_their_direction(tmp_path: Path, ranked_result: Make) -> None:
    result = ranked_result(2, checkpoints=6, seeds=0, named=True)
    html = page(tmp_path, a=result)
    assert "<b>" not in html
    assert "<20 %>" not in html
    assert "<bdi>&lt;b&gt;0 &amp; &#34;נקודה&#34;&lt;/b&gt;</bdi>" in html
    assert f"\u2068{series_names(result)[1]}\u2069: 6 checkpoints" in html


def test_glyphs_that_the_measuring_font_lacks_are_drawn(ranked_result: Make) -> None:
    result = ranked_result(checkpoints=6, seeds=0)
    scores = result.tables["scores"].assign(checkpoint=[f"检查点{k}" for k in range(6)], step=float("nan"))
    (_, arc) = pictures(replace(result, tables={**result.tables, "scores": scores}))
    assert "检查点3" in arc.svg


def test_an_unknown_finding_and_no_tables_are_not_lost(ranked_result: Make) -> None:
    new = Finding(
        **{"name": "locality", "estimate": 0.5, "unit": "1", "n": 3, "definition": "choice"},
        control=Control(name="even", estimate=0.1),
        reasons={"interval": "none"},
    )
    *_, last = ranking_sections(replace(ranked_result(seeds=0), findings=(new,)), {})
    assert (last.title, last.sentences) == ("Other findings", [sentence(new)])
    (alone,) = ranking_sections(Result(kind="impact", findings=(new,)), {})
    assert alone.sentences == [sentence(new)]
    assert ranking_sections(Result(kind="impact", tables={"scores": pd.DataFrame()}), {}) == []


def test_rankings_are_compared_with_each_other(ranked_result: Make) -> None:
    (found,) = comparisons({"one": ranked_result(), "several": ranked_result(3)})
    assert found.models == ("one", "several")
    heads = [group.head for group in found.groups]
    assert heads[:2] == ["start for the most gain", "regret of that start, in gain"]
    (rank,) = (group for group in found.groups if group.head == "rank correlation of score and gain")
    assert [bool(line.around) for line in rank.lines] == [False, True]
