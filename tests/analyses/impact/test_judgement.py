"""Rankings whose answer is known: a score that is the gain, its reverse, a rival that wins, too few checkpoints."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from valuelens.analyses.impact._judgement import Judgement, judgement
from valuelens.analyses.impact._rows import POOLED

Make = Callable[..., Any]

GAIN = np.array([0.1, 0.5, 0.2, 0.6, 0.3, 0.05, 0.4, 0.45, 0.35, 0.25])


def line(judged: Judgement, statistic: str, predictor: str, series: str = POOLED, **cells: str) -> pd.Series:
    """The only row of the table that is meant; of recipes the first."""
    table = judged.table
    wanted = {"statistic": statistic, "predictor": predictor, "series": series, **cells}
    for name, value in wanted.items():
        table = table[table[name] == value]
    return table.iloc[0]


def test_a_score_that_is_the_gain(ranking: Make) -> None:
    judged = judgement(*ranking(GAIN, GAIN))
    found = line(judged, "spearman", "impact", target="gain")
    assert found.estimate == pytest.approx(1)
    assert found.primary
    assert found.reason == "resamples do not differ"
    assert line(judged, "loo_error", "impact").estimate == pytest.approx(0, abs=1e-12)
    assert line(judged, "loo_error", "mean gain of the others").estimate > 0.1
    for target in ("gain", "final_reward"):
        assert line(judged, "regret", "impact", target=target).estimate == 0
        assert line(judged, "regret", "impact", target=target).checkpoint == "step-4"
        assert line(judged, "probability_best", "impact", target=target).estimate == 1
    assert line(judged, "regret", "last checkpoint", target="gain").estimate == pytest.approx(0.6 - 0.25)
    final = line(judged, "regret", "last checkpoint", target="final_reward")
    assert final.estimate == pytest.approx(0.6 + 0.04 - 0.25 - 0.1)


def test_a_score_that_is_the_gain_turned_round(ranking: Make) -> None:
    judged = judgement(*ranking(GAIN, 1 - GAIN))
    assert line(judged, "spearman", "impact", target="gain").estimate == pytest.approx(-1)
    assert line(judged, "regret", "impact").checkpoint == "step-6"
    assert line(judged, "probability_best", "impact").estimate == 0
