"""Fit of the TD reparameterisation to a layer's value updates, from hooks alone (theory A9 i, ii).

The rule is the single-head + temporal-shift form: the value slot of column j moves by
sum_k K_A(S_j <- S_{k-1}) (w_R R_k + w_T gamma v(S_k) + w_C v(S_{k-1})), K_A the softmax of x_src' A x_dest.
gamma is known and enters only as gamma w_T.

Shape legend: `batch` contexts, `pos` the n+1 columns of a context, `transition` its n rewards, `feature` d.
"""

from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

_RIDGE = 1e-14  # of the largest eigenvalue: deep layers move little, and their rule is a small one
_EXACT = 1e-12
_SHARPNESSES = (0.5, 4.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateData:
    """One layer's value updates on some contexts, and what the rule may use to explain them.

    Attributes:
        features: x(S_0)..x(S_n).
        rewards: R_1..R_n.
        values: v before the layer.
        update: v after the layer minus v before.
        gamma: Discount.
    """

    features: Float[Tensor, "batch pos feature"]
    rewards: Float[Tensor, "batch transition"]
    values: Float[Tensor, "batch pos"]
    update: Float[Tensor, "batch pos"]
    gamma: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerFit:
    """The rule (w, A) fitted to one layer.

    Attributes:
        w: (w_R, w_T, w_C).
        A: Feature block of the merged key-query matrix.
    """

    w: Float[Tensor, "3"]
    A: Float[Tensor, "feature feature"]


def rule_terms(data: UpdateData, A: Float[Tensor, "feature feature"]) -> Float[Tensor, "batch pos 3"]:
    """Kernel averages of R_k, gamma v(S_k) and v(S_{k-1}) at every column: the rule is their product with w.

    Args:
        data: One layer.
        A: Feature block; K = softmax over sources of x_src' A x_dest.
    """
    sources = data.features[:, :-1]
    scores = einsum(sources, A, data.features, "b k i, i j, b q j -> b q k")
    terms = [data.rewards, data.gamma * data.values[:, 1:], data.values[:, :-1]]
    averages: Tensor = torch.softmax(scores, dim=-1) @ torch.stack(terms, dim=-1)
    return averages


def predicted_update(data: UpdateData, fit: LayerFit) -> Float[Tensor, "batch pos"]:
    """What the rule predicts for these contexts."""
    return rule_terms(data, fit.A) @ fit.w


def fit_layer(
    data: UpdateData, *, start: Float[Tensor, "feature feature"] | None = None, iterations: int = 60
) -> LayerFit:
    """Least squares of the rule on a layer's updates: w in closed form inside, A by L-BFGS outside.

    Several starts (`start`, then two sharpnesses of the identity) until one fits exactly; the best on the same data
    is kept. Where a term is always zero (the first layer, whose memories are empty) its weight is not identified and
    comes out as 0. A is identified up to the softmax gauge, and hardly where the kernel is saturated. Deep layers
    whose values have nearly converged have a narrow basin: start them from the layer before.

    Args:
        data: Fitting half; judge the fit on other contexts with `update_r2`.
        start: A guess of A, such as the fit of the layer before.
        iterations: Of L-BFGS, for each start.
    """
    eye = torch.eye(data.features.shape[-1], dtype=data.features.dtype)
    starts = ([] if start is None else [start]) + [c * eye for c in _SHARPNESSES]
    best, least = eye, float("inf")
    for guess in starts:
        A = _descend(data, guess, iterations)
        misfit = float(_misfit(data, A))
        if misfit < least:
            best, least = A, misfit
        if least < _EXACT:
            break
    return fit_weights(data, best)


def fit_weights(data: UpdateData, A: Float[Tensor, "feature feature"]) -> LayerFit:
    """Least squares of w alone, for a given A."""
    return LayerFit(w=_solve(rule_terms(data, A), data.update), A=A)


def update_r2_sums(data: UpdateData, fit: LayerFit) -> tuple[Float[Tensor, "batch"], Float[Tensor, "batch"]]:
    """Residual and total sums of squares of the update, for each context; R^2 = 1 - sum / sum.

    The total is taken about zero: a rule that predicts no update at all scores 0.
    """
    residual = data.update - predicted_update(data, fit)
    return residual.square().sum(-1), data.update.square().sum(-1)


def update_r2(data: UpdateData, fit: LayerFit) -> float:
    """Share of the squared update that the rule explains on these contexts."""
    residual, total = update_r2_sums(data, fit)
    return float(1 - residual.sum() / total.sum())


def _descend(data: UpdateData, start: Tensor, iterations: int) -> Tensor:
    A = start.detach().clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [A],
        max_iter=iterations,
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-14,  # the misfit is relative: a gradient of 1e-7, the default, is far from 0
        tolerance_change=0.0,
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = _misfit(data, A)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return A.detach() if bool(torch.isfinite(A).all()) else start


def _misfit(data: UpdateData, A: Tensor) -> Tensor:
    terms = rule_terms(data, A)
    residual = data.update - terms @ _solve(terms, data.update)
    return residual.square().sum() / data.update.square().sum().clamp(min=torch.finfo(A.dtype).tiny)


def _solve(terms: Tensor, update: Tensor) -> Tensor:
    design = terms.reshape(-1, 3)
    gram = design.mT @ design
    ridge = _RIDGE * gram.diagonal().max().clamp(min=torch.finfo(gram.dtype).tiny)
    return torch.linalg.solve(gram + ridge * torch.eye(3, dtype=gram.dtype), design.mT @ update.reshape(-1))
