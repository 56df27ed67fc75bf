"""How much value gradient an update carries: three signals, from tensors to a number.

Magnitudes are free of the scale of the residual stream: |lambda| |h| / sqrt(d) is the root mean square change of the
objective for a unit relative change of h.

Shape legend: `batch` rollouts, `state` k: after k sampled tokens, `group` prompts, `rollout` those of one prompt,
`half` two of them, `d_model` width of the residual stream, `parameter` all numbers of a model in a line.

Source: theory B6. Paper B names a usable signal (its Eq. 29) without its formula, so that these are our definition.
"""

from typing import Literal, get_args

import torch
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor

from valuelens.probe._advantages import group_advantages

Optimiser = Literal["adam", "sgd"]


def subtractive(
    direct: Float[Tensor, "batch state"],
    missing: Float[Tensor, "batch state"],
    counted: Bool[Tensor, "batch state"],
    valid: Bool[Tensor, "batch state"],
) -> float:
    """Mean over completion states of max(r - e, 0): what the empirical costate has beyond its gap.

    Source: our definition (theory B6).

    Args:
        direct: r, magnitude of lambda_hat, which is hop 0, for a differentiable reward.
        missing: e, magnitude of the sum over hops 1, 2, ...
        counted: States that may carry signal; others count with 0, such as those of a group whose rewards are equal.
        valid: States that there are.

    Example:
        >>> one, yes = torch.ones(1, 2), torch.ones(1, 2, dtype=torch.bool)
        >>> subtractive(torch.tensor([[3.0, 0.5]]), one, yes, yes)
        1.0
    """
    signal = torch.where(counted & valid, (direct - missing).clamp(min=0), 0.0)
    return float(signal.double().sum() / valid.sum().clamp(min=1))


def half_costates(
    scores: Float[Tensor, "rollout d_model"],
    rewards: Float[Tensor, " rollout"],
    half: Int[Tensor, " rollout"],
) -> Float[Tensor, "half d_model"]:
    """Mean costate of each half of a group, which know nothing of each other.

    Each half has its own leave-one-out baseline. Then both are unbiased for dV/dh and independent, so that their inner
    product is unbiased for |dV/dh|^2; with baselines over the whole group it would be too large by |dV/dh|^2 / (n-1)^2.
    Equal rewards: exactly 0.

    Source: our definition (theory B6); enumerated in the test.

    Args:
        scores: d log pi(completion) / dh at the start state.
        rewards: Of the rollouts.
        half: 0 or 1, at least two of each.

    Raises:
        ValueError: A half has fewer than two rollouts.

    Example:
        >>> scores, rewards = torch.eye(4), torch.tensor([1.0, 0.0, 2.0, 0.0])
        >>> half_costates(scores, rewards, torch.tensor([0, 0, 1, 1])).tolist()
        [[0.5, -0.5, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]]
    """
    few = [int((half == each).sum()) for each in (0, 1)]
    if min(few) < 2:
        rule = "each half of a group must have at least two rollouts, the baseline of the other"
        raise ValueError(f"{rule}; found {few[0]} and {few[1]}; half_costates")
    if bool((rewards == rewards[0]).all()):
        return scores.new_zeros(2, scores.shape[1])
    means = []
    for each in (0, 1):
        mine = half == each
        advantages = group_advantages(rewards[mine][None], baseline="leave-one-out")[0]
        means.append((advantages[:, None].to(scores) * scores[mine]).mean(0))
    return torch.stack(means)


def usable(halves: Float[Tensor, "group half d_model"], stream: Float[Tensor, " group"]) -> float:
    """Mean over groups of sqrt(max(<c_1, c_2>, 0)) x |h| / sqrt(d), with c the mean costates of two halves.

    <c_1, c_2> is unbiased for |dV/dh|^2, where the norm of a single rollout's costate is inflated by noise (1.8 to 2.7
    times in our pilots). Groups with equal rewards count with 0.

    Source: our definition (theory B6).

    Args:
        halves: Of `half_costates`, at the start state.
        stream: |h| / sqrt(d) there.

    Example:
        >>> usable(torch.tensor([[[2.0, 0.0], [2.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]]), torch.ones(2))
        1.0
    """
    inner = einsum(halves[:, 0].double(), halves[:, 1].double(), "group d_model, group d_model -> group")
    return float((inner.clamp(min=0).sqrt() * stream.double()).mean())


def update_aligned(
    gradient: Float[Tensor, " parameter"], update: Float[Tensor, " parameter"], optimiser: Optimiser = "adam"
) -> float:
    """First-order gain of one step of length 1: <grad E[Rew], the optimiser's direction>.

    To be no self-praise the two must come from different rollouts.

    Source: our definition (theory B6).

    Args:
        gradient: Of the expected reward: the surrogate's with raw advantages.
        update: The gradient that the optimiser is given: GRPO's, with advantages divided by their standard deviation.
        optimiser: Adam's first step is the sign of its gradient, that of SGD the gradient itself.

    Raises:
        ValueError: The optimiser is not known.

    Example:
        >>> update_aligned(torch.tensor([1.0, -3.0]), torch.tensor([0.1, 0.2]))
        -2.0
    """
    if optimiser not in get_args(Optimiser):
        found = f"found {optimiser!r}"
        raise ValueError(f"the optimiser must be {' or '.join(get_args(Optimiser))}; {found}; update_aligned")
    direction = update.sign() if optimiser == "adam" else update
    return float((gradient * direction).sum(dtype=torch.float64))


def unequal(rewards: Float[Tensor, " batch"], group: Int[Tensor, " batch"]) -> Bool[Tensor, " batch"]:
    """Whether a rollout's group has rewards that differ: exactly, where a standard deviation would round.

    Args:
        rewards: Of all rollouts.
        group: Their groups.

    Example:
        >>> unequal(torch.tensor([0.1, 0.1, 0.0, 1.0]), torch.tensor([0, 0, 1, 1])).tolist()
        [False, False, True, True]
    """
    names, index = group.unique(return_inverse=True)
    low, high = (
        rewards.new_zeros(len(names)).scatter_reduce(0, index, rewards, kind, include_self=False)
        for kind in ("amin", "amax")
    )
    return (high > low)[index]
