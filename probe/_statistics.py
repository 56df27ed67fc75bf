"""Intervals over tasks by the studentised bootstrap (bootstrap-t), and over a few training seeds by Student's t.

Value errors have heavy tails: few contexts hold most of the error. Each resample is therefore measured in its own
standard error, which keeps the stated rate (`benchmarks/coverage.md`) where BCa intervals did not.

Shape legend: `task` one value (or one numerator and denominator) for each task, `seed` one for each training seed,
`observation` values of clusters.
"""

import warnings

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

Interval = tuple[float, float]
"""Lower and upper limit."""

RESAMPLES = 999

_DIGITS = 12
"""Decimals kept of a resampled product, in units of the largest: ties, which BCa counts, do not hang on rounding."""

_Numbers = NDArray[np.float64] | np.float64

_ROUNDING = 1e-12
"""Relative standard error, or range, below which a sample counts as without spread."""

_DIGIT = 10
"""So many units in the last place of single precision are rounding too."""


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

    None too where so few tasks differ that resamples without spread are among them. Of samples without negative values
    no limit is negative.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), section 12.5; the standard error of the
    ratio is that of its linearisation.

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
    rounding = max(
        _ROUNDING, _DIGIT * torch.finfo(torch.promote_types(numerator.dtype, denominator.dtype)).eps
    )
    # In units of the largest value, so that squares of tiny residuals do not underflow.
    unit_x, unit_y = (float(np.abs(sample).max()) or 1.0 for sample in (x, y))
    x, y = x / unit_x, y / unit_y
    with np.errstate(all="ignore"), warnings.catch_warnings():
        # Resamples without spread or without denominator: the limits are not finite and the answer is none.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        ratio = x.sum() / y.sum()
        error = _standard_error(x, y)
        if not error > rounding:
            return None
        pivots = stats.bootstrap(
            (x, y),
            lambda x, y, axis: _pivot(x, y, ratio, rounding),
            paired=True,
            vectorized=True,
            n_resamples=RESAMPLES,
            confidence_level=confidence,
            method="percentile",
            rng=np.random.default_rng(seed),
        ).confidence_interval
    low, high = (float(ratio - t * error) * unit_x / unit_y for t in (pivots.high, pivots.low))
    if not np.isfinite([low, high]).all():
        return None
    return (max(low, 0.0) if min(x.min(), y.min()) >= 0 else low), high


def median_interval(
    sample: Float[Tensor, "observation"],
    cluster: Int[Tensor, "observation"],
    *,
    seed: int = 0,
    confidence: float = 0.95,
) -> Interval | None:
    """Interval of the median over observations that come in clusters, which are resampled whole (percentiles).

    None for fewer than three clusters, without spread, or if a value is not finite.

    Args:
        sample: One value an observation.
        cluster: That it belongs to, such as the rollout of a state.
        seed: Of the resampling only.
        confidence: Its level.

    Example:
        >>> import torch
        >>> low, high = median_interval(torch.arange(90.0), torch.arange(90) // 3)
        >>> low < 44.5 < high
        True
    """
    values = sample.detach().double().cpu().numpy()
    member = np.unique(cluster.cpu().numpy(), return_inverse=True)[1]
    if not len(values) or member.max() < 2 or not np.isfinite(values).all() or np.ptp(values) == 0:
        return None
    groups = [values[member == each] for each in range(member.max() + 1)]

    def median(drawn: NDArray[np.int64]) -> float:
        return float(np.median(np.concatenate([groups[each] for each in drawn])))

    limits = stats.bootstrap(
        (np.arange(len(groups)),),
        median,
        vectorized=False,
        n_resamples=RESAMPLES,
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(limits.low), float(limits.high)


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


def student_interval(sample: Float[Tensor, "seed"], *, confidence: float = 0.95) -> Interval | None:
    """Student's t interval of the mean over a handful of independent runs; none as for `mean_interval`.

    Five values have few distinct resamples, which leaves little to a bootstrap. This one is exact where the values
    are normal; take logarithms of what is log-spaced.

    Args:
        sample: One value a run.
        confidence: Its level.

    Example:
        >>> import torch
        >>> low, high = student_interval(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
        >>> round(low, 3), round(high, 3)
        (1.037, 4.963)
    """
    x = sample.detach().double().cpu().numpy()
    if len(x) < 2 or not np.isfinite(x).all() or np.ptp(x) <= _ROUNDING * np.abs(x).max():
        return None
    limits = stats.ttest_1samp(x, 0).confidence_interval(confidence)
    return float(limits.low), float(limits.high)


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
        counts: NDArray[np.int64] = np.apply_along_axis(np.bincount, -1, drawn, minlength=size)
        share: NDArray[np.float64] = counts / drawn.shape[-1]
        return share

    rows, columns = shares(left, table.shape[0]), shares(right, table.shape[1])
    mean: NDArray[np.float64] = np.asarray(np.round(((rows @ table) * columns).sum(-1), _DIGITS))
    return mean


def _pivot(x: NDArray[np.float64], y: NDArray[np.float64], centre: np.float64, rounding: float) -> _Numbers:
    """How far the ratio of each resample (last axis) lies from `centre`, in its own standard errors.

    Infinitely far where it is without spread up to rounding: values that tie may differ in their last digit.
    """
    error = _standard_error(x, y)
    pivot: _Numbers = (x.sum(-1) / y.sum(-1) - centre) / np.where(error > rounding, error, 0.0)
    return pivot


def _standard_error(x: NDArray[np.float64], y: NDArray[np.float64]) -> _Numbers:
    """Of sum(x) / sum(y) over the last axis, by its linearisation (x - ratio y) / mean(y)."""
    residual = x - x.sum(-1, keepdims=True) / y.sum(-1, keepdims=True) * y
    error: _Numbers = residual.std(-1) / np.abs(y.mean(-1)) / np.sqrt(x.shape[-1] - 1)
    return error
