"""Leave-one-out predictions against refitting, and the trap of correlating them."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from valuelens.probe import leave_one_out


@given(st.integers(0, 10**6), st.integers(3, 20))
def test_each_point_is_foretold_by_a_line_through_the_others(seed: int, size: int) -> None:
    generator = np.random.default_rng(seed)
    x, y = generator.normal(size=(2, size)), generator.normal(size=size)
    found = leave_one_out(x, y)
    for row, values in enumerate(x):
        for out in range(size):
            slope, offset = np.polyfit(np.delete(values, out), np.delete(y, out), 1)
            assert found[row, out] == pytest.approx(slope * values[out] + offset, rel=1e-6, abs=1e-6)


def test_where_the_others_do_not_vary_their_mean_is_foretold() -> None:
    y = np.array([1.0, 2.0, 3.0, 10.0])
    found = leave_one_out(np.array([[0.3, 0.3, 0.3, 0.9]]), y)[0]
    assert found[3] == pytest.approx(2.0)
    assert found[0] == pytest.approx(2.5)  # the other two at its x


def test_correlating_predictions_of_a_useless_score_is_a_trap() -> None:
    """They correlate about -.4 with the truth by construction, where the score itself correlates 0 (theory B6)."""
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(2, 400, 14))
    trap = [stats.spearmanr(leave_one_out(a[None], b)[0], b).statistic for a, b in zip(x, y, strict=True)]
    honest = [stats.spearmanr(a, b).statistic for a, b in zip(x, y, strict=True)]
    assert np.mean(trap) < -0.25
    assert abs(np.mean(honest)) < 0.05


def test_two_points_are_too_few() -> None:
    told = "a line through the others takes at least three points; found 2; leave_one_out"
    with pytest.raises(ValueError, match=f"^{re.escape(told)}$"):
        leave_one_out(np.ones((1, 2)), np.ones(2))
