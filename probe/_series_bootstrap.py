"""Rank correlations along series of checkpoints, and what resampling whole series or blocks of them says.

Checkpoints of one training run are no independent observations. Where there are many runs, a run is the unit; else
stretches of neighbouring checkpoints are drawn together. A resample is kept as how often it holds each checkpoint.

How often 95 % intervals of Spearman's correlation held its expected value (400 pairs of autoregressive sequences of 14,
correlations 0, .6, .9; 666 sets of six such pairs): with .8 carried over, checkpoints as the unit .79 to .88, blocks
.97 to .98; with nothing carried over .96 to .99 and .98 to .99. Six series .86 to .94, plain percentiles .80 to .86:
where correlations are near 1 the mean of six is skewed, and no interval in use here mends that.

Shape legend: `series`, `checkpoint` in the order of training, `predictor`, `resample`.
"""

from functools import cache

import numpy as np
from jaxtyping import Float
from scipy import stats

from valuelens.probe._statistics import Interval

_ROUNDING = 1e-9
"""Share of a rank's variance that counts as none beyond the control, as for `partial_rank_correlation`."""


def block_length(size: int) -> int:
    """Neighbouring checkpoints that are drawn together: the cube root of their number, rounded up.

    Source: Hall, Horowitz and Jing (1995), On blocking rules for the bootstrap with dependent data, for the power; the
    factor of 1 is our definition, fixed before any result.

    Args:
        size: Checkpoints of a series.

    Example:
        >>> [block_length(size) for size in (8, 14, 27, 28)]
        [2, 3, 3, 4]
    """
    return next(length for length in range(1, size + 1) if length**3 >= size)


def block_resamples(
    size: int, resamples: int, *, length: int = 1, generator: np.random.Generator
) -> Float[np.ndarray, "resample checkpoint"]:
    """How often each checkpoint stands in each moving-block resample; with a length of 1 each is drawn for itself.

    Source: Künsch (1989), The jackknife and the bootstrap for general stationary observations. The last block is cut,
    so that a resample is as long as the series.

    Args:
        size: Checkpoints of the series.
        resamples: How many are drawn.
        length: Of a block.
        generator: Of the drawing.

    Example:
        >>> times = block_resamples(6, 100, length=2, generator=np.random.default_rng(0))
        >>> times.shape, set(times.sum(-1))
        ((100, 6), {np.float64(6.0)})
    """
    starts = generator.integers(0, size - length + 1, (resamples, -(-size // length)))
    drawn = (starts[..., None] + np.arange(length)).reshape(resamples, -1)[:, :size]
    times: Float[np.ndarray, "resample checkpoint"] = np.eye(size)[drawn].sum(1)
    return times


def rank_correlations(
    x: Float[np.ndarray, "predictor checkpoint"],
    y: Float[np.ndarray, " checkpoint"],
    times: Float[np.ndarray, "resample checkpoint"],
) -> Float[np.ndarray, "predictor resample"]:
    """Spearman's correlation of each predictor with `y` in each resample, ranked anew there; NaN without spread.

    Args:
        x: Finite numbers.
        y: Finite numbers.
        times: How often each checkpoint counts; ones for the series itself.

    Example:
        >>> x, y = np.array([[1.0, 2.0, 3.0, 4.0], [4.0, 1.0, 1.0, 1.0]]), np.array([1.0, 3.0, 2.0, 9.0])
        >>> rank_correlations(x, y, np.ones((1, 4))).round(2).tolist()
        [[0.8], [-0.77]]
    """
    ranks, target = _centred_ranks(x, times), _centred_ranks(y[None], times)[0]
    spread = np.sqrt((times * ranks**2).sum(-1) * (times * target**2).sum(-1))
    with np.errstate(invalid="ignore"):
        found: Float[np.ndarray, "predictor resample"] = (times * ranks * target).sum(-1) / spread
    return found


def partial_rank_correlations(
    x: Float[np.ndarray, "predictor checkpoint"],
    y: Float[np.ndarray, " checkpoint"],
    control: Float[np.ndarray, " checkpoint"],
    times: Float[np.ndarray, "resample checkpoint"],
) -> Float[np.ndarray, "predictor resample"]:
    """The same once the ranks of a control are regressed out; NaN where nothing is left beyond them.

    Source: Kendall (1942), Partial rank correlation, in Spearman's form.

    Args:
        x: Finite numbers.
        y: Finite numbers.
        control: What is held fixed.
        times: How often each checkpoint counts.
    """
    direct = rank_correlations(x, y, times)
    # a control that does not vary holds nothing fixed
    with_x, with_y = (np.nan_to_num(rank_correlations(each, control, times)) for each in (x, y[None]))
    left = (1 - with_x**2, 1 - with_y**2)
    with np.errstate(invalid="ignore", divide="ignore"):
        partial = np.clip((direct - with_x * with_y) / np.sqrt(left[0] * left[1]), -1, 1)
    return np.where((left[0] > _ROUNDING) & (left[1] > _ROUNDING), partial, np.nan)


def resampled_interval(
    draws: Float[np.ndarray, " resample"], units: int, *, confidence: float = 0.95
) -> Interval:
    """Percentiles of a resampled statistic, as far out as so few independent units need.

    Plain percentiles of a few units are too narrow, as a normal interval beside Student's.

    Source: Hesterberg (2015), What teachers should know about the bootstrap, section 5.3: expanded percentiles.

    Args:
        draws: The statistic in each resample.
        units: What was resampled independently: series, blocks or checkpoints; at least two.
        confidence: Level.

    Example:
        >>> draws = np.random.default_rng(0).normal(size=9999)
        >>> [round(resampled_interval(draws, units)[1], 1) for units in (6, 1000)]
        [2.7, 2.0]
    """
    low, high = np.quantile(draws, _levels(units, confidence))
    return float(low), float(high)


@cache
def _levels(units: int, confidence: float) -> tuple[float, float]:
    reach = np.sqrt(units / (units - 1)) * stats.t.ppf((1 + confidence) / 2, units - 1)
    low, high = stats.norm.cdf([-reach, reach])
    return float(low), float(high)


def _centred_ranks(
    x: Float[np.ndarray, "predictor checkpoint"], times: Float[np.ndarray, "resample checkpoint"]
) -> Float[np.ndarray, "predictor resample checkpoint"]:
    """Mean ranks (ties share them) of each checkpoint among those of a resample, about their mean; halves, so exact."""
    below = (x[:, None] < x[:, :, None]) + 0.5 * (x[:, None] == x[:, :, None])
    ranks: Float[np.ndarray, "predictor resample checkpoint"] = times @ below.mT
    ranks -= times.sum(-1)[:, None] / 2
    return ranks
