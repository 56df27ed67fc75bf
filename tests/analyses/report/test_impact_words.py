"""What figures show is said in sentences that name checkpoints and numbers."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from valuelens.analyses import Result
from valuelens.analyses.report._impact_words import (
    all_series,
    arc_words,
    credit_words,
    flat_words,
    forest_words,
    learning_words,
    prediction_words,
    remark_words,
    rival_words,
)
from valuelens.analyses.report._ranking import series_names

Make = Callable[..., Result]


def first(result: Result) -> str:
    return series_names(result)[0]


def test_the_arc_says_where_each_part_is_largest(ranked_result: Make) -> None:
    result = ranked_result()
    scores = result.tables["scores"]
    words = arc_words(result, first(result))
    for label, column in (("signal", "signal"), ("headroom", "headroom"), ("signal x headroom", "impact")):
        at = scores["step"][scores[column].idxmax()]
        assert f"{label} at step {at:,} (" in words
    assert "RL gained most at step " in words
    assert all_series(result) == words


def test_the_arc_of_nothing_says_so(ranked_result: Make) -> None:
    flat = ranked_result(flat=tuple(range(6)), checkpoints=6, seeds=0)
    assert arc_words(flat, first(flat)) == (
        "At none of 6 checkpoints is there any signal or headroom. No gain was realised here, so nothing says whether "
        "this is right."
    )


def test_flat_groups_are_named(ranked_result: Make) -> None:
    result = ranked_result(flat=(0, 13))
    words = flat_words(result, first(result))
    assert "At step 20 and step 2,520 it is all of them: RL from there learns nothing." in words
    assert "it is half of them or more: most of the batch is wasted." in words
    unknown = ranked_result(checkpoints=6, seeds=0, lost=("frac_reward_zero_std",))
    assert flat_words(unknown, first(unknown)) == "How many groups have equal rewards is not known."
    all_flat = flat_words(ranked_result(flat=tuple(range(14)), seeds=0), first(result))
    assert (
        "is 1 over the checkpoints. At step 20, step 29, step 42, 10 more and step 2,520 it is all"
        in all_flat
    )


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        ((0.1, 0.5), "The score ranks these checkpoints better than its best rival, "),
        ((-0.5, -0.1), "The score ranks these checkpoints worse than its best rival, "),
        ((-0.1, 0.5), "the interval of the difference holds 0."),
        (None, "has no interval: do not rely on it."),
    ],
)
def test_better_or_worse_is_said_only_where_the_interval_allows(
    ranked_result: Make, interval: tuple[float, float] | None, words: str
) -> None:
    result = ranked_result()
    why = {"interval": "-"}
    findings = [
        replace(f, interval=interval, reasons={**f.reasons, **why}) if f.name == "spearman_difference" else f
        for f in result.findings
    ]
    (told,) = rival_words(replace(result, findings=tuple(findings)))
    assert words in told


def test_without_correlations_nothing_is_compared(ranked_result: Make) -> None:
    result = ranked_result(checkpoints=6)
    assert rival_words(result) == []
    assert prediction_words(result, first(result)).count("no correlation: fewer than 8 checkpoints") == 2


def test_credit_is_counted_where_its_interval_is_above_zero(ranked_result: Make) -> None:
    result = ranked_result()
    above = [f for f in result.find("credit_gain") if f.interval and f.interval[0] > 0]
    assert f"beyond its 95 % interval at {len(above)} of 14 checkpoints" in credit_words(
        result, first(result)
    )
    one = ranked_result(seeds=1, checkpoints=6)
    assert credit_words(one, first(one)).endswith("has no interval: one RL seed.")
    assert credit_words(ranked_result(seeds=0), first(result)) == ""


def test_remarks_name_their_checkpoint(ranked_result: Make) -> None:
    told = remark_words(ranked_result(3))
    (words,) = [each for each in told if each.startswith("step 20 of \u2068")]
    assert "Rewards are equal within 84%" in words
    assert remark_words(ranked_result())[0].startswith("step 20: Rewards are equal")


def test_curves_and_forest_are_summed_up(ranked_result: Make) -> None:
    result = ranked_result()
    assert forest_words(result).startswith("Most correlated with the realised gain is ")
    assert ". 13 predictors, " in forest_words(result)
    assert learning_words(result).startswith("From step ")
    assert " with full credit, from " in learning_words(result)
