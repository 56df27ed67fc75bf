"""Partial rank correlations against scipy and regression, and how often their intervals hold the truth."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from valuelens.probe import RankCorrelation, partial_rank_correlation


def regressed(x: Tensor, y: Tensor, controls: Tensor) -> float:
    """Ranks, least squares with an intercept, Pearson's correlation of what is left."""
    ranks = [stats.rankdata(each) for each in (x, y, *controls.unbind(-1))]
    design = np.stack([np.ones(len(x)), *ranks[2:]], axis=1)
    left = [rank - design @ np.linalg.lstsq(design, rank, rcond=None)[0] for rank in ranks[:2]]
    return float(stats.pearsonr(*left).statistic)


@given(st.integers(0, 10**6), st.integers(4, 40), st.integers(1, 2))
def test_it_is_the_correlation_of_what_regression_leaves(seed: int, n: int, count: int) -> None:
    """With ties, by rounding."""
    generator = torch.Generator().manual_seed(seed)
    controls = torch.randn(n, count, generator=generator).round(decimals=1)
    x = (torch.randn(n, generator=generator) + controls.sum(-1)).round(decimals=1)
    y = torch.randn(n, generator=generator) - controls[:, 0].exp() + 0.3 * x
    found = partial_rank_correlation(x, y, controls, cluster=torch.zeros(n, dtype=torch.long))
    assert found.interval is None  # one cluster
    if np.isfinite(found.estimate):
        assert found.estimate == pytest.approx(regressed(x, y, controls), abs=1e-6)


def test_without_controls_it_is_spearmans(generator: torch.Generator) -> None:
    x = torch.randint(9, (50,), generator=generator).float()
    y = x + 3 * torch.randn(50, generator=generator)
    found: RankCorrelation = partial_rank_correlation(x, y)
    assert found.estimate == pytest.approx(stats.spearmanr(x, y).statistic)
    assert found.n == 50
    assert found.interval is not None
    assert found.interval[0] < found.estimate < found.interval[1]


def test_a_control_may_turn_the_sign(generator: torch.Generator) -> None:
    control = torch.randn(400, generator=generator)
    x, noise = control + 0.3 * torch.randn(400, generator=generator), torch.randn(400, generator=generator)
    y = 3 * control - 2 * (x - control) + 0.1 * noise
    assert partial_rank_correlation(x, y).estimate > 0.5
    found = partial_rank_correlation(x, y, control[:, None])
    assert found.interval is not None
    assert found.interval[1] < -0.5


def test_what_controls_explain_wholly_has_no_correlation(generator: torch.Generator) -> None:
    x = torch.randn(30, generator=generator)
    found = partial_rank_correlation(x, torch.randn(30, generator=generator), x[:, None].exp())
    assert np.isnan(found.estimate)
    assert found.interval is None
    with pytest.raises(
        ValueError, match="finite numbers; found one that is not; observation 3, partial_rank"
    ):
        partial_rank_correlation(x, torch.where(torch.arange(30) == 3, torch.nan, x))


def test_observations_that_belong_together_are_drawn_together(generator: torch.Generator) -> None:
    """Each observation ten times: the estimate stays, and so does the interval if they are one cluster."""
    x, y = torch.randn(2, 60, generator=generator)
    copies = torch.arange(60).repeat(10)
    once = partial_rank_correlation(x, x + y)
    many = partial_rank_correlation(x[copies], (x + y)[copies], cluster=copies)
    alone = partial_rank_correlation(x[copies], (x + y)[copies])
    assert many.estimate == pytest.approx(once.estimate)
    assert once.interval is not None
    assert many.interval is not None
    assert alone.interval is not None
    assert many.interval == pytest.approx(once.interval, abs=0.02)
    assert alone.interval[1] - alone.interval[0] < 0.5 * (once.interval[1] - once.interval[0])


@pytest.mark.slow
def test_intervals_cover_at_their_rate(generator: torch.Generator) -> None:
    """Partial correlation .5 of normals is 6/pi arcsin(.25) in ranks up to the bend of ranks: measured on 10^5."""

    def drawn(n: int) -> tuple[Tensor, Tensor, Tensor]:
        control, a, b = torch.randn(3, n, generator=generator)
        return control + a, control + 0.5 * a + 0.75**0.5 * b, control[:, None]

    truth = partial_rank_correlation(*drawn(100_000), cluster=torch.zeros(100_000, dtype=torch.long)).estimate
    hits = 0
    for _ in range(20):
        interval = partial_rank_correlation(*drawn(60)).interval
        assert interval is not None
        hits += interval[0] <= truth <= interval[1]
    assert hits >= 16
