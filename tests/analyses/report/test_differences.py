"""The interval of a difference: the normal one where both are normal, and its stated coverage where they are not."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binomtest

from valuelens.analyses import Control, Finding
from valuelens.analyses.report._differences import difference_interval, finding_difference

Z = 1.959963984540054
WHY = {"interval": "not sampled", "control": "none"}


@pytest.mark.parametrize(("first", "second"), [((0.2, 0.3), (1.0, 0.4)), ((5.0, 2.0), (-1.0, 0.01))])
def test_normal_intervals_give_the_normal_interval(
    first: tuple[float, float], second: tuple[float, float]
) -> None:
    (a, s), (b, t) = first, second
    low, high = difference_interval(a, (a - Z * s, a + Z * s), b, (b - Z * t, b + Z * t))
    half = Z * math.hypot(s, t)
    assert (low, high) == pytest.approx((b - a - half, b - a + half), abs=1e-12)


def test_the_other_way_round_it_is_negated() -> None:
    one, other = (0.3, (0.1, 0.8)), (0.6, (0.55, 0.7))
    low, high = difference_interval(*one, *other)
    assert difference_interval(*other, *one) == pytest.approx((-high, -low))


def wilson(hits: int, n: int) -> tuple[float, float]:
    found = binomtest(hits, n).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def test_it_is_newcombe_s_interval_of_two_shares() -> None:
    """56 of 70 less 48 of 80, method 10 in table II of Newcombe 1998 (Statistics in Medicine 17)."""
    low, high = difference_interval(48 / 80, wilson(48, 80), 56 / 70, wilson(56, 70))
    assert (low, high) == pytest.approx((0.0524, 0.3339), abs=5e-5)


def _above(truth: float) -> Callable[[float, float], bool]:
    return lambda low, high: low > truth


def _below(truth: float) -> Callable[[float, float], bool]:
    return lambda low, high: high < truth


def test_it_covers_at_its_rate_where_intervals_are_skewed() -> None:
    """Newcombe's interval of two shares, near their border and from small samples, is this one."""
    rng, n, m, p, q = np.random.default_rng(0), 40, 60, 0.06, 0.25
    around, beside = [wilson(k, n) for k in range(n + 1)], [wilson(k, m) for k in range(m + 1)]
    ends = [
        difference_interval(i / n, around[i], j / m, beside[j])
        for i, j in zip(rng.binomial(n, p, 4000), rng.binomial(m, q, 4000), strict=True)
    ]
    above, below = (np.mean([side(*each) for each in ends]) for side in (_above(q - p), _below(q - p)))
    assert 0.025 < above + below < 0.065
    assert (
        0.012 < min(above, below) < max(above, below) < 0.028
    )  # each end bounds with the ends that it should


def test_it_is_too_wide_and_not_too_narrow_for_the_same_tasks() -> None:
    rng, n = np.random.default_rng(0), 50
    shared = rng.normal(size=(2000, n))
    first, second = (shared + 0.5 * rng.normal(size=(2000, n)) + shift for shift in (0.0, 1.0))
    covered = []
    for one, other in zip(first, second, strict=True):
        (a, s), (b, t) = ((x.mean(), Z * x.std(ddof=1) / math.sqrt(n)) for x in (one, other))
        low, high = difference_interval(a, (a - s, a + s), b, (b - t, b + t))
        covered.append(low <= 1.0 <= high)
    assert np.mean(covered) > 0.99


def found(estimate: float | str | None, interval: tuple[float, float] | None = None) -> Finding:
    reasons = {**WHY, "estimate": "it is not there"}
    control = Control(name="none", estimate=0.0)
    return Finding(
        **{"name": "reward", "estimate": estimate, "unit": "1", "n": 8, "definition": "derived"},
        interval=interval,
        control=control,
        reasons=reasons,
    )


def test_findings_differ_as_far_as_they_are_known() -> None:
    one, other = found(0.25, (0.15, 0.35)), found(0.75, (0.65, 0.85))
    half = math.hypot(0.1, 0.1)
    difference, around = finding_difference(one, other)
    assert difference == 0.5
    assert around == pytest.approx((0.5 - half, 0.5 + half))
    assert finding_difference(one, found(0.75)) == (0.5, None)
    assert finding_difference(one, found(None)) == (None, None)
    assert finding_difference(found("a"), one) == (None, None)
    # an interval that misses its estimate is stretched to it
    missed = finding_difference(found(0.5, (0.6, 0.7)), one)[1]
    assert missed is not None
    assert missed[1] == pytest.approx(-0.25 + 0.1)
