"""Pooled correlations and differences against a slow loop, ties with rivals, and what cannot be correlated."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from valuelens.analyses.impact._correlations import CONSTANT, EXPLAINED, MISSING, Correlations, correlations
from valuelens.analyses.impact._outcomes import in_order, joined_gains, outcomes, panels

Make = Callable[..., Any]
GAIN = np.array([0.1, 0.5, 0.2, 0.6, 0.3, 0.05, 0.4, 0.45, 0.35, 0.25])


def found(made: Any, target: str = "gain", **options: Any) -> Correlations:
    scores = in_order(made.scores)
    runs = joined_gains(scores, made.gains)
    series = panels(scores, runs, outcomes(scores, runs), "default")
    return correlations(series, target, "default", **{"main": True, "seed": 0, **options})


def line(judged: Correlations, **cells: str) -> dict[str, Any]:
    rows = [each for each in judged.rows if all(each[key] == value for key, value in cells.items())]
    return rows[0]


def test_pooled_is_the_mean_of_correlations_within_series(ranking: Make) -> None:
    """Not the correlation of everything, to which differences between series would add."""
    made = ranking(GAIN, GAIN**2, series=3, noise=0.1)
    judged = found(made)
    means = made.gains.groupby(["series", "checkpoint"])["gain"].mean()
    for name in ("impact", "entropy", "reward_std"):
        within = []
        for series, own in made.scores.groupby("series"):
            gain = [means[series, checkpoint] for checkpoint in own["checkpoint"]]
            within.append(stats.spearmanr(own[name], gain).statistic)
            each = line(judged, statistic="spearman", predictor=name, series=series)
            assert each["estimate"] == pytest.approx(within[-1])
        pooled = line(judged, statistic="spearman", predictor=name, series="pooled")
        assert pooled["estimate"] == pytest.approx(np.mean(within))
        assert pooled["low"] <= pooled["estimate"] <= pooled["high"]
        assert pooled["n"] == 30


def test_a_rival_that_wins_is_named(ranking: Make) -> None:
    made = ranking(GAIN, GAIN[::-1].copy(), series=6, noise=0.1, reward_std=GAIN)
    judged = found(made)
    assert judged.best_rival == "reward_std"
    difference = line(judged, statistic="spearman_difference", predictor="impact", rival="reward_std")
    assert difference["primary"]
    assert difference["high"] < 0
    again = line(judged, statistic="spearman_difference_rechosen", predictor="impact")
    assert not again["primary"]
    assert again["estimate"] == difference["estimate"]
    assert again["high"] <= difference["high"]


def test_choosing_the_rival_anew_never_flatters_the_score(ranking: Make) -> None:
    """Each resample's best rival is at least as good there as the one that is best in the data."""
    aligned = GAIN + 0.1 * np.sin(np.arange(10))
    judged = found(ranking(GAIN, GAIN[::-1].copy(), series=2, noise=0.1, update_aligned=aligned))
    once = line(judged, statistic="spearman_difference", predictor="update_aligned")
    again = line(judged, statistic="spearman_difference_rechosen", predictor="update_aligned")
    assert again["low"] <= once["low"]
    assert again["high"] <= once["high"]


def test_a_score_beside_itself_differs_by_nothing(ranking: Make) -> None:
    """Differences are paired: the same resamples for both."""
    judged = found(ranking(GAIN, GAIN**2, noise=0.1, reward_std=GAIN**2))
    found_row = line(judged, statistic="spearman_difference", predictor="impact", rival="reward_std")
    assert found_row["estimate"] == 0
    assert found_row["reason"] == "resamples do not differ"


def test_blocks_make_a_wider_interval_than_checkpoints(ranking: Make) -> None:
    made = ranking(np.sin(np.arange(20) / 3), np.cos(np.arange(20) / 3) + np.sin(np.arange(20) / 3))
    each = line(found(made), statistic="spearman", predictor="impact", series="pooled")
    assert each["low"] < each["naive_low"] < each["naive_high"] < each["high"]


def test_only_impact_with_gain_is_primary(ranking: Make) -> None:
    made = ranking(GAIN, GAIN**2, noise=0.1)
    primary = [each for each in found(made).rows if each["primary"]]
    assert [each["statistic"] for each in primary] == ["spearman", "spearman_difference"]
    assert {each["predictor"] for each in primary} == {"impact"}
    assert {each["series"] for each in primary} == {"pooled"}
    assert not any(each["primary"] for each in found(made, main=False).rows)
    assert not any(each["primary"] for each in found(made, target="final_reward").rows)


def test_reward_leaves_nothing_of_itself(ranking: Make) -> None:
    judged = found(ranking(GAIN, GAIN**2, noise=0.1))
    assert line(judged, statistic="spearman_partial", predictor="reward")["reason"] == EXPLAINED
    mine = line(judged, statistic="spearman_partial", predictor="impact", series="pooled")
    assert -1 <= mine["low"] <= mine["estimate"] <= mine["high"] <= 1


@pytest.mark.parametrize(("size", "told"), [(2, "fewer than 3 checkpoints"), (7, "fewer than 8 checkpoints")])
def test_few_checkpoints_are_not_correlated(size: int, told: str, ranking: Make) -> None:
    judged = found(ranking(GAIN[:size], GAIN[:size]))
    assert judged.best_rival is None
    assert {each["reason"] for each in judged.rows} == {told}
    assert all(np.isnan(each["estimate"]) for each in judged.rows)


def test_a_gain_that_does_not_vary_is_not_correlated(ranking: Make) -> None:
    judged = found(ranking(np.full(10, 0.5), GAIN))
    assert {each["reason"] for each in judged.rows} == {"gain is the same at all checkpoints"}


def test_a_predictor_that_does_not_vary_ranks_nothing(ranking: Make) -> None:
    """Null within its series, and 0 in the mean over series: leaving that series out would flatter it."""
    made = ranking(GAIN, GAIN, series=2)
    made.scores.loc[made.scores["series"] == "series-0", "entropy"] = 0.5
    judged = found(made)
    assert line(judged, statistic="spearman", predictor="entropy", series="series-0")["reason"] == CONSTANT
    within = line(judged, statistic="spearman", predictor="entropy", series="series-1")["estimate"]
    pooled = line(judged, statistic="spearman", predictor="entropy", series="pooled")
    assert pooled["estimate"] == pytest.approx(within / 2)
    made.scores["entropy"] = 0.5
    assert line(found(made), statistic="spearman", predictor="entropy", series="pooled")["reason"] == CONSTANT


def test_a_predictor_that_is_missing_somewhere_is_not_pooled(ranking: Make) -> None:
    made = ranking(GAIN, GAIN, series=2)
    made.scores.loc[3, "held_out_loss"] = np.nan
    judged = found(made)
    assert line(judged, statistic="spearman", predictor="held_out_loss", series="pooled")["reason"] == MISSING
    assert (
        line(judged, statistic="spearman", predictor="held_out_loss", series="series-0")["reason"] == MISSING
    )
    assert line(judged, statistic="spearman", predictor="held_out_loss", series="series-1")["reason"] == ""
    assert judged.best_rival != "held_out_loss"


def test_series_that_are_too_short_are_left_out(ranking: Make) -> None:
    made = ranking(GAIN, GAIN, series=2)
    short = (made.scores["series"] == "series-1") & (made.scores["step"] > 5)
    gains = made.gains[
        ~(
            (made.gains["series"] == "series-1")
            & made.gains["checkpoint"].isin(made.scores["checkpoint"][short])
        )
    ]
    judged = found(made._replace(gains=gains))
    pooled = line(judged, statistic="spearman", predictor="impact", series="pooled")
    assert (pooled["estimate"], pooled["n"]) == (pytest.approx(1), 10)
    assert line(judged, statistic="spearman", predictor="impact", series="series-1")["reason"] == (
        "fewer than 8 checkpoints"
    )
