"""Tables of a ranking whose answer is known."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest


class Ranking(NamedTuple):
    """Tables as the scoring and the RL runs fill them."""

    scores: pd.DataFrame
    gains: pd.DataFrame


@pytest.fixture(scope="session")
def ranking() -> "Callable[..., Ranking]":
    """`ranking(gain, score, *, series=1, seeds=3, noise=0.0, recipes=("default",), cut=False, **columns)`.

    Each series holds checkpoints `step-1`, `step-2`, ... with these gains and scores (`impact`), a current reward of
    .1 + .01 step, and rivals that are drawn; `columns` replaces columns of scores.
    """
    return _ranking


def _ranking(
    gain: Sequence[float],
    score: Sequence[float],
    *,
    series: int = 1,
    seeds: int = 3,
    noise: float = 0.0,
    recipes: Sequence[str] = ("default",),
    cut: bool = False,
    **columns: Any,
) -> Ranking:
    from valuelens.analyses.impact import GAINS, SCORES

    size, draw = len(gain), np.random.default_rng(0)
    scores, runs = [], []
    for place in range(series):
        drawn = {name: draw.random(size) for name in SCORES}
        steps = np.arange(1, size + 1)
        given = {
            **{"series": f"series-{place}", "checkpoint": [f"step-{step}" for step in steps], "step": steps},
            **{"prompts": 32, "rollouts": 512, "frac_reward_zero_std": 0.25, "reward": 0.1 + 0.01 * steps},
            **{"signal_subtractive": np.nan, "gap_relaxed": np.nan, "gap_discrete": np.nan},
            **{"impact": score, "signal": score, "headroom": 1.0, "update_aligned": score},
            **{"signal_usable": score, "signal_update_aligned": score, "headroom_tilt": 1.0},
        }
        scores.append(pd.DataFrame({**drawn, **given, **columns}))
        for recipe in recipes:
            for seed in range(seeds):
                for is_cut in (False, True)[: 1 + cut]:
                    after = np.asarray(gain) * (0.5 if is_cut else 1.0) + noise * draw.standard_normal(size)
                    before = scores[-1]["reward"].to_numpy()
                    run = {"recipe": recipe, "rl_seed": seed, "cut": is_cut, "reward_before": before}
                    about = scores[-1][["series", "checkpoint"]].assign(**run)
                    runs.append(about.assign(reward_after=before + after, gain=after))
    return Ranking(
        pd.concat(scores, ignore_index=True)[list(SCORES)], pd.concat(runs, ignore_index=True)[list(GAINS)]
    )
