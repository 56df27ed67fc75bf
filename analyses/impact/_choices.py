"""Which checkpoint a predictor picks, what that costs against the best one, and how surely it is the best.

Shape legend: `checkpoint` in the order of training, `seed` of RL.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from valuelens.analyses.impact._correlations import CONSTANT, MISSING
from valuelens.analyses.impact._outcomes import Panel, seed_interval
from valuelens.analyses.impact._predictors import CLAIMED, CLAIMED_BY_TARGET, rivals
from valuelens.analyses.impact._rows import FEW_SERIES, POOLED, RESAMPLES, Resampling, interval_of, row
from valuelens.probe import Interval

LAST, RANDOM = "last checkpoint", "random checkpoint"
ONE_SEED = "some checkpoint has one RL seed"
NO_RUNS = "no realised gains"
NOTHING = "no checkpoint has a score above 0: by this score RL has nothing to gain"
_BEST = "it is the best that was measured"
_SEEDS = "one RL seed, or seeds that differ between checkpoints"


def choice(score: Sequence[float]) -> int | None:
    """Place of the largest score, of equals the latest; none if all are the same or one is missing.

    Args:
        score: Of each checkpoint, in the order of training.

    Example:
        >>> choice([0.1, 0.3, 0.3]), choice([0.2, 0.2])
        (2, None)
    """
    values = np.asarray(score, dtype=np.float64)
    if not np.isfinite(values).all() or (len(values) > 1 and np.ptp(values) == 0):
        return None
    return int(np.flatnonzero(values == values.max())[-1])


def best_shares(
    runs: Float[np.ndarray, "checkpoint seed"], *, seed: int = 0
) -> Float[np.ndarray, " checkpoint"] | None:
    """How probably each checkpoint is the best, by resampling the RL seeds of each (our definition).

    Resampled means are spread sqrt(k / (k - 1)) as wide about their mean as they fall, since k values resampled vary
    too little by that factor. Checkpoints that tie share. None if a checkpoint has fewer than two seeds.

    Args:
        runs: Gain or final reward of each run; NaN where there is none.
        seed: Of the resampling.

    Example:
        >>> best_shares(np.array([[0.1, 0.2], [0.9, 0.8], [0.8, 0.9]])).round(1).tolist()
        [0.0, 0.5, 0.5]
    """
    generator, draws = np.random.default_rng([seed, 1]), []
    for own in runs:
        known = own[np.isfinite(own)]
        if len(known) < 2:
            return None
        means = known[generator.integers(0, len(known), (RESAMPLES, len(known)))].mean(-1)
        draws.append(known.mean() + np.sqrt(len(known) / (len(known) - 1)) * (means - known.mean()))
    table = np.round(np.stack(draws, axis=-1), 12)  # ties do not hang on rounding
    hits = table == table.max(-1, keepdims=True)
    shares: Float[np.ndarray, " checkpoint"] = (hits / hits.sum(-1, keepdims=True)).mean(0)
    return shares


@dataclass(frozen=True, slots=True)
class _Picked:
    """What one predictor's pick, or a rule that needs none, came to within one series."""

    checkpoint: str = ""
    regret: float = np.nan
    interval: Interval | None = None
    probability: float = np.nan
    reasons: Mapping[str, str] = field(default_factory=dict)


def choices(found: Sequence[Panel], target: str, recipe: str, *, seed: int) -> list[dict[str, Any]]:
    """Regret and probability of being the best, of each score, each rival, the last checkpoint and a random one.

    Regret is the gain or final reward (mean over RL seeds) of the best checkpoint minus that of the one picked, a
    random one's expected; its interval is Student's over seeds that checkpoints share, with the best taken as known.
    The best of noisy means looks better than it is, so regret is somewhat too large. Picks are among checkpoints with
    runs; of equal scores the later is picked.

    Args:
        found: The series.
        target: `gain`, or `final_reward`, for which scores are also added to the current reward.
        recipe: Of RL.
        seed: Of the resampling.
    """
    there = list(dict.fromkeys(str(name) for panel in found for name in panel.x[target]))
    names = [*(name for name in CLAIMED_BY_TARGET[target] if name in there), *rivals(there)]
    drawn = Resampling([len(panel.table) for panel in found], seed)
    rows = []
    shares = [best_shares(panel.runs[target], seed=seed) for panel in found]
    for name in (*names, LAST, RANDOM):
        picked = [_picked(panel, target, name, share) for panel, share in zip(found, shares, strict=True)]
        for panel, each in zip(found, picked, strict=True):
            rows += _rows(name, panel.series, len(panel.table), each)
        rows += _rows(name, POOLED, sum(drawn.sizes), _pooled(picked, drawn))
    return [{**each, "recipe": recipe, "target": target} for each in rows]


def recommended(scores: pd.DataFrame, name: str) -> tuple[str | None, str]:
    """The checkpoint of one series that a score recommends, and why if none.

    Args:
        scores: Of one series, in order, with a column for the score and one `checkpoint`.
        name: Of the score.
    """
    values = scores[name].astype(float).to_numpy() if name in scores else np.full(len(scores), np.nan)
    if not np.isfinite(values).all():
        return None, MISSING
    if name in CLAIMED and not (values > 0).any():
        return None, NOTHING
    place = choice(list(values))
    return (None, CONSTANT) if place is None else (str(scores["checkpoint"].iloc[place]), "")


def _picked(panel: Panel, target: str, name: str, shares: Float[np.ndarray, " checkpoint"] | None) -> _Picked:
    runs, reached = panel.runs[target], panel.table[target].to_numpy(dtype=np.float64)
    size, best, x = len(reached), int(np.argmax(reached)), panel.x[target]
    if name == RANDOM:
        interval = seed_interval(_difference(runs[best], runs.mean(0)))
        why = {} if interval else {"interval": _SEEDS}
        return _Picked("", float(reached[best] - reached.mean()), interval, 1 / size, why)
    place = size - 1 if name == LAST else choice(list(x[name])) if name in x else None
    if place is None:
        silent = CONSTANT if name in x and x[name].notna().all() else MISSING
        return _Picked(reasons={"regret": silent, "probability": silent})
    unsure = {} if shares is not None else {"probability": ONE_SEED}
    interval = seed_interval(_difference(runs[best], runs[place]))
    why_not = {} if interval else {"interval": _BEST if reached[place] == reached[best] else _SEEDS}
    probability = np.nan if shares is None else float(shares[place])
    label = str(panel.table["checkpoint"].iloc[place])
    return _Picked(label, float(reached[best] - reached[place]), interval, probability, {**unsure, **why_not})


def _difference(mine: Float[np.ndarray, " seed"], other: Float[np.ndarray, " seed"]) -> list[float]:
    return [float(each) for each in np.round(mine - other, 12)]  # equal runs differ by rounding


def _pooled(picked: Sequence[_Picked], drawn: Resampling) -> _Picked:
    """Means over the series that say something."""
    if len(picked) == 1:
        return picked[0]
    regret, probability = (
        np.array([getattr(each, of) for each in picked]) for of in ("regret", "probability")
    )
    reasons = {key: why for each in picked for key, why in each.reasons.items() if key != "interval"}
    known = np.isfinite(regret)
    if known.any():
        reasons.pop("regret", None)
    if np.isfinite(probability).any():
        reasons.pop("probability", None)
    interval = None
    if drawn.over_series and known.all():
        interval = interval_of(drawn.pooled(regret[None], [])[0], drawn.units)
    if interval is None:
        reasons["interval"] = (
            FEW_SERIES if not drawn.over_series else "series that do not differ, or without a pick"
        )
    return _Picked("", _mean(regret), interval, _mean(probability), reasons)


def _mean(values: Float[np.ndarray, " series"]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _rows(name: str, series: str, n: int, each: _Picked) -> list[dict[str, Any]]:
    why = each.reasons
    cells: dict[str, Any] = {"checkpoint": each.checkpoint, "n": n}
    missing = "" if each.interval else why.get("interval", "")
    regret = {"estimate": each.regret, "interval": each.interval, "reason": why.get("regret", missing)}
    share = {"estimate": each.probability, "reason": why.get("probability", "")}
    return [
        row("regret", name, series, **cells, **regret),
        row("probability_best", name, series, **cells, **share),
    ]
