"""Means over RL seeds, runs paired by seed, and whose gains are whose."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from valuelens.analyses.impact._outcomes import (
    in_order,
    joined_gains,
    outcomes,
    panels,
    recipes,
    seed_interval,
    unscored,
)
from valuelens.models import InputError

Make = Callable[..., Any]


def test_credit_is_worth_what_is_lost_without_it(ranking: Make) -> None:
    """Pairs by seed: the interval is Student's of the differences."""
    made = ranking([0.1, 0.3, 0.2], [1, 2, 3], cut=True, noise=0.05, seeds=4)
    table = outcomes(in_order(made.scores), joined_gains(made.scores, made.gains))
    own = made.gains[made.gains["checkpoint"] == "step-2"].pivot(
        index="rl_seed", columns="cut", values="gain"
    )
    row = table.iloc[1]
    assert row.gain == pytest.approx(own[False].mean())
    assert row.gain_cut == pytest.approx(own[True].mean())
    difference = own[False] - own[True]
    assert row.credit_gain == pytest.approx(difference.mean())
    interval = stats.ttest_1samp(difference, 0).confidence_interval(0.95)
    assert (row.credit_low, row.credit_high) == pytest.approx((interval.low, interval.high))
    assert (row.seeds, row.cut_seeds, row.pairs) == (4, 4, 4)


def test_a_seed_without_its_pair_is_left_out_of_the_difference(ranking: Make) -> None:
    made = ranking([0.1, 0.3, 0.2], [1, 2, 3], cut=True, noise=0.05)
    gains = made.gains[~(made.gains["cut"] & (made.gains["rl_seed"] == 1))]
    table = outcomes(in_order(made.scores), joined_gains(made.scores, gains))
    assert table["pairs"].tolist() == [2, 2, 2]
    assert table["cut_seeds"].tolist() == [2, 2, 2]
    assert table["seeds"].tolist() == [3, 3, 3]


def test_checkpoints_are_ordered_by_step(ranking: Make) -> None:
    made = ranking([0.1, 0.3, 0.2], [1, 2, 3], series=2)
    shuffled = made.scores.iloc[[5, 1, 0, 3, 2, 4]]
    found = in_order(shuffled)
    assert found["series"].tolist() == ["series-1"] * 3 + ["series-0"] * 3  # as they come
    assert found["checkpoint"].tolist() == ["step-1", "step-2", "step-3"] * 2
    unknown = in_order(shuffled.assign(step=np.nan))
    assert unknown["checkpoint"].tolist()[:3] == ["step-3", "step-1", "step-2"]


def test_the_final_reward_is_reward_plus_gain_where_only_the_gain_is_known(ranking: Make) -> None:
    made = ranking([0.1, 0.3, 0.2], [1, 2, 3])
    gains = made.gains.assign(reward_before=np.nan, reward_after=np.nan)
    table = outcomes(in_order(made.scores), joined_gains(made.scores, gains))
    assert table["final_reward"].tolist() == pytest.approx([0.21, 0.42, 0.33])


def test_the_main_recipe_is_default_or_the_first() -> None:
    assert recipes(pd.DataFrame({"recipe": ["fast", "default", "fast"]})) == ["default", "fast"]
    assert recipes(pd.DataFrame({"recipe": ["long", "fast"]})) == ["long", "fast"]


def test_a_panel_holds_the_checkpoints_with_runs(ranking: Make) -> None:
    made = ranking([0.1, 0.3, 0.2, 0.4], [1, 2, 3, 4], series=2, noise=0.1)
    gains = made.gains[~made.gains["checkpoint"].isin(["step-2"]) & (made.gains["series"] == "series-1")]
    scores = in_order(made.scores)
    runs = joined_gains(scores, gains)
    (found,) = panels(scores, runs, outcomes(scores, runs), "default")
    assert found.series == "series-1"
    assert found.table["checkpoint"].tolist() == ["step-1", "step-3", "step-4"]
    assert found.x["gain"]["impact"].tolist() == [1, 3, 4]
    for target in ("gain", "final_reward"):
        assert found.runs[target].mean(-1) == pytest.approx(found.table[target].to_numpy())
        assert found.runs[target].shape == (3, 3)


def test_gains_of_nobody_are_refused(ranking: Make) -> None:
    made = ranking([0.1, 0.3, 0.2], [1, 2, 3], series=2)
    with pytest.raises(InputError) as caught:
        joined_gains(made.scores, made.gains.assign(series=""))
    assert str(caught.value) == (
        "gains must have a column series where several series have the same checkpoint; "
        "found step-1 in series-0, series-1; gains"
    )
    with pytest.raises(InputError) as caught:
        joined_gains(made.scores, made.gains.assign(series="other"))
    assert str(caught.value) == (
        "gains must be of checkpoints that were scored; found step-1 of series other; series series-0, series-1"
    )
    one = ranking([0.1, 0.3, 0.2], [1, 2, 3])
    assert set(joined_gains(one.scores, one.gains.assign(series=""))["series"]) == {"series-0"}


def test_gains_without_a_score_are_left_out_and_named(ranking: Make) -> None:
    """A checkpoint may fail to be scored."""
    made = ranking([0.1, 0.3, 0.2], [1, 2, 3], series=2)
    scores = made.scores.drop(index=[1])
    assert unscored(scores, made.gains) == ["step-2 of series-0"]
    assert len(joined_gains(in_order(scores), made.gains)) == len(made.gains) - 3
    assert unscored(made.scores, made.gains) == []


def test_one_seed_has_no_interval() -> None:
    assert seed_interval([0.5]) is None
    assert seed_interval([0.5, 0.5]) is None
    low, high = seed_interval([0.4, 0.6]) or (1.0, 0.0)
    assert low < 0.5 < high
