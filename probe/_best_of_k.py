"""What re-drawing could gain: the best of several rollouts of one prompt.

Shape legend: `rollout` rewards of one prompt.
"""

from math import comb

from jaxtyping import Float
from torch import Tensor


def best_of_k(rewards: Float[Tensor, " rollout"], k: int) -> float:
    """Expected best of k of these rollouts, drawn without replacement.

    Unbiased for the expected best of k new rollouts: sum_i C(i-1, k-1) / C(n, k) R_(i) over the rewards in increasing
    order.

    Args:
        rewards: Of n rollouts.
        k: At least 1, at most n.

    Raises:
        ValueError: There are fewer than k rollouts, or k is below 1.

    Example:
        >>> import torch
        >>> best_of_k(torch.tensor([0.0, 1.0, 2.0]), 2)  # of the pairs, two have 2 as their best and one has 1
        1.6666666666666665
    """
    n = len(rewards)
    if not 1 <= k <= n:
        raise ValueError(f"k must lie in 1..{n}, the number of rollouts; found {k}; best_of_k")
    ordered: list[float] = rewards.sort().values.tolist()
    return sum(comb(i, k - 1) / comb(n, k) * reward for i, reward in enumerate(ordered))
