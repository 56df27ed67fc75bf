"""The whole result: saved and read again, the same for the same tables, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from valuelens.analyses import Result, load_result, save_result
from valuelens.analyses.impact import CURVES, GAINS, SCORES, ScoreConfig, impact_result
from valuelens.analyses.impact._tables import empty
from valuelens.models import InputError

Make = Callable[..., Any]
GAIN = np.array([0.1, 0.5, 0.2, 0.6, 0.3, 0.05, 0.4, 0.45, 0.35, 0.25])


def result_of(made: Any, seed: int = 0) -> Result:
    return impact_result(made.scores, made.gains, empty(CURVES), ScoreConfig(), seed=seed)


def test_it_is_saved_and_read_again(ranking: Make, tmp_path: Path) -> None:
    result = result_of(ranking(GAIN, GAIN, noise=0.02, recipes=("fast", "default"), cut=True))
    save_result(result, tmp_path)
    again = load_result(tmp_path)
    assert again.verdict == result.verdict
    assert again.findings == result.findings
    assert set(again.tables) == {"scores", "gains", "curves", "judgement", "predictions"}
    pd.testing.assert_frame_equal(again.tables["judgement"], result.tables["judgement"])


def test_without_gains_it_is_saved_too(ranking: Make, tmp_path: Path) -> None:
    result = result_of(ranking(GAIN, GAIN)._replace(gains=empty(GAINS)))
    save_result(result, tmp_path)
    assert load_result(tmp_path).tables["judgement"].empty


def test_the_same_tables_and_seed_give_the_same_answer(ranking: Make) -> None:
    """And the order of rows does not count."""
    made = ranking(GAIN, GAIN**2, noise=0.1)
    shuffled = made._replace(scores=made.scores.iloc[::-1], gains=made.gains.sample(frac=1, random_state=1))
    first, second, other = result_of(made), result_of(shuffled), result_of(made, seed=1)
    assert first.findings == second.findings
    assert first.verdict == second.verdict
    assert first.findings != other.findings


def test_rewards_in_another_unit_change_no_rank(ranking: Make) -> None:
    """Recommendation and correlations with gain; regret and errors are in units of the reward."""
    made = ranking(GAIN, GAIN**2, noise=0.1)
    units = {name: 10 * made.scores[name] for name in ("reward", "reward_std", "best_of_k")}
    gains = made.gains.assign(
        **{name: 10 * made.gains[name] for name in ("reward_before", "reward_after", "gain")}
    )
    one, ten = result_of(made), result_of(made._replace(scores=made.scores.assign(**units), gains=gains))
    for name in ("recommended", "spearman", "spearman_difference"):
        for mine, other in zip(one.find(name, target="gain"), ten.find(name, target="gain"), strict=True):
            assert (mine.estimate, mine.interval, mine.index) == (other.estimate, other.interval, other.index)
    regret = [
        each.find("regret", predictor="last checkpoint", target="gain")[0].estimate for each in (one, ten)
    ]
    assert regret[1] == pytest.approx(10 * regret[0])


def test_a_gain_without_a_score_is_listed(ranking: Make) -> None:
    made = ranking(GAIN, GAIN)
    result = result_of(made._replace(scores=made.scores.drop(index=2)))
    assert result.skipped == ({"what": "gains of step-3 of series-0", "why": "it was not scored"},)
    assert result.find("spearman", predictor="impact", target="gain")[0].n == 9


def test_what_is_refused(ranking: Make) -> None:
    made = ranking(GAIN, GAIN)
    with pytest.raises(InputError) as caught:
        result_of(made._replace(scores=empty(SCORES)))
    assert str(caught.value) == "a ranking must have a checkpoint; found none; scores"
    with pytest.raises(InputError) as caught:
        result_of(made._replace(scores=made.scores.replace("step-2", "step-1")))
    assert str(caught.value) == (
        "names of checkpoints must differ within a series; found step-1 twice; scores"
    )
