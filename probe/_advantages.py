"""Advantages of rollouts that share a start: what critic-free RL has in place of a critic.

Shape legend: `group` start states (prompts), `rollout` n samples of one group.
"""

from typing import Literal

from jaxtyping import Float
from torch import Tensor

Baseline = Literal["group-mean", "leave-one-out"]

STD_EPSILON = 1e-4
"""Added to a group's standard deviation before it divides, as TRL does."""


def group_advantages(
    returns: Float[Tensor, "group rollout"], *, baseline: Baseline = "group-mean", scale_by_std: bool = False
) -> Float[Tensor, "group rollout"]:
    """Returns minus those of the group, divided by the group's standard deviation if asked for (GRPO).

    With the group mean, which holds the rollout itself, the expected score-function update is (1 - 1/n) of the
    gradient; `leave-one-out` is n/(n-1) times that and unbiased.

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
    advantages = returns - returns.mean(1, keepdim=True)
    if baseline == "leave-one-out":
        advantages = advantages * (n / (n - 1))
    return advantages / (returns.std(1, keepdim=True) + STD_EPSILON) if scale_by_std else advantages
