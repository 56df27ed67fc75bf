"""Fit of the TD reparameterisation to a layer's value updates, from hooks alone (theory A9 i, ii).

The rule is the single-head + temporal-shift form: the value slot of column j moves by
sum_k K_A(S_j <- S_{k-1}) (w_R R_k + w_T gamma v(S_k) + w_C v(S_{k-1})), K_A the softmax of x_src' A x_dest.
gamma is known and enters only as gamma w_T.

Shape legend: `batch` contexts, `pos` the n+1 columns of a context, `transition` its n rewards, `feature` d.
"""

from dataclasses import dataclass, replace

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from valuelens.probe._kernel import bilinear_scores, softmax_kernel
from valuelens.probe._shown import Measured

_RIDGE = 1e-14  # of the largest eigenvalue: deep layers move little, and their rule is a small one
_CANCELS = 500  # units of the last place, of the largest singular value
_EXACT, _NEARLY = 1e-10, 1e-2
_SHARPNESSES = (0.0, 1.0, 3.0, 9.0)
_DAMPING = 1e-2
_ROUNDING = 1e-13
_SETTLED = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class UpdateData(Measured):
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


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class LayerFit(Measured):
    """The rule (w, A) fitted to one layer.

    Attributes:
        w: (w_R, w_T, w_C).
        A: Feature block of the merged key-query matrix.
    """

    w: Float[Tensor, "3"]
    A: Float[Tensor, "feature feature"]


def attention(data: UpdateData, A: Float[Tensor, "feature feature"]) -> Float[Tensor, "batch pos key"]:
    """Softmax over sources of x_src' A x_dest.

    Args:
        data: One layer.
        A: Feature block.
    """
    return softmax_kernel(bilinear_scores(data.features, data.features[:, :-1], A))


def rule_terms(data: UpdateData, A: Float[Tensor, "feature feature"]) -> Float[Tensor, "batch pos 3"]:
    """Kernel averages of R_k, gamma v(S_k) and v(S_{k-1}) at every column: the rule is their product with w.

    Args:
        data: One layer.
        A: Feature block; K = softmax over sources of x_src' A x_dest.
    """
    averages: Tensor = attention(data, A) @ _quantities(data)
    return averages


def predicted_update(data: UpdateData, fit: LayerFit) -> Float[Tensor, "batch pos"]:
    """What the rule predicts for these contexts."""
    return rule_terms(data, fit.A) @ fit.w


def fit_layer(
    data: UpdateData, *, start: Float[Tensor, "feature feature"] | None = None, iterations: int = 60
) -> LayerFit:
    """Least squares of the rule on a layer's updates: w in closed form inside, A by Levenberg-Marquardt outside.

    Several starts (`start`, then even attention and three sharpnesses of the identity) until one fits exactly; the
    best on the same data is kept. The misfit has local minima, above all in deep layers whose values have nearly
    converged: start each layer from the one before, and let held-out R^2 say whether the rule was found. Where a term
    is always zero (the first layer, whose memories are empty) its weight is not identified and comes out as 0. A is
    identified up to the softmax gauge, and hardly where the kernel is saturated.

    The search reads the data in single precision: a gauge of the network moves their last digits, and a search among
    local minima would amplify that. Where the rule fits, the whole digits then sharpen it.

    Args:
        data: Fitting half; judge the fit on other contexts with `update_r2`.
        start: A guess of A, such as the fit of the layer before.
        iterations: At most, for each start.
    """
    rounded = replace(data, values=_single(data.values), update=_single(data.update))
    eye = torch.eye(data.features.shape[-1], dtype=data.features.dtype)
    starts = ([] if start is None else [_single(start)]) + [c * eye for c in _SHARPNESSES]
    best, least = eye, float("inf")
    for guess in starts:
        A, misfit = _descend(rounded, guess, iterations)
        if misfit < least:
            best, least = A, misfit
        if least < _EXACT:
            break
    if least < _NEARLY:
        best, _ = _descend(data, best, iterations)
    return fit_weights(data, best)


def fit_weights(data: UpdateData, A: Float[Tensor, "feature feature"]) -> LayerFit:
    """Least squares of w alone, for a given A.

    To rounding also where values have nearly converged, so that the terms of a correct rule all but cancel; what
    a term adds beyond the others below rounding gets no weight. Where values overflowed, weights are not numbers.

    Args:
        data: Fitting half.
        A: Feature block.
    """
    design, target = rule_terms(data, A).flatten(0, 1), data.update.flatten()[:, None]
    if not bool(design.isfinite().all() and target.isfinite().all()):  # LAPACK would stop the program
        return LayerFit(w=torch.full_like(design[0], torch.nan), A=A)
    rcond = _CANCELS * torch.finfo(design.dtype).eps
    solved = torch.linalg.lstsq(design.cpu(), target.cpu(), rcond=rcond, driver="gelsd")  # which GPUs lack
    return LayerFit(w=solved.solution[:, 0].to(design.device), A=A)


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


def _single(x: Tensor) -> Tensor:
    return x.detach().float().to(x.dtype)


def _descend(data: UpdateData, start: Tensor, iterations: int) -> tuple[Tensor, float]:
    """Levenberg-Marquardt from one start: A and the share of the squared update that is left.

    A step is accepted up to rounding, so that steps shrink until A itself has settled, not only the misfit.
    """
    A, damping = start, _DAMPING
    misfit, gradient, curvature = _linearised(data, A)
    for _ in range(iterations):
        size = curvature.diagonal().max().clamp(min=torch.finfo(A.dtype).tiny)
        damped = curvature + damping * size * torch.eye(len(curvature), dtype=A.dtype)
        step = torch.linalg.solve(damped, gradient).reshape(A.shape)
        candidate = _linearised(data, A + step)
        if candidate[0] <= misfit * (1 + _ROUNDING):
            A, damping = A + step, max(damping / 4, torch.finfo(A.dtype).eps)
            misfit, gradient, curvature = candidate
        else:
            damping *= 4
        if step.norm() <= _SETTLED * A.norm():
            break
    return A, misfit


def _linearised(data: UpdateData, A: Tensor) -> tuple[float, Tensor, Tensor]:
    """Misfit at A with the best w; J'r and J'J of its residual r and of the rule's Jacobian J in A.

    The rule's derivative in A is a covariance under the attention: d(K e)_j / dA = sum_k K_jk (e_k - (K e)_j) x_k x_j'.
    What a change of w could undo is projected out of it (variable projection, Kaufman 1975).
    """
    pattern, quantities, sources = attention(data, A), _quantities(data), data.features[:, :-1]
    terms = pattern @ quantities
    w = _solve(terms, data.update)
    each, average = (quantities @ w)[..., None], (terms @ w)[..., None]
    covariance = pattern @ (each * sources) - average * (pattern @ sources)
    jacobian = einsum(covariance, data.features, "b j source, b j dest -> b j source dest").flatten(2)
    jacobian = (jacobian - terms @ _solve(terms, jacobian)).flatten(0, 1)
    residual = (data.update - average[..., 0]).flatten()
    total = data.update.square().sum().clamp(min=torch.finfo(A.dtype).tiny)
    return float(residual.square().sum() / total), jacobian.mT @ residual, jacobian.mT @ jacobian


def _quantities(data: UpdateData) -> Tensor:
    """R_k, gamma v(S_k) and v(S_{k-1}) of every transition."""
    return torch.stack([data.rewards, data.gamma * data.values[:, 1:], data.values[:, :-1]], dim=-1)


def _solve(terms: Tensor, targets: Tensor) -> Tensor:
    """Least squares of targets [batch pos ...] on the terms."""
    design = terms.flatten(0, 1)
    gram = design.mT @ design
    ridge = (_RIDGE * gram.diagonal().max()).clamp(min=torch.finfo(gram.dtype).tiny)
    solution: Tensor = torch.linalg.solve(
        gram + ridge * torch.eye(3, dtype=gram.dtype), design.mT @ targets.flatten(0, 1)
    )
    return solution
