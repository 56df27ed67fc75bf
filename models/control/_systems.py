"""Continuous control problems whose dynamics and reward can be differentiated.

Shape legend: `batch` rollouts, `state` and `action` components, `step` t = 0..T.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor


@runtime_checkable
class System(Protocol):
    """s' = dynamics(s, a) and r = reward(s, a), both differentiable, with a discount.

    Attributes:
        gamma: Discount in [0, 1].
        state_dim: Components of a state.
        action_dim: Components of an action.
    """

    gamma: float
    state_dim: int
    action_dim: int

    def dynamics(
        self, state: Float[Tensor, "*batch state"], action: Float[Tensor, "*batch action"]
    ) -> Float[Tensor, "*batch state"]:
        """The next state."""

    def reward(
        self, state: Float[Tensor, "*batch state"], action: Float[Tensor, "*batch action"]
    ) -> Float[Tensor, "*batch"]:
        """Paid on leaving a state by an action."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinearQuadratic:
    """s' = A s + B a, r = -(s'Q s + a'R a): the case with a closed form.

    Attributes:
        A: State to state.
        B: Action to state.
        Q: Cost of states, symmetric.
        R: Cost of actions, symmetric.
        gamma: Discount.
    """

    A: Float[Tensor, "state state"]
    B: Float[Tensor, "state action"]
    Q: Float[Tensor, "state state"]
    R: Float[Tensor, "action action"]
    gamma: float

    @property
    def state_dim(self) -> int:
        """Components of a state."""
        return self.B.shape[0]

    @property
    def action_dim(self) -> int:
        """Components of an action."""
        return self.B.shape[1]

    def dynamics(
        self, state: Float[Tensor, "*batch state"], action: Float[Tensor, "*batch action"]
    ) -> Float[Tensor, "*batch state"]:
        """A s + B a."""
        return state @ self.A.mT + action @ self.B.mT

    def reward(
        self, state: Float[Tensor, "*batch state"], action: Float[Tensor, "*batch action"]
    ) -> Float[Tensor, "*batch"]:
        """-(s'Q s + a'R a)."""
        return -(state * (state @ self.Q)).sum(-1) - (action * (action @ self.R)).sum(-1)

    def value_hessians(
        self, K: Float[Tensor, "action state"], horizon: int
    ) -> Float[Tensor, "step state state"]:
        """P_0..P_T of V_t(s) = -s'P_t s - const under a = K s + eps: P_T = 0, Lyapunov's recursion backwards.

        P_t = Q + K'R K + gamma (A + B K)'P_{t+1} (A + B K), so dV_t/ds = -2 P_t s whatever the noise.

        Source: derived; the policy is fixed, so no Riccati equation is solved.

        Args:
            K: Gain of the policy.
            horizon: T.
        """
        closed, cost = self.A + self.B @ K, self.Q + K.mT @ self.R @ K
        hessians = [torch.zeros_like(cost)]
        for _ in range(horizon):
            hessians.append(cost + self.gamma * closed.mT @ hessians[-1] @ closed)
        return torch.stack(hessians[::-1])

    def value_gradient(
        self, K: Float[Tensor, "action state"], states: Float[Tensor, "batch step state"]
    ) -> Float[Tensor, "batch step state"]:
        """dV_t/ds along trajectories of T steps: -2 P_t s_t, zero at the last state.

        Args:
            K: Gain of the policy.
            states: s_0..s_T.
        """
        hessians = self.value_hessians(K, states.shape[1] - 1)
        return -2 * einsum(hessians, states, "step row column, batch step column -> batch step row")


def regulator(gamma: float = 0.95) -> LinearQuadratic:
    """A damped mass that a force is to bring to rest at 0: state (position, velocity), in double precision.

    Args:
        gamma: Discount.
    """

    def matrix(*rows: list[float]) -> Float[Tensor, "row column"]:
        return torch.tensor(rows, dtype=torch.float64)

    return LinearQuadratic(
        A=matrix([1.0, 0.1], [0.0, 0.9]),
        B=matrix([0.0], [0.2]),
        Q=matrix([1.0, 0.2], [0.2, 0.5]),
        R=matrix([0.1]),
        gamma=gamma,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class DoubleWell:
    """One dimension, not linear: s' = s + dt (2 sin s - s + a), r = -(s - goal)^2 - cost a^2.

    Without actions 0 is unstable between two wells near -1.9 and 1.9; far away the pull is linear.

    Attributes:
        dt: Time step.
        goal: Where the reward is largest.
        cost: Of actions.
        gamma: Discount.
    """

    dt: float = 0.1
    goal: float = 1.0
    cost: float = 0.05
    gamma: float = 0.95
    state_dim: int = 1
    action_dim: int = 1

    def dynamics(
        self, state: Float[Tensor, "*batch state"], action: Float[Tensor, "*batch action"]
    ) -> Float[Tensor, "*batch state"]:
        """s + dt (2 sin s - s + a)."""
        return state + self.dt * (2 * torch.sin(state) - state + action)

    def reward(
        self, state: Float[Tensor, "*batch state"], action: Float[Tensor, "*batch action"]
    ) -> Float[Tensor, "*batch"]:
        """-(s - goal)^2 - cost a^2."""
        return -(state[..., 0] - self.goal).square() - self.cost * action[..., 0].square()


@dataclass(frozen=True, kw_only=True, slots=True)
class Pendulum:
    """A damped pendulum that is to stand upright: state (angle from upright, angular velocity), action torque.

    Attributes:
        dt: Time step, semi-implicit Euler.
        gravity: g / length.
        damping: Of the angular velocity.
        gamma: Discount.
    """

    dt: float = 0.05
    gravity: float = 9.81
    damping: float = 0.1
    gamma: float = 0.97
    state_dim: int = 2
    action_dim: int = 1

    def dynamics(
        self, state: Float[Tensor, "*batch state"], action: Float[Tensor, "*batch action"]
    ) -> Float[Tensor, "*batch state"]:
        """Velocity first, then the angle with the new velocity."""
        angle, velocity = state[..., 0], state[..., 1]
        velocity = velocity + self.dt * (
            self.gravity * torch.sin(angle) - self.damping * velocity + action[..., 0]
        )
        return torch.stack([angle + self.dt * velocity, velocity], dim=-1)

    def reward(
        self, state: Float[Tensor, "*batch state"], action: Float[Tensor, "*batch action"]
    ) -> Float[Tensor, "*batch"]:
        """cos(angle) - .05 velocity^2 - .001 torque^2."""
        upright = torch.cos(state[..., 0])
        return upright - 0.05 * state[..., 1].square() - 0.001 * action[..., 0].square()
