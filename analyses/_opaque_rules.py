"""Rules whose iterates are looked for in an opaque model, each fitted to the values that the model returns.

Shape legend: `batch` tasks, `pos` the n+1 columns of a context, `iterate` 0..steps.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.optimize import least_squares
from torch import Tensor

from valuelens.analyses._subject import part_of
from valuelens.models.icrl import Context
from valuelens.probe import (
    TD_WEIGHTS,
    inner_product_scores,
    kernel_regression,
    linear_td,
    monte_carlo_returns,
    softmax_kernel,
    softmax_td,
    tabular_td,
)

SOFTMAX = "weighted softmax TD"
"""The rule whose predictions patches are compared with."""

_EVALUATIONS = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedRule:
    """A rule with the parameters that bring its last iterate closest to what a model returns.

    Attributes:
        name: Of the rule.
        parameters: Step size, sharpness: those that it has.
        steps: Of the rule; at most one for each block.
        error: Squared error on tasks that were not fitted, as a share of their squared values.
    """

    name: str
    parameters: tuple[float, ...]
    steps: int
    error: float

    def iterates(self, context: Context) -> Float[Tensor, "iterate batch pos"]:
        """v_0..v_steps of every column."""
        return _FAMILIES[self.name].iterates(context, self.parameters, self.steps)

    def kernel(self, context: Context) -> Float[Tensor, "batch pos key"]:
        """Attention of softmax TD at its sharpness."""
        if self.name != SOFTMAX:
            raise TypeError(f"only {SOFTMAX} has a kernel; found {self.name}")
        return _kernel(context, self.parameters[1])

    @property
    def alpha(self) -> float:
        """Step size, the first parameter."""
        return self.parameters[0]


def fit_rules(
    context: Context, values: Float[Tensor, "batch pos"], num_layers: int
) -> Mapping[str, FittedRule]:
    """Fit softmax TD and its rivals: parameters on the first half of the tasks, errors on the second.

    Weighted softmax TD (step size, sharpness of <x, x'>), linear TD and tabular TD (step size), each with one step a
    block at most; kernel regression of truncated returns (sharpness), which does not bootstrap. Which number of steps
    is chosen together with the parameters.

    Args:
        context: What the model saw.
        values: What it returned for every column.
        num_layers: Blocks.
    """
    half = len(values) // 2
    first, second = part_of(context, slice(None, half)), part_of(context, slice(half, None))
    return {
        name: _fit(name, family, (first, second), (values[:half], values[half:]), num_layers)
        for name, family in _FAMILIES.items()
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Family:
    """A rule with free parameters, all positive."""

    iterates: Callable[[Context, Sequence[float], int], Tensor]
    starts: tuple[tuple[float, ...], ...]
    deep: bool = True


def _fit(
    name: str,
    family: _Family,
    contexts: tuple[Context, Context],
    values: tuple[Tensor, Tensor],
    num_layers: int,
) -> FittedRule:
    def residual(logs: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
        final = family.iterates(contexts[0], [*np.exp(logs)], steps)[-1]
        # Step sizes that diverge are merely bad.
        missed: NDArray[np.float64] = (final - values[0]).clamp(-1e3, 1e3).flatten().numpy()
        return missed

    fits = []
    for steps in range(1, num_layers + 1) if family.deep else (1,):
        for start in family.starts:
            found = least_squares(
                residual, np.log(start), bounds=(-5, 5), max_nfev=_EVALUATIONS, args=(steps,)
            )
            fits.append((float(found.cost), steps, tuple(float(x) for x in np.exp(found.x))))
    _, steps, parameters = min(fits)
    missed = family.iterates(contexts[1], parameters, steps)[-1] - values[1]
    error = float(missed.square().sum() / values[1].square().sum())
    return FittedRule(name=name, parameters=parameters, steps=steps, error=error)


def _softmax(context: Context, parameters: Sequence[float], steps: int) -> Tensor:
    alpha, sharpness = parameters
    return softmax_td(
        torch.zeros_like(context.features[..., 0]),
        context.rewards,
        _kernel(context, sharpness),
        gamma=context.gamma,
        num_layers=steps,
        w=(alpha * TD_WEIGHTS).to(context.rewards),
    )


def _linear(context: Context, parameters: Sequence[float], steps: int) -> Tensor:
    return linear_td(
        context.features, context.rewards, gamma=context.gamma, alpha=parameters[0], num_layers=steps
    )


def _tabular(context: Context, parameters: Sequence[float], steps: int) -> Tensor:
    return tabular_td(
        context.states, context.rewards, gamma=context.gamma, alpha=parameters[0], num_layers=steps
    )


def _smoothed_returns(context: Context, parameters: Sequence[float], steps: int) -> Tensor:
    returns = monte_carlo_returns(context.rewards, gamma=context.gamma)
    values = kernel_regression(returns, _kernel(context, parameters[0]))
    return torch.stack([torch.zeros_like(values), values])


_FAMILIES: Mapping[str, _Family] = {
    SOFTMAX: _Family(iterates=_softmax, starts=((1.0, 2.0), (0.7, 8.0))),
    "linear TD": _Family(iterates=_linear, starts=((1.0,), (4.0,))),
    "tabular TD": _Family(iterates=_tabular, starts=((0.8,),)),
    "kernel regression": _Family(iterates=_smoothed_returns, starts=((2.0,), (8.0,)), deep=False),
}


def _kernel(context: Context, sharpness: float) -> Tensor:
    x = context.features
    return softmax_kernel(sharpness * inner_product_scores(x, x[:, : context.num_transitions]))
