"""The tables of a ranking: what stands in which column, for whoever fills or reads them.

`scores`: a row for each checkpoint. `gains`: a row for each RL run. `curves`: a row for each step of an RL run.
"""

import numpy as np
import pandas as pd

SCORES = (
    *("series", "checkpoint", "step", "prompts", "rollouts"),
    *("reward", "reward_std", "frac_reward_zero_std", "entropy", "best_of_k", "pass_at_k"),
    *("gradient_norm", "held_out_loss"),
    *("signal_subtractive", "signal_usable", "signal_update_aligned"),
    *("headroom_tilt", "headroom_shortfall", "headroom_best_of_k"),
    *("gap_relaxed", "gap_discrete"),
    *("signal", "headroom", "impact", "update_aligned"),
    "token_passes",
)
"""`best_of_k` and `pass_at_k` are above the mean reward and above pass@1; NaN where a number is not there. `signal`,
`headroom` and `impact` are those of the chosen variants, `update_aligned` is the signal of that name."""

GAINS = ("series", "checkpoint", "recipe", "rl_seed", "cut", "reward_before", "reward_after", "gain")
"""`cut`: whether temporal credit was cut. `gain` is reward_after - reward_before, on the same held-out prompts."""

CURVES = ("series", "checkpoint", "recipe", "rl_seed", "cut", "step", "reward")
"""Mean reward of the rollouts that a step was taken on."""


def empty(columns: tuple[str, ...]) -> pd.DataFrame:
    """A table with these columns and no row.

    Args:
        columns: One of the above.

    Example:
        >>> list(empty(GAINS))[:3]
        ['series', 'checkpoint', 'recipe']
    """
    return pd.DataFrame({name: np.array([], dtype=object) for name in columns})
