"""Predicted against realised gain, and every predictor's correlation, are those of the result."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from valuelens.analyses import Result
from valuelens.analyses.impact import RIVALS
from valuelens.analyses.report._prediction_figures import (
    PILOTS,
    best_rival,
    cheapest_rivals,
    correlation_words,
    correlations,
    forest_figure,
    forest_legend,
    forest_rows,
    prediction_figure,
    predictions,
    variant_rows,
)
from valuelens.analyses.report._ranking import checkpoints, recommended, series_names

Make = Callable[..., Result]


@pytest.fixture
def ax() -> Axes:
    return Figure(figsize=(5, 4)).subplots()


def test_the_points_are_gains_by_rank(ax: Axes, ranked_result: Make) -> None:
    result = ranked_result(3)
    for name in series_names(result):
        table = checkpoints(result, name)
        ax.clear()
        prediction_figure(ax, result, name, "impact")
        x, y = (list(map(float, each)) for each in (ax.lines[0].get_xdata(), ax.lines[0].get_ydata()))
        assert x == table["impact"].rank().tolist()
        assert y == pytest.approx(table["gain"].tolist())
        (found,) = result.find("spearman", predictor="impact", target="gain", series=name)
        assert spearmanr(x, y)[0] == pytest.approx(found.estimate)
        assert ax.get_title() == correlation_words(result, name, "impact")
        assert ax.get_title().startswith(f"Spearman {found.estimate:.3f} (95 %: ")
        ring = table[table["checkpoint"] == recommended(result, name)]
        assert [ax.lines[1].get_ydata().item()] == ring["gain"].tolist()
        assert len(ax.texts) == len(table)


def test_ties_share_their_rank(ranked_result: Make) -> None:
    result = ranked_result(checkpoints=6)
    (name,) = series_names(result)
    table = predictions(result, name, "impact").assign(score=[1.0, 2.0, 2.0, 3.0, 4.0, float("nan")])
    tied = replace(result, tables={**result.tables, "predictions": table.drop(columns="rank")})
    assert predictions(tied, name, "impact")["rank"].tolist() == [1, 2.5, 2.5, 4, 5]


def test_the_rival_is_the_one_that_was_judged_best(ranked_result: Make) -> None:
    result = ranked_result()
    (found,) = result.find("spearman_difference", predictor="impact", target="gain", chosen="once")
    assert best_rival(result) == found.index["rival"]
    few = ranked_result(checkpoints=6)
    prices = {f.index["predictor"]: f.estimate for f in few.find("regret", target="gain", series="pooled")}
    least = min(prices[name] for name in RIVALS)
    assert cheapest_rivals(few, "gain") == [name for name in RIVALS if prices[name] == least]
    assert best_rival(few) == cheapest_rivals(few, "gain")[0]


def test_few_checkpoints_have_no_correlation_and_say_why(ax: Axes, ranked_result: Make) -> None:
    result = ranked_result(checkpoints=6)
    (name,) = series_names(result)
    prediction_figure(ax, result, name, "impact")
    assert ax.get_title() == "no correlation: fewer than 8 checkpoints"
    assert (forest_rows(result), variant_rows(result)) == ([], [])
    assert correlation_words(replace(result, findings=()), name, "impact") == "Spearman: not taken"


@pytest.mark.parametrize("target", ["gain", "final_reward"])
def test_the_forest_has_every_correlation_with_its_interval(
    ax: Axes, ranked_result: Make, target: str
) -> None:
    result = ranked_result(3)
    rows = forest_rows(result)
    assert rows[:3] == ["impact", "update_aligned", "update_aligned x headroom"]
    assert rows[-1] == "reward + impact"
    forest_figure(ax, result, target, rows)
    bars = [tuple(map(tuple, bar)) for each in ax.collections for bar in each.get_segments()]
    judged = correlations(result, target)
    for place, name in enumerate(rows):
        row = judged[(judged["predictor"] == name) & (judged["series"] == "pooled")].dropna(
            subset=["estimate"]
        )
        for at in row.itertuples():
            assert ((at.low, place), (at.high, place)) in bars
            assert ((at.naive_low, place - 0.22), (at.naive_high, place - 0.22)) in bars
            marks = [
                line
                for line in ax.lines
                if list(line.get_xdata()) == [at.estimate] and list(line.get_ydata()) == [place]
            ]
            assert [line.get_marker() for line in marks] == ["D" if at.primary else "o"]
        single = [
            line
            for line in ax.lines
            if line.get_marker() == "|" and list(line.get_ydata()) == [place + 0.3] * 3
        ]
        assert len(single) == len(row)
    marked = [tick.get_text() for tick in ax.get_yticklabels() if "(primary)" in tick.get_text()]
    assert marked == (["signal x headroom (the score) (primary)"] if target == "gain" else [])


def test_references_are_lines_and_say_that_they_are_no_mark(ax: Axes, ranked_result: Make) -> None:
    result = ranked_result()
    rows = forest_rows(result)
    forest_figure(ax, result, "gain", rows)
    assert [text.get_text() for text in ax.texts] == ["published 0.60"]
    bars = [tuple(map(tuple, bar)) for each in ax.collections for bar in each.get_segments()]
    for name, values in PILOTS.items():
        place = rows.index(name)
        assert [((x, place - 0.42), (x, place + 0.42)) in bars for x in values] == [True] * 3
    assert not [line for line in ax.lines if line.get_marker() == "|" and len(line.get_xdata())]
    forest_legend(ax.figure)
    (legend,) = ax.figure.legends
    told = [text.get_text() for text in legend.get_texts()]
    assert [text.split()[0] for text in told if "reference, not a pass mark" in text] == [
        "pilots",
        "published",
    ]
    assert "primary comparison" in told


def test_variants_are_apart_from_the_score_and_its_rivals(ranked_result: Make) -> None:
    result = ranked_result()
    assert "signal_usable x headroom_tilt" in variant_rows(result)
    assert not set(variant_rows(result)) & set(forest_rows(result))
