"""Advantages of groups against loops."""

import statistics
from typing import Literal

import pytest
import torch

from valuelens.probe import STD_EPSILON, generalised_advantages, group_advantages, rollout_advantages

Baseline = Literal["group-mean", "leave-one-out"]


def test_leaving_one_out_compares_with_the_others(generator: torch.Generator) -> None:
    returns = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    found = group_advantages(returns, baseline="leave-one-out")
    for g in range(3):
        for i in range(5):
            others = [float(returns[g, j]) for j in range(5) if j != i]
            assert float(found[g, i]) == pytest.approx(float(returns[g, i]) - sum(others) / 4)
    torch.testing.assert_close(group_advantages(returns) * 5 / 4, found)


def test_scaled_advantages_have_unit_spread_whatever_the_units(generator: torch.Generator) -> None:
    returns = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    scaled = group_advantages(returns, scale_by_std=True)
    expected = returns.std(1) / (returns.std(1) + STD_EPSILON)
    torch.testing.assert_close(scaled.std(1), expected)
    torch.testing.assert_close(group_advantages(1000 * returns, scale_by_std=True), scaled, rtol=1e-3, atol=0)


def test_a_group_without_spread_has_no_advantages() -> None:
    found = group_advantages(torch.full((1, 4), 0.5, dtype=torch.float64), scale_by_std=True)
    torch.testing.assert_close(found, torch.zeros_like(found))


@pytest.mark.parametrize("size", [3, 7, 16])
@pytest.mark.parametrize("baseline", ["group-mean", "leave-one-out"])
def test_equal_rewards_have_no_advantages_at_all_though_their_mean_rounds(
    size: int, baseline: Baseline
) -> None:
    for equal in (0.1, 1 / 3, 0.7):
        rewards = torch.tensor([*[equal] * size, 0.0, 1.0], dtype=torch.float64)
        group = torch.tensor([5] * size + [2, 2])
        assert not rollout_advantages(rewards, group, baseline=baseline, scale="group")[:size].any()
        assert rollout_advantages(rewards, group, baseline=baseline)[size:].all()
        assert not group_advantages(rewards[None, :size], baseline=baseline).any()


def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(
        ValueError, match="a group must have at least two rollouts; found 1; group_advantages"
    ):
        group_advantages(torch.ones(3, 1))


@pytest.mark.parametrize("baseline", ["group-mean", "leave-one-out"])
def test_groups_of_equal_size_are_the_matrix(generator: torch.Generator, baseline: Baseline) -> None:
    rewards = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    order = torch.randperm(15, generator=generator)
    group = torch.arange(3).repeat_interleave(5)[order]
    plain = rollout_advantages(rewards.flatten()[order], group, baseline=baseline)
    torch.testing.assert_close(plain, group_advantages(rewards, baseline=baseline).flatten()[order])
    scaled = rollout_advantages(rewards.flatten()[order], group, baseline=baseline, scale="group")
    expected = group_advantages(rewards, baseline=baseline, scale_by_std=True)
    torch.testing.assert_close(scaled, expected.flatten()[order])


def test_groups_of_unequal_size_are_each_their_own() -> None:
    rewards = torch.tensor([3.0, 0.0, 1.0, 5.0, 8.0], dtype=torch.float64)
    found = rollout_advantages(rewards, torch.tensor([4, 4, 4, 9, 9]), scale="group")
    torch.testing.assert_close(found[:3], group_advantages(rewards[None, :3], scale_by_std=True)[0])
    torch.testing.assert_close(found[3:], group_advantages(rewards[None, 3:], scale_by_std=True)[0])


def test_the_scale_of_a_batch_is_the_spread_of_all_its_rewards() -> None:
    rewards = torch.tensor([0.0, 1.0, 10.0, 13.0], dtype=torch.float64)
    found = rollout_advantages(rewards, torch.tensor([0, 0, 1, 1]), scale="batch")
    std = statistics.stdev(rewards.tolist())
    expected = torch.tensor([-0.5, 0.5, -1.5, 1.5], dtype=torch.float64) / (std + STD_EPSILON)
    torch.testing.assert_close(found, expected)


def test_a_rollout_alone_in_its_group_is_refused() -> None:
    with pytest.raises(ValueError, match=r"found 1 \(n_group = 1\) in group 9; rollout_advantages"):
        rollout_advantages(torch.zeros(3), torch.tensor([4, 4, 9]))


def test_generalised_advantages_are_discounted_sums_of_differences(generator: torch.Generator) -> None:
    gamma, lam = 0.9, 0.8
    lengths = [4, 1, 0, 3]
    values = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    rewards = torch.randn(4, generator=generator, dtype=torch.float64)
    valid = torch.arange(4) < torch.tensor(lengths)[:, None]
    padded = torch.where(valid, values, torch.nan)
    found = generalised_advantages(rewards, padded, valid, gamma=gamma, gae_lambda=lam)
    for i, length in enumerate(lengths):
        v = [*values[i, :length].tolist(), 0.0]
        r = [0.0] * max(0, length - 1) + [float(rewards[i])]
        for k in range(4):
            differences = [
                (gamma * lam) ** (j - k) * (r[j] + gamma * v[j + 1] - v[j]) for j in range(k, length)
            ]
            assert float(found[i, k]) == pytest.approx(sum(differences), abs=1e-12)


def test_with_lambda_one_an_advantage_is_reward_minus_value(generator: torch.Generator) -> None:
    values = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    valid = torch.tensor([[True, True, True], [True, False, False]])
    found = generalised_advantages(torch.tensor([2.0, -1.0]).double(), values, valid, gae_lambda=1.0)
    torch.testing.assert_close(found[0], 2 - values[0])
    torch.testing.assert_close(found[1, 0], -1 - values[1, 0])
    assert found[1, 1:].tolist() == [0, 0]
