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


def share_interval(hits: int, total: int, *, confidence: float = 0.95) -> Interval | None:
    """Exact interval of a share (Clopper and Pearson's), which says something even where none or all hit.

    Args:
        hits: Tasks with the property.
        total: All tasks; without any there is no interval.
        confidence: Its level.

    Example:
        >>> low, high = share_interval(0, 256)
        >>> low, round(high, 4)
        (0.0, 0.0143)
    """
    if total < 1:
        return None
    limits = stats.binomtest(hits, total).proportion_ci(confidence, method="exact")
    return float(limits.low), float(limits.high)


def _ratio(x: NDArray[np.float64], y: NDArray[np.float64], axis: int) -> NDArray[np.float64] | np.float64:
    ratio: NDArray[np.float64] = np.round(x.sum(axis) / y.sum(axis), _DIGITS)
    return ratio
