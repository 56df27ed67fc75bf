"""Foretold gains and their errors, beside those of the mean of the others."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from valuelens.analyses.impact._outcomes import in_order, joined_gains, outcomes, panels
from valuelens.analyses.impact._predictions import CONSTANT_PREDICTOR, PREDICTIONS, errors, predictions

Make = Callable[..., Any]
GAIN = np.array([0.1, 0.5, 0.2, 0.6, 0.3, 0.05, 0.4, 0.45, 0.35, 0.25])


def judged(made: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    scores = in_order(made.scores)
    runs = joined_gains(scores, made.gains)
    found = panels(scores, runs, outcomes(scores, runs), "default")
    table = predictions(found, "default")
    return table, pd.DataFrame(errors(table, found, seed=0)).set_index(["predictor", "series"])


def test_an_affine_score_foretells_without_error(ranking: Make) -> None:
    table, found = judged(ranking(GAIN, 3 * GAIN + 1, series=2))
    mine = table[table["predictor"] == "impact"]
    assert list(table) == list(PREDICTIONS)
    assert mine["predicted_gain"].to_numpy() == pytest.approx(np.tile(GAIN, 2))
    assert found.loc["impact", "pooled"].estimate == pytest.approx(0, abs=1e-12)


def test_the_constant_predictor_is_the_mean_of_the_others(ranking: Make) -> None:
    table, found = judged(ranking(GAIN, GAIN, series=2))
    constant = table[(table["predictor"] == CONSTANT_PREDICTOR) & (table["series"] == "series-0")]
    others = (GAIN.sum() - GAIN) / 9
    assert constant["predicted_gain"].to_numpy() == pytest.approx(others)
    assert found.loc[CONSTANT_PREDICTOR, "series-0"].estimate == pytest.approx(
        np.sqrt(((GAIN - others) ** 2).mean())
    )


def test_lines_are_those_of_each_series_and_squares_are_pooled(ranking: Make) -> None:
    """A score in another unit in each series is no worse for it."""
    made = ranking(GAIN, GAIN**2, series=2, noise=0.05)
    made.scores.loc[made.scores["series"] == "series-1", "impact"] *= 1000
    _, found = judged(made)
    own = [found.loc["impact", f"series-{place}"].estimate for place in range(2)]
    mine = found.loc["impact", "pooled"]
    assert mine.estimate == pytest.approx(np.sqrt(np.mean(np.square(own))))
    assert 0 <= mine.low < mine.estimate < mine.high
    assert mine.estimate < found.loc[CONSTANT_PREDICTOR, "pooled"].estimate
    assert (mine.n, found.loc["impact", "series-0"].n) == (20, 10)


def test_a_score_that_is_missing_foretells_nothing(ranking: Make) -> None:
    table, found = judged(ranking(GAIN, GAIN, held_out_loss=[np.nan, *GAIN[1:]]))
    assert table.loc[table["predictor"] == "held_out_loss", "predicted_gain"].isna().all()
    assert found.loc["held_out_loss", "pooled"].reason == "not known at every checkpoint"
    assert np.isnan(found.loc["held_out_loss", "pooled"].estimate)


def test_few_checkpoints_have_an_error_without_interval_and_two_have_none(ranking: Make) -> None:
    table, found = judged(ranking(GAIN[:5], GAIN[:5] ** 2))
    assert found.loc["impact", "pooled"].estimate > 0
    assert found.loc["impact", "pooled"].reason == "fewer than 8 checkpoints"
    assert np.isnan(found.loc["impact", "pooled"].low)
    table, found = judged(ranking(GAIN[:2], GAIN[:2]))
    assert table["predicted_gain"].isna().all()
    assert set(found["reason"]) == {"fewer than 3 checkpoints"}
