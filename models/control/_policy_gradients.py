"""Gradients of the expected return in the parameters of a policy, rollout by rollout.

Shape legend: `batch` rollouts, `time` steps, `state` and `action` components, `parameter` all of the policy, flat.
"""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import functional_call, grad, vmap

from valuelens.models.control._rollout import Trajectories, rollout
from valuelens.models.control._shift_policy import ShiftPolicy
from valuelens.models.control._systems import System


class _LogProb(torch.nn.Module):
    """log pi(a|s) as a forward pass, so that parameters can be swapped from outside."""

    def __init__(self, policy: ShiftPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        return self.policy.log_prob(state, action)


class _Return(torch.nn.Module):
    """Discounted return of one rollout as a forward pass."""

    def __init__(self, system: System, policy: ShiftPolicy) -> None:
        super().__init__()
        self.system, self.policy = system, policy

    def forward(self, start: Tensor, noise: Tensor) -> Tensor:
        rewards = rollout(self.system, self.policy, start, noise).rewards
        discounts = self.system.gamma ** torch.arange(rewards.shape[-1], dtype=rewards.dtype)
        return (discounts * rewards).sum(-1)


def pathwise_gradients(
    system: System,
    policy: ShiftPolicy,
    start: Float[Tensor, "batch state"],
    noise: Float[Tensor, "batch time action"],
) -> Float[Tensor, "batch parameter"]:
    """Gradient of each rollout's discounted return with its noise fixed: the value-gradient update.

    Source: theory B1; its mean is the gradient of the expected return.

    Args:
        system: Dynamics, reward, discount.
        policy: Whose parameters count.
        start: s_0.
        noise: One for each step.
    """
    return _flat_gradients(_Return(system, policy), lambda value: value, start, noise)


def score_function_gradients(
    policy: ShiftPolicy, trajectories: Trajectories, weights: Float[Tensor, "batch time"]
) -> Float[Tensor, "batch parameter"]:
    """sum_t weights_t grad log pi(a_t|s_t) of each rollout, states and actions as they are.

    With weights gamma^t (return to go - baseline) its mean is the policy gradient. With one group-normalised
    advantage for all steps of a rollout it is the update of GRPO, and of PPO, whose clipping is idle at ratio 1.

    Source: theory B1, B2.

    Args:
        policy: Whose parameters count.
        trajectories: Rollouts of this policy.
        weights: Constants.
    """
    states, actions = trajectories.states[:, :-1].detach(), trajectories.actions.detach()
    return _flat_gradients(
        _LogProb(policy),
        lambda log_prob, weight: (weight * log_prob).sum(),
        states,
        actions,
        weights.detach(),
    )


def _flat_gradients(
    module: torch.nn.Module, scalar: Callable[..., Tensor], *inputs: Tensor
) -> Float[Tensor, "batch parameter"]:
    """Gradients in the policy's parameters of scalar(module(first two inputs), other inputs) for each batch entry."""
    parameters = {name: value.detach() for name, value in module.named_parameters()}

    def objective(given: Mapping[str, Tensor], *each: Tensor) -> Tensor:
        return scalar(functional_call(module, dict(given), each[:2]), *each[2:])

    axes = (None, *(0 for _ in inputs))
    gradients = vmap(grad(objective), in_dims=axes)(parameters, *inputs)
    return torch.cat([gradients[name].flatten(1) for name in parameters], dim=1)
