"""Value errors against plain loops, and what they must not see."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from valuelens.probe import constant_value, within_chain_r2, within_chain_sums

sizes = {"batch": st.integers(1, 6), "pos": st.integers(2, 9), "seed": st.integers(0, 10_000)}


def case(batch: int, pos: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    values, truth = torch.randn(2, batch, pos, generator=generator, dtype=torch.float64)
    return values, truth


@given(**sizes, gamma=st.floats(0, 0.99))
def test_the_constant_is_the_discounted_sum_of_the_mean_reward(
    batch: int, pos: int, seed: int, gamma: float
) -> None:
    rewards, _ = case(batch, pos, seed)
    discounts = gamma ** torch.arange(4000, dtype=torch.float64)
    assert_close(constant_value(rewards, gamma=gamma), discounts.sum() * rewards.mean(-1))


@given(**sizes)
def test_sums_equal_loops(batch: int, pos: int, seed: int) -> None:
    values, truth = case(batch, pos, seed)
    residual, total = torch.zeros(2, batch, dtype=torch.float64)
    for b in range(batch):
        for j in range(pos):
            own, true = values[b, j] - values[b].mean(), truth[b, j] - truth[b].mean()
            residual[b] += (own - true) ** 2
            total[b] += true**2
    assert_close(within_chain_sums(values, truth), (residual, total))
    assert_close(within_chain_r2(values, truth), 1 - residual.sum() / total.sum())


@given(**sizes)
def test_only_differences_within_a_chain_count(batch: int, pos: int, seed: int) -> None:
    values, truth = case(batch, pos, seed)
    offset = torch.arange(batch, dtype=torch.float64)[:, None]
    assert_close(within_chain_r2(values + offset, truth - 3 * offset), within_chain_r2(values, truth))


@given(**sizes)
def test_known_scores(batch: int, pos: int, seed: int) -> None:
    _, truth = case(batch, pos, seed)
    constant = truth.mean(-1, keepdim=True).expand_as(truth)
    for predictor, score in ((truth, 1.0), (constant, 0.0), (truth / 2, 0.75), (-truth, -3.0)):
        assert_close(within_chain_r2(predictor, truth), torch.tensor(score, dtype=torch.float64))
