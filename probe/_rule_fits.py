"""Fits of rules to the value updates of one layer: weights in closed form inside, shapes searched outside.

Softmax kernels by Levenberg-Marquardt with the weights projected out (variable projection), decays, discounts and
ridges by scipy's bounded Gauss-Newton. Shape legend as in `_rules`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from einops import einsum
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from scipy import optimize
from torch import Tensor

from valuelens.probe._reparameterisation import UpdateData, attention
from valuelens.probe._rules import Rule, RuleFit, return_quantities, square, td_quantities

_RIDGE = 1e-14
_VANISHING = 1e-12
_COLLINEAR = 1e-9
_EXACT = 1e-11
_SHARPNESSES = (0.5, 1.0, 2.0, 4.0, 8.0, 100.0)
_TRIED = 2
_FOUND = 1e-3
_ITERATIONS = 30
_DAMPING = 1e-2
_SLOW, _NOISY = 1e-3, 1e-6
_ROUNDING = 1e-13
_SETTLED = 1e-11
_EQUATIONS = 600
_NEARLY, _NEARLY_RIGHT = 0.02, 0.1
_HOPELESS, _HOPELESS_STEPS, _STEPS = 0.1, 6, 15
_STUCK = 1e6
_LARGEST = 0.999
_BOUNDS = {"decay": (0.0, 1.0), "discount": (0.0, _LARGEST), "ridge": (-16.0, 3.0)}
_GRIDS = {
    "decay": (0.0, 0.3, 0.6, 0.9),
    "discount": (0.2, 0.5, 0.8, 0.95),
    "ridge": (-8.0, -5.0, -2.0),
}


def fit_rule(rule: Rule, data: UpdateData, *, starts: Sequence[Float[Tensor, "free"]] = ()) -> RuleFit:
    """Least squares of a rule on one layer's updates.

    Args:
        rule: Which.
        data: Fitting half; the shape is searched on its first tasks, the weights are solved on all.
        starts: Guesses of the shape, such as that of the layer before.
    """
    shape = _searched(rule, searched_part(data), starts)
    return fit_weights_of(rule, data, shape)


def fit_any_signs(fit: RuleFit, data: UpdateData) -> RuleFit:
    """The same rule with weights of any signs: a layer that has its kernel but does something else.

    The shape is searched again only for a softmax kernel that explains nearly everything with the right signs.

    Args:
        fit: With the signs of the rule.
        data: Fitting half.
    """
    rule, shape = replace(fit.rule, any_signs=True), fit.shape
    few = searched_part(data)
    if fit.rule.name == "weighted softmax TD" and _EXACT < misfit(fit.rule, few, shape) < _NEARLY_RIGHT:
        shape, _ = _descend(rule, few, shape)
    return fit_weights_of(rule, data, shape)


def fit_weights_of(rule: Rule, data: UpdateData, shape: Float[Tensor, "free"]) -> RuleFit:
    """Least squares of the weights alone, for a given shape.

    Args:
        rule: Which.
        data: What it must explain.
        shape: Kept.
    """
    return RuleFit(rule=rule, weights=_signed(rule.terms(data, shape), data.update, rule), shape=shape)


def unexplained(fit: RuleFit, data: UpdateData) -> Float[Tensor, "batch"]:
    """Squared update that a rule leaves unexplained, summed over the columns of each context."""
    return (data.update - fit.predicted(data)).square().sum(-1)


def misfit(rule: Rule, data: UpdateData, shape: Float[Tensor, "free"]) -> float:
    """Share of the squared update left by the best weights for a shape, on the same data."""
    terms = rule.terms(data, shape)
    left = (data.update - terms @ _signed(terms, data.update, rule)).square().sum()
    return float(left / data.update.square().sum().clamp(min=torch.finfo(left.dtype).tiny))


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightSpread:
    """Weights solved on some tasks for a fixed shape, and what every task contributes to their error.

    Attributes:
        weights: Least squares.
        influence: Of each task; the sum of its squares over tasks is the squared standard error (cluster-robust).
        identified: Whether a weight has an effect on these tasks that others have not.
    """

    weights: Float[Tensor, "term"]
    influence: Float[Tensor, "batch term"]
    identified: Bool[Tensor, "term"]

    @property
    def error(self) -> Float[Tensor, "term"]:
        """Standard errors over tasks."""
        return self.influence.square().sum(0).sqrt()


def weight_spread(fit: RuleFit, data: UpdateData) -> WeightSpread:
    """Weights of a rule on held-out tasks, with their standard errors over tasks.

    Source: the sandwich of Liang and Zeger (1986), clusters being tasks.

    Args:
        fit: Its shape is kept.
        data: Held-out half.
    """
    terms = fit.rule.terms(data, fit.shape)
    weights = _solve(terms, data.update)
    unit, scale = _unit(terms.flatten(0, 1))
    scores = einsum(
        unit.reshape(terms.shape), data.update - terms @ weights, "batch pos term, batch pos -> batch term"
    )
    influence = torch.linalg.solve(_gram(unit), scores.mT).mT / scale
    return WeightSpread(weights=weights, influence=influence, identified=_identified(unit))


def with_kernel(fit: RuleFit, other: Float[Tensor, "free_too"]) -> Float[Tensor, "free"]:
    """The shape of a rule with the matrix A of another one.

    Args:
        fit: Of a rule with a softmax kernel.
        other: Shape of another such rule.
    """
    size = len(fit.shape) - (1 if "discount" in fit.rule.reads else 0)
    return torch.cat([other[:size], fit.shape[size:]])


def searched_part(data: UpdateData) -> UpdateData:
    """The first tasks, on which shapes are searched: some twelve columns for each entry of A.

    Args:
        data: Fitting half.
    """
    pos, d = data.features.shape[1:]
    tasks = math.ceil(max(_EQUATIONS, 12 * d * d) / pos)
    names = ("features", "rewards", "values", "update")
    return replace(data, **{name: getattr(data, name)[:tasks] for name in names})


def _searched(rule: Rule, data: UpdateData, starts: Sequence[Tensor]) -> Tensor:
    if "A" in rule.reads:
        return _kernel_shape(rule, data, starts)
    return _plain_shape(rule, data, starts) if rule.reads else data.features.new_zeros(0)


def _plain_shape(rule: Rule, data: UpdateData, starts: Sequence[Tensor]) -> Tensor:
    """Gauss-Newton with bounds on what the best weights leave, from where the misfit is least."""

    def left(point: NDArray[np.float64]) -> NDArray[np.float64]:
        terms = rule.terms(data, data.features.new_tensor(point))
        error: NDArray[np.float64] = (
            (data.update - terms @ _signed(terms, data.update, rule)).flatten().numpy()
        )
        return error / size

    def cost(point: NDArray[np.float64]) -> float:
        return float(np.square(left(point)).sum())

    size = float(data.update.square().sum().sqrt().clamp(min=torch.finfo(data.update.dtype).tiny))
    low, high = (np.array([_BOUNDS[name][side] for name in rule.reads]) for side in (0, 1))
    best = min((start.numpy() for start in starts), key=cost, default=None)
    if best is None or cost(best) > _NEARLY:
        grid = [np.array(point) for point in product(*(_GRIDS[name] for name in rule.reads))]
        best = min([*grid, *([] if best is None else [best])], key=cost)
    least = cost(best)
    if least < _EXACT:
        return data.features.new_tensor(best)
    found = optimize.least_squares(
        left,
        np.clip(best, low + 1e-9, high - 1e-9),
        bounds=(low, high),
        x_scale=high - low,
        ftol=1e-6 if least > _NEARLY else 1e-10,
        xtol=1e-10,
        gtol=1e-12,
        max_nfev=_HOPELESS_STEPS if least > _HOPELESS else _STEPS,
    )
    return data.features.new_tensor(found.x if 2 * found.cost < least else best)


def _kernel_shape(rule: Rule, data: UpdateData, starts: Sequence[Tensor]) -> Tensor:
    """The best of descents from all starts; from multiples of the identity too where they are better untouched."""
    d = data.features.shape[-1]
    discounts = [data.gamma] if "discount" in rule.reads else []
    extra = starts[0][d * d :] if starts else data.features.new_tensor(discounts)
    descents = [_descend(rule, data, start) for start in starts]
    least = min((left for _, left in descents), default=math.inf)
    if least > _FOUND:
        eye = torch.eye(d, dtype=data.features.dtype).flatten()
        even = [
            (misfit(rule, data, start), start)
            for start in (torch.cat([c * eye, extra]) for c in _SHARPNESSES)
        ]
        for before, start in sorted(even, key=lambda each: each[0])[:_TRIED]:
            if before < least or not starts:
                descents.append(_descend(rule, data, start))
                if descents[-1][1] < _EXACT:
                    break
    return min(descents, key=lambda each: each[1])[0]


def _descend(rule: Rule, data: UpdateData, start: Tensor) -> tuple[Tensor, float]:
    """Levenberg-Marquardt from one start; a step is accepted up to rounding, so that the shape itself settles."""
    shape, damping, slow = start, _DAMPING, 0
    left, gradient, curvature = _linearised(rule, data, shape)
    for iteration in range(_ITERATIONS):
        size = curvature.diagonal().max().clamp(min=torch.finfo(shape.dtype).tiny)
        step = torch.linalg.solve(
            curvature + damping * size * torch.eye(len(shape), dtype=shape.dtype), gradient
        )
        if not bool(step.isfinite().all()):
            break
        moved = shape + step
        if "discount" in rule.reads:
            moved[-1].clamp_(0, _LARGEST)
        candidate = _linearised(rule, data, moved)
        if candidate[0] <= left * (1 + _ROUNDING):
            slow = slow + 1 if left - candidate[0] <= _SLOW * left and left > _NOISY else 0
            shape, damping = moved, max(damping / 4, torch.finfo(shape.dtype).eps)
            left, gradient, curvature = candidate
            if slow > 1:
                break
        else:
            damping *= 4
        hopeless = iteration >= _HOPELESS_STEPS and left > _HOPELESS
        if hopeless or step.norm() <= _SETTLED * shape.norm() or damping > _STUCK:
            break
    return shape, left


def _linearised(rule: Rule, data: UpdateData, shape: Tensor) -> tuple[float, Tensor, Tensor]:
    """Misfit with the best weights; J'r and J'J of its residual r and of the Jacobian J in the shape.

    The derivative in A is a covariance under the attention: d(K e)_j / dA = sum_k K_jk (e_k - (K e)_j) x_k x_j'.
    What a change of the weights within the rule's cone could undo is projected out (variable projection, Kaufman
    1975).
    """
    kernel, sources, cone = attention(data, square(shape, data)), data.features[:, :-1], rule.cone(shape)
    quantities, slope = _quantities(rule, data, shape)
    terms = kernel @ quantities
    if rule.name != "weighted softmax TD":
        terms = torch.cat([terms, data.values[..., None]], dim=-1)
    weights = _signed(terms, data.update, rule)
    inner = weights[: quantities.shape[-1]]
    each = (quantities @ inner)[..., None]
    covariance = kernel @ (each * sources) - (kernel @ each) * (kernel @ sources)
    jacobian = (covariance[..., None] * data.features[:, :, None, :]).flatten(2)
    if slope is not None:
        jacobian = torch.cat([jacobian, kernel @ (slope @ inner)[..., None]], dim=-1)
    free = (torch.linalg.solve(cone, weights) > 0) | rule.any_signs
    jacobian, (unit, _) = jacobian.flatten(0, 1), _unit((terms @ cone).flatten(0, 1)[:, free])
    jacobian = jacobian - unit @ torch.linalg.solve(_gram(unit), unit.mT @ jacobian)
    residual = (data.update - terms @ weights).flatten()
    total = data.update.square().sum().clamp(min=torch.finfo(shape.dtype).tiny)
    return float(residual.square().sum() / total), jacobian.mT @ residual, jacobian.mT @ jacobian


def _quantities(rule: Rule, data: UpdateData, shape: Tensor) -> tuple[Tensor, Tensor | None]:
    """What the kernel averages, and its derivative in the discount where that is free."""
    if rule.name == "weighted softmax TD":
        return td_quantities(data), None
    if rule.name == "kernel-based value iteration":
        return td_quantities(data)[..., :2], None
    if "discount" not in rule.reads:
        return data.rewards[..., None], None
    discount, n = shape[-1], data.rewards.shape[1]
    steps = torch.arange(n, dtype=shape.dtype)
    ahead = (steps[:, None] - steps).clamp(min=0)
    slopes = (ahead * torch.pow(discount, (ahead - 1).clamp(min=0))).tril()
    return return_quantities(data, float(discount)), (data.rewards @ slopes)[..., None]


def _unit(design: Tensor) -> tuple[Tensor, Tensor]:
    """Terms of length 1 and their lengths; terms that vanish beside the others become 0, with infinite length."""
    scale = design.square().sum(0).sqrt()
    least = max(float(scale.max()) * _VANISHING, torch.finfo(design.dtype).tiny) if len(scale) else 0.0
    scale = torch.where(scale <= least, torch.inf, scale)
    return design / scale, scale


def _gram(unit: Tensor) -> Tensor:
    """With a ridge at rounding, which terms that vanish or coincide need."""
    return unit.mT @ unit + _RIDGE * torch.eye(unit.shape[1], dtype=unit.dtype)


def _identified(unit: Tensor) -> Tensor:
    """Terms of which more than rounding is left when the others are taken out."""
    own: Tensor = 1 / torch.linalg.inv(_gram(unit)).diagonal()
    identified: Tensor = (own > _COLLINEAR) & unit.any(0)
    return identified


def _solve(terms: Tensor, update: Tensor) -> Tensor:
    unit, scale = _unit(terms.flatten(0, 1))
    solution: Tensor = torch.linalg.solve(_gram(unit), unit.mT @ update.flatten())
    return solution / scale


def _signed(terms: Tensor, update: Tensor, rule: Rule) -> Tensor:
    """Least squares within the cone of a rule (Lawson and Hanson's, on the triangle of the terms)."""
    free = _solve(terms, update)
    if rule.any_signs:
        return free
    cone = rule.cone(terms)
    if bool((torch.linalg.solve(cone, free) >= 0).all()):
        return free
    unit, scale = _unit(terms.flatten(0, 1) @ cone)
    basis, factor = torch.linalg.qr(unit)
    solution, _ = optimize.nnls(factor.numpy(), (basis.mT @ update.flatten()).numpy())
    return cone @ (free.new_tensor(solution) / scale)
