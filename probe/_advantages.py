"""Advantages of rollouts that share a start: what critic-free RL has in place of a critic.

Shape legend: `group` start states (prompts), `rollout` samples (n of one group where both axes stand), `batch`
rollouts, `state` k: after k tokens of the completion.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Baseline = Literal["group-mean", "leave-one-out"]
Scale = Literal["none", "group", "batch"]

STD_EPSILON = 1e-4
"""Added to a group's standard deviation before it divides, as TRL does."""


def group_advantages(
    returns: Float[Tensor, "group rollout"], *, baseline: Baseline = "group-mean", scale_by_std: bool = False
) -> Float[Tensor, "group rollout"]:
    """Returns minus those of the group, divided by the group's standard deviation if asked for (GRPO).

    With the group mean, which holds the rollout itself, the expected score-function update is (1 - 1/n) of the
    gradient; `leave-one-out` is n/(n-1) times that and unbiased. Equal returns: exactly 0.

    Source: theory B2; the scale is that of TRL (standard deviation with n-1, plus 1e-4).

    Args:
        returns: One for each rollout.
        baseline: What is subtracted.
        scale_by_std: Divide by the standard deviation, which makes advantages of all groups alike and so weighs
            groups by the inverse of theirs.

    Raises:
        ValueError: A group of one has no baseline.

    Example:
        >>> import torch
        >>> group_advantages(torch.tensor([[0.0, 1.0, 2.0]]), baseline="leave-one-out")
        tensor([[-1.5000,  0.0000,  1.5000]])
    """
    n = returns.shape[1]
    if n < 2:
        raise ValueError(f"a group must have at least two rollouts; found {n}; group_advantages")
    # the mean of equal numbers may round
    differ = returns.amax(1, keepdim=True) > returns.amin(1, keepdim=True)
    advantages = torch.where(differ, returns - returns.mean(1, keepdim=True), 0.0)
    if baseline == "leave-one-out":
        advantages = advantages * (n / (n - 1))
    return advantages / (returns.std(1, keepdim=True) + STD_EPSILON) if scale_by_std else advantages


def rollout_advantages(
    rewards: Float[Tensor, " rollout"],
    group: Int[Tensor, " rollout"],
    *,
    baseline: Baseline = "group-mean",
    scale: Scale = "none",
) -> Float[Tensor, " rollout"]:
    """Rewards minus those of the group, for groups of any sizes, on the scale asked for.

    Exactly 0 in groups whose rewards are equal.

    Source: theory B2; scales as TRL's `scale_rewards`: a standard deviation of rewards (with n-1) plus 1e-4, that of
        the group or that of all rollouts given.

    Args:
        rewards: One for each rollout.
        group: Number of its group, in any order.
        baseline: What is subtracted; `leave-one-out` is n/(n-1) times `group-mean`.
        scale: What divides: nothing, the group's standard deviation, or that of all rewards.

    Raises:
        ValueError: A group of one has no baseline.

    Example:
        >>> import torch
        >>> rollout_advantages(torch.tensor([0.0, 1.0, 5.0, 5.0, 2.0]), torch.tensor([7, 7, 3, 3, 3]))
        tensor([-0.5000,  0.5000,  1.0000,  1.0000, -2.0000])
    """
    _, index = group.unique(return_inverse=True)
    n = torch.bincount(index).to(rewards.dtype)
    if bool((n < 2).any()):
        alone = int(group[(n[index] < 2).nonzero()[0, 0]])
        raise ValueError(
            f"a group must have at least two rollouts; found 1 (n_group = 1) in group {alone}; rollout_advantages"
        )
    mean = torch.zeros_like(n).index_add(0, index, rewards) / n
    low, high = (
        torch.zeros_like(n).scatter_reduce(0, index, rewards, kind, include_self=False)
        for kind in ("amin", "amax")
    )
    centred = torch.where((high > low)[index], rewards - mean[index], 0.0)
    advantages = centred * (n / (n - 1))[index] if baseline == "leave-one-out" else centred
    if scale == "none":
        return advantages
    if scale == "batch":
        return advantages / (rewards.std() + STD_EPSILON)
    std = (torch.zeros_like(n).index_add(0, index, centred.square()) / (n - 1)).sqrt()
    return advantages / (std[index] + STD_EPSILON)


def generalised_advantages(
    rewards: Float[Tensor, " batch"],
    values: Float[Tensor, "batch state"],
    valid: Bool[Tensor, "batch state"],
    *,
    gamma: float = 1.0,
    gae_lambda: float = 0.95,
) -> Float[Tensor, "batch state"]:
    """Advantage of each token by generalised advantage estimation: what PPO weighs a completion's tokens with.

    The reward comes with the last token and the episode ends there, cut completions included: no value is
    bootstrapped behind it. With `gae_lambda` 1 it is the discounted reward minus the value of the state.

    Source: Schulman et al. 2016, equations 11 and 16, with the reward at the end; our definition for cut completions.

    Args:
        rewards: Of the whole completion.
        values: A critic's estimate at each state, before the token is drawn.
        valid: States that the rollout has: its first T.
        gamma: Discount a token.
        gae_lambda: How far differences reach: 0 for one token, 1 to the end.

    Example:
        >>> import torch
        >>> values, valid = torch.tensor([[0.5, 0.25]]), torch.tensor([[True, True]])
        >>> generalised_advantages(torch.ones(1), values, valid, gae_lambda=0.0)
        tensor([[-0.2500,  0.7500]])
    """
    last = valid & ~torch.cat([valid[:, 1:], torch.zeros_like(valid[:, :1])], 1)
    values = torch.where(valid, values, 0.0)
    following = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], 1)
    differences = torch.where(valid, last * rewards[:, None] + gamma * following - values, 0.0)
    advantages, behind = torch.zeros_like(values), torch.zeros_like(rewards)
    for k in reversed(range(values.shape[1])):
        behind = differences[:, k] + gamma * gae_lambda * behind
        advantages[:, k] = behind
    return advantages
