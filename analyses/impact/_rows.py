"""A row of the table of judgements, and how estimates over several series are resampled.

Shape legend: `predictor`, `series`, `resample`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from valuelens.analyses.impact._config import SERIES_LEAST
from valuelens.probe import Interval, block_length, block_resamples, resampled_interval

JUDGEMENT = (
    *("statistic", "predictor", "target", "series", "recipe", "rival", "checkpoint"),
    *("estimate", "low", "high", "naive_low", "naive_high", "n", "primary", "reason"),
)
"""Columns of the table of judgements: a row for each number over a series (`series` its name) or over all (`pooled`).
`rival` and `checkpoint` are empty where they say nothing; `naive` limits treat checkpoints as independent; `n` counts
checkpoints; `reason` says why the estimate or its interval is missing."""

POOLED = "pooled"
RESAMPLES = 999

CORRELATION_LEAST = 8
"""Checkpoints of a series below which nothing is correlated: at eight, .6 has an interval of about -.2 to .9."""

SERIES_UNIT = 6
"""Series from which on they are the unit of an interval; below, blocks of neighbouring checkpoints are."""

FEW_SERIES = f"fewer than {SERIES_UNIT} series"
NO_SPREAD = "resamples do not differ"


def too_few(size: int) -> str:
    """Why a series of this many checkpoints is not correlated; empty if it is.

    Args:
        size: Checkpoints with a gain.

    Example:
        >>> too_few(2), too_few(7), too_few(8)
        ('fewer than 3 checkpoints', 'fewer than 8 checkpoints', '')
    """
    return next(
        (f"fewer than {least} checkpoints" for least in (SERIES_LEAST, CORRELATION_LEAST) if size < least), ""
    )


def row(statistic: str, predictor: str, series: str, **cells: Any) -> dict[str, Any]:
    """A row of the table; what is not given is missing.

    Args:
        statistic: What was measured.
        predictor: Of whom.
        series: Where.
        **cells: Of the other columns; `interval` and `naive` are pairs or none.
    """
    low, high = cells.pop("interval", None) or (np.nan, np.nan)
    naive_low, naive_high = cells.pop("naive", None) or (np.nan, np.nan)
    numbers = {
        "estimate": np.nan,
        "low": low,
        "high": high,
        "naive_low": naive_low,
        "naive_high": naive_high,
        "n": 0,
    }
    words = dict.fromkeys(("target", "recipe", "rival", "checkpoint", "reason"), "")
    filled = {
        "statistic": statistic,
        "predictor": predictor,
        "series": series,
        **words,
        **numbers,
        "primary": False,
    }
    return {**filled, **cells}


def interval_of(draws: Float[np.ndarray, " resample"], units: int) -> Interval | None:
    """Limits of a resampled number; none where resamples do not differ.

    Args:
        draws: The number in each resample.
        units: That were resampled independently.
    """
    if units < 2 or not draws.size or not np.isfinite(draws).all() or np.ptp(draws) == 0:
        return None
    return resampled_interval(draws, units)


class Resampling:
    """Which checkpoints, and which series, stand in each resample: the same ones for every predictor.

    Args:
        sizes: Checkpoints of each series.
        seed: Of the drawing.
    """

    def __init__(self, sizes: Sequence[int], seed: int) -> None:
        draw = [np.random.default_rng([seed, place]) for place in range(len(sizes) + 1)]
        lengths = [block_length(size) for size in sizes]
        self.sizes = list(sizes)
        self.block_units = [-(-size // length) for size, length in zip(sizes, lengths, strict=True)]
        self.blocks = [
            block_resamples(size, RESAMPLES, length=length, generator=each)
            for size, length, each in zip(sizes, lengths, draw[:-1], strict=True)
        ]
        self.naive = [
            block_resamples(size, RESAMPLES, generator=each)
            for size, each in zip(sizes, draw[:-1], strict=True)
        ]
        self.series = draw[-1].integers(0, max(1, len(sizes)), (RESAMPLES, len(sizes)))

    @property
    def over_series(self) -> bool:
        """Whether series are the unit."""
        return len(self.sizes) >= SERIES_UNIT

    @property
    def units(self) -> int:
        """Independent units of a number over all series."""
        return len(self.sizes) if self.over_series else sum(self.block_units)

    def pooled(
        self,
        estimates: Float[np.ndarray, "predictor series"],
        blocks: Sequence[Float[np.ndarray, "predictor resample"]],
    ) -> Float[np.ndarray, "predictor resample"]:
        """Mean over series in each resample.

        Args:
            estimates: Within each series.
            blocks: The same in each resample of blocks, a table a series.
        """
        if self.over_series:
            mean: Float[np.ndarray, "predictor resample"] = estimates[:, self.series].mean(-1)
        else:
            mean = np.mean(blocks, axis=0) if blocks else np.empty((len(estimates), 0))
        return mean
