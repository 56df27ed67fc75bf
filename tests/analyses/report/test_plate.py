"""Those who cannot see a figure are told what it found; those who draw by themselves get any figure on any Axes."""

import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from valuelens.analyses import Result, emergence, load_result, report
from valuelens.analyses.report._checkpoints import main_checkpoint
from valuelens.analyses.report._figures import LONGEST, _alt, _has, _head
from valuelens.analyses.report._plate import Plate
from valuelens.analyses.report._plates import plates_of
from valuelens.analyses.report._plates_impact import _left_out
from valuelens.analyses.report._ranking import DRAWN, series_names
from valuelens.analyses.report._style import styled

ROOT = Path(report.__path__[0])
DEFAULT = Path(__file__).parents[2] / "fixtures" / "default"
Make = Callable[..., Result]


def figure_functions() -> Iterator[tuple[str, Any]]:
    for path in sorted(ROOT.glob("_*_figures.py")):
        module = import_module(f"valuelens.analyses.report.{path.stem}")
        for name, function in list(vars(module).items()):
            if name.endswith("_figure") and function.__module__ == module.__name__:
                yield name, function


@pytest.fixture(scope="module")
def results(language_result: Make, ranked_result: Make) -> list[Result]:
    return [
        load_result(DEFAULT),
        language_result(objective="reward", enumerated=True),
        language_result(flat=1.0),
        ranked_result(),
        ranked_result(3),
        ranked_result(seeds=0),
    ]


def drawn(result: Result) -> Iterator[tuple[str, Plate, Result]]:
    main = main_checkpoint(result)[1]
    for name, plate in plates_of(result).items():
        subject = result if plate.run else main
        if _has(subject, plate.needs) and plate.applies(subject):
            yield name, plate, subject


def test_every_text_states_a_finding_and_is_short_and_its_own(results: list[Result]) -> None:
    seen = set()
    for result in results:
        alts = {name: _alt(plate, subject) for name, plate, subject in drawn(result)}
        heads = {name: _head(plate.caption) for name, plate, _ in drawn(result)}
        seen |= set(alts)
        assert len(set(alts.values())) == len(alts)
        assert {name: alt for name, alt in alts.items() if len(alt) > LONGEST} == {}
        assert [name for name, alt in alts.items() if len(alt) < len(heads[name]) + 30] == []
        assert [name for name, head in heads.items() if not 8 < len(head) < 125] == []
    assert len(seen) > 20


def test_a_text_holds_number_interval_and_control(results: list[Result]) -> None:
    plate, subject = next(each[1:] for each in drawn(results[1]) if each[0] == "costate_signal")
    (found,) = subject.find("signal_to_noise", layer=0)
    assert found.control is not None
    alt = _alt(plate, subject)
    assert f"has a signal-to-noise of {found.estimate:.4f} (95 % interval" in alt
    assert found.control.name in alt
    assert "our definition" not in alt


def test_words_of_another_series_are_not_taken_for_the_first(ranked_result: Make) -> None:
    plate, result = plates_of(ranked_result(3))["impact_arc"], ranked_result(3)
    assert _alt(plate, result).count("RL gained most") <= 1


def test_a_caption_says_how_many_series_are_left_out(ranked_result: Make) -> None:
    plates = plates_of(ranked_result())
    for name in ("impact_arc", "flat_groups", "predicted_gain", "learning_curves"):
        remark = plates[name].remark
        assert remark is not None
        assert "Drawn are" not in remark(ranked_result())
    assert _left_out([str(k) for k in range(DRAWN)]) == ""
    assert (
        _left_out([str(k) for k in range(12)])
        == " Drawn are the first 8 of 12 series; the tables have them all."
    )


def test_a_caption_names_intervals_over_seeds_only_where_there_are_several(ranked_result: Make) -> None:
    one, several = ranked_result(checkpoints=6, seeds=1), ranked_result()
    for name in ("impact_arc", "predicted_gain", "learning_curves"):
        plate = plates_of(one)[name]
        assert plate.remark is not None
        assert not re.search("95 %|Thin lines", plate.caption)
        assert plate.remark(one).startswith(" There was one RL seed")
        assert re.search("95 % intervals over RL seeds|Thin lines", plate.remark(several))
    run = load_result(DEFAULT)
    for name, said in (("training", " There is one training seed"), ("emergence", "")):
        plate = plates_of(run)[name]
        assert plate.remark is not None
        assert not re.search("over seeds", plate.caption)
        assert plate.remark(run).startswith(said)
        assert "over seeds" not in plate.remark(run)


def test_captions_of_the_mean_over_seeds_follow_what_is_drawn() -> None:
    def of(plate: str, count: int) -> str:
        rows = [
            {
                "seed": seed,
                "step": step,
                "msve_vs_constant": 2 / (1 + step),
                "kernel_diagonal_mean": 0.1 + step,
            }
            | {"within_chain_r2": float(step > 10 * (seed % 2))}
            for seed in range(count)
            for step in (0, 10, 100)
        ]
        run = emergence(pd.DataFrame(rows))
        remark = plates_of(run)[plate].remark
        assert remark is not None
        return remark(run)

    assert of("training", 2) == " Seeds are thin, their mean is thick."
    assert of("training", 5).endswith("is thick, its band the 95 % interval over seeds.")
    assert of("emergence", 2) == (
        " The black bar is the geometric mean over seeds, where every seed has the property."
    )
    assert "with its 95 % interval (Student's t of log steps)" in of("emergence", 5)


def test_one_mark_means_one_thing_in_a_ranking(ranked_result: Make) -> None:
    """A ring is what is recommended; the most gain has the hollow triangle of the table."""
    plates = plates_of(ranked_result())
    assert "a hollow triangle is the most gain" in plates["impact_arc"].caption
    assert "A ring is the recommended checkpoint" in plates["predicted_gain"].caption
    (series,) = series_names(ranked_result())
    ax = report.gain_arc_figure(Figure().subplots(), ranked_result(), series)
    (most,) = [line for line in ax.lines if line.get_label() == "most gain"]
    assert most.get_marker() == "^"


def test_captions_tell_two_forms_of_softmax_td_apart(results: list[Result]) -> None:
    plates = plates_of(results[0])
    assert not [name for name, plate in plates.items() if "fitted TD rule" in plate.caption]
    assert "softmax TD with three free weights" in plates["unexplained"].caption
    assert "softmax TD with one fitted step size a layer" in plates["example"].caption
    assert "one fitted step size a layer" in plates["costates"].caption
    assert "one step size" in plates["credit_gap"].caption
    lens = plates["value_lens"].remark
    assert lens is not None
    assert "one fitted step size a layer" in lens(main_checkpoint(results[0])[1])
    assert lens(Result(kind="in-context-rl")) == ""


@pytest.mark.parametrize(("name", "function"), list(figure_functions()))
def test_every_figure_takes_and_returns_an_axes(name: str, function: Any) -> None:
    signature = inspect.signature(function)
    first = next(iter(signature.parameters.values()))
    assert (first.name, first.annotation, signature.return_annotation) == ("ax", Axes, Axes), name


def test_figures_are_drawn_on_a_notebooks_axes(results: list[Result]) -> None:
    costates = (report.rollouts_figure, report.hop_share_figure, report.hop_map_figure)
    for function, result in [
        (report.value_lens_figure, results[0]),
        *((each, results[1]) for each in costates),
    ]:
        figure, ax = plt.subplots()
        assert function(ax, result) is ax
        assert ax.has_data()
        plt.close(figure)
    ranked = results[3]
    (series,) = series_names(ranked)
    figure, (left, middle, right) = plt.subplots(1, 3)
    for arc in (report.score_arc_figure, report.gain_arc_figure, report.reward_arc_figure):
        assert arc(left, ranked, series) is left
    assert report.prediction_figure(middle, ranked, series, "impact") is middle
    assert report.forest_figure(right, ranked, "gain", ["impact", "reward"]) is right
    plt.close(figure)


@pytest.mark.slow
def test_no_line_is_told_from_another_by_colour_alone(
    results: list[Result], told_by_colour_alone: Callable[[Figure], list[str]]
) -> None:
    """Every drawing of every kind: two lines of one panel differ by mark, dash or filling too, two bars by hatch."""
    found, seen = {}, set()
    for result in (*results[:2], *results[3:]):
        for name, plate, subject in drawn(result):
            with styled():
                found[name, len(seen)] = told_by_colour_alone(plate.draw(subject))
            seen.add(name)
    assert {name: alike for name, alike in found.items() if alike} == {}
    assert len(seen) > 28


def test_colours_alone_are_found(told_by_colour_alone: Callable[[Figure], list[str]]) -> None:
    figure = Figure()
    for ax, more in zip(figure.subplots(1, 3), ({}, {"marker": "o"}, {"linestyle": "--"}), strict=True):
        ax.plot([0, 1, 2], color="#0065a2")
        ax.plot([2, 1, 0], color="#c57a04", **more)
        ax.bar([0], [1], color="#0065a2", hatch="//" if more else "")
        ax.bar([1], [1], color="#c57a04")
    assert len(told_by_colour_alone(figure)) == 2
