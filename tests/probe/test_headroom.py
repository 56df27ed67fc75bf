"""Headroom: known values of Beta(2, 5), limits, ties and units; nothing where nothing can be gained."""

import math
from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from valuelens.probe import TOP, best_of_k_gain, pass_at_k_gain, shortfall, tilt

HEADROOMS: list[Callable[[Tensor], float]] = [
    lambda rewards: tilt(rewards, beta=5.0, reward_range=1.0),
    shortfall,
    lambda rewards: best_of_k_gain(rewards, 8),
    lambda rewards: pass_at_k_gain(rewards, 8, success=1.0),
]


def plug_in(rewards: Tensor, beta: float) -> Tensor:
    """Without the jackknife, of many prompts at once."""
    return ((beta * rewards).softmax(-1) * rewards).sum(-1) - rewards.mean(-1)


@pytest.mark.parametrize(("n", "plain", "jackknife"), [(8, 0.116, 0.147), (16, None, 0.152)])
def test_the_jackknife_repairs_the_tilt(
    generator: torch.Generator, n: int, plain: float | None, jackknife: float
) -> None:
    """Rewards of Beta(2, 5), beta 5: theory's numbers; the true value is .152 by quadrature."""
    density = stats.beta(2, 5).pdf
    mass, first = (
        integrate.quad(lambda r, power=power: density(r) * math.exp(5 * r) * r**power, 0, 1)[0]
        for power in (0, 1)
    )
    assert first / mass - 2 / 7 == pytest.approx(0.152, abs=5e-4)
    exponential = -torch.rand(20_000, n, 7, generator=generator, dtype=torch.float64).log()
    rewards = exponential[..., :2].sum(-1) / exponential.sum(-1)
    if plain is not None:
        assert float(plug_in(rewards, 5.0).mean()) == pytest.approx(plain, abs=1e-3)
    found = torch.tensor([tilt(each, beta=5.0, reward_range=1.0) for each in rewards[:4000]])
    assert float(found.mean()) == pytest.approx(jackknife, abs=4 * float(found.std()) / 4000**0.5)


def test_the_jackknife_is_the_one_of_the_textbook(generator: torch.Generator) -> None:
    rewards = torch.rand(6, generator=generator, dtype=torch.float64)
    without = [plug_in(torch.cat([rewards[:i], rewards[i + 1 :]]), 2.0) for i in range(6)]
    expected = 6 * plug_in(rewards, 2.0) - 5 * sum(without) / 6
    assert tilt(rewards, beta=4.0, reward_range=2.0) == pytest.approx(float(expected), rel=1e-12)


def test_a_rare_success_counts_more_than_is_possible() -> None:
    """It makes up for prompts whose success was not drawn: over all draws the mean is near the truth."""
    counts = torch.arange(17)
    rewards = (torch.arange(16) < counts[:, None]).double()
    found = torch.tensor([tilt(each, beta=5.0, reward_range=1.0) for each in rewards], dtype=torch.float64)
    assert float(found[1]) == pytest.approx(1.62, abs=5e-3)
    chance = torch.tensor(stats.binom(16, 1 / 16).pmf(counts.numpy()))
    truth = math.exp(5) / (math.exp(5) + 15) - 1 / 16
    assert float((chance * found).sum()) == pytest.approx(truth, rel=0.02)


def test_an_infinite_tilt_is_the_greatest_reward(generator: torch.Generator) -> None:
    """Where the greatest comes twice, so that each jackknife sample has it."""
    rewards = torch.rand(9, generator=generator, dtype=torch.float64)
    rewards = torch.cat([rewards, rewards.max()[None]])
    found = tilt(rewards, beta=1e9, reward_range=1.0)
    assert found == pytest.approx(float(rewards.max() - rewards.mean()), rel=1e-9)


@pytest.mark.parametrize("headroom", HEADROOMS)
@pytest.mark.parametrize("reward", [0.0, 0.1, 1.0, -7.3])
def test_a_constant_reward_has_no_headroom(headroom: Callable[[Tensor], float], reward: float) -> None:
    """Exactly: neither saturated policies nor rewards outside the support leave a rest of rounding."""
    assert headroom(torch.full((13,), reward)) == 0.0


@pytest.mark.parametrize("factor", [10.0, 100.0])
def test_headroom_has_the_unit_of_the_reward(generator: torch.Generator, factor: float) -> None:
    rewards = torch.rand(16, generator=generator, dtype=torch.float64)
    for found, times in (
        (tilt(rewards, beta=5.0, reward_range=1.0), tilt(factor * rewards, beta=5.0, reward_range=factor)),
        (shortfall(rewards), shortfall(factor * rewards)),
        (best_of_k_gain(rewards, 8), best_of_k_gain(factor * rewards, 8)),
    ):
        assert times == pytest.approx(factor * found, rel=1e-9)


def test_the_top_is_a_share_of_mass() -> None:
    """A tenth of 16 rollouts is the best one and .6 of the second; five that tie at the top do not add up."""
    rewards = torch.arange(16.0)
    assert shortfall(rewards) == pytest.approx((15 + 0.6 * 14) / 1.6 - 7.5)
    tied = torch.tensor([1.0] * 5 + [0.0] * 11)
    assert shortfall(tied) == pytest.approx(1 - 5 / 16)
    assert shortfall(torch.tensor([1.0] + [0.0] * 15)) == pytest.approx(1 / (16 * TOP) - 1 / 16)
    assert shortfall(rewards, top=1.0) == pytest.approx(0.0, abs=1e-12)


def test_pass_at_k_counts_subsets() -> None:
    rewards = torch.tensor([1.0, 0.9, 0.0, 1.0, 0.5])
    for k in (1, 2, 3, 5):
        subsets = list(combinations(rewards.tolist(), k))
        expected = sum(max(each) >= 1 for each in subsets) / len(subsets) - 0.4
        assert pass_at_k_gain(rewards, k, success=1.0) == pytest.approx(expected)


def test_a_success_may_miss_by_rounding() -> None:
    thirds = torch.tensor([sum([1 / 3] * 3), 0.1 + 0.2 + 0.7, 1 - 1e-4], dtype=torch.float64)
    assert pass_at_k_gain(thirds, 2, success=1.0) == pytest.approx(1 - 2 / 3)


@pytest.mark.parametrize(
    ("act", "found"),
    [
        (lambda: tilt(torch.ones(1), beta=5.0, reward_range=1.0), "two rollouts of a prompt; found 1; tilt"),
        (
            lambda: tilt(torch.arange(3.0), beta=5.0, reward_range=0.0),
            "range of rewards must be above 0; found 0",
        ),
        (lambda: shortfall(torch.arange(3.0), top=0.0), r"share of them in \(0, 1\]; found 3 and 0"),
        (lambda: shortfall(torch.ones(0)), "there must be rollouts"),
        (lambda: best_of_k_gain(torch.ones(3), 4), r"k must lie in 1\.\.3"),
    ],
)
def test_what_has_no_headroom_is_refused(act: Callable[[], float], found: str) -> None:
    with pytest.raises(ValueError, match=found):
        act()
