"""What may foretell gain: the scores, every variant of them, and one-line rivals, all so that more promises more."""

import numpy as np
import pandas as pd

from valuelens.analyses.impact._config import RIVALS

PRIMARY = "impact"
"""The score that is compared with the best rival; every other comparison is exploratory."""

PRODUCT = "update_aligned x headroom"

CLAIMED = (PRIMARY, "update_aligned", PRODUCT)
"""Scores that are compared with rivals."""

CLAIMED_BY_TARGET = {"gain": CLAIMED, "final_reward": (*(f"reward + {name}" for name in CLAIMED), *CLAIMED)}
"""The same with the current reward, where what counts is the final one."""

_SIGNALS = ("signal_subtractive", "signal_usable", "signal_update_aligned")
_HEADROOMS = ("headroom_tilt", "headroom_shortfall", "headroom_best_of_k")
_FALLING = ("held_out_loss",)
"""Rivals of which less promises more: they enter with a minus."""


def predictors(scores: pd.DataFrame) -> pd.DataFrame:
    """A column for each predictor of gain, in the rows of `scores`; what is nowhere a number is left out.

    They are impact, update-aligned and its product with headroom; each signal times each headroom, by their names; and
    the rivals, whose orientation is fixed in advance (our definition): all rise with gain but the held-out loss.

    Args:
        scores: Table of scores.

    Example:
        >>> table = {"impact": [0.1], "signal_usable": [2.0], "headroom_tilt": [0.1], "held_out_loss": [3.0]}
        >>> predictors(pd.DataFrame(table)).iloc[0].to_dict()
        {'impact': 0.1, 'signal_usable x headroom_tilt': 0.2, 'held_out_loss': -3.0}
    """
    given = scores.reindex(columns=[PRIMARY, "update_aligned", *_SIGNALS, *_HEADROOMS, *RIVALS]).astype(float)
    found = {PRIMARY: given[PRIMARY], "update_aligned": given["update_aligned"]}
    found[PRODUCT] = given["update_aligned"] * given["headroom"]
    for signal in _SIGNALS:
        found |= {f"{signal} x {headroom}": given[signal] * given[headroom] for headroom in _HEADROOMS}
    found |= {name: -given[name] if name in _FALLING else given[name] for name in RIVALS}
    table = pd.DataFrame(found).replace([np.inf, -np.inf], np.nan)
    return table.dropna(axis="columns", how="all")


def of_final_reward(table: pd.DataFrame, reward: "pd.Series[float]") -> pd.DataFrame:
    """Predictors of the final reward: the same, and the current reward plus each score (our definition).

    Scores are added as they are, in their own unit, as in the published comparison: another unit of the reward gives
    other sums.

    Args:
        table: Predictors of gain.
        reward: Current reward R_0 in the same rows.
    """
    sums = {f"reward + {name}": reward + table[name] for name in table if name not in RIVALS}
    return pd.concat([pd.DataFrame(sums, index=table.index), table], axis="columns")


def rivals(names: "list[str] | pd.Index[str]") -> list[str]:
    """Those among predictors that are rivals.

    Args:
        names: Of predictors.
    """
    return [name for name in names if name in RIVALS]
