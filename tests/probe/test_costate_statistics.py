"""Means, errors and signal of costates: exact over every group that can be drawn, and by simulation."""

import math

import pytest
import torch
from torch import Tensor

from valuelens.probe import (
    CostateMoments,
    CostateStatistics,
    costate_moments,
    costate_statistics,
    group_advantages,
    rollouts_needed,
)
from valuelens.probe._advantages import Baseline


def statistics_of(costates: Tensor, *, baseline: Baseline | None = None) -> CostateStatistics:
    """Of groups [group rollout layer d_model]."""
    groups, rollouts = costates.shape[:2]
    number = torch.arange(groups).repeat_interleave(rollouts)
    return costate_statistics(costate_moments(costates.flatten(0, 1), number, groups), baseline=baseline)


@pytest.mark.parametrize("baseline", ["group-mean", "leave-one-out"])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_every_estimate_is_unbiased(generator: torch.Generator, baseline: Baseline, n: int) -> None:
    """Over all groups of n out of five outcomes with rewards and scores of mean 0; the plain ones are not."""
    p, rewards = torch.rand(2, 5, generator=generator, dtype=torch.float64)
    p = p / p.sum()
    scores = torch.randn(5, 2, 3, generator=generator, dtype=torch.float64)
    scores = scores - torch.einsum("o,old->ld", p, scores)
    truth = torch.einsum("o,o,old->ld", p, rewards, scores)

    drawn = torch.cartesian_prod(*[torch.arange(5)] * n)
    chance = p[drawn].prod(1)
    advantages = group_advantages(rewards[drawn], baseline=baseline)
    found = statistics_of(advantages[..., None, None] * scores[drawn], baseline=baseline)

    def expected(estimate: Tensor) -> Tensor:
        return torch.tensordot(chance, estimate, 1)

    torch.testing.assert_close(expected(found.mean), truth)
    torch.testing.assert_close(expected(found.squared_norm), truth.square().sum(-1))
    variance = expected((found.mean - truth).square().sum(-1))
    torch.testing.assert_close(expected(found.standard_error.square()), variance)
    leave_one_out = group_advantages(rewards[drawn], baseline="leave-one-out")[:, 0]
    single = leave_one_out[:, None, None] * scores[drawn[:, 0]]
    spread = expected(single.square().sum(-1)) - truth.square().sum(-1)
    torch.testing.assert_close(expected(found.covariance_trace), spread)

    independent = statistics_of(leave_one_out_costates(rewards[drawn], scores[drawn]))
    missed = truth.square().sum(-1) / (n - 1) ** 2
    torch.testing.assert_close(variance - expected(independent.standard_error.square()), missed)


def leave_one_out_costates(rewards: Tensor, scores: Tensor) -> Tensor:
    return group_advantages(rewards, baseline="leave-one-out")[..., None, None] * scores


def test_parts_add_up_to_the_whole(generator: torch.Generator) -> None:
    costates = torch.randn(40, 3, 5, generator=generator)
    group = torch.randint(4, (40,), generator=generator)
    order = torch.randperm(40, generator=generator)
    parts = [costate_moments(costates[rows], group[rows], 4) for rows in order.split(7)]
    moments: CostateMoments = parts[0]
    for part in parts[1:]:
        moments = moments + part
    found = costate_statistics(moments, baseline=None)
    for each in range(4):
        rows = costates[group == each].double()
        torch.testing.assert_close(found.mean[each], rows.mean(0))
        torch.testing.assert_close(found.covariance_trace[each], rows.var(0).sum(-1))
        error = rows.std(0).norm(dim=-1) / len(rows) ** 0.5
        torch.testing.assert_close(found.standard_error[each], error)


def test_signal_to_noise_is_that_of_the_draw_and_ignores_silent_groups(generator: torch.Generator) -> None:
    mu = torch.randn(200, 1, 1, 10, generator=generator, dtype=torch.float64) * 0.1
    noise = torch.randn(200, 16, 1, 10, generator=generator, dtype=torch.float64)
    costates = mu + noise
    found = statistics_of(costates).signal_to_noise
    assert float(found) == pytest.approx(0.01, abs=0.002)
    with_silent = statistics_of(torch.cat([costates, torch.zeros(50, 16, 1, 10, dtype=torch.float64)]))
    torch.testing.assert_close(with_silent.signal_to_noise, found)
    assert bool(statistics_of(torch.zeros(2, 4, 1, 3)).signal_to_noise.isnan().all())


@pytest.mark.parametrize("cosine", [0.7, 0.9, 0.97])
def test_so_many_rollouts_do_point_that_way(generator: torch.Generator, cosine: float) -> None:
    mu = torch.zeros(256, dtype=torch.float64)
    mu[0] = 4
    n = rollouts_needed(16 / 256, cosine=cosine)
    means = mu + torch.randn(500, 256, generator=generator, dtype=torch.float64) / n**0.5
    found = torch.cosine_similarity(means, mu[None]).mean()
    assert float(found) == pytest.approx(cosine, abs=0.01)


def test_without_signal_no_number_of_rollouts_is_enough() -> None:
    assert rollouts_needed(0.0) == rollouts_needed(-0.1) == math.inf


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"cosine must lie in \(0, 1\); found 1"):
        rollouts_needed(0.1, cosine=1.0)
    moments = costate_moments(torch.ones(3, 1, 2), torch.tensor([0, 0, 1]), 2)
    with pytest.raises(ValueError, match="at least two rollouts; found 1 in group 1"):
        costate_statistics(moments, baseline="group-mean")
