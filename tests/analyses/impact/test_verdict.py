"""What is said: the recommendation, how sure, whether it beats the best rival, and where nothing can be gained."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from valuelens.analyses.impact import CURVES, GAINS, ScoreConfig, impact_result
from valuelens.analyses.impact._tables import empty
from valuelens.analyses.impact._verdict import impact_verdict, variants

Make = Callable[..., Any]
GAIN = np.array([0.1, 0.5, 0.2, 0.6, 0.3, 0.05, 0.4, 0.45, 0.35, 0.25])


def verdict(made: Any) -> str:
    return impact_result(made.scores, made.gains, empty(CURVES), ScoreConfig()).verdict


def test_a_score_that_loses_says_so(ranking: Make) -> None:
    told = verdict(ranking(GAIN, GAIN[::-1].copy(), reward_std=GAIN, series=6, noise=0.1))
    assert (
        "RL should gain most from step 7 in series-0, step 7 in series-1, step 7 in series-2 and so on in 6 series ("
        in told
    )
    assert "does worse than the best one-line rival, standard deviation of rewards, at " in told


def test_a_score_that_wins_says_so(ranking: Make) -> None:
    """The rivals `signal` and `headroom` must not be the score itself."""
    made = ranking(GAIN, GAIN, signal=GAIN[::-1].copy(), update_aligned=0.5, series=6, noise=0.1)
    told = verdict(made)
    assert " and beats the best one-line rival, " in told


def test_a_score_that_is_a_rival_cannot_be_told_from_it(ranking: Make) -> None:
    told = verdict(ranking(GAIN, GAIN**2, noise=0.1))
    assert "; whether it beats the best one-line rival, signal alone, at " in told
    assert "cannot be told (difference 0.00 (no interval: resamples do not differ))" in told


def test_how_sure_and_at_what_regret(ranking: Make) -> None:
    """By gain and, where checkpoints start elsewhere, by the reward after RL."""
    told = verdict(ranking(GAIN, GAIN, noise=0.01, reward=np.linspace(0, 1, 10)))
    assert told.startswith(
        "By usable signal x tilt headroom, RL should gain most from step 4 (the best with probability 1.00, by chance "
        "0.10; regret 0.000, of rivals at least 0.000 ("
    )
    assert "), and end highest, by reward + score, from step 10 (the best with" in told


def test_the_cheapest_choice_of_a_rival_is_not_hidden(ranking: Make) -> None:
    """The rival that ranks best may choose badly, and one that ranks badly well."""
    ranks = GAIN.copy()
    ranks[[3, 9]] = ranks[[9, 3]]  # all in order but for the best and one other
    alone = np.where(GAIN.max() == GAIN, 1.0, np.arange(10) / 100)
    columns = dict.fromkeys(("signal", "reward_std", "best_of_k", "pass_at_k", "gradient_norm"), ranks)
    told = verdict(ranking(GAIN, ranks, **columns, reward=ranks, headroom=ranks, entropy=alone, noise=0.01))
    assert "of rivals at least 0.000 (entropy)" in told


def test_few_checkpoints_are_ranked_and_not_correlated(ranking: Make) -> None:
    told = verdict(ranking(GAIN[:6], GAIN[:6], seeds=1))
    assert (
        "RL should gain most from step 4 (no probability: some checkpoint has one RL seed; regret 0.000, of rivals "
        in told
    )
    assert told.endswith("Whether the score ranks gains was not asked: fewer than 8 checkpoints.")


def test_without_gains_the_score_speaks_alone(ranking: Make) -> None:
    told = verdict(ranking(GAIN, GAIN)._replace(gains=empty(GAINS)))
    assert told == (
        "By usable signal x tilt headroom, RL should gain most from step 4 (last checkpoint: step 10; no realised "
        "gains), and end highest, by reward + score, from step 4 (last checkpoint: step 10; no realised gains). "
        "Whether the score ranks gains was not asked: no realised gains."
    )


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"frac_reward_zero_std": 1.0, "headroom": 0.0}, "all rollouts of a prompt earn the same reward"),
        ({"headroom": 0.0}, "Headroom is 0 at every checkpoint"),
        ({"signal": 0.0}, "No checkpoint has a signal above the noise of its rollouts"),
    ],
)
def test_where_nothing_is_to_gain_it_says_why(columns: dict[str, float], told: str, ranking: Make) -> None:
    made = ranking(GAIN, 0 * GAIN, **columns)
    assert told in verdict(made._replace(gains=empty(GAINS)))


def test_the_signal_is_named(ranking: Make) -> None:
    made = ranking(GAIN, GAIN, signal_subtractive=GAIN)
    result = impact_result(made.scores, empty(GAINS), empty(CURVES), ScoreConfig())
    assert variants(result, ScoreConfig()) == ("subtractive", "tilt")
    mixed = ranking(GAIN, GAIN, signal_subtractive=[0.1] * 9 + [np.nan])
    both = impact_result(mixed.scores, empty(GAINS), empty(CURVES), ScoreConfig())
    assert variants(both, ScoreConfig()) == ("subtractive or usable", "tilt")
    asked = ScoreConfig(signal="update-aligned", headroom="shortfall")
    assert variants(result, asked) == ("update-aligned", "shortfall")
    assert "By update-aligned signal x shortfall headroom" in impact_verdict(
        dataclasses.replace(result, verdict=""), asked
    )
