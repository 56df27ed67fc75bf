"""Learning curves are those of the RL runs: every seed, their mean, whole and cut."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from valuelens.analyses import Result
from valuelens.analyses.report._learning_figures import (
    drawn_recipe,
    learning_figure,
    learning_panels,
    learning_series,
    mean_curves,
)
from valuelens.analyses.report._ranking import checkpoints, recommended, series_names

Make = Callable[..., Result]


def test_the_panels_are_those_that_a_choice_is_between(ranked_result: Make) -> None:
    result = ranked_result()
    (name,) = series_names(result)
    panels = dict(learning_panels(result, name))
    labels = result.tables["scores"]["checkpoint"].tolist()
    assert panels[recommended(result, name)][0] == "recommended for gain"
    assert "recommended for reward" in panels[recommended(result, name, "final_reward")]
    assert panels[labels[-1]][-1] == "last"
    assert panels[labels[0]][-1] == "first"
    best = checkpoints(result, name)["final_reward"].idxmax()
    assert "best after RL" in panels[labels[best]]


def test_seeds_and_their_mean_are_drawn_by_kind_of_credit(ranked_result: Make) -> None:
    result = ranked_result()
    (name,) = series_names(result)
    label = recommended(result, name)
    ax = learning_figure(Figure().subplots(), result, name, label)
    curves = result.tables["curves"]
    mine = curves[curves["checkpoint"] == label]
    assert len(ax.lines) == 2 * (3 + 1)
    named = {line.get_label(): line for line in ax.lines if not str(line.get_label()).startswith("_")}
    assert list(named) == ["full credit, mean of 3 RL seeds", "credit through time cut, mean of 3 RL seeds"]
    for cut, line in zip((False, True), named.values(), strict=True):
        mean = mine[mine["cut"] == cut].groupby("step")["reward"].mean()
        assert list(line.get_ydata()) == pytest.approx(mean.tolist())
    assert len({line.get_linestyle() for line in named.values()}) == 2
    one = ranked_result(checkpoints=6, seeds=1)
    (alone,) = series_names(one)
    labels = learning_figure(Figure().subplots(), one, alone, "step-00000020").get_legend_handles_labels()[1]
    assert labels[0] == "full credit, 1 RL seed"
    assert list(mean_curves(result, name, label)) == ["full credit", "credit through time cut"]


def test_one_recipe_is_drawn(ranked_result: Make) -> None:
    result = ranked_result(checkpoints=6)
    curves = result.tables["curves"]
    fast = replace(result, tables={**result.tables, "curves": curves.assign(recipe="fast")})
    both = curves.assign(recipe=["fast"] * 50 + ["default"] * (len(curves) - 50))
    assert drawn_recipe(fast) == "fast"
    assert drawn_recipe(replace(result, tables={**result.tables, "curves": both})) == "default"


def test_gains_of_others_leave_no_curves(ranked_result: Make) -> None:
    result = ranked_result(checkpoints=6)
    bare = replace(result, tables={**result.tables, "curves": result.tables["curves"].iloc[:0]})
    assert (learning_series(result), learning_series(bare)) == (series_names(result), [])
