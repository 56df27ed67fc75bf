"""Cart-poles under a random policy, cut into 16 cells.

Shape legend: `pole` cart-poles of the pool, `run` independent simulations of each, `step` time, `state` the 16
cells, `batch` tasks, `pos` the n+1 columns of a context.

The cells are *not* Markov: where the cart-pole goes next depends on more than the signs of its four variables. A
context is a true window of the simulated trajectory, while P, and the v_pi that follows from it, belong to the
empirical chain of the cells. So even a perfect learner keeps an error here that more context does not remove.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor

from valuelens.models._errors import InputError

NUM_CELLS = 16
_PHYSICS = ("masscart", "masspole", "length", "force_mag", "gravity", "tau")


@dataclass(frozen=True, kw_only=True, slots=True)
class CartPolePool:
    """Cart-poles of different physics, already simulated; a task is one of them with fresh rewards and features.

    Attributes:
        P: Shares of the moves between cells, over all runs of a cart-pole. The row of a cell that was never left
            is p0. A fall moves from the cell of the fallen pole to the cell where the next episode starts.
        p0: Share of the cells in which episodes started. (Contexts start anywhere in a run, not from p0.)
        cells: The visited cells, one simulation a run.
    """

    P: Float[Tensor, "pole state state"]
    p0: Float[Tensor, "pole state"]
    cells: Int[Tensor, "pole run step"]

    def windows(
        self, num_tasks: int, num_steps: int, generator: torch.Generator
    ) -> tuple[Int[Tensor, "{num_tasks}"], Int[Tensor, "{num_tasks} {num_steps}+1"]]:
        """Random members of the pool and a random window of the trajectory of each.

        Args:
            num_tasks: Windows.
            num_steps: Transitions in a window.
            generator: Source of randomness.

        Returns:
            The member of the pool, and the cells S_0..S_num_steps.

        Raises:
            InputError: A window is longer than a run.
        """
        num_poles, num_runs, length = self.cells.shape
        if num_steps >= length:
            found = f"found {num_steps} transitions in runs of {length - 1}"
            raise InputError("a context must fit into a simulated run", found, "task, context_length")
        pole, run, start = (
            torch.randint(bound, (num_tasks, 1), generator=generator)
            for bound in (num_poles, num_runs, length - num_steps)
        )
        return pole[:, 0], self.cells[pole, run, start + torch.arange(num_steps + 1)].long()


def cart_pole_pool(
    generator: torch.Generator, num_poles: int = 64, num_steps: int = 100_000, num_runs: int = 8
) -> CartPolePool:
    """Simulates a pool of cart-poles, all at once.

    Each has its own masses, length, force, gravity and time step, uniform within 50 % of gymnasium's, and pushes
    right with its own probability U(0, 1). A variable is cut at 0, which gives 2^4 cells. An episode ends when
    the pole falls or the cart leaves the track, or by gymnasium's truncation after 500 steps (which a random
    policy hardly ever reaches); the next step resets it.

    Source: physics by gymnasium's `CartPoleVectorEnv`, after Barto, Sutton & Anderson (1983); the variation and
    the cells are our definition.

    Args:
        generator: Decides everything: physics, policies, actions and resets.
        num_poles: Members of the pool.
        num_steps: Simulated steps of each member, over its runs together.
        num_runs: Independent simulations that share these steps. They only save time: many short simulations
            side by side are faster than one long one.

    Raises:
        InputError: gymnasium is not installed, or num_steps is less than num_runs.
    """
    if not 1 <= num_runs <= num_steps:
        found = f"found num_steps {num_steps}, num_runs {num_runs}"
        raise InputError("each run of a cart-pole needs at least one step", found, "cart-pole pool")
    env = _cart_poles(num_poles, num_runs, generator)
    push_right = torch.rand(num_poles, generator=generator).repeat_interleave(num_runs)
    cells, starts = _simulate(env, push_right, num_steps // num_runs, generator)
    cells, starts = (
        rearrange(x, "step (pole run) -> pole run step", run=num_runs).contiguous() for x in (cells, starts)
    )
    p0 = _start_distribution(cells, starts)
    return CartPolePool(P=_transition_matrix(cells, p0), p0=p0, cells=cells)


def _cart_poles(num_poles: int, num_runs: int, generator: torch.Generator) -> Any:
    # A CartPoleVectorEnv, a type that needs gymnasium. Its physics are plain attributes that its numpy step
    # broadcasts, so an array gives each cart-pole its own.
    try:
        from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
    except ImportError:
        must, install = "environment cartpole needs gymnasium", "run: pip install 'valuelens[cartpole]'"
        raise InputError(must, "found it is not installed", install) from None
    env = CartPoleVectorEnv(num_envs=num_poles * num_runs)
    scales = 0.5 + torch.rand((len(_PHYSICS), num_poles), generator=generator, dtype=torch.float64)
    for name, scale in zip(_PHYSICS, scales.repeat_interleave(num_runs, dim=-1).numpy(), strict=True):
        setattr(env, name, getattr(env, name) * scale)
    env.total_mass = env.masscart + env.masspole
    env.polemass_length = env.masspole * env.length
    return env


def _simulate(
    env: Any,
    push_right: Float[Tensor, "lane"],
    num_steps: int,
    generator: torch.Generator,
) -> tuple[Int[Tensor, "step lane"], Bool[Tensor, "step lane"]]:
    # Cells, and whether an episode starts there; gymnasium resets in the step after the one that ended an episode.
    cells = np.empty((num_steps + 1, len(push_right)), dtype=np.int8)
    starts = np.ones_like(cells, dtype=np.bool_)
    seed = int(torch.randint(2**31, (), generator=generator))
    cells[0] = _cell(env.reset(seed=seed)[0])
    actions = torch.rand((num_steps, len(push_right)), generator=generator) < push_right
    ended = np.zeros_like(starts[0])
    for t, action in enumerate(actions.numpy(), start=1):
        observation, _, fallen, truncated, _ = env.step(action)
        cells[t], starts[t] = _cell(observation), ended
        ended = fallen | truncated
    return torch.from_numpy(cells), torch.from_numpy(starts)


def _cell(observation: Num[np.ndarray, "lane 4"]) -> Int[np.ndarray, "lane"]:
    cell: Int[np.ndarray, "lane"] = (observation >= 0) @ np.array([8, 4, 2, 1])
    return cell


def _start_distribution(
    cells: Int[Tensor, "pole run step"], starts: Bool[Tensor, "pole run step"]
) -> Float[Tensor, "pole state"]:
    counts = torch.stack(
        [torch.bincount(c[s], minlength=NUM_CELLS) for c, s in zip(cells, starts, strict=True)]
    )
    return counts.double() / counts.sum(dim=-1, keepdim=True)


def _transition_matrix(
    cells: Int[Tensor, "pole run step"], p0: Float[Tensor, "pole state"]
) -> Float[Tensor, "pole state state"]:
    moves = NUM_CELLS * cells[..., :-1].short() + cells[..., 1:]
    flat = torch.stack([torch.bincount(move.flatten(), minlength=NUM_CELLS**2) for move in moves])
    counts = rearrange(flat.double(), "pole (state next) -> pole state next", state=NUM_CELLS)
    left = counts.sum(dim=-1, keepdim=True)
    return torch.where(left > 0, counts / left.clamp_min(1), p0[:, None])
