"""Finite Markov reward processes, their trajectories, and the contexts that a model sees.

Shape legend: `batch` tasks, `state` S, `feature` d, `pos` the n+1 columns S_0..S_n of a context,
`transition` its n rewards R_1..R_n.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from valuelens.models._errors import InputError
from valuelens.models._shown import Shown


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class MarkovRewardProcess(Shown):
    """A batch of finite Markov reward processes: S_0 ~ p0, S_{t+1} ~ P(S_t, .), R_{t+1} = r(S_t).

    Attributes:
        P: Transition probabilities, rows sum to 1.
        r: Reward on leaving a state.
        p0: Start distribution.
        features: x(s), what a model sees of a state.
        gamma: Discount in [0, 1), one for the batch.

    Raises:
        InputError: P or p0 is not a distribution, gamma is outside [0, 1), or something is not finite.
    """

    P: Float[Tensor, "*batch state state"]
    r: Float[Tensor, "*batch state"]
    p0: Float[Tensor, "*batch state"]
    features: Float[Tensor, "*batch state feature"]
    gamma: float

    def __post_init__(self) -> None:
        """Check the distributions and the discount."""
        if not 0 <= self.gamma < 1:
            raise InputError(
                "gamma must lie in [0, 1)", f"found {self.gamma}", "Markov reward process, gamma"
            )
        for name in ("P", "r", "p0", "features"):
            if not bool(torch.isfinite(getattr(self, name)).all()):
                raise InputError(
                    f"{name} must be finite", "found NaN or infinity", f"Markov reward process, {name}"
                )
        _check_distribution("P", self.P)
        _check_distribution("p0", self.p0)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """How many there are, and their sizes."""
        rows: dict[str, object] = {
            "states": self.num_states,
            "features": self.features.shape[-1],
            "discount": f"{self.gamma:g}",
            "rewards": f"{float(self.r.min()):.3g} to {float(self.r.max()):.3g}",
        }
        return f"Markov reward processes {list(self.r.shape[:-1])}", rows

    @property
    def num_states(self) -> int:
        """S."""
        return self.P.shape[-1]

    @property
    def value(self) -> Float[Tensor, "*batch state"]:
        """v_pi = (I - gamma P)^{-1} r, exact."""
        eye = torch.eye(self.num_states, dtype=self.P.dtype, device=self.P.device)
        value: Tensor = torch.linalg.solve(eye - self.gamma * self.P, self.r)
        return value

    @property
    def stationary(self) -> Float[Tensor, "*batch state"]:
        """mu, the long-run share of time in each state when started from p0.

        For one recurrent class this is the stationary distribution; for several it weighs them as p0 reaches
        them. Computed by squaring the lazy chain (I + P) / 2 forty times, which also copes with periodic chains.
        """
        lazy = (torch.eye(self.num_states, dtype=torch.float64, device=self.P.device) + self.P.double()) / 2
        for _ in range(40):
            lazy = lazy @ lazy
            lazy = lazy / lazy.sum(-1, keepdim=True)
        mu: Tensor = torch.einsum("...s,...st->...t", self.p0.double(), lazy)
        return mu.to(self.P.dtype)


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Context(Shown):
    """One trajectory a task, (S_0, R_1, S_1, ..., R_n, S_n), as a model may see it.

    Attributes:
        states: S_0..S_n as indices; for measuring only, no model reads them.
        features: x(S_0)..x(S_n).
        rewards: R_1..R_n; R_{k+1} was paid on leaving S_k.
        gamma: Discount.
    """

    states: Int[Tensor, "batch pos"]
    features: Float[Tensor, "batch pos feature"]
    rewards: Float[Tensor, "batch transition"]
    gamma: float

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """How many there are, and how long."""
        rows: dict[str, object] = {
            "transitions": self.num_transitions,
            "features": self.features.shape[-1],
            "discount": f"{self.gamma:g}",
        }
        return f"{len(self.states)} contexts", rows

    @property
    def num_transitions(self) -> int:
        """n."""
        return self.rewards.shape[-1]


def rollout(
    mrp: MarkovRewardProcess, num_steps: int, generator: torch.Generator
) -> Int[Tensor, "batch {num_steps}+1"]:
    """State indices S_0..S_num_steps of one trajectory a task, by inverse-CDF sampling over the whole batch.

    Args:
        mrp: Tasks with exactly one batch axis.
        num_steps: Transitions.
        generator: Source of randomness.
    """
    start, steps = _cdf(mrp.p0), _cdf(mrp.P)
    rows = torch.arange(start.shape[0], device=start.device)
    u = torch.rand(
        (num_steps + 1, start.shape[0], 1), generator=generator, dtype=start.dtype, device=start.device
    )
    states = [(start <= u[0]).sum(-1)]
    for t in range(num_steps):
        states.append((steps[rows, states[-1]] <= u[t + 1]).sum(-1))
    return torch.stack(states, dim=-1)


def context_of(mrp: MarkovRewardProcess, states: Int[Tensor, "batch pos"]) -> Context:
    """The context of given trajectories: features of every state, rewards of all but the last.

    Args:
        mrp: Tasks with one batch axis.
        states: S_0..S_n of one trajectory a task.
    """
    rows = torch.arange(states.shape[0], device=states.device)[:, None]
    return Context(
        states=states,
        features=mrp.features[rows, states],
        rewards=mrp.r[rows, states[:, :-1]],
        gamma=mrp.gamma,
    )


def at_states(
    table: Float[Tensor, "batch state"], states: Int[Tensor, "batch pos"]
) -> Float[Tensor, "batch pos"]:
    """A function of the state, read along trajectories."""
    return table.gather(-1, states)


def _cdf(p: Tensor) -> Tensor:
    # Dividing by the last entry makes it exactly 1, so a draw u < 1 always lands on a state of positive probability.
    cdf = p.cumsum(-1)
    return cdf / cdf[..., -1:]


def _check_distribution(name: str, p: Tensor) -> None:
    if bool((p < 0).any()):
        raise InputError(
            f"{name} must not be negative", f"found {p.min().item():.4g}", f"Markov reward process, {name}"
        )
    error = (p.sum(-1) - 1).abs()
    if bool((error > 1e-4).any()):
        worst = int(error.reshape(-1).argmax())
        row = worst % p.shape[-1] if name == "P" else 0
        total = p.sum(-1).reshape(-1)[worst].item()
        raise InputError(
            f"each row of {name} must sum to 1",
            f"found {total:.6g}",
            f"Markov reward process, {name}, row {row}",
        )
