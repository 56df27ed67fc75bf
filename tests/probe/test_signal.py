"""Signals: unbiased by enumeration, first-order gains by finite differences; exactly 0 where rewards are equal."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from valuelens.probe import (
    Surrogate,
    continuations,
    enumerated_value_gradient,
    group_advantages,
    half_costates,
    policy_gradient,
    subtractive,
    token_scores,
    unequal,
    update_aligned,
    usable,
)
from valuelens.probe._sequences import Sequences

Net = Callable[..., Any]
PROMPT, VOCABULARY = [4, 1, 2], 5


def rewards_of(rows: Sequences) -> Tensor:
    """Of every completion another."""
    return torch.linspace(-1, 2, len(rows.input_ids), dtype=torch.float64).square()


def test_the_inner_product_of_halves_is_unbiased(float64_net: Net) -> None:
    """Over all groups of four out of five completions: |dV/dh|^2, and with baselines of the whole group too large."""
    net, every = float64_net(), continuations(PROMPT, vocabulary=VOCABULARY, horizon=1)
    rewards = rewards_of(every)
    plain = Surrogate(weights=torch.ones(5, 1, dtype=torch.float64))
    found = policy_gradient(net, every, plain, layer=1, start=plain, micro_batch=5)
    assert found.at_start is not None
    oracle = enumerated_value_gradient(net, every, lambda *_: rewards, layers=[1])
    probability, half = oracle.log_prob.exp(), torch.tensor([0, 1, 0, 1])
    drawn = torch.cartesian_prod(*[torch.arange(5)] * 4)
    chance = probability[drawn].prod(1)
    halves = torch.stack([half_costates(found.at_start[each], rewards[each], half) for each in drawn])
    inner = (halves[:, 0] * halves[:, 1]).sum(-1)
    square = oracle.values.square().sum()
    torch.testing.assert_close((chance * inner).sum(), square)
    torch.testing.assert_close(torch.einsum("g,ghd->hd", chance, halves), oracle.values.expand(2, -1))

    whole = group_advantages(rewards[drawn], baseline="leave-one-out")[..., None] * found.at_start[drawn]
    joint = (whole[:, [0, 2]].mean(1) * whole[:, [1, 3]].mean(1)).sum(-1)
    torch.testing.assert_close((chance * joint).sum(), square * (1 + 1 / 9))


def test_the_signal_of_many_rollouts_is_the_value_gradient(
    float64_net: Net, generator: torch.Generator
) -> None:
    net, every = float64_net(), continuations(PROMPT, vocabulary=VOCABULARY, horizon=2)
    rewards = rewards_of(every)
    plain = Surrogate(weights=torch.ones(25, 2, dtype=torch.float64))
    found = policy_gradient(net, every, plain, layer=1, start=plain, micro_batch=25)
    oracle = enumerated_value_gradient(net, every, lambda *_: rewards, layers=[1])
    assert found.at_start is not None
    drawn = torch.multinomial(oracle.log_prob.exp(), 200_000, replacement=True, generator=generator)
    half = torch.arange(200_000) % 2
    halves = half_costates(found.at_start[drawn], rewards[drawn], half)[None]
    expected = float(oracle.values.norm()) * float(found.stream[0, 0])
    assert usable(halves, found.stream[:1, 0]) == pytest.approx(expected, rel=0.02)


def test_an_inner_product_below_zero_is_no_signal() -> None:
    halves = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]], [[3.0, 0.0], [3.0, 5.0]]])
    assert usable(halves, torch.tensor([7.0, 2.0])) == pytest.approx(3.0)


def test_halves_of_one_rollout_are_refused() -> None:
    with pytest.raises(ValueError, match="at least two rollouts, the baseline of the other; found 1 and 2"):
        half_costates(torch.ones(3, 2), torch.arange(3.0), torch.tensor([0, 1, 1]))


def test_equal_rewards_are_exactly_nothing() -> None:
    rewards = torch.full((7,), 0.1)
    assert not bool(half_costates(torch.ones(7, 2), rewards, torch.arange(7) % 2).any())
    assert not bool(unequal(rewards, torch.zeros(7, dtype=torch.long)).any())


def test_gaps_are_subtracted_state_by_state() -> None:
    """States without a gap above their signal are no debt, those that do not count are 0, padding is not there."""
    direct, missing = torch.tensor([[5.0, 1.0, 9.0], [4.0, 4.0, 4.0]]), torch.tensor([[2.0, 3.0, 0.0]] * 2)
    valid = torch.tensor([[True, True, False], [True, True, True]])
    counted = torch.tensor([[True] * 3, [False] * 3])
    assert subtractive(direct, missing, counted, valid) == pytest.approx(3 / 5)
    assert subtractive(direct, missing, valid, valid) == pytest.approx((3 + 2 + 1 + 4) / 5)


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_the_aligned_gain_is_the_slope_of_the_value(float64_net: Net, optimiser: Any) -> None:
    """V by enumeration before and after a small step in float64, against <grad V, direction>."""
    net, every = copy.deepcopy(float64_net()), continuations(PROMPT, vocabulary=VOCABULARY, horizon=2)
    rewards = rewards_of(every)
    probability = token_scores(net, every).log_prob.sum(1).exp()

    def gradient(weights: Tensor) -> Tensor:
        surrogate = Surrogate(weights=weights[:, None].expand(-1, 2))
        found = policy_gradient(net, every, surrogate, layer=1, start=None, micro_batch=10).gradient
        assert found is not None
        return found

    value = gradient(probability * (rewards - (probability * rewards).sum()))
    update = gradient(torch.tensor([1.0, -2.0, 0.5, 0.0, 1.0] * 5).double())
    direction = update.sign() if optimiser == "adam" else update

    def moved(step: float) -> float:
        other, at = copy.deepcopy(net), 0
        for each in other.parameters():
            each.add_(step * direction[at : at + each.numel()].view_as(each))
            at += each.numel()
        assert at == len(direction)
        return float((token_scores(other, every).log_prob.sum(1).exp() * rewards).sum())

    slope = (moved(1e-6) - moved(-1e-6)) / 2e-6
    assert update_aligned(value, update, optimiser) == pytest.approx(slope, rel=1e-6)


def test_an_unknown_optimiser_is_refused() -> None:
    with pytest.raises(ValueError, match="must be adam or sgd; found 'x'"):
        update_aligned.__wrapped__(torch.ones(2), torch.ones(2), "x")  # type: ignore[attr-defined]


def test_a_group_is_equal_or_not() -> None:
    group = torch.tensor([3, 3, 1, 1, 2])
    assert unequal(torch.tensor([0.0, 0.1, 0.3, 0.3, 5.0]), group).tolist() == [
        True,
        True,
        False,
        False,
        False,
    ]
