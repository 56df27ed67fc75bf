"""How fast do iterates approach a fixed point, what is left of the error, and what more context would leave of it?

Shape legend: `iterate` 0..L, `layer` L, `batch` contexts, `place` states or columns, `length` context lengths,
`task`, `state` S.
"""

import warnings

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from valuelens.probe._kernel import TD_WEIGHTS, StateKernel, value_iteration_matrix
from valuelens.probe._statistics import RESAMPLES, Interval

RATE_FLOOR = 1e-9
"""Errors at or below it are rounding: no ratio is taken from there on (theory A5)."""

_POINTS = 3
_COVERED = 8


def sup_distance(
    values: Float[Tensor, "*iterate batch place"],
    target: Float[Tensor, "batch place"],
    kept: Bool[Tensor, "batch place"],
) -> Float[Tensor, "*iterate batch"]:
    """max |v - target| over the kept places of each context: the distance that the infinity norm contracts.

    Args:
        values: Iterates, or one value function.
        target: The empirical fixed point (`fixed_point`), or the true value.
        kept: `StateKernel.visited`, or the columns that count; at least one in each context.

    Example:
        >>> sup_distance(torch.tensor([[1.0, 9.0]]), torch.zeros(1, 2), torch.tensor([[True, False]]))
        tensor([1.])
    """
    return (values - target).abs().where(kept, 0).amax(-1)


def contraction_ratios(
    errors: Float[Tensor, "iterate batch"], floor: float = RATE_FLOOR
) -> Float[Tensor, "layer batch"]:
    """By what factor each layer changed the error; NaN where the error before it was at most `floor`.

    Towards the fixed point of the layer no ratio exceeds `contraction_norm` (theory A5, derived).

    Args:
        errors: Distance to the fixed point after 0..L layers.
        floor: Below it an error is rounding.
    """
    before = errors[:-1]
    return (errors[1:] / before).where(before > floor, torch.nan)


def error_bound(
    start: Float[Tensor, "batch"],
    norms: Float[Tensor, "layer batch"],
    left: Float[Tensor, "batch"] | float = 0.0,
) -> Float[Tensor, "iterate batch"]:
    """norm_1 ... norm_l e_0 + what is left: the most that l layers can leave of an error e_0.

    With the distance to the fixed point as e_0 and the fixed point's own distance to the true value as `left` it
    bounds the distance to the true value (triangle inequality). With 1 - C for the norm it has the form of Theorem 2.

    Source: derived (theory A5); the form is that of arXiv 2605.07333, Theorem 2, by its audit.

    Args:
        start: e_0.
        norms: Factor of each layer: `contraction_norm`, `contraction_bound`, or a rate such as `spectral_radius`.
        left: Error of the fixed point itself.
    """
    factors = torch.cat([torch.ones_like(norms[:1]), norms.cumprod(0)])
    return start * factors + left


def depth_rate(
    errors: Float[Tensor, "iterate batch"], *, first: int = 0, floor: float = RATE_FLOOR
) -> Float[Tensor, "batch"]:
    """The geometric rate of a decay over depth: exp of the least-squares slope of log error against the layer.

    Fitted over the iterates from `first` on, up to the first whose error is at most `floor`; NaN if these are fewer
    than three. Our definition. It lies near the spectral radius where the decay is late, and may exceed it early.

    Args:
        errors: Distance to the fixed point after 0..L layers.
        first: Iterate to start from; larger ones show the late rate.
        floor: Below it an error is rounding.

    Example:
        >>> depth_rate(torch.tensor([[1.0], [0.5], [0.25]]))
        tensor([0.5000])
    """
    rest = errors[first:]
    kept = ((rest > floor) & rest.isfinite()).cummin(0).values
    layer = torch.arange(len(rest), dtype=errors.dtype, device=errors.device)[:, None].expand_as(rest)
    count = kept.sum(0).to(errors.dtype)
    centred = (layer - layer.where(kept, 0).sum(0) / count).where(kept, 0)
    slope = (centred * rest.log().where(kept, 0)).sum(0) / centred.square().sum(0)
    return slope.exp().where(count >= _POINTS, torch.nan)


def floor_slope(
    errors: Float[Tensor, "length task"],
    lengths: Float[Tensor, "length"],
    kept: Bool[Tensor, "length task"],
) -> float:
    """Least-squares slope of log mean error against log n; -1/2 is the statistical law of Theorem 2.

    The mean is over the kept tasks, and lengths that keep fewer than 8 are left out; NaN if fewer than two remain,
    or a mean error is not positive and finite. Our definition.

    Args:
        errors: Of each task at each context length.
        lengths: n.
        kept: Which count, such as contexts that visit every state.

    Example:
        >>> n = torch.tensor([10.0, 1000.0])
        >>> round(floor_slope(n[:, None].rsqrt().expand(2, 8), n, torch.ones(2, 8, dtype=torch.bool)), 6)
        -0.5
    """
    x, weight, n = _enough(errors, lengths, kept)
    return float(_slope(n, *x, *weight, axis=-1)) if len(n) > 1 else float("nan")


def floor_slope_interval(
    errors: Float[Tensor, "length task"],
    lengths: Float[Tensor, "length"],
    kept: Bool[Tensor, "length task"],
    *,
    seed: int = 0,
) -> Interval | None:
    """95 % interval of `floor_slope`, BCa, resampling tasks with all their lengths; none without a slope or spread.

    Args:
        errors: Of each task at each context length.
        lengths: n.
        kept: Which count.
        seed: Of the resampling only.
    """
    x, weight, n = _enough(errors, lengths, kept)
    if len(n) < 2 or not np.isfinite(x).all():
        return None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        # Without spread BCa's limits are NaN: the answer is none.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        drawn = stats.bootstrap(
            (*x, *weight),
            lambda *data, axis: _slope(n, *data, axis=axis),
            paired=True,
            vectorized=True,
            n_resamples=RESAMPLES,
            rng=np.random.default_rng(seed),
        )
    low, high = (float(limit) for limit in drawn.confidence_interval)
    return (low, high) if np.isfinite([low, high]).all() and low < high else None


def deep_values(
    kernel: StateKernel, *, gamma: float, w: Float[Tensor, "3"] = TD_WEIGHTS, doublings: int
) -> Float[Tensor, "batch state"]:
    """Values of all states after 2^doublings equal layers from v = 0: what depth alone can reach.

    Unlike `fixed_point` it has values at states that were never a source, and it is infinite or NaN where the
    iteration diverges. An affine map applied twice is an affine map, so it costs `doublings` products.

    Args:
        kernel: Attention by state.
        gamma: Discount.
        w: (w_R, w_T, w_C).
        doublings: Its logarithm.
    """
    linear = value_iteration_matrix(kernel, gamma=gamma, w=w)
    values = (w[0] * kernel.r_hat)[..., None]
    for _ in range(doublings):
        linear, values = linear @ linear, linear @ values + values
    return values[..., 0]


def _enough(
    errors: Tensor, lengths: Tensor, kept: Tensor
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Errors and weights of the lengths that keep enough tasks, and those lengths."""
    rows = kept.sum(-1) >= _COVERED
    shown, weight = errors[rows].where(kept[rows], 0), kept[rows]
    x, y, n = (t.detach().double().cpu().numpy() for t in (shown, weight, lengths[rows]))
    return x, y, n


def _slope(n: NDArray[np.float64], *data: NDArray[np.float64], axis: int) -> NDArray[np.float64] | np.float64:
    x, weight = data[: len(n)], data[len(n) :]
    with np.errstate(all="ignore"):
        logs = np.stack([np.log(a.sum(axis) / b.sum(axis)) for a, b in zip(x, weight, strict=True)], axis=-1)
    centred = np.log(n) - np.log(n).mean()
    slope: NDArray[np.float64] | np.float64 = logs @ centred / np.square(centred).sum()
    return slope
