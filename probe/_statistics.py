"""Intervals by resampling tasks: scipy's BCa bootstrap, with the task as the unit.

Shape legend: `task` one value (or one numerator and denominator) for each task.
"""

import warnings

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

Interval = tuple[float, float]
"""Lower and upper limit."""

RESAMPLES = 999

_DIGITS = 12
"""Decimals kept of a resampled ratio, whose terms are at most 1: ties, which BCa counts, do not hang on rounding."""


def mean_interval(
    sample: Float[Tensor, "task"], *, seed: int = 0, confidence: float = 0.95
) -> Interval | None:
    """Interval of the mean over tasks; none for fewer than two tasks, without spread, or if one is not finite.

    Args:
        sample: One value a task.
        seed: Of the resampling only.
        confidence: Its level.
    """
    return ratio_interval(sample, torch.ones_like(sample), seed=seed, confidence=confidence)


def ratio_interval(
    numerator: Float[Tensor, "task"],
    denominator: Float[Tensor, "task"],
    *,
    seed: int = 0,
    confidence: float = 0.95,
) -> Interval | None:
    """Interval of sum(numerator) / sum(denominator), resampling tasks as pairs; none as for `mean_interval`.

    Args:
        numerator: One value a task.
        denominator: Of the same task.
        seed: Of the resampling only.
        confidence: Its level.

    Example:
        >>> import torch
        >>> low, high = ratio_interval(torch.arange(1.0, 65), torch.ones(64))
        >>> low < 32.5 < high
        True
    """
    x, y = (sample.detach().double().cpu().numpy() for sample in (numerator, denominator))
    if len(x) < 2 or not np.isfinite([x, y]).all():
        return None
    # In units of the largest value, so that cubes of tiny residuals do not underflow.
    unit_x, unit_y = (float(np.abs(sample).max()) or 1.0 for sample in (x, y))
    x, y = x / unit_x, y / unit_y
    with np.errstate(all="ignore"), warnings.catch_warnings():
        # Without spread, or where denominators are 0, BCa's limits are NaN: the answer is none.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        drawn = stats.bootstrap(
            (x, y),
            _ratio,
            paired=True,
            vectorized=True,
            n_resamples=RESAMPLES,
            confidence_level=confidence,
            rng=np.random.default_rng(seed),
        )
    low, high = (float(limit) * unit_x / unit_y for limit in drawn.confidence_interval)
    return (low, high) if np.isfinite([low, high]).all() else None


def inner_product_interval(
    products: Float[Tensor, "left right"], *, seed: int = 0, confidence: float = 0.95
) -> Interval | None:
    """Interval of <E g, E g> from inner products of single tasks, each half resampled for itself.

    The estimate is the mean of `products`: the inner product of the means of two independent halves. None for fewer
    than two tasks a half, without spread, or if something is not finite.

    Args:
        products: <g_i, g_j> of task i of one half and task j of the other.
        seed: Of the resampling only.
        confidence: Its level.
    """
    table = products.detach().double().cpu().numpy()
    unit = float(np.abs(table).max(initial=0)) or 1.0
    if min(table.shape) < 2 or not np.isfinite(table).all():
        return None

    def mean(left: NDArray[np.int64], right: NDArray[np.int64], axis: int) -> NDArray[np.float64]:
        return _mean_of_product(table / unit, left, right)

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        drawn = stats.bootstrap(
            tuple(np.arange(size) for size in table.shape),
            mean,
            vectorized=True,
            n_resamples=RESAMPLES,
            confidence_level=confidence,
            rng=np.random.default_rng(seed),
        )
    low, high = (float(limit) * unit for limit in drawn.confidence_interval)
    return (low, high) if np.isfinite([low, high]).all() else None


def _mean_of_product(
    table: NDArray[np.float64], left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.float64]:
    def shares(drawn: NDArray[np.int64], size: int) -> NDArray[np.float64]:
        share: NDArray[np.float64] = (drawn[..., None] == np.arange(size)).mean(-2)
        return share

    rows, columns = shares(left, table.shape[0]), shares(right, table.shape[1])
    mean: NDArray[np.float64] = np.asarray(np.round(((rows @ table) * columns).sum(-1), _DIGITS))
    return mean


def _ratio(x: NDArray[np.float64], y: NDArray[np.float64], axis: int) -> NDArray[np.float64] | np.float64:
    ratio: NDArray[np.float64] = np.round(x.sum(axis) / y.sum(axis), _DIGITS)
    return ratio
