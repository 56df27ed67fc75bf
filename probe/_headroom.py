"""What re-weighting the rollouts of a policy could gain: reachable headroom, a prompt at a time.

It is 0 where better completions are outside the support of the policy, and where it is fully exploited: whatever was
never sampled adds nothing.

Shape legend: `rollout` rewards of one prompt.

Source: theory B6; paper B names a headroom (its Eq. 29) without its formula, so that all of these are our definition.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.probe._best_of_k import best_of_k

TOP = 0.1
"""q of `shortfall`, a share of the mass (our definition)."""


def tilt(rewards: Float[Tensor, " rollout"], *, beta: float, reward_range: float) -> float:
    """E_{p_beta} R - E_p R with p_beta ~ p exp(beta R / range), by the jackknife.

    The plug-in is biased low, as a few rollouts miss the best: for rewards of Beta(2, 5) and beta 5 it gives .116 of
    8 rollouts, and the jackknife n x plug-in - (n-1) x mean over those without one rollout gives .147, .152 of 16, the
    true value. So take 16 rollouts or more. At beta -> infinity it is the greatest reward minus the mean. Being an
    estimate with little bias it may exceed what is possible: one success of 16, rewards 0 and 1, counts 1.62, to make
    up for prompts whose success was not drawn; where most prompts succeed about once, so does the mean over prompts.
    A constant reward: exactly 0.

    Source: our definition (theory B6).

    Args:
        rewards: At least two.
        beta: In units of 1 / range.
        reward_range: Greatest minus least reward possible, in the rewards' units.

    Raises:
        ValueError: There are fewer than two rollouts, or rewards differ and the range is not above 0.

    Example:
        >>> rewards = torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=torch.float64)
        >>> round(tilt(rewards, beta=5.0, reward_range=1.0), 3)
        0.498
        >>> round(tilt(100 * rewards, beta=5.0, reward_range=100.0), 1)
        49.8
    """
    n = len(rewards)
    if n < 2:
        raise ValueError(f"headroom must have at least two rollouts of a prompt; found {n}; tilt")
    if bool((rewards == rewards[0]).all()):
        return 0.0
    if not 0 < reward_range < math.inf:
        raise ValueError(f"the range of rewards must be above 0; found {reward_range}; tilt")
    rewards = rewards.double()
    without = rewards.expand(n, n)[~torch.eye(n, dtype=torch.bool)].view(n, n - 1)
    sharpness = beta / reward_range
    return float(n * _plug_in(rewards, sharpness) - (n - 1) * _plug_in(without, sharpness).mean())


def shortfall(rewards: Float[Tensor, " rollout"], *, top: float = TOP) -> float:
    """Mean of the rewards in their top share of *mass*, minus the mean of all.

    By mass and not by quantile: of 16 rollouts the top tenth is the best one and .6 of the second, however many tie.

    Source: our definition (theory B6).

    Args:
        rewards: At least one.
        top: Share of the rollouts, in (0, 1].

    Raises:
        ValueError: There is no rollout, or the share lies elsewhere.

    Example:
        >>> shortfall(torch.tensor([0.0, 1.0, 2.0, 5.0]), top=0.5)
        1.5
    """
    if not len(rewards) or not 0 < top <= 1:
        found = f"found {len(rewards)} and {top}"
        raise ValueError(f"there must be rollouts and a share of them in (0, 1]; {found}; shortfall")
    if bool((rewards == rewards[0]).all()):
        return 0.0
    ordered = rewards.double().sort(descending=True).values
    mass = (top * len(ordered) - torch.arange(len(ordered), dtype=torch.float64)).clamp(0, 1)
    return float((mass * ordered).sum() / mass.sum() - ordered.mean())


def best_of_k_gain(rewards: Float[Tensor, " rollout"], k: int) -> float:
    """Expected best of k rollouts, minus the mean reward.

    Source: theory B6.

    Args:
        rewards: At least k.
        k: At least 1.

    Raises:
        ValueError: As `best_of_k`.

    Example:
        >>> best_of_k_gain(torch.tensor([0.0, 1.0]), 2)
        0.5
    """
    if bool((rewards == rewards[0]).all()):
        best_of_k(rewards, k)  # refuses what must be refused
        return 0.0
    return best_of_k(rewards.double(), k) - float(rewards.double().mean())


def pass_at_k_gain(rewards: Float[Tensor, " rollout"], k: int, *, success: float) -> float:
    """pass@k - pass@1: unbiased, 1 - C(n-c, k) / C(n, k) minus c / n with c successes of n rollouts.

    A success is a reward of at least `success`. Of a share of right labels that is the greatest reward possible, all
    of them right (our definition).

    Source: Chen et al. 2021, equation 1; theory B6.

    Args:
        rewards: At least k.
        k: At least 1.
        success: Least reward of a success; rewards that miss it by rounding count too.

    Raises:
        ValueError: As `best_of_k`.

    Example:
        >>> pass_at_k_gain(torch.tensor([0.5, 1.0, 0.0, 0.5]), 2, success=1.0)
        0.25
    """
    solved = rewards.double() >= success - 1e-9 * max(1.0, abs(success))
    return best_of_k_gain(solved.double(), k)


def _plug_in(rewards: Float[Tensor, "*batch rollout"], sharpness: float) -> Float[Tensor, "*batch"]:
    """The tilt of these rewards as if they were all that can be sampled."""
    weight = (sharpness * rewards).softmax(-1)
    found: Tensor = (weight * rewards).sum(-1) - rewards.mean(-1)
    return found
