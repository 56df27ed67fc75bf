"""Attention as a kernel over states: scores, the softmax kernel, its state-level summary, and what contracts.

Shape legend: `batch` contexts, `pos` the n+1 columns S_0..S_n of a context and any extra query columns behind
them, `transition` the n rewards R_1..R_n, `query` destinations, `key` sources, `state` S, `feature` d.

Throughout, n is the number of rewards. Column k-1 is the source of transition k, so the sources are the first n
columns; S_n and the extra queries are destinations only. Weights are w = (w_R, w_T, w_C) on reward, target value
gamma v(S_k) and current value v(S_{k-1}).
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from valuelens.probe._shown import Measured

TD_WEIGHTS: Float[Tensor, "3"] = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
"""w = (w_R, w_T, w_C) of theta* (arXiv 2605.07333): TD learning; with step size alpha, `alpha * TD_WEIGHTS`."""


def inner_product_scores(
    dest: Float[Tensor, "*batch query feature"], src: Float[Tensor, "*batch key feature"]
) -> Float[Tensor, "*batch query key"]:
    """g(dest, src) = <x_dest, x_src>, the score that theta* realises.

    Source: arXiv 2605.07333, by its audit (theory A2).
    """
    return einsum(dest, src, "... query feature, ... key feature -> ... query key")


def bilinear_scores(
    dest: Float[Tensor, "*#batch query feature"],
    src: Float[Tensor, "*#batch key feature"],
    A: Float[Tensor, "*#batch feature feature"],
) -> Float[Tensor, "... query key"]:
    """g(dest, src) = x_src' A x_dest, the score of any softmax layer with merged key-query matrix A.

    Rows of A meet the source, columns the destination. Leading axes broadcast: give A as [layer 1 feature feature]
    to get the scores [layer batch query key] of every layer.

    Source: arXiv 2605.07333, by its audit (theory A3).
    """
    return dest @ A.mT @ src.mT


def log_rbf_scores(
    dest: Float[Tensor, "*batch query feature"], src: Float[Tensor, "*batch key feature"], bandwidth: float
) -> Float[Tensor, "*batch query key"]:
    """g(dest, src) = -|x_dest - x_src|^2 / (2 bandwidth^2), the log of a Gaussian similarity.

    With it softmax TD is the normalised non-parametric TD of `non_parametric_td`. For features of equal norm it
    is the inner product divided by bandwidth^2, up to a constant that the softmax removes.

    Args:
        dest: Features of the destinations.
        src: Features of the sources.
        bandwidth: Distance at which similarity has fallen to exp(-1/2), in units of the features.

    Raises:
        ValueError: The bandwidth is not positive.
    """
    if not bandwidth > 0:
        raise ValueError(f"bandwidth must be positive; found {bandwidth}; log_rbf_scores")
    difference = rearrange(dest, "... query feature -> ... query 1 feature") - rearrange(
        src, "... key feature -> ... 1 key feature"
    )
    return -difference.square().sum(-1) / (2 * bandwidth**2)


def softmax_kernel(scores: Float[Tensor, "*batch query key"]) -> Float[Tensor, "*batch query key"]:
    """K[dest, src] = softmax of the scores over sources; every row sums to 1. Masked sources score -inf."""
    return scores.softmax(-1)


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class StateKernel(Measured):
    """The n x n attention of a context, gathered by state: all that softmax TD needs from it.

    With K(s <- S_{k-1}) the kernel row of a column that holds s,
    M_hat(s, s') = sum_k K(s <- S_{k-1}) 1{S_{k-1} = s'}, P_hat(s, s') = sum_k K(s <- S_{k-1}) 1{S_k = s'} and
    r_hat(s) = sum_k K(s <- S_{k-1}) R_k.

    Source: arXiv 2605.07333, by its audit (theory A4).

    Attributes:
        M_hat: Share of the attention of s (row) on sources that are s'.
        P_hat: Share on sources whose successor is s'.
        r_hat: Attention-weighted reward.
        visited: State is among the sources S_0..S_{n-1}.
        closed: S_n is among them too, so values of visited states depend on visited states only. Contraction and
            radius mean little where this is false: leave those contexts out, and count them.
    """

    M_hat: Float[Tensor, "batch state state"]
    P_hat: Float[Tensor, "batch state state"]
    r_hat: Float[Tensor, "batch state"]
    visited: Bool[Tensor, "batch state"]
    closed: Bool[Tensor, "batch"]


def state_kernel(
    kernel: Float[Tensor, "batch query key"],
    states: Int[Tensor, "batch pos"],
    rewards: Float[Tensor, "batch transition"],
    *,
    num_states: int,
) -> StateKernel:
    """The state-level summary of any attention pattern.

    The row of s is the mean over the columns that hold s, which is exact where attention depends on states only
    (A reads features only) and otherwise our definition. A state that no column holds has a row of zeros.

    Args:
        kernel: Attention of each column on each source. Columns behind the n sources are dropped as keys (they
            are masked in softmax TD); rows behind the last entry of `states` are ignored.
        states: State of each column: S_0..S_n, then those of extra query columns if any.
        rewards: R_1..R_n.
        num_states: S.

    Raises:
        ValueError: There are no transitions, too few columns for them, or a state outside 0..S-1.

    Example:
        >>> uniform = torch.full((1, 3, 2), 0.5)
        >>> state_kernel(uniform, torch.tensor([[0, 1, 0]]), torch.tensor([[1.0, 3.0]]), num_states=2).r_hat
        tensor([[2., 2.]])
    """
    n, pos = rewards.shape[-1], states.shape[-1]
    check_columns(n, queries=min(pos, kernel.shape[1]), keys=kernel.shape[2], where="state_kernel")
    columns = _indicators(states, num_states, "state_kernel").to(kernel.dtype)
    by_column = columns / columns.sum(1, keepdim=True).clamp(min=1)
    by_state = einsum(by_column, kernel[:, :pos, :n], "batch pos state, batch pos key -> batch state key")
    sources, successors = columns[:, :n], columns[:, 1 : n + 1]
    visited = sources.any(1)
    return StateKernel(
        M_hat=by_state @ sources,
        P_hat=by_state @ successors,
        r_hat=einsum(by_state, rewards, "batch state key, batch key -> batch state"),
        visited=visited,
        closed=visited.gather(1, states[:, n : n + 1].long()).squeeze(1),
    )


def state_kernel_from_scores(
    scores: Float[Tensor, "batch state state"],
    states: Int[Tensor, "batch pos"],
    rewards: Float[Tensor, "batch transition"],
) -> StateKernel:
    """The state-level summary on *all* states, visited or not, from scores between states.

    With c(s') visits as a source, M(s, s') = c(s') e^g(s,s') / sum_u c(u) e^g(s,u), P_hat = M P_emp and
    r_hat = M r_emp, where P_emp and r_emp are the context's own transition frequencies and mean rewards. It costs
    S x S where a layer costs n x n (n only for counting), and every row is there: the exact read-out at states that
    were never seen.

    Args:
        scores: g(dest, src) of each state (row) on each state.
        states: S_0..S_n; further columns are ignored.
        rewards: R_1..R_n.

    Raises:
        ValueError: There are no transitions, too few columns for them, or a state outside 0..S-1.
    """
    n = rewards.shape[-1]
    check_columns(n, queries=states.shape[-1], keys=n, where="state_kernel_from_scores")
    S = scores.shape[-1]
    _check_states(states, S, "state_kernel_from_scores")
    sources, successors = states[:, :n].long(), states[:, 1 : n + 1].long()
    flat = scores.new_zeros(len(states), S * S)
    ones = torch.ones_like(sources, dtype=scores.dtype)
    transitions = flat.scatter_add(1, sources * S + successors, ones).view_as(scores)
    counts = transitions.sum(-1)
    M = (scores + rearrange(counts.log(), "batch state -> batch 1 state")).softmax(-1)
    per_visit = M / rearrange(counts.clamp(min=1), "batch state -> batch 1 state")
    paid = torch.zeros_like(counts).scatter_add(1, sources, rewards.to(counts.dtype))
    visited = counts > 0
    return StateKernel(
        M_hat=M,
        P_hat=per_visit @ transitions,
        r_hat=einsum(per_visit, paid, "batch row state, batch state -> batch row"),
        visited=visited,
        closed=visited.gather(1, states[:, n : n + 1].long()).squeeze(1),
    )


def population_kernel(
    scores: Float[Tensor, "*batch state state"], mu: Float[Tensor, "*batch state"]
) -> Float[Tensor, "*batch state state"]:
    """M_pi(s, s') = mu(s') e^g(s,s') / sum_u mu(u) e^g(s,u), the limit of M_hat for endless contexts.

    Source: arXiv 2605.07333, by its audit (theory A4).

    Args:
        scores: g(dest, src) between states.
        mu: Stationary distribution; states it never visits get weight 0.
    """
    return (scores + rearrange(mu.log(), "... state -> ... 1 state")).softmax(-1)


def population_state_kernel(
    scores: Float[Tensor, "batch state state"],
    P: Float[Tensor, "batch state state"],
    r: Float[Tensor, "batch state"],
    mu: Float[Tensor, "batch state"],
) -> StateKernel:
    """The state-level summary of an endless context: M_pi, P_pi = M_pi P and r_pi = M_pi r.

    With it every function of a `StateKernel` gives its limit n -> infinity. At w = alpha (1, 1, -1) v_pi
    is a fixed point, whatever the scores, and the only one on visited states where M_pi is invertible; at other w so is
    the value of the discount gamma w_T / |w_C| and the rewards w_R / |w_C| r.

    Source: arXiv 2605.07333, by its audit (theory A4, A5).

    Args:
        scores: g(dest, src) between states.
        P: Transition probabilities.
        r: Reward on leaving a state.
        mu: Stationary distribution; states without mass are never visited.
    """
    M = population_kernel(scores, mu)
    return StateKernel(
        M_hat=M,
        P_hat=M @ P,
        r_hat=einsum(M, r, "batch row state, batch state -> batch row"),
        visited=mu > torch.finfo(mu.dtype).eps,
        closed=torch.ones(len(mu), dtype=torch.bool, device=mu.device),
    )


class Diagonality(NamedTuple):
    """How much a state attends to itself: mean and minimum over states, in [0, 1]."""

    mean: Float[Tensor, "*batch"]
    min: Float[Tensor, "*batch"]


def kernel_diagonality(
    M: Float[Tensor, "*batch state state"], visited: Bool[Tensor, "*batch state"] | None = None
) -> Diagonality:
    """Mean and minimum of M(s, s), over the visited states if given and over all states otherwise.

    Args:
        M: `StateKernel.M_hat` or a population kernel.
        visited: `StateKernel.visited`; at least one state in each context.
    """
    diagonal = M.diagonal(dim1=-2, dim2=-1)
    kept = torch.ones_like(diagonal, dtype=torch.bool) if visited is None else visited
    mean = diagonal.where(kept, 0).sum(-1) / kept.sum(-1)
    return Diagonality(mean=mean, min=diagonal.where(kept, torch.inf).amin(-1))


def assumption_margin(M_pi: Float[Tensor, "*batch state state"], gamma: float) -> Float[Tensor, "*batch"]:
    """min_s M_pi(s, s) - (1 + gamma) / 2: Assumption 5.1 holds if positive, for any C below the margin.

    Sufficient for contraction, far from necessary: raw random features never meet it.

    Source: arXiv 2605.07333, Assumption 5.1, by its audit (theory A5).
    """
    return kernel_diagonality(M_pi).min - (1 + gamma) / 2


def coverage(kernel: StateKernel) -> Float[Tensor, "batch"]:
    """Share of the states that a context visits among its sources S_0..S_{n-1}; below 1, an eigenvalue 1 is forced."""
    return kernel.visited.to(kernel.r_hat.dtype).mean(-1)


def value_iteration_matrix(
    kernel: StateKernel, *, gamma: float, w: Float[Tensor, "3"] = TD_WEIGHTS
) -> Float[Tensor, "batch state state"]:
    """I + w_C M_hat + gamma w_T P_hat, the linear part of one layer, on all states.

    Its transpose carries state costates from layer to layer (theory A10).

    Args:
        kernel: Attention by state.
        gamma: Discount.
        w: (w_R, w_T, w_C).
    """
    eye = torch.eye(kernel.M_hat.shape[-1], dtype=kernel.M_hat.dtype, device=kernel.M_hat.device)
    return eye + w[2] * kernel.M_hat + gamma * w[1] * kernel.P_hat


def contraction_norm(
    kernel: StateKernel, *, gamma: float, w: Float[Tensor, "3"] = TD_WEIGHTS
) -> Float[Tensor, "batch"]:
    """|| I + w_C M_hat + gamma w_T P_hat ||_inf on visited states: the most that one layer can stretch an error.

    The error is the sup-norm distance to the empirical fixed point (`fixed_point`), not to the true value. Leave
    out contexts that are not `closed`.

    Source: our definition for general w, after the step bound of theory A5.
    """
    restricted = _restrict(value_iteration_matrix(kernel, gamma=gamma, w=w), kernel.visited)
    return restricted.abs().sum(-1).amax(-1)


def spectral_radius(
    kernel: StateKernel, *, gamma: float, w: Float[Tensor, "3"] = TD_WEIGHTS
) -> Float[Tensor, "batch"]:
    """Largest |eigenvalue| of the matrix of `contraction_norm`: the rate of late layers, where the norm bounds each.

    Leave out contexts that are not `closed`.
    """
    restricted = _restrict(value_iteration_matrix(kernel, gamma=gamma, w=w), kernel.visited)
    eigenvalues: Tensor = torch.linalg.eigvals(restricted)
    return eigenvalues.abs().amax(-1)


def contraction_bound(
    kernel: StateKernel, *, gamma: float, w: Float[Tensor, "3"] = TD_WEIGHTS
) -> Float[Tensor, "batch"]:
    """Upper bound of `contraction_norm` that reads only the diagonal of M_hat.

    max over visited s of |1 + w_C M_ss| + |w_C| (1 - M_ss) + gamma |w_T|, since rows of M_hat and P_hat are
    non-negative and sum to at most 1. At w = alpha (1, 1, -1) with 0 < alpha <= 1 it is
    1 - alpha (2 min_s M_ss - 1 - gamma).

    Source: derived (theory A5).
    """
    diagonal = kernel.M_hat.diagonal(dim1=-2, dim2=-1)
    rows = (1 + w[2] * diagonal).abs() + w[2].abs() * (1 - diagonal) + gamma * w[1].abs()
    return rows.where(kernel.visited, -torch.inf).amax(-1)


def check_columns(n: int, *, queries: int, keys: int, where: str) -> None:
    """Refuse shapes that cannot be a context of n transitions; raises `ValueError` naming `where`."""
    if n < 1:
        raise ValueError(f"a context must hold at least one transition; found {n} rewards; {where}")
    if queries <= n:
        raise ValueError(f"{n} transitions need at least {n + 1} columns; found {queries}; {where}")
    if keys < n:
        raise ValueError(f"a kernel must have at least {n} sources; found {keys}; {where}")


def _check_states(states: Tensor, num_states: int, where: str) -> None:
    low, high = int(states.min()), int(states.max())
    if low < 0 or high >= num_states:
        raise ValueError(f"states must lie in 0..{num_states - 1}; found {low}..{high}; {where}")


def _indicators(states: Tensor, num_states: int, where: str) -> Tensor:
    _check_states(states, num_states, where)
    return torch.nn.functional.one_hot(states.long(), num_states)


def _restrict(matrix: Tensor, kept: Tensor) -> Tensor:
    # Zeroed rows and columns add eigenvalues 0 and row sums 0, which change neither radius nor norm.
    return matrix * (kept[..., :, None] & kept[..., None, :])
