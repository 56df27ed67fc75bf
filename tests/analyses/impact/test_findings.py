"""What stands for each checkpoint: every number with its interval and control, or why not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from valuelens.analyses import Finding
from valuelens.analyses.impact._findings import gain_findings, score_findings
from valuelens.analyses.impact._judgement import judgement
from valuelens.analyses.impact._outcomes import in_order
from valuelens.probe import share_interval

Make = Callable[..., Any]
GAIN = np.array([0.1, 0.5, 0.2, 0.6, 0.3])


def of_gains(made: Any) -> list[Finding]:
    return gain_findings(judgement(made.scores, made.gains), in_order(made.scores))


def at(findings: list[Finding], name: str, checkpoint: str, **index: str) -> Finding:
    wanted = {"checkpoint": checkpoint, **index}
    (found,) = [each for each in findings if each.name == name and dict(each.index) == wanted]
    return found


def test_scores_stand_for_each_checkpoint(ranking: Make) -> None:
    made = ranking(GAIN, GAIN, held_out_loss=np.nan, entropy=[1.0, np.nan, 2.0, 3.0, 4.0])
    found = score_findings(in_order(made.scores))
    assert at(found, "impact", "step-2").estimate == 0.5
    assert {each.definition for each in found if each.name in ("signal", "headroom", "impact")} == {"choice"}
    assert not [each for each in found if each.name == "held_out_loss"]
    missing = at(found, "entropy", "step-2")
    assert (missing.estimate, missing.reasons["estimate"]) == (None, "not measured")
    zero = at(found, "frac_reward_zero_std", "step-1")
    assert zero.interval == share_interval(8, 32)
    assert set(zero.reasons) == {"control"}
    assert {each.n for each in found} == {512}
    assert not [each for each in found if each.name in ("seconds", "token_passes")]


def test_what_is_to_be_said_is_a_diagnosis(ranking: Make) -> None:
    made = ranking(GAIN, GAIN, frac_reward_zero_std=[1.0, 0.0, 0.0, 0.0, 0.0])
    found = score_findings(in_order(made.scores))
    (said,) = [each for each in found if each.name == "diagnosis"]
    assert said.index == {"checkpoint": "step-1"}
    assert "Rewards are equal within every group" in str(said.estimate)


def test_the_series_is_named_where_there_are_several(ranking: Make) -> None:
    made = ranking(GAIN, GAIN, series=2)
    assert at(score_findings(in_order(made.scores)), "reward", "step-1", series="series-1").estimate == 0.11
    assert at(of_gains(made), "gain", "step-4", series="series-0").estimate == pytest.approx(0.6)


def test_gain_stands_beside_gain_with_credit_cut(ranking: Make) -> None:
    found = of_gains(ranking(GAIN, GAIN, cut=True, noise=0.01))
    gain, cut, credit = (at(found, name, "step-2") for name in ("gain", "gain_cut", "credit_gain"))
    assert gain.control is not None
    assert gain.control.name == "gain with temporal credit cut"
    assert gain.control.estimate == cut.estimate
    assert credit.estimate == pytest.approx(gain.estimate - cut.estimate)
    assert (gain.n, cut.n, credit.n) == (3, 3, 3)
    for each in (gain, cut, credit):
        assert each.interval is not None
        assert each.interval[0] < each.estimate < each.interval[1]


def test_without_cut_runs_gain_stands_beside_the_mean_of_the_others(ranking: Make) -> None:
    found = of_gains(ranking(GAIN, GAIN**2, seeds=1))
    gain = at(found, "gain", "step-2")
    assert gain.control is not None
    assert (gain.control.name, gain.control.estimate) == ("mean gain of the others", pytest.approx(0.3))
    assert gain.reasons["interval"] == "one RL seed, or seeds that do not differ"
    assert not [each for each in found if each.name in ("gain_cut", "credit_gain")]
    final = at(found, "final_reward", "step-2")
    assert final.estimate == pytest.approx(0.62)
    assert final.control is not None
    assert final.control.estimate == pytest.approx(0.12)


def test_foretold_gains_stand_beside_the_constant_predictor(ranking: Make) -> None:
    found = of_gains(ranking(GAIN, 2 * GAIN + 1))
    foretold = at(found, "predicted_gain", "step-4")
    assert foretold.estimate == pytest.approx(0.6)
    assert foretold.control is not None
    assert foretold.control.estimate == pytest.approx(0.275)
    few = at(of_gains(ranking(GAIN[:2], GAIN[:2])), "predicted_gain", "step-1")
    assert few.reasons["estimate"] == "fewer than 3 checkpoints, or one without a score"


def test_recipes_are_named_and_the_main_one_is_first(ranking: Make) -> None:
    found = of_gains(ranking(GAIN, GAIN, recipes=("fast", "default")))
    gains = [each for each in found if each.name == "gain"]
    assert gains[0].index == {"checkpoint": "step-1", "recipe": "default"}
    assert gains[5].index == {"checkpoint": "step-1", "recipe": "fast"}


def test_a_checkpoint_of_which_only_cut_runs_are_there(ranking: Make) -> None:
    made = ranking(GAIN, GAIN, cut=True)
    gains = made.gains[made.gains["cut"] | (made.gains["checkpoint"] != "step-1")]
    found = of_gains(made._replace(gains=gains))
    assert at(found, "gain_cut", "step-1").estimate == pytest.approx(0.05)
    assert not [each for each in found if each.name == "gain" and each.index["checkpoint"] == "step-1"]
