"""Tables of a ranking mark the recommended checkpoint, and hold every number."""

from collections.abc import Callable

from valuelens.analyses import Result
from valuelens.analyses.report._impact_tables import (
    checkpoints_table,
    choices_table,
    numbers_table,
    predictors_table,
)
from valuelens.analyses.report._numbers import readable
from valuelens.analyses.report._prediction_figures import forest_rows
from valuelens.analyses.report._ranking import recommended, series_names

Make = Callable[..., Result]


def test_the_recommended_row_is_marked_in_words(ranked_result: Make) -> None:
    result = ranked_result(named=True)
    (name,) = series_names(result)
    table = checkpoints_table(result, name)
    assert table.columns[:4] == ("checkpoint", "score", "signal", "headroom")
    assert table.columns[-3:] == ("gain", "gain, credit cut", "reward after RL")
    marked = {row.name: row for row in table.rows if row.marked}
    assert set(marked) == {recommended(result, name, target) for target in ("gain", "final_reward")}
    row = marked[recommended(result, name)]
    assert row.small[0] == "▶ recommended for gain"
    assert [mark for row in table.rows for mark in row.small].count("★ most reward after RL") == 1
    (gain,) = result.find("gain", checkpoint=row.name)
    cell = row.cells[table.columns.index("gain") - 1]
    assert (cell.main, len(cell.small)) == (readable(gain.estimate), 1)


def test_what_was_not_measured_has_no_column(ranked_result: Make) -> None:
    result = ranked_result(checkpoints=6, seeds=0, lost=("signal", "impact"))
    table = checkpoints_table(result, series_names(result)[0])
    assert table.columns == ("checkpoint", "headroom", "reward", "std", "flat groups")


def test_every_choice_has_its_price(ranked_result: Make) -> None:
    result = ranked_result()
    table = choices_table(result)
    names = [row.name for row in table.rows]
    assert names[-2:] == ["the last checkpoint", "a random checkpoint"]
    assert [row.name for row in table.rows if row.marked] == [
        "signal x headroom (the score)",
        "reward + signal x headroom",
    ]
    assert table.columns == (
        *("chosen by", "starts RL at", "regret in gain", "probability of most gain"),
        *("regret in reward after RL", "probability of most reward after RL"),
    )
    for row, predictor in ((table.rows[0], "impact"), (table.rows[-2], "last checkpoint")):
        (found,) = result.find("regret", predictor=predictor, target="gain", series="pooled")
        assert row.cells[1].main == readable(found.estimate)
    assert table.rows[-2].cells[0].main == "step 2,520"
    assert [cell.main for cell in table.rows[-1].cells][2::2] == ["0.0714", "0.0714"]


def test_a_reason_that_a_column_shares_stands_in_its_heading(ranked_result: Make) -> None:
    result = ranked_result(checkpoints=6, seeds=1)
    table = choices_table(result)
    head = "probability of most gain (none: some checkpoint has one RL seed)"
    column = table.columns.index(head) - 1
    cells = [row.cells[column] for row in table.rows if row.cells[column].main == "none"]
    assert len(cells) > 10
    assert {cell.small for cell in cells} == {()}


def test_several_series_stand_side_by_side(ranked_result: Make) -> None:
    result = ranked_result(3)
    table = choices_table(result)
    assert table.columns[1:4] == tuple(series_names(result))
    last = next(row for row in table.rows if row.name == "the last checkpoint")
    assert [words.rsplit(" ", 1)[0] for words in last.cells[1].small] == [
        "regret in gain",
        "regret in reward after RL",
    ]


def test_without_gains_only_the_choice_is_told(ranked_result: Make) -> None:
    table = choices_table(ranked_result(seeds=0))
    assert table.columns == ("chosen by", "starts RL at")


def test_predictors_have_their_correlations_and_errors(ranked_result: Make) -> None:
    result = ranked_result()
    table = predictors_table(result, forest_rows(result))
    assert [row.name for row in table.rows if row.marked] == ["signal x headroom (the score)"]
    assert {row.small for row in table.rows[1:]} == {("exploratory",)}
    (found,) = result.find("spearman", predictor="reward_std", target="gain", series="pooled")
    (row,) = [row for row in table.rows if row.name == "standard deviation of rewards"]
    assert row.cells[0].main == readable(found.estimate)


def test_every_number_of_a_checkpoint_is_in_its_row(ranked_result: Make) -> None:
    result = ranked_result(3)
    for series in series_names(result):
        table = numbers_table(result, series)
        assert len(table.rows) == 1 + 14
        cells = sum(cell.main != "" for row in table.rows for cell in row.cells)
        assert cells == len(
            [f for f in result.findings if f.index.get("series") == series and "checkpoint" in f.index]
        )
    column = table.columns.index("gain") - 1
    assert "n 3" in table.rows[0].cells[column].small
