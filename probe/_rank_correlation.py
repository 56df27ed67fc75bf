"""Partial rank correlation: do two numbers rise together once others are held fixed?

Shape legend: `sample` observations, `control` numbers that are held fixed, `cluster` observations that belong together.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from valuelens.probe._statistics import Interval

_RESAMPLES = 999

_ROUNDING = 1e-9
"""Share of a rank's variance that counts as none beyond the controls."""

_Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCorrelation:
    """A rank correlation, its sign that of the association.

    Attributes:
        estimate: In [-1, 1]; NaN where one of the two does not vary beyond the controls.
        interval: Where resampling gives one.
        n: Observations.
    """

    estimate: float
    interval: Interval | None
    n: int


def partial_rank_correlation(
    x: Float[Tensor, " sample"],
    y: Float[Tensor, " sample"],
    controls: Float[Tensor, "sample control"] | None = None,
    *,
    cluster: Int[Tensor, " sample"] | None = None,
    seed: int = 0,
    confidence: float = 0.95,
) -> RankCorrelation:
    """Correlation of ranks (ties share their mean rank) that is left once ranks of the controls are regressed out.

    Its interval is the BCa bootstrap's over clusters, ranked anew in each resample: states of one rollout, or of one
    prompt, are no independent observations.

    Source: Kendall (1942), Partial rank correlation, in Spearman's form; Efron (1987), Better bootstrap confidence
    intervals.

    Args:
        x: One number an observation.
        y: Another.
        controls: What is held fixed; none for Spearman's correlation.
        cluster: Which observations are drawn together; each for itself if not given.
        seed: Of the resampling only.
        confidence: Level of the interval.

    Raises:
        ValueError: A number is not finite.

    Example:
        >>> import torch
        >>> time = torch.arange(40.0)
        >>> x, y = time + torch.sin(9 * time), time - torch.sin(9 * time)
        >>> round(partial_rank_correlation(x, y).estimate, 2)
        0.99
        >>> round(partial_rank_correlation(x, y, time[:, None]).estimate, 2)
        -0.77
    """
    given = [x, y] if controls is None else [x, y, *controls.unbind(-1)]
    columns = [each.detach().double().cpu().numpy() for each in given]
    if not np.isfinite(columns).all():
        wrong = int(np.flatnonzero(~np.isfinite(columns).all(0))[0])
        raise ValueError(
            f"ranks take finite numbers; found one that is not; observation {wrong}, partial_rank_correlation"
        )
    ties = [np.unique(column, return_inverse=True)[1] for column in columns]
    member = np.arange(len(columns[0])) if cluster is None else _numbered(cluster)

    def statistic(drawn: NDArray[np.int64]) -> float:
        times = np.bincount(drawn, minlength=int(member.max()) + 1)[member].astype(np.float64)
        return _weighted(ties, times)

    estimate = _weighted(ties, np.ones(len(member)))
    interval = (
        _interval(statistic, int(member.max()) + 1, seed, confidence) if np.isfinite(estimate) else None
    )
    return RankCorrelation(estimate=estimate, interval=interval, n=len(member))


def _numbered(cluster: Int[Tensor, " sample"]) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = np.unique(cluster.cpu().numpy(), return_inverse=True)[1]
    return numbers


def _weighted(ties: list[NDArray[np.int64]], times: _Floats) -> float:
    """The correlation if each observation stood there `times` times."""
    ranks = np.stack([_midranks(tie, times) for tie in ties])
    centred = ranks - (ranks @ times)[:, None] / times.sum()
    product = (centred * times) @ centred.T
    left = product[:2, 2:] @ np.linalg.pinv(product[2:, 2:], hermitian=True) if len(ties) > 2 else 0.0
    rest = product[:2, :2] - (left @ product[2:, :2] if len(ties) > 2 else 0.0)
    spread = rest.diagonal()
    if not (spread > _ROUNDING * product.diagonal()[:2]).all():
        return float("nan")
    return float(np.clip(rest[0, 1] / np.sqrt(spread.prod()), -1, 1))


def _midranks(tie: NDArray[np.int64], times: _Floats) -> _Floats:
    counts = np.bincount(tie, weights=times)
    ranks: _Floats = (counts.cumsum() - (counts - 1) / 2)[tie]
    return ranks


def _interval(
    statistic: Callable[[NDArray[np.int64]], float], clusters: int, seed: int, confidence: float
) -> Interval | None:
    if clusters < 3:
        return None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        limits = stats.bootstrap(
            (np.arange(clusters),),
            statistic,
            vectorized=False,
            n_resamples=_RESAMPLES,
            confidence_level=confidence,
            method="BCa",
            rng=np.random.default_rng(seed),
        ).confidence_interval
    low, high = float(limits.low), float(limits.high)
    return (low, high) if np.isfinite([low, high]).all() else None
