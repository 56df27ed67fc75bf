"""Random Markov chains, rewards and features: the raw material of a task.

Shape legend: `batch` tasks, `state` S, `feature` d. Every function draws a whole batch at once, on the CPU, from
the generator it is given; nothing here loops over tasks or states.

The families are our definition; Boyan's chain follows the predecessor of the source paper (arXiv 2405.13861),
which took it from Boyan (2002), "Technical update: least-squares temporal difference learning".
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from valuelens.models._errors import InputError

Matrices = Float[Tensor, "batch state state"]
Vectors = Float[Tensor, "batch state"]


def boyan_chains(
    num_chains: int, num_states: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> tuple[Matrices, Vectors, Vectors]:
    """Boyan's chains: from state i one step on with probability p_i, two steps on otherwise.

    p_i ~ U(.01, .99) for i < S-2; state S-2 always moves to S-1, and S-1 restarts anywhere: its row and the start
    distribution are U(.01, .99) weights, normalised. Rewards are U[-1, 1].

    Args:
        num_chains: Independent chains.
        num_states: S, at least 3.
        generator: Source of randomness.
        dtype: In which everything is drawn.

    Returns:
        P, r, p0.

    Raises:
        InputError: Fewer than 3 states.
    """
    _check_num_states(num_states)
    one_step = _uniform((num_chains, num_states - 2), 0.01, 0.99, generator, dtype)
    state = torch.arange(num_states - 2)
    P = one_step.new_zeros(num_chains, num_states, num_states)
    P[:, state, state + 1] = one_step
    P[:, state, state + 2] = 1 - one_step
    P[:, -2, -1] = 1
    P[:, -1] = _start(num_chains, num_states, generator, dtype)
    r = random_rewards(num_chains, num_states, generator, dtype)
    return P, r, _start(num_chains, num_states, generator, dtype)


def loop_chains(
    num_chains: int, num_states: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> tuple[Matrices, Vectors, Vectors]:
    """Loops with shortcuts: the edge i -> i+1 (mod S) always, every other edge with probability one half.

    "Every other" includes i -> i. Edges weigh U(.01, .99) and rows are normalised; the loop makes each chain
    irreducible. Start distribution and rewards as in `boyan_chains`.

    Args:
        num_chains: Independent chains.
        num_states: S, at least 3.
        generator: Source of randomness.
        dtype: In which everything is drawn.

    Returns:
        P, r, p0.

    Raises:
        InputError: Fewer than 3 states.
    """
    _check_num_states(num_states)
    size = (num_chains, num_states, num_states)
    weights = _uniform(size, 0.01, 0.99, generator, dtype)
    present = torch.rand(size, generator=generator) < 0.5
    P = _normalised(weights * (present | _loop(num_states)))
    r = random_rewards(num_chains, num_states, generator, dtype)
    return P, r, _start(num_chains, num_states, generator, dtype)


def garnet_chains(
    num_chains: int, num_states: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> tuple[Matrices, Vectors, Vectors]:
    """Garnets: each state has exactly 3 distinct successors, uniform among all subsets, with Dirichlet(1) weights.

    A Garnet may be reducible. Start distribution and rewards as in `boyan_chains`.

    Source: Archibald, McKinnon & Thomas (1995), "On the generation of Markov decision processes"; three
    successors are our definition.

    Args:
        num_chains: Independent chains.
        num_states: S, at least 3.
        generator: Source of randomness.
        dtype: In which everything is drawn.

    Returns:
        P, r, p0.

    Raises:
        InputError: Fewer than 3 states.
    """
    _check_num_states(num_states)
    size = (num_chains, num_states, num_states)
    successors = torch.rand(size, generator=generator).topk(3, dim=-1).indices
    # Normalised exponentials are Dirichlet(1), and torch never draws an exponential of 0.
    weights = torch.empty(successors.shape, dtype=dtype).exponential_(generator=generator)
    P = torch.zeros(size, dtype=dtype).scatter(-1, successors, _normalised(weights))
    r = random_rewards(num_chains, num_states, generator, dtype)
    return P, r, _start(num_chains, num_states, generator, dtype)


def random_rewards(
    num_chains: int, num_states: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> Vectors:
    """Rewards U[-1, 1], one a state.

    Args:
        num_chains: Independent chains.
        num_states: S.
        generator: Source of randomness.
        dtype: In which they are drawn.
    """
    return _uniform((num_chains, num_states), -1, 1, generator, dtype)


def random_features(
    kind: Literal["sphere", "uniform", "one-hot"],
    size: tuple[int, int, int],
    generator: torch.Generator,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "batch state feature"]:
    """Features x(s), drawn afresh for each task.

    One-hot features are the rows of the identity in an order that is redrawn for each task: were the index fixed,
    a model could learn the topology of the family (Boyan's i -> i+1) from the features alone.

    Args:
        kind: `sphere` is uniform on the unit sphere, `uniform` has entries U[-1, 1], `one-hot` needs d = S.
        size: Tasks, S, d.
        generator: Source of randomness.
        dtype: In which they are drawn.

    Raises:
        InputError: One-hot features with d other than S.
    """
    if kind == "uniform":
        return _uniform(size, -1, 1, generator, dtype)
    if kind == "sphere":
        # In float64, since float32 normals are exactly 0 once in 2^24 draws, and 0 has no direction.
        normals = torch.randn(size, generator=generator, dtype=torch.float64)
        return torch.nn.functional.normalize(normals, dim=-1).to(dtype)
    if size[1] != size[2]:
        found = f"found {size[1]} states, feature_dim {size[2]}"
        raise InputError("one-hot features need feature_dim = num_states", found, "task, feature_dim")
    order = torch.rand(size[:2], generator=generator).argsort(dim=-1)
    return torch.eye(size[1], dtype=dtype)[order]


def representable_rewards(
    P: Matrices,
    features: Float[Tensor, "batch state feature"],
    gamma: float,
    generator: torch.Generator,
) -> Vectors:
    """Rewards that make the true value a linear function of the features.

    With w ~ U[-1, 1]^d and v = X w, the rewards r = (I - gamma P) v have the value (I - gamma P)^{-1} r = X w.

    Args:
        P: Transition probabilities.
        features: X.
        gamma: Discount in [0, 1).
        generator: Source of the w, one a task.
    """
    w = _uniform((features.shape[0], features.shape[2]), -1, 1, generator, features.dtype)
    value = torch.einsum("bsd,bd->bs", features, w)
    return value - gamma * torch.einsum("bst,bt->bs", P, value)


def _uniform(
    size: tuple[int, ...], low: float, high: float, generator: torch.Generator, dtype: torch.dtype
) -> Float[Tensor, "*size"]:
    return torch.empty(size, dtype=dtype).uniform_(low, high, generator=generator)


def _start(num_chains: int, num_states: int, generator: torch.Generator, dtype: torch.dtype) -> Vectors:
    return _normalised(_uniform((num_chains, num_states), 0.01, 0.99, generator, dtype))


def _normalised(weights: Float[Tensor, "*batch state"]) -> Float[Tensor, "*batch state"]:
    return weights / weights.sum(dim=-1, keepdim=True)


def _loop(num_states: int) -> Bool[Tensor, "state state"]:
    return torch.eye(num_states, dtype=torch.bool).roll(1, dims=-1)


def _check_num_states(num_states: int) -> None:
    if num_states < 3:
        raise InputError("a chain must have at least 3 states", f"found {num_states}", "task, num_states")
