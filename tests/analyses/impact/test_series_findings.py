"""What stands over the series: recommendation, regret and comparisons, each beside the best rival."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from valuelens.analyses import Finding
from valuelens.analyses.impact import GAINS
from valuelens.analyses.impact._judgement import judgement
from valuelens.analyses.impact._outcomes import in_order
from valuelens.analyses.impact._series_findings import best_rival, judgement_findings, recommended_findings
from valuelens.analyses.impact._tables import empty

Make = Callable[..., Any]
GAIN = np.array([0.1, 0.5, 0.2, 0.6, 0.3, 0.05, 0.4, 0.45, 0.35, 0.25])


def over(made: Any) -> list[Finding]:
    scores = in_order(made.scores)
    judged = judgement(scores, made.gains)
    return [*recommended_findings(judged, scores), *judgement_findings(judged)]


def only(findings: list[Finding], name: str, **index: str) -> Finding:
    (found,) = [
        each
        for each in findings
        if each.name == name and all(each.index.get(key) == value for key, value in index.items())
    ]
    return found


def test_the_recommendation_stands_beside_the_best_rivals(ranking: Make) -> None:
    found = over(ranking(GAIN, GAIN[::-1].copy(), reward_std=GAIN, noise=0.02))
    mine = only(found, "recommended", predictor="impact", target="gain")
    assert mine.estimate == "step-7"
    assert mine.control is not None
    assert (mine.control.name, mine.control.estimate) == ("choice of reward_std", "step-4")
    regret = only(found, "regret", predictor="impact", target="gain", series="pooled")
    assert regret.control is not None
    assert regret.control.name == "reward_std"
    assert regret.control.estimate == 0
    assert regret.estimate == pytest.approx(0.2, abs=0.05)
    final = only(found, "recommended", predictor="reward + impact", target="final_reward")
    assert final.estimate == "step-7"
    assert final.control is not None
    assert final.control.name.startswith("choice of ")
    sure = only(found, "probability_best", predictor="impact", target="gain", series="pooled")
    assert sure.control is not None
    assert (sure.control.name, sure.control.estimate) == ("random checkpoint", 0.1)
    assert sure.reasons["interval"] == "a probability"


def test_every_predictor_stands_beside_the_best_rival(ranking: Make) -> None:
    made = ranking(GAIN, GAIN**2, reward_std=GAIN, noise=0.1)
    found = over(made)
    correlations = [each for each in found if each.name == "spearman"]
    assert {each.index["series"] for each in correlations} == {"pooled"}  # one series is all
    assert {
        each.control.name for each in correlations if each.index["target"] == "gain" and each.control
    } == {best_rival(judgement(made.scores, made.gains))}
    assert {"signal_usable x headroom_tilt", "entropy", "reward + impact"} <= {
        each.index["predictor"] for each in correlations
    }
    primary = [each for each in found if each.index.get("role") == "primary"]
    assert sorted((each.name, each.index.get("chosen")) for each in primary) == [
        ("spearman", None),
        ("spearman_difference", "once"),
    ]
    assert only(found, "spearman_difference", predictor="reward + impact", chosen="once").index["target"] == (
        "final_reward"
    )
    error = only(found, "loo_error", predictor="impact", series="pooled")
    assert error.control is not None
    assert error.control.name == "mean gain of the others"


def test_the_difference_is_that_of_two_findings(ranking: Make) -> None:
    found = over(ranking(GAIN, GAIN**2, reward_std=-GAIN, entropy=GAIN[::-1].copy(), noise=0.1))
    difference = only(found, "spearman_difference", predictor="impact", chosen="once")
    rival = str(difference.index["rival"])
    mine, other = (
        only(found, "spearman", predictor=name, target="gain").estimate for name in ("impact", rival)
    )
    assert difference.estimate == pytest.approx(mine - other)


def test_single_series_show_what_is_compared(ranking: Make) -> None:
    found = over(ranking(GAIN, GAIN**2, series=2, noise=0.1))
    within = [each for each in found if each.name == "spearman" and each.index["series"] == "series-1"]
    assert {"impact", "update_aligned", "update_aligned x headroom"} <= {
        each.index["predictor"] for each in within
    }
    assert len(within) <= 4
    mine = [
        each.index for each in found if each.name == "recommended" and each.index["predictor"] == "impact"
    ]
    assert [each["series"] for each in mine] == ["series-0", "series-1"]
    assert only(found, "regret", predictor="last checkpoint", target="gain", series="series-0").estimate > 0


def test_few_checkpoints_say_why(ranking: Make) -> None:
    found = over(ranking(GAIN[:5], GAIN[:5]))
    mine = only(found, "spearman", predictor="impact", target="gain")
    assert mine.estimate is None
    assert mine.reasons["estimate"] == "fewer than 8 checkpoints"
    assert mine.reasons["control"] == "nothing was correlated, so no rival is the best"
    assert not [each for each in found if each.name == "spearman_difference"]
    regret = only(found, "regret", predictor="impact", target="gain", series="pooled")
    assert regret.control is not None
    assert regret.control.name == "random checkpoint"
    assert only(found, "recommended", predictor="impact").control is not None


def test_without_gains_only_the_recommendation_is_a_number(ranking: Make) -> None:
    made = ranking(GAIN, GAIN)
    found = over(made._replace(gains=empty(GAINS)))
    recommended = only(found, "recommended", predictor="impact")
    assert recommended.estimate == "step-4"
    assert recommended.control is not None
    assert (recommended.control.name, recommended.control.estimate) == ("last checkpoint", "step-10")
    for name in ("spearman", "loo_error"):
        assert only(found, name).reasons["estimate"] == "no realised gains"
    for name, target in itertools.product(("regret", "probability_best"), ("gain", "final_reward")):
        assert only(found, name, target=target).reasons["estimate"] == "no realised gains"


def test_nothing_is_recommended_where_nothing_is_to_gain(ranking: Make) -> None:
    made = ranking(GAIN, 0 * GAIN)
    mine = only(over(made), "recommended", predictor="impact")
    assert mine.estimate is None
    assert (
        mine.reasons["estimate"] == "no checkpoint has a score above 0: by this score RL has nothing to gain"
    )
