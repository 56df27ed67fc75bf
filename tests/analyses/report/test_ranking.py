"""A ranking is read in the order of pretraining, whatever the checkpoints are called."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from valuelens.analyses import Result
from valuelens.analyses.report._ranking import (
    checkpoints,
    drawn_series,
    has_gains,
    is_number,
    largest,
    pretraining_axis,
    recommended,
    series_names,
)

Make = Callable[..., Result]


def with_steps(result: Result, steps: list[float]) -> Result:
    return replace(result, tables={**result.tables, "scores": result.tables["scores"].assign(step=steps)})


def test_numbers_and_intervals_stand_at_their_checkpoint(ranked_result: Make) -> None:
    result = ranked_result(3)
    assert series_names(result) == drawn_series(result) == result.tables["scores"]["series"].unique().tolist()
    for name in series_names(result):
        table = checkpoints(result, name)
        for row in table.to_dict("records"):
            (found,) = result.find("gain_cut", series=name, checkpoint=row["checkpoint"])
            assert row["gain_cut"] == found.estimate
            assert (row["gain_cut_low"], row["gain_cut_high"]) == found.interval
        for target in ("gain", "final_reward"):
            mine = table.loc[table[f"best_for_{target}"], "checkpoint"].tolist()
            assert mine == [recommended(result, name, target)]
        assert table["checkpoint"][table["impact"].idxmax()] == recommended(result, name)


def test_the_order_is_that_of_steps_where_they_are_known(ranked_result: Make) -> None:
    result = ranked_result(checkpoints=6)
    (name,) = series_names(result)
    table = checkpoints(with_steps(result, [60, 50, 40, 30, 20, 10]), name)
    assert table["place"].tolist() == [10, 20, 30, 40, 50, 60]
    assert table["checkpoint"].tolist() == result.tables["scores"]["checkpoint"].tolist()[::-1]
    unknown = checkpoints(with_steps(result, [1, 2, 3, float("nan"), 5, 6]), name)
    assert (unknown["place"].tolist(), unknown["stepped"].any()) == ([1, 2, 3, 4, 5, 6], False)
    assert not checkpoints(with_steps(result, [1, 2, 2, 3, 4, 5]), name)["stepped"].any()


@pytest.mark.parametrize(
    ("steps", "scale"),
    [
        ([1, 10, 100, 1000, 5000, 20000], "log"),
        ([0, 10, 100, 1000, 5000, 20000], "symlog"),
        ([10, 11, 12, 13, 14, 15], "linear"),
    ],
)
def test_the_axis_of_steps_is_logarithmic_where_they_span(
    ranked_result: Make, steps: list[float], scale: str
) -> None:
    result = with_steps(ranked_result(checkpoints=6), steps)
    ax = Figure().subplots()
    table = checkpoints(result, series_names(result)[0])
    ax.plot(table["place"], table["reward"])
    pretraining_axis(ax, table)
    assert (ax.get_xscale(), ax.get_xlabel()) == (scale, "pretraining step")
    labels = [tick.get_text() for tick in ax.get_xticklabels()]
    assert labels[-1] == ("20k" if steps[-1] == 20000 else "15")


def test_checkpoints_without_steps_stand_in_order_by_name(ranked_result: Make) -> None:
    result = ranked_result(named=True)
    ax = Figure().subplots()
    pretraining_axis(ax, checkpoints(result, series_names(result)[0]))
    assert ax.get_xlabel() == "checkpoint, in order"
    labels = [tick.get_text() for tick in ax.get_xticklabels()]
    assert labels == [f'<b>{k} & "נקודה"</b>' for k in (1, 4, 7, 10, 13)]


def test_nothing_is_recommended_where_nothing_is_to_gain(ranked_result: Make) -> None:
    flat = ranked_result(flat=tuple(range(14)), seeds=0)
    assert recommended(flat, series_names(flat)[0]) == ""
    assert not checkpoints(flat, series_names(flat)[0])["best_for_gain"].any()
    assert (has_gains(flat), has_gains(ranked_result())) == (False, True)


def test_the_largest_is_the_earliest_of_equals(ranked_result: Make) -> None:
    result = ranked_result(checkpoints=6)
    table = checkpoints(result, series_names(result)[0]).assign(gain=[0.1, float("nan"), 0.3, 0.3, 0.2, 0.0])
    best = largest(table, "gain")
    assert best is not None
    assert best["checkpoint"] == table["checkpoint"][2]
    assert largest(table.assign(gain=float("nan")), "gain") is None


def test_numbers_are_told_from_what_is_none() -> None:
    assert [is_number(x) for x in (1, 0.5, None, "1", True, float("nan"), [1.0])] == [
        True,
        True,
        *[False] * 5,
    ]
