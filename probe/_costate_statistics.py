"""How well the costates of a group say which way the value gradient points at the state that the group shares.

Shape legend: `batch` rollouts of any groups, `group` start states, each with n rollouts, `layer` those asked for,
`d_model` width of the residual stream.

The n costates c_i = (R_i - baseline_i) s_i of a group hang together weakly, as each baseline holds the other rewards.
With rewards R_i and scores s_i of mean 0 drawn independently, mu the value gradient and the leave-one-out baseline,
    E c_i = mu,    E c_i . c_j = |mu|^2 (1 + 1/(n-1)^2)    for i != j,
so that tr(sample covariance) / n, which takes them for independent, misses |mu|^2 / (n-1)^2 of the mean's variance: at
n = 16 and a signal-to-noise ratio of .1 that is .7 % of it. Here nothing is missed. [derived; enumerated in the test]
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from valuelens.probe._advantages import Baseline
from valuelens.probe._shown import Measured

_ROUNDING = 1e-12
"""Of squared costates: what is left of them below it is no noise."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class CostateMoments(Measured):
    """Sums over the rollouts of each group, in float64; those of more rollouts are added with `+`.

    Attributes:
        count: Rollouts.
        total: Sum of their costates.
        squares: Sum of their squared norms.
    """

    count: Int[Tensor, " group"]
    total: Float[Tensor, "group layer d_model"]
    squares: Float[Tensor, "group layer"]

    def __add__(self, other: "CostateMoments") -> "CostateMoments":
        return CostateMoments(
            count=self.count + other.count,
            total=self.total + other.total,
            squares=self.squares + other.squares,
        )


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class CostateStatistics(Measured):
    """What the rollouts of each group say of its value gradient.

    Attributes:
        mean: Estimate of dV/dh, unbiased.
        standard_error: Norm of the mean's standard error: the root of the trace of its covariance.
        squared_norm: Estimate of |dV/dh|^2, unbiased, so that it may be negative; that of the mean itself would be too
            large by the squared standard error (our definition).
        covariance_trace: Of a single rollout's costate.
    """

    mean: Float[Tensor, "group layer d_model"]
    standard_error: Float[Tensor, "group layer"]
    squared_norm: Float[Tensor, "group layer"]
    covariance_trace: Float[Tensor, "group layer"]

    @property
    def signal_to_noise(self) -> Float[Tensor, " layer"]:
        """Squared norm of the mean / trace of the covariance of one rollout, each summed over groups first.

        Groups without costates add nothing to either sum; where all are so, it is not a number. Where the costates of
        no group differ by more than rounding, it is infinite. Our definition.
        """
        signal, noise = self.squared_norm.sum(0), self.covariance_trace.sum(0)
        return signal / torch.where(noise > _ROUNDING * signal, noise, 0.0)


def costate_moments(
    costates: Float[Tensor, "batch layer d_model"], group: Int[Tensor, " batch"], num_groups: int
) -> CostateMoments:
    """Sums of some rollouts, to be added up over micro-batches: nothing of the size of all rollouts is kept.

    Args:
        costates: Of rollouts at the start state that their group shares.
        group: Number of each rollout's group, 0, 1, ...
        num_groups: How many there are in all.

    Example:
        >>> parts = [costate_moments(torch.ones(2, 1, 3), torch.tensor([0, each]), 2) for each in (0, 1)]
        >>> (parts[0] + parts[1]).count.tolist()
        [3, 1]
    """
    costates, group = costates.double(), group.to(costates.device)
    total = costates.new_zeros(num_groups, *costates.shape[1:]).index_add(0, group, costates)
    squares = costates.square().sum(-1)
    return CostateMoments(
        count=torch.bincount(group, minlength=num_groups),
        total=total,
        squares=squares.new_zeros(num_groups, squares.shape[1]).index_add(0, group, squares),
    )


def costate_statistics(moments: CostateMoments, *, baseline: Baseline | None) -> CostateStatistics:
    """Mean costate of each group with its standard error, and what a signal-to-noise ratio needs.

    With advantages divided by the group's standard deviation the mean is no value gradient, and the standard error
    holds to first order in 1/n only.

    Source: derived (theory B2; the module's docstring).

    Args:
        moments: Of all rollouts.
        baseline: That of their advantages: against `group-mean` costates are multiplied by n/(n-1) here; None where
            a weight hangs on its own rollout only (a critic's).

    Raises:
        ValueError: A group has fewer than two rollouts.

    Example:
        >>> costates = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
        >>> found = costate_statistics(costate_moments(costates, torch.tensor([0, 0]), 1), baseline=None)
        >>> found.mean.tolist(), round(float(found.standard_error), 4), round(float(found.squared_norm), 4)
        ([[[0.5, 0.5]]], 0.7071, 0.0)
    """
    few = (moments.count < 2).nonzero()
    if len(few):
        found = f"found {int(moments.count[few[0]])} in group {int(few[0])}"
        raise ValueError(f"a group must have at least two rollouts; {found}; costate_statistics")
    n = moments.count.double()[:, None]
    factor = n / (n - 1) if baseline == "group-mean" else torch.ones_like(n)
    mean = (factor / n)[..., None] * moments.total
    plain = mean.square().sum(-1)
    trace = (factor.square() * moments.squares - n * plain).clamp(min=0) / (n - 1)
    shared = torch.zeros_like(n) if baseline is None else (n - 1) ** -2
    squared_norm = (plain - trace / n) / (1 + shared)
    return CostateStatistics(
        mean=mean,
        standard_error=(trace / n + shared * squared_norm).clamp(min=0).sqrt(),
        squared_norm=squared_norm,
        covariance_trace=trace + shared * squared_norm,
    )


def rollouts_needed(signal_to_noise: float, *, cosine: float = 0.9) -> float:
    """Rollouts of a group whose mean costate points along the value gradient with this cosine.

    In many dimensions noise is orthogonal to the gradient, so that cos^2 = |mu|^2 / (|mu|^2 + tr / n), hence
    n = cos^2 / (1 - cos^2) / signal-to-noise. Our definition; infinite where there is no signal.

    Args:
        signal_to_noise: Of `CostateStatistics`.
        cosine: Wanted, in (0, 1).

    Raises:
        ValueError: The cosine lies elsewhere.

    Example:
        >>> round(rollouts_needed(0.1), 1)
        42.6
    """
    if not 0 < cosine < 1:
        raise ValueError(f"the cosine must lie in (0, 1); found {cosine}; rollouts_needed")
    return cosine**2 / (1 - cosine**2) / signal_to_noise if signal_to_noise > 0 else math.inf
