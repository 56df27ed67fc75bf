"""The norm of the expected update (NEU), the squared TD error, and how far either is from its minimum.

Shape legend: `*batch` tasks (or contexts), `state` S, `task` tasks with a gradient each, `left`, `right` two
independent halves of them, `parameter` entries of theta.

The expected update of a value function is D_mu (r + gamma P v - v): what TD would do to it on average, state by
state, if transitions came from the stationary distribution mu. v_pi is the only function without one (where mu > 0).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from einops import einsum
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.func import grad, vmap

Values = Float[Tensor, "*batch state"]
Matrices = Float[Tensor, "*batch state state"]
Theta = Mapping[str, Tensor]


def bellman_residual(values: Values, P: Matrices, r: Values, gamma: float) -> Values:
    """r + gamma P v - v: the expected TD error of each state, 0 for v_pi.

    Source: Sutton and Barto, Reinforcement Learning (2018), section 11.4.

    Args:
        values: v(s).
        P: Transition probabilities.
        r: Reward on leaving a state.
        gamma: Discount.

    Example:
        >>> bellman_residual(torch.tensor([2.0]), torch.ones(1, 1), torch.tensor([1.0]), gamma=0.5)
        tensor([0.])
    """
    return r + gamma * einsum(P, values, "... state next, ... next -> ... state") - values


def neu(values: Values, P: Matrices, r: Values, mu: Values, gamma: float) -> Float[Tensor, "*batch"]:
    """|| D_mu (r + gamma P v - v) ||^2 of each context.

    Averaged over tasks and contexts this is the `task` form of NEU: the norm stands *inside* the average over
    contexts, which gives a larger number than the norm of the averaged update. Our definition (theory A6): the
    source names the quantity, its formula is not available.

    Args:
        values: v(s) at every state, as one context gives it.
        P: Transition probabilities.
        r: Reward on leaving a state.
        mu: Stationary distribution.
        gamma: Discount.
    """
    return (mu * bellman_residual(values, P, r, gamma)).square().sum(-1)


def mstde(values: Values, P: Matrices, r: Values, mu: Values, gamma: float) -> Float[Tensor, "*batch"]:
    """E_mu E_P (r + gamma v(S') - v(S))^2, the mean squared TD error, in closed form.

    At v_pi it is gamma^2 E_mu Var[v_pi(S') | S]: not 0 and not its minimum (`mstde_minimum`).

    Source: derived (theory A6).

    Args:
        values: v(s) at every state.
        P: Transition probabilities.
        r: Reward on leaving a state.
        mu: Stationary distribution.
        gamma: Discount.
    """
    mean = einsum(P, values, "... state next, ... next -> ... state")
    variance = einsum(P, (values[..., None, :] - mean[..., None]).square(), "... s t, ... s t -> ... s")
    squares = bellman_residual(values, P, r, gamma).square() + gamma**2 * variance
    return (mu * squares).sum(-1)


class MSTDEMinimum(NamedTuple):
    """The function of least mean squared TD error, and that error."""

    values: Float[Tensor, "*batch state"]
    minimum: Float[Tensor, "*batch"]


def mstde_minimum(P: Matrices, r: Values, mu: Values, gamma: float) -> MSTDEMinimum:
    """The minimiser of `mstde`, which is *not* v_pi, and its minimum.

    With D = diag(mu) and D' = diag(mu P) it solves [D - gamma (D P + P'D) + gamma^2 D'] v = (I - gamma P)' D r; of
    several solutions (states that mu never visits) the one of least norm.

    Source: derived (theory A6).

    Args:
        P: Transition probabilities.
        r: Reward on leaving a state.
        mu: Stationary distribution.
        gamma: Discount.

    Example:
        >>> P, r = torch.full((2, 2), 0.5), torch.tensor([1.0, -1.0])
        >>> mstde_minimum(P, r, torch.full((2,), 0.5), gamma=0.5).values
        tensor([ 0.8000, -0.8000])
    """
    D, after = torch.diag_embed(mu), torch.diag_embed((mu[..., None] * P).sum(-2))
    cross = D @ P
    matrix = D - gamma * (cross + cross.mT) + gamma**2 * after
    target = (mu * r)[..., None] - gamma * cross.mT @ r[..., None]
    solution: Tensor = torch.linalg.lstsq(matrix.cpu(), target.cpu(), driver="gelsd").solution
    values = solution[..., 0].to(P.device)
    return MSTDEMinimum(values=values, minimum=mstde(values, P, r, mu, gamma))


def task_gradients(
    values_of: Callable[[Theta, tuple[Tensor, ...]], Float[Tensor, "one state"]],
    theta: Theta,
    inputs: tuple[Shaped[Tensor, "task ..."], ...],
    weights: Float[Tensor, "task state"],
) -> Float[Tensor, "task parameter"]:
    """For each task sum_s weight(s) grad_theta v_theta(s), all entries of theta in one row.

    With weights mu(s) (r + gamma P v - v)(s) the row is the expected semi-gradient update of that task,
    E[sg(delta) grad v_theta(S)] over S ~ mu, S' ~ P(S, .).

    Args:
        values_of: Values of all states from theta and the inputs of a batch; called with batches of one task.
        theta: Named parameters.
        inputs: Tensors whose first axis is the task.
        weights: One a task and state, not differentiated.
    """

    def weighted(theta: Theta, weights: Tensor, *inputs: Tensor) -> Tensor:
        return (values_of(theta, tuple(each[None] for each in inputs))[0] * weights).sum()

    batched = vmap(grad(weighted), in_dims=(None, 0, *(0 for _ in inputs)))
    gradients = batched(dict(theta), weights, *inputs)
    return torch.cat([each.flatten(1) for each in gradients.values()], dim=1)


class UpdateNorm(NamedTuple):
    """Two estimates of || E[g] ||^2 from gradients of single tasks, and what the first is made of."""

    unbiased: Float[Tensor, ""]
    plug_in: Float[Tensor, ""]
    products: Float[Tensor, "left right"]


def update_norm(gradients: Float[Tensor, "task parameter"]) -> UpdateNorm:
    """|| E[g] ||^2, the `parameter` form of NEU, by the inner product of the means of two independent halves.

    The norm of the mean of all tasks (`plug_in`) is biased upwards by tr Cov(g) / tasks; the inner product of two
    independent halves is not, and may therefore be negative. Even tasks are one half, odd tasks the other.

    Source: our definition (theory A6).

    Args:
        gradients: Expected update of each task; at least two tasks.
    """
    products = gradients[::2] @ gradients[1::2].mT
    return UpdateNorm(unbiased=products.mean(), plug_in=gradients.mean(0).square().sum(), products=products)
