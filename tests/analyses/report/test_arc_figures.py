"""The arc shows the numbers of a series over pretraining, with the recommended checkpoint in every panel."""

from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from valuelens.analyses import Result
from valuelens.analyses.report._arc_figures import (
    arc_panels,
    flat_groups_figure,
    gain_arc_figure,
    reward_arc_figure,
    score_arc_figure,
)
from valuelens.analyses.report._ranking import checkpoints, series_names

Make = Callable[..., Result]


@pytest.fixture
def ax() -> Axes:
    return Figure().subplots()


def drawn(ax: Axes, label: str) -> tuple[list[float], list[float]]:
    line = next(each for each in ax.lines if str(each.get_label()) == label)
    return list(map(float, line.get_xdata())), list(map(float, line.get_ydata()))


def first(result: Result) -> str:
    return series_names(result)[0]


def test_signal_headroom_and_product_are_shares_of_their_largest(ax: Axes, ranked_result: Make) -> None:
    result = ranked_result()
    score_arc_figure(ax, result, first(result))
    scores = result.tables["scores"]
    for column, label in (("signal", "signal"), ("headroom", "headroom"), ("impact", "signal x headroom")):
        x, y = drawn(ax, label)
        assert x == scores["step"].tolist()
        assert y == pytest.approx((scores[column] / scores[column].max()).tolist())
    looks = {(line.get_marker(), line.get_linestyle()) for line in ax.lines[:3]}
    assert len(looks) == 3
    assert ax.texts[0].get_text() == "recommended"
    assert ax.texts[1].get_text().startswith("largest: signal 0.0")


def test_gains_have_their_intervals_and_stand_beside_those_without_credit(
    ax: Axes, ranked_result: Make
) -> None:
    result = ranked_result()
    gain_arc_figure(ax, result, first(result))
    table = checkpoints(result, first(result))
    for k, (label, column) in enumerate((("gain", "gain"), ("gain, credit through time cut", "gain_cut"))):
        x, y = drawn(ax, label)
        assert y == pytest.approx(table[column].tolist())
        assert x == pytest.approx(table["step"].tolist(), rel=0.03)
        ends = [tuple(bar[:, 1]) for bar in ax.collections[k].get_segments()]
        low, high = table[f"{column}_low"], table[f"{column}_high"]
        assert ends == [pytest.approx(each) for each in zip(low, high, strict=True)]
    assert drawn(ax, "most gain")[1] == [table["gain"].max()]
    marked = [
        line
        for line in ax.lines
        if list(line.get_xdata()) == [table.loc[table["best_for_gain"], "step"].item()] * 2
    ]
    assert len(marked) == 1


def test_one_seed_has_gains_without_bars(ax: Axes, ranked_result: Make) -> None:
    result = ranked_result(seeds=1, checkpoints=6)
    gain_arc_figure(ax, result, first(result))
    assert np.isfinite(drawn(ax, "gain")[1]).all()
    assert [len(bar) for bar in ax.collections[0].get_segments()] == [0] * 6


def test_rewards_before_and_after(ax: Axes, ranked_result: Make) -> None:
    result = ranked_result()
    reward_arc_figure(ax, result, first(result))
    after = [f.estimate for f in result.find("final_reward")]
    assert drawn(ax, "reward after RL")[1] == pytest.approx(after)
    assert drawn(ax, "reward before RL (R_0)")[1] == result.tables["scores"]["reward"].tolist()
    assert arc_panels(result) == 3
    table = checkpoints(result, first(result))
    place = table.loc[table["best_for_final_reward"], "step"].item()
    assert [line for line in ax.lines if list(line.get_xdata()) == [place] * 2]


def test_without_gains_there_are_scores_and_rewards(ax: Axes, ranked_result: Make) -> None:
    result = ranked_result(seeds=0)
    reward_arc_figure(ax, result, first(result))
    assert ax.lines[0].get_label() == "reward before RL (R_0)"
    assert "reward after RL" not in [line.get_label() for line in ax.lines]
    assert arc_panels(result) == 2


@pytest.mark.parametrize(
    "made", [{"flat": tuple(range(6))}, {"lost": ("signal", "impact")}], ids=["flat", "lost"]
)
def test_constant_and_missing_numbers_are_drawn(ax: Axes, ranked_result: Make, made: dict) -> None:
    result = ranked_result(checkpoints=6, seeds=0, **made)
    score_arc_figure(ax, result, first(result))
    headroom = drawn(ax, "headroom")[1]
    assert headroom == [0] * 6 if "flat" in made else max(headroom) == 1
    assert ("signal unknown" in ax.texts[-1].get_text()) == ("lost" in made)


def test_flat_groups_have_a_line_a_series(ax: Axes, ranked_result: Make) -> None:
    result = ranked_result(3)
    flat_groups_figure(ax, result, series_names(result))
    for name in series_names(result):
        assert drawn(ax, name)[1] == checkpoints(result, name)["frac_reward_zero_std"].tolist()
    looks = {(line.get_marker(), line.get_linestyle(), line.get_color()) for line in ax.lines}
    assert len(looks) == 3
