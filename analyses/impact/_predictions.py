"""How far off a predictor of gain is: a line through the other checkpoints of a series, and its error.

Shape legend: `predictor`, `checkpoint`, `series`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from valuelens.analyses.impact._config import SERIES_LEAST
from valuelens.analyses.impact._correlations import MISSING
from valuelens.analyses.impact._outcomes import Panel
from valuelens.analyses.impact._rows import NO_SPREAD, POOLED, Resampling, interval_of, row, too_few
from valuelens.probe import leave_one_out

CONSTANT_PREDICTOR = "mean gain of the others"

PREDICTIONS = (
    *("series", "recipe", "predictor", "checkpoint", "step", "score"),
    *("gain", "gain_low", "gain_high", "predicted_gain", "reward_before", "final_reward"),
)
"""Columns of the table of predictions: a row for each predictor and checkpoint, `score` oriented so that more promises
more."""


def predictions(found: Sequence[Panel], recipe: str) -> pd.DataFrame:
    """Realised gains beside those that each predictor foretells from the other checkpoints of the series.

    Gain = a score + b with a and b fitted without the checkpoint; NaN where the score is missing somewhere in the
    series or there are fewer than three checkpoints.

    Args:
        found: The series.
        recipe: Of RL.
    """
    parts = []
    for panel in found:
        table = panel.table
        gain = table["gain"].to_numpy(dtype=np.float64)
        x = panel.x["gain"].assign(**{CONSTANT_PREDICTOR: 0.0})
        values = x.to_numpy(dtype=np.float64).T
        known = np.isfinite(values).all(-1, keepdims=True)
        predicted = np.full(values.shape, np.nan)
        if len(gain) >= SERIES_LEAST:
            predicted = np.where(known, leave_one_out(np.where(known, values, 0.0), gain), np.nan)
        about = table[
            ["checkpoint", "step", "gain", "gain_low", "gain_high", "reward_before", "final_reward"]
        ]
        for name, score, each in zip(x.columns, values, predicted, strict=True):
            parts.append(about.assign(predictor=name, score=score, predicted_gain=each, series=panel.series))
    whole = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(PREDICTIONS))
    return whole.assign(recipe=recipe)[list(PREDICTIONS)]


def errors(table: pd.DataFrame, found: Sequence[Panel], *, seed: int) -> list[dict[str, Any]]:
    """Root mean squared error of leave-one-out predictions, within series and over all, beside the constant one's.

    The same is the error of R_0 + a score + b as a prediction of the final reward, since R_0 is known. Intervals
    resample the squared errors, with the lines as fitted.

    Args:
        table: From `predictions`, of one recipe.
        found: The series.
        seed: Of the resampling.
    """
    fitted = [panel for panel in found if len(panel.table) >= SERIES_LEAST]
    rows = [
        row("loo_error", name, panel.series, n=len(panel.table), reason=too_few(len(panel.table)))
        for panel in found
        if panel not in fitted
        for name in dict.fromkeys(table["predictor"])
    ]
    drawn = Resampling([len(panel.table) for panel in fitted], seed)
    square = (table["gain"] - table["predicted_gain"]).astype(float) ** 2
    for name in dict.fromkeys(table["predictor"]):
        own = [
            square[(table["predictor"] == name) & (table["series"] == panel.series)].to_numpy()
            for panel in fitted
        ]
        rows += _rows(str(name), own, [panel.series for panel in fitted], drawn)
    cells = {"target": "gain", "recipe": str(table["recipe"].iloc[0]) if len(table) else ""}
    return [{**each, **cells} for each in rows]


def _rows(name: str, squares: list[Any], series: list[str], drawn: Resampling) -> list[dict[str, Any]]:
    rows, blocks, naive = [], [], []
    for place, own in enumerate(squares):
        known = bool(np.isfinite(own).all())
        size = drawn.sizes[place]
        blocks.append((drawn.blocks[place] @ own / size)[None])
        naive.append((drawn.naive[place] @ own / size)[None])
        limits = _limits(blocks[-1][0], naive[-1][0], (size, drawn.block_units[place]), known=known)
        rows.append(
            row("loo_error", name, series[place], estimate=float(own.mean() ** 0.5), n=size, **limits)
        )
    means = np.array([[own.mean() for own in squares]])
    known = bool(squares) and bool(np.isfinite(means).all())
    if known:
        draws, plain = drawn.pooled(means, blocks)[0], np.mean(naive, axis=0)[0]
        limits = _limits(draws, plain, (sum(drawn.sizes), drawn.units), known=True)
        rows.append(
            row("loo_error", name, POOLED, estimate=float(means.mean() ** 0.5), n=sum(drawn.sizes), **limits)
        )
    else:
        why = MISSING if squares else f"fewer than {SERIES_LEAST} checkpoints"
        rows.append(row("loo_error", name, POOLED, n=sum(drawn.sizes), reason=why))
    return rows


def _limits(blocks: Any, naive: Any, units: tuple[int, int], *, known: bool) -> dict[str, Any]:
    if not known:
        return {"reason": MISSING}
    few = too_few(units[0])
    limits = [interval_of(each, n) for each, n in ((blocks, units[1]), (naive, units[0]))]
    interval, plain = (each and (max(each[0], 0.0) ** 0.5, each[1] ** 0.5) for each in limits)
    if few:
        return {"reason": few}
    return {"interval": interval, "naive": plain, "reason": "" if interval else NO_SPREAD}
