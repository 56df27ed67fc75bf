"""What arXiv 2405.13861 measured of its linear transformers, for any value learner beside batch TD.

Shape legend: `batch` tasks (one context each), `pos` its n+1 columns, `transition` its n rewards, `state` S,
`feature` d, `layer`, `D` = 2d+1 slots. Values and
gradients are those of every state as the query of the task's context, and states count as the stationary distribution
of their task weighs them.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cosine_similarity

Values = Float[Tensor, "batch state"]
Gradients = Float[Tensor, "batch state feature"]


def batch_td_weight(
    features: Float[Tensor, "batch pos feature"],
    rewards: Float[Tensor, "batch transition"],
    *,
    gamma: float,
    step_sizes: Float[Tensor, "layer"],
) -> Float[Tensor, "batch feature"]:
    """The w of linear batch TD(0) on each context: w <- w + (alpha_l / n) sum_k delta_k x(S_{k-1}), from 0.

    Args:
        features: x(S_0)..x(S_n).
        rewards: R_1..R_n.
        gamma: Discount.
        step_sizes: alpha of each step.

    Source: arXiv 2405.13861: what theta_TD computes (theory A11).

    Example:
        >>> x, r = torch.ones(1, 2, 1), torch.ones(1, 1)
        >>> batch_td_weight(x, r, gamma=0.5, step_sizes=torch.tensor([0.5, 0.5]))
        tensor([[0.8750]])
    """
    sources, differences = features[:, :-1], gamma * features[:, 1:] - features[:, :-1]
    n = rewards.shape[1]
    A, b = sources.mT @ differences / n, sources.mT @ rewards[..., None] / n
    w = torch.zeros_like(b)
    for alpha in step_sizes:
        w = w + alpha * (b + A @ w)
    return w[..., 0]


def value_difference(values: Values, reference: Values, stationary: Values) -> Float[Tensor, "batch"]:
    """sum_s mu(s) (v(s) - v_ref(s))^2 of each task.

    Args:
        values: Of the model.
        reference: Of batch TD.
        stationary: mu.

    Source: arXiv 2405.13861, "value difference".
    """
    return (stationary * (values - reference).square()).sum(-1)


def implicit_weight(
    values: Values, features: Float[Tensor, "batch state feature"], stationary: Values
) -> Float[Tensor, "batch feature"]:
    """The w of the linear values X w nearest to `values`: the least sum_s mu(s) (v(s) - w'x(s))^2.

    Args:
        values: Of the model.
        features: x(s).
        stationary: mu.

    Example:
        >>> x = torch.tensor([[[1.0], [2.0], [3.0]]])
        >>> implicit_weight(2 * x[..., 0], x, torch.full((1, 3), 1 / 3)).round(decimals=3)
        tensor([[2.]])
    """
    root = stationary.sqrt()[..., None]
    solution: Tensor = torch.linalg.lstsq(root * features, root * values[..., None]).solution
    return solution[..., 0]


def implicit_weight_similarity(
    weight: Float[Tensor, "batch feature"], reference: Float[Tensor, "batch feature"]
) -> Float[Tensor, "batch"]:
    """Cosine of the model's implicit weight with that of batch TD; NaN where one of them is zero.

    Args:
        weight: From `implicit_weight`.
        reference: The w that batch TD reaches on the same context.

    Source: arXiv 2405.13861, "implicit weight similarity".
    """
    return _cosine(weight, reference)


def query_gradients(
    values_of: Callable[[Gradients], Values], queries: Float[Tensor, "batch state feature"]
) -> Gradients:
    """dv(query) / dquery at every query; queries must not see each other.

    Args:
        values_of: From query features to values, differentiable.
        queries: Where.

    Example:
        >>> query_gradients(lambda x: (3 * x**2).sum(-1), torch.tensor([[[1.0], [2.0]]]))
        tensor([[[ 6.],
                 [12.]]])
    """
    with torch.enable_grad():
        queries = queries.detach().requires_grad_()
        gradients: Tensor = torch.autograd.grad(values_of(queries).sum(), queries)[0]
    return gradients


def sensitivity_similarity(
    gradients: Gradients, reference: Gradients, stationary: Values
) -> Float[Tensor, "batch"]:
    """sum_s mu(s) cos(dv/dx at s, dv_ref/dx at s); NaN where a gradient is zero.

    Args:
        gradients: Of the model, from `query_gradients`.
        reference: Of batch TD.
        stationary: mu.

    Source: arXiv 2405.13861, "sensitivity similarity".
    """
    return (stationary * _cosine(gradients, reference)).sum(-1)


def matrix_entries(
    P: Float[Tensor, "layer D D"], Q: Float[Tensor, "layer D D"]
) -> tuple[Float[Tensor, "layer 2"], Float[Tensor, "layer 3"]]:
    """What theta_TD leaves in P and Q, and how large the rest is, after the sign of P[2d, 2d] has moved into Q.

    Its public code means the same by "average of all others", but subtracts signed entries of Q from a sum of
    absolute ones: there the negative diagonal counts twice instead of not at all.

    Args:
        P: What a source sends.
        Q: Merged key-query matrices.

    Returns:
        P[2d, 2d] and the mean |entry| of the rest; tr Q[:d, :d], tr Q[:d, d:2d] and the mean |entry| of Q outside
        these two diagonals.

    Source: arXiv 2405.13861 and its public code.
    """
    d = P.shape[-1] // 2
    p = P[:, -1, -1]
    own, rest = (Q[:, :d, block].diagonal(dim1=-2, dim2=-1) for block in (slice(0, d), slice(d, 2 * d)))
    on_support = own.abs().sum(-1) + rest.abs().sum(-1)
    sign = p.sign()
    others_P = (P.abs().sum((-2, -1)) - p.abs()) / (P[0].numel() - 1)
    others_Q = (Q.abs().sum((-2, -1)) - on_support) / (Q[0].numel() - 2 * d)
    traces = [sign * own.sum(-1), sign * rest.sum(-1)]
    return torch.stack([p.abs(), others_P], dim=-1), torch.stack([*traces, others_Q], dim=-1)


def _cosine(x: Tensor, y: Tensor) -> Tensor:
    """Cosine along the last axis; NaN instead of 0 where there is no direction."""
    cosine = cosine_similarity(x, y, dim=-1, eps=0)
    return cosine
