"""Softmax TD as a recursion over states instead of columns: the same function, S x S instead of n x n a layer.

Exact if A reads features only, V writes memory rows only and the target slot is the temporal shift module's, that
is for `tsm` with restricted weights (theory A4). Training runs on this form.

Shape legend: `batch` contexts, `state` S, `feature` d.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from valuelens.models.icrl._mrp import MarkovRewardProcess
from valuelens.models.icrl._softmax_td import SoftmaxTD


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextStatistics:
    """What softmax TD needs to know of a context: visits and empirical transitions.

    Attributes:
        features: x(s) of every state.
        log_counts: log of the visits as a source, minus infinity for a state that never was one.
        transitions: Empirical transition matrix, zero rows for states that never were a source.
        rewards: r(s).
        query: Index of S_n.
    """

    features: Float[Tensor, "batch state feature"]
    log_counts: Float[Tensor, "batch state"]
    transitions: Float[Tensor, "batch state state"]
    rewards: Float[Tensor, "batch state"]
    query: Int[Tensor, "batch"]


def context_statistics(mrp: MarkovRewardProcess, states: Int[Tensor, "batch pos"]) -> ContextStatistics:
    """Count the transitions of contexts.

    Args:
        mrp: Tasks with one batch axis.
        states: S_0..S_n of each context.
    """
    S = mrp.num_states
    pairs = states[:, :-1] * S + states[:, 1:]
    flat = mrp.P.new_zeros((states.shape[0], S * S))
    visits = flat.scatter_add_(1, pairs, torch.ones_like(pairs, dtype=flat.dtype)).view(-1, S, S)
    counts = visits.sum(-1)
    return ContextStatistics(
        features=mrp.features,
        log_counts=counts.log(),
        transitions=visits / counts.clamp(min=1)[..., None],
        rewards=mrp.r,
        query=states[:, -1],
    )


def has_state_form(model: object) -> bool:
    """Whether `state_form_values` is exact for this model."""
    return isinstance(model, SoftmaxTD) and model.arch == "tsm" and model.weights == "restricted"


def population_statistics(mrp: MarkovRewardProcess) -> ContextStatistics:
    """What an endless context tells: visits in the shares of mu and the true transitions.

    In their place the state form gives v_theta in the limit n -> infinity: M_hat becomes M_pi, P_hat M_pi P and
    r_hat M_pi r (theory A4). No context ends, so `query` is 0 and means nothing.

    Args:
        mrp: Tasks with one batch axis.
    """
    mu = mrp.stationary
    return ContextStatistics(
        features=mrp.features,
        log_counts=mu.log(),
        transitions=mrp.P,
        rewards=mrp.r,
        query=torch.zeros(len(mu), dtype=torch.long, device=mu.device),
    )


def state_form_values(model: SoftmaxTD, context: ContextStatistics) -> Float[Tensor, "batch state"]:
    """Values of all states after L layers: v <- v + w_R r_hat + (w_C M_hat + gamma w_T P_hat) v.

    With c(s) visits, M_hat(s, s') is the softmax over s' of g(s, s') + log c(s'), P_hat = M_hat P_emp and
    r_hat = M_hat r.

    Args:
        model: `tsm` with restricted weights (see `has_state_form`).
        context: Its statistics.
    """
    w = model.get_parameter("w")
    for values in _iterates(model.A_features, w, context, gamma=model.gamma, num_layers=model.num_layers):
        last = values
    return last


def state_form_iterates(
    A: Float[Tensor, "layer feature feature"],
    w: Float[Tensor, "layer 3"],
    context: ContextStatistics,
    *,
    gamma: float,
    num_layers: int,
) -> Float[Tensor, "iterate batch state"]:
    """Values of all states before the first and after every layer, as a function of the weights.

    Args:
        A: Feature block of A; layers beyond the given ones start again from the first, so one is a tied model.
        w: (w_R, w_T, w_C) of the same layers.
        context: Statistics of contexts, or of endless ones (`population_statistics`).
        gamma: Discount.
        num_layers: L, which may exceed the depth of a trained model: depth is then extrapolated.
    """
    return torch.stack(list(_iterates(A, w, context, gamma=gamma, num_layers=num_layers)))


def _iterates(
    A: Tensor, w: Tensor, context: ContextStatistics, *, gamma: float, num_layers: int
) -> Iterator[Float[Tensor, "batch state"]]:
    x = context.features
    identity = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    steps = []
    for A_layer, (w_R, w_T, w_C) in zip(A, w.unbind(0), strict=True):
        M_hat = torch.softmax((x @ A_layer.mT) @ x.mT + context.log_counts[:, None, :], dim=-1)
        step = identity + M_hat @ (w_C * identity + (gamma * w_T) * context.transitions)
        steps.append((step, M_hat @ (w_R * context.rewards)[..., None]))
    values = torch.zeros_like(steps[0][1])
    yield values[..., 0]
    for layer in range(num_layers):
        step, reward = steps[layer % len(steps)]
        values = torch.baddbmm(reward, step, values)
        yield values[..., 0]
