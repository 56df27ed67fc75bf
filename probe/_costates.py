"""Costates: what one more unit of a state adds to the return that follows on this rollout.

Shape legend: `batch` rollouts, `step` t = 0..T, `time` t = 0..T-1, `state` and `action` components.
"""

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor


def closed_loop(
    by_state: Float[Tensor, "batch time *out state"],
    by_action: Float[Tensor, "batch time *out action"],
    mean_state: Float[Tensor, "batch time action state"],
) -> Float[Tensor, "batch time *out state"]:
    """Derivative in the state with the noise fixed: the direct part and the part through the policy's mean.

    Args:
        by_state: Of something (reward or next state) in the state.
        by_action: Of the same in the action.
        mean_state: Of the policy's mean in the state.
    """
    return by_state + einsum(
        by_action, mean_state, "batch time ... action, batch time action state -> batch time ... state"
    )


def costate_recursion(
    reward: Float[Tensor, "batch time state"],
    dynamics: Float[Tensor, "batch time state state"],
    *,
    gamma: float,
) -> Float[Tensor, "batch step state"]:
    """lambda_t = dr/ds + gamma (ds'/ds)' lambda_{t+1} backwards from lambda_T = 0, derivatives in closed loop.

    Source: derived (theory B1); E[lambda_t | s_t = s] = dV_t(s)/ds.

    Args:
        reward: dr/ds + (d mean/ds)' dr/da, as `closed_loop` gives it.
        dynamics: df/ds + df/da d mean/ds.
        gamma: Discount.

    Example:
        >>> costate_recursion(torch.ones(1, 2, 1), torch.ones(1, 2, 1, 1), gamma=0.5)[0, :, 0]
        tensor([1.5000, 1.0000, 0.0000])
    """
    costates = [torch.zeros_like(reward[:, 0])]
    for r, f in zip(reward.flip(1).unbind(1), dynamics.flip(1).unbind(1), strict=True):
        costates.append(r + gamma * einsum(f, costates[-1], "batch out state, batch out -> batch state"))
    return torch.stack(costates[::-1], dim=1)
