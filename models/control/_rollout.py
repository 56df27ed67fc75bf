"""Differentiable rollouts of a system under a shift policy, and what can be differentiated along them.

Shape legend: `batch` rollouts, `step` t = 0..T, `time` t = 0..T-1, `state` and `action` components.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import jacrev, vmap

from valuelens.models.control._shift_policy import ShiftPolicy
from valuelens.models.control._systems import System


@dataclass(frozen=True, kw_only=True, slots=True)
class Trajectories:
    """Rollouts of T steps.

    Attributes:
        states: s_0..s_T.
        actions: a_0..a_{T-1}.
        rewards: r(s_t, a_t).
        noise: a_t - mean(s_t).
        gamma: Discount.
    """

    states: Float[Tensor, "*batch step state"]
    actions: Float[Tensor, "*batch time action"]
    rewards: Float[Tensor, "*batch time"]
    noise: Float[Tensor, "*batch time action"]
    gamma: float

    @property
    def returns_to_go(self) -> Float[Tensor, "*batch time"]:
        """sum_{k >= t} gamma^{k-t} r_k of every rollout."""
        total, found = torch.zeros_like(self.rewards[..., 0]), []
        for reward in self.rewards.flip(-1).unbind(-1):
            total = reward + self.gamma * total
            found.append(total)
        return torch.stack(found[::-1], dim=-1)


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalDerivatives:
    """Derivatives of one step at every time of a rollout: all that costates need.

    Attributes:
        reward_state: dr/ds.
        reward_action: dr/da.
        dynamics_state: df/ds.
        dynamics_action: df/da.
        mean_state: d mean / ds of the policy.
    """

    reward_state: Float[Tensor, "batch time state"]
    reward_action: Float[Tensor, "batch time action"]
    dynamics_state: Float[Tensor, "batch time state state"]
    dynamics_action: Float[Tensor, "batch time state action"]
    mean_state: Float[Tensor, "batch time action state"]


def rollout(
    system: System,
    policy: ShiftPolicy,
    start: Float[Tensor, "*batch state"],
    noise: Float[Tensor, "*batch time action"],
) -> Trajectories:
    """Run a system from given states with given noise; gradients flow through everything.

    Args:
        system: Dynamics, reward, discount.
        policy: Chooses actions.
        start: s_0.
        noise: One for each step; its length is T.
    """
    states, actions, rewards = [start], [], []
    for eps in noise.unbind(-2):
        action = policy(states[-1], eps)
        actions.append(action)
        rewards.append(system.reward(states[-1], action))
        states.append(system.dynamics(states[-1], action))
    return Trajectories(
        states=torch.stack(states, dim=-2),
        actions=torch.stack(actions, dim=-2),
        rewards=torch.stack(rewards, dim=-1),
        noise=noise,
        gamma=system.gamma,
    )


def pathwise_costates(
    system: System,
    policy: ShiftPolicy,
    start: Float[Tensor, "batch state"],
    noise: Float[Tensor, "batch time action"],
) -> Float[Tensor, "batch step state"]:
    """lambda_t = d (return from t) / d s_t of every rollout, by automatic differentiation; lambda_T = 0.

    Source: theory B1; E[lambda_t | s_t = s] = dV_t(s)/ds.

    Args:
        system: Dynamics, reward, discount (not 0).
        policy: Chooses actions.
        start: s_0.
        noise: One for each step.
    """
    states, total = [start.detach().requires_grad_()], start.new_zeros(len(start))
    for t, eps in enumerate(noise.unbind(1)):
        action = policy(states[-1], eps)
        total = total + system.gamma**t * system.reward(states[-1], action)
        states.append(system.dynamics(states[-1], action))
    gradients = torch.autograd.grad(total.sum(), states[:-1])
    found = [gradient / system.gamma**t for t, gradient in enumerate(gradients)]
    return torch.stack([*found, torch.zeros_like(start)], dim=1)


def local_derivatives(system: System, policy: ShiftPolicy, trajectories: Trajectories) -> LocalDerivatives:
    """Derivatives of reward, dynamics and policy mean at every step of given rollouts.

    Args:
        system: Of the rollouts.
        policy: Of the rollouts.
        trajectories: States and actions.
    """
    s, a = trajectories.states[:, :-1].detach(), trajectories.actions.detach()

    def each(function: Callable[..., Tensor], argnums: tuple[int, ...]) -> tuple[Tensor, ...]:
        derivative = vmap(vmap(jacrev(function, argnums=argnums)))
        found: tuple[Tensor, ...] = derivative(s, a)
        return tuple(part.detach() for part in found)

    reward_state, reward_action = each(system.reward, (0, 1))
    dynamics_state, dynamics_action = each(system.dynamics, (0, 1))
    (mean_state,) = each(lambda state, action: policy.mean(state), (0,))
    return LocalDerivatives(
        reward_state=reward_state,
        reward_action=reward_action,
        dynamics_state=dynamics_state,
        dynamics_action=dynamics_action,
        mean_state=mean_state,
    )
