"""Fits of rules that run with the same parameters at every step, to the last values alone: no layer need be seen.

Shape legend: `batch` contexts, `pos` the n+1 columns S_0..S_n, `shown` the last of them whose values are known,
`parameter` the free numbers of a run: step size, effective discount, reward scale, and what the shape of a rule reads.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy import optimize
from torch import Tensor

from valuelens.probe._reparameterisation import UpdateData
from valuelens.probe._rules import Rule, RuleFit

STEPS = (1, 2, 4, 8)
"""Numbers of steps that are tried."""

_EVALUATIONS = 12
_FAR = 1e6
_LOG_RIDGES = (-16.0, 3.0)
_BOUNDS = {
    "step": (1e-3, 4.0),
    "discount": (0.0, 1.5),
    "scale": (1e-3, 50.0),
    "decay": (0.0, 1.0),
    "A": (-2.0, 60.0),
    "ridge": _LOG_RIDGES,
}
_STARTS = {"step": 0.7, "scale": 1.0, "decay": 0.3, "A": 4.0, "ridge": -5.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A rule that runs from v = 0 with one set of parameters.

    Attributes:
        fits: The same one for every step.
        parameters: By name: `step`, `discount` (effective), `scale` (of rewards), and what the shape reads.
        cost: Half the sum of squares that it leaves on the fitting half.
    """

    fits: tuple[RuleFit, ...]
    parameters: dict[str, float]
    cost: float


def run_rule(fits: tuple[RuleFit, ...], data: UpdateData) -> Float[Tensor, "batch pos"]:
    """The last values of rules that run one after the other from v = 0.

    Args:
        fits: One a step.
        data: Features and rewards; its values and its update are not read.
    """
    values = torch.zeros_like(data.features[..., 0])
    for fit in fits:
        values = values + fit.predicted(replace(data, values=values))
    return values


def fit_run(rule: Rule, data: UpdateData, last: Float[Tensor, "batch shown"]) -> Run:
    """Least squares of a run on last values; A is a multiple of the identity, and the best of `STEPS` is kept.

    Args:
        rule: Which.
        data: Features and rewards of the fitting half.
        last: What the network returned for the last columns.
    """
    names = _names(rule)
    if not names:
        return Run(fits=(_fit(rule, {}, data),), parameters={}, cost=float(last.square().sum()) / 2)
    low, high = (np.array([_BOUNDS[name][side] for name in names]) for side in (0, 1))
    start = np.array([{**_STARTS, "discount": data.gamma}[name] for name in names])
    best, least = None, np.inf
    for steps in STEPS if rule.corrects else (1,):
        found = optimize.least_squares(
            _residual(rule, names, steps, data, last),
            np.clip(start, low + 1e-6, high - 1e-6),
            bounds=(low, high),
            max_nfev=_EVALUATIONS,
            x_scale=np.maximum(np.abs(start), 0.1),
        )
        if best is None or found.cost < least:
            parameters = dict(zip(names, map(float, found.x), strict=True))
            fits = (_fit(rule, parameters, data),) * steps
            best, least = Run(fits=fits, parameters=parameters, cost=float(found.cost)), found.cost
    assert best is not None
    return best


def discount_influence(
    run: Run, data: UpdateData, last: Float[Tensor, "batch shown"]
) -> Float[Tensor, "batch"] | None:
    """What every task contributes to the error of the effective discount; none if the rule has no discount.

    The sum of squares is its squared standard error (sandwich over tasks, linearised at the fit).

    Args:
        run: The fit.
        data: Held-out half.
        last: What the network returned there.
    """
    names = tuple(run.parameters)
    if "discount" not in names:
        return None
    rule, point = run.fits[0].rule, np.array(list(run.parameters.values()))
    residual = _residual(rule, names, len(run.fits), data, last)
    at = residual(point)
    columns = [(residual(point + 1e-5 * unit) - at) / 1e-5 for unit in np.eye(len(names))]
    jacobian = np.stack(columns, axis=-1)
    scores = (jacobian * at[:, None]).reshape(len(last), -1, len(names)).sum(1)
    influence = -scores @ np.linalg.pinv(jacobian.T @ jacobian)
    return last.new_tensor(influence[:, names.index("discount")])


def _names(rule: Rule) -> tuple[str, ...]:
    if not rule.signs:
        return ()
    weights = ("step", "discount", "scale") if rule.corrects else ("scale",)
    return tuple(dict.fromkeys((*weights, *rule.reads)))


def _fit(rule: Rule, parameters: dict[str, float], data: UpdateData) -> RuleFit:
    """Weights and shape from named parameters."""
    like, d = data.features, data.features.shape[-1]
    parts = [
        parameters["A"] * torch.eye(d, dtype=like.dtype).flatten()
        if name == "A"
        else like.new_tensor([parameters[name]])
        for name in rule.reads
    ]
    step, scale = parameters.get("step", 1.0), parameters.get("scale", 1.0)
    weights: tuple[float, ...] = ()
    if rule.discounts is not None:
        weights = (step * scale, step * parameters["discount"], -step)
    elif rule.name == "residual gradient":
        weights = (step * scale, step)
    elif rule.signs:
        weights = (step * scale, -step)
    shape = torch.cat(parts) if parts else like.new_zeros(0)
    return RuleFit(rule=rule, weights=like.new_tensor(weights), shape=shape)


def _residual(
    rule: Rule, names: tuple[str, ...], steps: int, data: UpdateData, last: Tensor
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    def residual(point: NDArray[np.float64]) -> NDArray[np.float64]:
        fit = _fit(rule, dict(zip(names, map(float, point), strict=True)), data)
        foretold = run_rule((fit,) * steps, data)[:, -last.shape[1] :]
        error: NDArray[np.float64] = (foretold - last).flatten().numpy()
        return np.nan_to_num(error, nan=_FAR, posinf=_FAR, neginf=-_FAR).clip(-_FAR, _FAR)

    return residual
