"""What is resampled: blocks within few series, whole series where there are six."""

import numpy as np
import pytest

from valuelens.analyses.impact._rows import JUDGEMENT, RESAMPLES, Resampling, interval_of, row


def test_a_row_has_every_column_and_no_other() -> None:
    made = row("spearman", "impact", "pooled", estimate=0.5, interval=(0.1, 0.9), naive=None)
    assert set(made) == set(JUDGEMENT)
    assert (made["low"], made["high"]) == (0.1, 0.9)
    assert np.isnan(made["naive_low"])


def test_six_series_are_resampled_whole() -> None:
    drawn = Resampling([14] * 6, 0)
    estimates = np.arange(6.0)[None]
    found = drawn.pooled(estimates, [np.full((1, RESAMPLES), 99.0)] * 6)  # blocks do not count
    assert found.shape == (1, RESAMPLES)
    assert found.mean() == pytest.approx(2.5, abs=0.1)
    assert found.std() == pytest.approx((35 / 12 / 6) ** 0.5, rel=0.1)
    assert drawn.units == 6


def test_of_five_the_blocks_are() -> None:
    drawn = Resampling([14, 9, 14, 14, 14], 0)
    blocks = [np.full((1, RESAMPLES), float(place)) for place in range(5)]
    assert (drawn.pooled(np.zeros((1, 5)), blocks) == 2.0).all()
    assert drawn.units == 5 + 3 + 5 + 5 + 5
    assert [len(each[0]) for each in drawn.blocks] == [14, 9, 14, 14, 14]


def test_the_same_seed_draws_the_same() -> None:
    one, two, other = Resampling([10, 10], 0), Resampling([10, 10], 0), Resampling([10, 10], 1)
    assert all((a == b).all() for a, b in zip(one.blocks, two.blocks, strict=True))
    assert not (one.blocks[0] == other.blocks[0]).all()
    assert not (one.blocks[0] == one.blocks[1]).all()


def test_resamples_without_spread_have_no_interval() -> None:
    assert interval_of(np.ones(RESAMPLES), 5) is None
    assert interval_of(np.array([0.0, np.nan]), 5) is None
    assert interval_of(np.empty(0), 5) is None
    assert interval_of(np.array([0.0, 1.0]), 1) is None
    assert interval_of(np.array([0.0, 1.0]), 5) is not None
