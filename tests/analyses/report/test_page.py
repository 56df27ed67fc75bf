"""The report is one file that stands alone, says every finding, and trusts no title."""

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from html import escape, unescape
from pathlib import Path

import pytest
import torch

from valuelens.analyses import (
    Control,
    Finding,
    Result,
    diagonality,
    distance,
    merged,
    reparameterisation,
    slots,
    subject,
    verdict,
)
from valuelens.analyses.report._checkpoints import (
    at_checkpoint,
    checkpoint_labels,
    last_checkpoints,
    main_checkpoint,
)
from valuelens.analyses.report._comparison import comparisons
from valuelens.analyses.report._figures import pictures
from valuelens.analyses.report._page import _last_only, _unfolded, write_report
from valuelens.analyses.report._sentences import sentence
from valuelens.analyses.report._table import findings_table
from valuelens.models import InputError
from valuelens.models.icrl import ModelConfig, SoftmaxTD, TaskConfig, build, theta_star

CONFIG = {
    "task": {"env": "boyan", "gamma": 0.5, "features": "sphere"},
    "model": {"arch": "tsm", "weights": "restricted", "num_layers": 2, "tied": False},
    "train": {"loss": "td", "steps": 2000, "seed": 0},
}
ALLOWED = ("https://arxiv.org/abs/", "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink")
Page = Callable[[dict[str, Result]], str]


def analysed(model: SoftmaxTD) -> Result:
    studied = subject(model, TaskConfig(), num_tasks=32)
    whole = merged([question(studied) for question in (slots, distance, reparameterisation, diagonality)])
    return replace(whole, verdict=verdict(whole), provenance={"config": CONFIG, "versions": {"torch": "2"}})


@pytest.fixture(scope="module")
def trained() -> Result:
    return analysed(
        theta_star(feature_dim=4, num_layers=2, gamma=0.5, alpha=[1.0, 1.0], sharpness=[4.0, 8.0])
    )


@pytest.fixture(scope="module")
def untrained() -> Result:
    model = build(ModelConfig(num_layers=5), TaskConfig(), torch.Generator().manual_seed(0))
    assert isinstance(model, SoftmaxTD)
    return analysed(model)


@pytest.fixture(scope="module")
def run(trained: Result, untrained: Result) -> Result:
    """The untrained model as step 0 and the construction as step 45, of two seeds; findings only."""
    findings = [
        replace(finding, index={"seed": seed, "checkpoint": checkpoint, **finding.index})
        for seed in (0, 1)
        for checkpoint, result in (("step-00000000", untrained), ("step-00000045", trained))
        for finding in result.findings
    ]
    return Result(
        kind="in-context-rl", verdict="It runs.", findings=tuple(findings), provenance={"config": CONFIG}
    )


@pytest.fixture
def page(tmp_path: Path) -> Page:
    def written(results: dict[str, Result]) -> str:
        return write_report(results, tmp_path / "report.html").read_text(encoding="utf-8")

    return written


@pytest.fixture(scope="module")
def whole_page(trained: Result, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Everything about one result, figures too."""
    return write_report({"theta*": trained}, tmp_path_factory.mktemp("report") / "a.html").read_text(
        encoding="utf-8"
    )


def without_pictures(result: Result) -> Result:
    """The same findings, drawn fast: no arrays, and no finding that is drawn."""
    drawn = ("value_lens", "reparameterisation_r2")
    return replace(result, arrays={}, findings=tuple(f for f in result.findings if f.name not in drawn))


def unfolded(html: str) -> str:
    """A page without what is folded, and without its drawings."""
    return re.sub(r"<details.*?</details>|<svg.*?</svg>", "", html, flags=re.S)


def finding(name: str = "coverage", estimate: float = 0.5, **index: int | str) -> Finding:
    control = Control(name="contexts that visit every state", estimate=0.25)
    reasons = {"interval": "not sampled"}
    return Finding(
        name=name,
        estimate=estimate,
        unit="1",
        n=8,
        definition="choice",
        index=index,
        control=control,
        reasons=reasons,
    )


def test_the_page_says_every_finding_and_the_verdict(whole_page: str, trained: Result) -> None:
    html = unescape(whole_page)
    assert trained.verdict in html
    assert [sentence(each) for each in trained.findings if sentence(each) not in html] == []


def test_the_page_loads_nothing(whole_page: str) -> None:
    links = re.findall(r"https?://[^\s\"'<>]*", whole_page)
    assert [link for link in links if not link.startswith(ALLOWED)] == []
    assert not re.search(r"<script[^>]*src|<img|<link rel=\"stylesheet|@import|\burl\((?!#)", whole_page)
    assert whole_page.startswith("<!DOCTYPE html>")
    assert '<html lang="en">' in whole_page


@pytest.mark.slow
def test_pictures_have_a_text_and_their_own_ids(page: Page, trained: Result) -> None:
    html = page({"a": trained, "b": trained})
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', html))
    assert {first or second for first, second in used} <= set(ids)
    assert html.count("<svg ") == 2 * len(pictures(trained)) >= 12
    texts = re.findall(r'<svg [^>]*role="img" aria-label="([^"]{40,})"', html)
    assert len(texts) == html.count("<svg ")
    assert html.count("<figcaption>") == html.count("<svg ")


def test_titles_and_results_are_not_markup(page: Page, trained: Result) -> None:
    evil = '<script>alert("&")</script>'
    skipped = ({"what": evil, "why": evil},)
    spoiled = replace(
        without_pictures(trained), verdict=evil, skipped=skipped, provenance={evil: {evil: evil}}
    )
    html = page({evil: spoiled, f"{evil}2": spoiled})
    assert html.count("<script") == 1
    assert html.count(escape(evil, quote=False)[:20]) > 6


def test_parts_that_were_skipped_for_one_reason_share_it(page: Page, trained: Result) -> None:
    parts = [{"what": f"part {k}", "why": "it diverges"} for k in range(7)]
    alone = {"what": "another", "why": "it is not there"}
    html = page({"a": replace(without_pictures(trained), skipped=(*parts, alone))})
    said = "<li>it diverges. So it is for 7 parts: <bdi>part 0</bdi>; <bdi>part 1</bdi>; "
    assert said in html
    assert html.count("it diverges") == 1
    assert "<li><bdi>another</bdi>: it is not there</li>" in html
    assert "8 parts of the analysis gave no numbers:" in html


def test_the_title_of_one_result_is_the_title(page: Page, trained: Result) -> None:
    html = page({"runs/first": without_pictures(trained)})
    assert "<title>valuelens report: runs/first</title>" in html
    assert "<h1><span>valuelens report</span> <bdi>runs/first</bdi></h1>" in html
    assert ">Side by side</h2>" not in html


def test_several_results_are_compared(page: Page, trained: Result, untrained: Result) -> None:
    html = page({"good": without_pictures(trained), "poor": without_pictures(untrained)})
    assert ">Side by side</h2>" in html
    assert [name in html for name in ('id="r0"', 'href="#r0"', 'id="r1"', 'href="#r1"')] == [True] * 4
    assert html.index(">Side by side</h2>") < html.index('id="r0"') < html.index('id="r1"')


def test_a_run_folds_all_checkpoints_but_the_last(page: Page, run: Result) -> None:
    html = unescape(page({"run": without_pictures(run)}))
    assert "Shown is the checkpoint at step 45 of seed 0." in html
    outside = unfolded(html)
    shown = {sentence(f) for f in at_checkpoint(without_pictures(run), "seed-0/step-00000045").findings}
    folded = {sentence(f) for f in at_checkpoint(without_pictures(run), "seed-0/step-00000000").findings}
    assert [text for text in shown | folded if text not in html] == []
    assert 10 < sum(text in outside for text in shown) < 20
    assert [text for text in folded - shown if text in outside] == []
    assert html.count("<summary>Checkpoint at step 0 of seed 1") == 4
    assert html.index(">Verdict</h2>") < html.index(">Side by side</h2>") < html.index(">Values</h2>")


def test_checkpoints_are_told_apart(run: Result, trained: Result) -> None:
    assert checkpoint_labels(trained) == ()
    assert main_checkpoint(trained) == ("", trained)
    assert checkpoint_labels(run) == tuple(f"seed-{s}/step-000000{n}" for s in (0, 1) for n in ("00", "45"))
    assert last_checkpoints(run) == ("seed-0/step-00000045", "seed-1/step-00000045")
    label, main = main_checkpoint(run)
    assert label == "seed-0/step-00000045"
    assert [each.index for each in main.findings] == [each.index for each in trained.findings]
    (seeds,) = comparisons({"run": run})
    assert seeds.models == ("run, step 45 of seed 0", "run, step 45 of seed 1")


def test_layers_between_are_folded(page: Page, untrained: Result) -> None:
    html = unescape(page({"deep": replace(untrained, arrays={})}))
    (first, *between, last) = untrained.find("reparameterisation_r2", fit="weights")
    outside = unfolded(html)
    assert sentence(first) in outside
    assert sentence(last) in outside
    assert [sentence(each) in outside for each in between] == [False] * 3
    assert "Layers between, 9 findings" in html


def test_tables_show_interval_and_control(trained: Result) -> None:
    (found,) = trained.find("msve_ratio")
    table = findings_table([found])
    row = dict(zip(table.columns[1:], (cell.main for cell in table.rows[0].cells), strict=True))
    assert set(row) == {"estimate", "95 % interval", "control", "n", "standing"}
    assert row["control"].endswith("(constant predictor)")
    sampled = replace(finding(layer=0), interval=(0.4, 0.625))
    across = findings_table([sampled, finding(layer=1, estimate=0.75)])
    assert across.columns == ("quantity", "layer 0", "layer 1")
    assert across.rows[0].small == ("control: contexts that visit every state", "n 8, choice")
    assert [(cell.main, cell.small) for cell in across.rows[0].cells] == [
        ("0.50", ("95 %: 0.40 to 0.625", "control: 0.25")),
        ("0.75", ("control: 0.25",)),
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "tests our hooks and the fit, not the training"),
        ({}, "The cosine is blind to the effective discount"),
        ({}, "sufficient for convergence, not necessary"),
        ({}, "Most contexts miss some states"),
        ({}, "A norm above 1 says nothing"),
        ({}, "uses the feature block of A only"),
        ({}, "both memories are still empty"),
        ({}, "so they are our choice:"),
        ({}, "<li>value lens</li>"),
        ({}, "and not from its text:"),
        ({}, "<li>share of attention that a visited state gives to itself</li>"),
        ({}, "Small models on small random Markov reward processes"),
        ({"task": {"env": "cartpole"}}, "not Markov"),
        ({"task": {"features": "one-hot"}}, "softmax cannot see a constant"),
    ],
)
def test_caveats_stand_where_they_apply(
    page: Page, trained: Result, changes: dict[str, dict[str, str]], words: str
) -> None:
    config = {**CONFIG, **changes}
    assert words in unescape(page({"a": replace(trained, arrays={}, provenance={"config": config})}))


def test_caveats_stay_away_where_they_do_not(page: Page, trained: Result) -> None:
    config = {"model": {"arch": "tsm", "weights": "full"}}
    html = page({"a": replace(without_pictures(trained), provenance={"config": config})})
    for words in ("tests our hooks", "not Markov", "softmax cannot see"):
        assert words not in html


def test_provenance_is_on_the_page(page: Page, trained: Result) -> None:
    recorded = {
        "request": {"checkpoints": {"step-00000045": "abc123"}, "num_tasks": 32, "seed": 7},
        "config": CONFIG,
        "versions": {"torch": "2.13"},
        "dtype": "float64",
        "mask": "no sources",
        "command": "valuelens analyze x",
    }
    html = unescape(page({"a": replace(without_pictures(trained), provenance=recorded)}))
    for words in (
        "sha256 abc123",
        "32, drawn with seed 7",
        "torch 2.13",
        '<dt>Precision</dt><dd dir="auto">float64</dd>',
        '<dt>Mask</dt><dd dir="auto">no sources</dd>',
        '<dt>Command</dt><dd dir="auto">valuelens analyze x</dd>',
        "restricted weights, 2 untied layers",
    ):
        assert words in html


def test_the_weights_named_are_those_shown(page: Page, run: Result) -> None:
    hashes = {label: f"hash-of-{label}" for label in checkpoint_labels(run)}
    html = page({"a": replace(without_pictures(run), provenance={"request": {"checkpoints": hashes}})})
    assert '<dt>Weights</dt><dd dir="auto">sha256 hash-of-seed-0/step-00000045</dd>' in html


def test_headings_come_in_order_and_places_exist(page: Page, trained: Result) -> None:
    for results in ({"a": trained}, {"a": trained, "b": trained}):
        html = page({title: without_pictures(each) for title, each in results.items()})
        levels = [int(level) for level in re.findall(r"<h([1-6])", html)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert [(a, b) for a, b in itertools.pairwise(levels) if b > a + 1] == []
        places = re.findall(r'\bid="([^"]+)"', html)
        assert len(places) == len(set(places))
        assert set(re.findall(r'href="#([^"]+)"', html)) <= set(places)
        assert html.count("<caption>") == html.count("<table")
        assert not re.search(r"<th(?! scope=|ead)", html)


def test_an_unknown_finding_is_not_lost(page: Page, trained: Result) -> None:
    new = finding("brand_new")
    html = unescape(page({"a": replace(without_pictures(trained), findings=(new,))}))
    assert "Other findings" in html
    assert sentence(new) in html


def test_an_empty_result_has_a_page(page: Page) -> None:
    html = page({"empty": Result(kind="in-context-rl")})
    assert "No verdict was recorded." in html
    assert "Nothing was skipped." in html


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a report needs at least one result; found none; write_report"):
        write_report({}, tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="the output must be writable"):
        write_report({"a": Result(kind="in-context-rl")}, tmp_path / "file" / "report.html")


def long_section(name: str, count: int, **index: str | int) -> list[Finding]:
    return [
        Finding(
            name=name,
            estimate=number,
            unit="1",
            n=8,
            definition="choice",
            index={"number": number, "property": "signs ++-", "shift": "loop", **index},
            control=Control(name="a, b", estimate=[0.0, 1.0]),
            reasons={"interval": "none"},
        )
        for number in range(count)
    ]


def test_a_long_section_folds_what_is_said_elsewhere() -> None:
    findings = [
        *long_section("generalisation", 7, of="context"),
        *long_section("generalisation", 6, of="query"),
    ]
    opened, folded = _unfolded(findings)
    assert (len(opened), {title: len(each) for title, each in folded.items()}) == (
        6,
        {"The other findings": 1, "The same at the query": 6},
    )
    opened, folded = _unfolded(long_section("emergence_step", 13, seed=0))
    assert (opened, list(folded)) == ([], ["Seed by seed"])
    assert len(_unfolded(findings[4:10])[0]) == 6
    answering = long_section("weight_cosine", 3)
    opened, folded = _unfolded([*long_section("off_support", 4), *answering])
    assert opened == [sentence(each) for each in answering]
    assert {title: len(each) for title, each in folded.items()} == {"The other findings": 4}


def test_a_page_says_what_was_asked_of_the_last_checkpoint_only() -> None:
    last = {"generalisation": ["seed-0/step-00000010"]}
    provenance = {
        "on_the_last_only": last,
        "full_analyses_on": ["seed-0/step-00000000", "seed-0/step-00000010"],
    }
    words = _last_only(Result(kind="in-context-rl", provenance=provenance))
    assert words == " Of generalisation, only the last checkpoint of each seed was asked."
    everywhere = {**provenance, "full_analyses_on": last["generalisation"]}
    assert _last_only(Result(kind="in-context-rl", provenance=everywhere)) == ""
