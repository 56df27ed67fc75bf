"""Which checkpoint is picked, what that costs, and how surely it is the best: against enumeration and closed forms."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from valuelens.analyses.impact._choices import NO_RUNS, ONE_SEED, best_shares, choice, choices, recommended
from valuelens.analyses.impact._correlations import CONSTANT, MISSING
from valuelens.analyses.impact._outcomes import in_order, joined_gains, outcomes, panels

Make = Callable[..., Any]


def rows(made: Any, target: str = "final_reward") -> pd.DataFrame:
    scores = in_order(made.scores)
    runs = joined_gains(scores, made.gains)
    found = panels(scores, runs, outcomes(scores, runs), "default")
    return pd.DataFrame(choices(found, target, "default", seed=0)).set_index(
        ["statistic", "predictor", "series"]
    )


def test_of_equal_scores_the_later_is_picked() -> None:
    assert choice([0.3, 0.1, 0.3, 0.2]) == 2
    assert choice([0.2]) == 0
    assert choice([0.2, np.nan]) is None
    assert choice([0.2, 0.2, 0.2]) is None


def test_the_best_of_two_normal_means_by_a_closed_form() -> None:
    """Many seeds: the probability that one mean exceeds the other is that of a normal difference."""
    generator = np.random.default_rng(0)
    noise = generator.normal(size=(2, 400))
    noise = (noise - noise.mean(-1, keepdims=True)) / noise.std(-1, ddof=1, keepdims=True)
    final = noise + np.array([[0.0], [0.07]])
    found = best_shares(final)
    assert found is not None
    assert found[1] == pytest.approx(stats.norm.cdf(0.07 / (2 / 400) ** 0.5), abs=0.04)
    assert found.sum() == pytest.approx(1)


def test_resampled_means_spread_as_widely_as_means_of_seeds_do() -> None:
    """Of three seeds without the factor the probabilities would be too sure: a third less variance."""
    final = np.array([[-1.0, 0.0, 1.0], [0.37, 0.37, 0.37]])  # the second does not vary
    found = best_shares(final)
    assert found is not None
    # of 27 means of three of (-1, 0, 1) six are 1/3, which is .41 when spread, three 2/3 and one 1
    assert found[0] == pytest.approx(10 / 27, abs=0.04)


def test_checkpoints_that_tie_share() -> None:
    found = best_shares(np.array([[1.0, 1.0], [1.0, 1.0], [0.5, 0.5], [1.0, 1.0]]))
    assert found is not None
    np.testing.assert_allclose(found, [1 / 3, 1 / 3, 0, 1 / 3])


def test_one_seed_says_nothing_of_how_sure() -> None:
    assert best_shares(np.array([[0.5, 0.6], [0.5, np.nan]])) is None


def test_regret_is_what_the_best_has_more(ranking: Make) -> None:
    """Final reward is .1 + .01 step + gain."""
    made = ranking([0.1, 0.5, 0.2, 0.3], [4, 1, 2, 3], noise=0.05, reward_std=[1, 9, 2, 3])
    table = rows(made)
    final = (
        (made.gains["reward_after"])
        .groupby([made.gains["checkpoint"], made.gains["rl_seed"]])
        .mean()
        .unstack()
    )
    mine = table.loc["regret", "impact", "pooled"]
    assert mine.checkpoint == "step-1"
    assert mine.estimate == pytest.approx((final.loc["step-2"] - final.loc["step-1"]).mean())
    interval = stats.ttest_1samp(final.loc["step-2"] - final.loc["step-1"], 0).confidence_interval(0.95)
    assert (mine.low, mine.high) == pytest.approx((interval.low, interval.high))
    assert table.loc["regret", "reward_std", "pooled"].estimate == 0
    assert table.loc["regret", "reward_std", "pooled"].reason == "it is the best that was measured"
    last, random = (
        table.loc["regret", name, "pooled"].estimate for name in ("last checkpoint", "random checkpoint")
    )
    assert last == pytest.approx((final.loc["step-2"] - final.loc["step-4"]).mean())
    assert random == pytest.approx((final.loc["step-2"] - final.mean()).mean())
    assert table.loc["probability_best", "random checkpoint", "pooled"].estimate == 0.25


def test_the_largest_gain_is_not_the_largest_reward(ranking: Make) -> None:
    """A late checkpoint starts higher: by gain the first is best, by final reward the last."""
    made = ranking([0.5, 0.2, 0.3], [3, 1, 2], reward=[0.0, 0.1, 0.9])
    gain, final = rows(made, "gain"), rows(made)
    assert gain.loc["regret", "impact", "pooled"].estimate == 0
    assert gain.loc["probability_best", "impact", "pooled"].estimate == 1
    assert final.loc["regret", "impact", "pooled"].estimate == pytest.approx(0.7)
    assert "reward + impact" not in gain.loc["regret"].index.get_level_values("predictor")
    sums = rows(ranking([0.5, 0.2, 0.3], [0.3, 0.1, 0.2], reward=[0.0, 0.1, 0.9]))
    assert sums.loc["regret", "reward + impact", "pooled"].checkpoint == "step-3"
    assert sums.loc["regret", "reward + impact", "pooled"].estimate == 0


def test_over_series_regret_is_the_mean(ranking: Make) -> None:
    made = ranking([0.1, 0.5, 0.2, 0.3], [4, 1, 2, 3], noise=0.05, series=6)
    table = rows(made)
    own = [table.loc["regret", "impact", f"series-{place}"].estimate for place in range(6)]
    mine = table.loc["regret", "impact", "pooled"]
    assert mine.estimate == pytest.approx(np.mean(own))
    assert min(own) <= mine.low < mine.estimate < mine.high <= max(own)
    two = rows(ranking([0.1, 0.5, 0.2, 0.3], [4, 1, 2, 3], noise=0.05, series=2))
    assert two.loc["regret", "impact", "pooled"].reason == "fewer than 6 series"


def test_without_seeds_to_compare_there_is_no_interval(ranking: Make) -> None:
    table = rows(ranking([0.1, 0.5, 0.2], [3, 1, 2], seeds=1))
    assert table.loc["regret", "impact", "pooled"].estimate == pytest.approx(0.41)
    assert (
        table.loc["regret", "impact", "pooled"].reason
        == "one RL seed, or seeds that differ between checkpoints"
    )
    assert table.loc["probability_best", "impact", "pooled"].reason == ONE_SEED


def test_a_predictor_that_picks_nothing_says_why(ranking: Make) -> None:
    made = ranking([0.1, 0.5, 0.2], [3, 1, 2], entropy=1.0, held_out_loss=[1.0, np.nan, 2.0])
    table = rows(made)
    for statistic in ("regret", "probability_best"):
        assert table.loc[statistic, "entropy", "pooled"].reason == CONSTANT
        assert table.loc[statistic, "held_out_loss", "pooled"].reason == MISSING
    made = ranking([0.1, 0.5, 0.2], [3, 1, 2], series=2, noise=0.05)
    made.scores.loc[:2, "entropy"] = 1.0
    table = rows(made)
    assert (
        table.loc["regret", "entropy", "pooled"].estimate
        == table.loc["regret", "entropy", "series-1"].estimate
    )


def test_a_score_recommends_its_largest() -> None:
    table = pd.DataFrame(
        {"checkpoint": ["a", "b", "c"], "impact": [0.1, 0.3, 0.3], "entropy": [-1.0, -2.0, 0.0]}
    )
    assert recommended(table, "impact") == ("c", "")
    assert recommended(table.iloc[:1], "impact") == ("a", "")
    nothing = "no checkpoint has a score above 0: by this score RL has nothing to gain"
    assert recommended(table, "entropy") == ("c", "")  # a rival may be below 0
    assert recommended(table.assign(impact=0.0), "impact") == (None, nothing)
    assert recommended(table.assign(impact=0.5), "impact") == (None, CONSTANT)
    assert recommended(table.assign(impact=[0.1, np.nan, 0.2]), "impact") == (None, MISSING)
    assert recommended(table, "signal") == (None, MISSING)
    assert NO_RUNS == "no realised gains"
