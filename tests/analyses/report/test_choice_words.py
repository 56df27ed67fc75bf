"""The recommendation says where, how sure and at what price, or why there is none."""

from collections.abc import Callable
from dataclasses import replace

from valuelens.analyses import Result
from valuelens.analyses.report._answers import answers
from valuelens.analyses.report._choice_words import choice_words, chosen, judged_regret, pooled
from valuelens.analyses.report._numbers import readable
from valuelens.analyses.report._predictors import checkpoint_words
from valuelens.analyses.report._ranking import recommended, series_names

Make = Callable[..., Result]


def test_one_series_has_a_recommendation_for_each_target(ranked_result: Make) -> None:
    result = ranked_result()
    words = choice_words(result)
    assert len(words) == 4
    targets = {"gain": ("impact", "gain"), "final_reward": ("reward + impact", "reward after RL")}
    for word, other, (target, (who, what)) in zip(words[:2], words[2:], targets.items(), strict=True):
        where = checkpoint_words(recommended(result, series_names(result)[0], target))
        assert word.startswith(f"For the most {what} start RL at {where}, where ")
        (likely,) = result.find("probability_best", predictor=who, target=target, series="pooled")
        (regret,) = result.find("regret", predictor=who, target=target, series="pooled")
        priced = (
            f"It falls {readable(regret.estimate)} " if regret.estimate else "In these runs it is the best "
        )
        assert priced in word
        assert f"with probability {readable(likely.estimate)} (one at random: 0.0714)" in word
        for name in ("last checkpoint", "random checkpoint"):
            (beside,) = result.find("regret", predictor=name, target=target, series="pooled")
            assert f"{name} {readable(beside.estimate)}" in other


def test_a_choice_that_costs_nothing_is_the_best(ranked_result: Make) -> None:
    made = ranked_result()
    costless = {"estimate": 0.0, "interval": None, "reasons": {"interval": "-", "control": "-"}}
    findings = tuple(replace(f, **costless) if f.name == "regret" else f for f in made.findings)
    result = replace(made, findings=findings)
    assert (
        "largest. In these runs it is the best checkpoint; it is the best one with" in choice_words(result)[0]
    )
    assert answers(result)[0].found == "in these runs it is the best checkpoint in gain"


def test_several_series_have_one_each_and_a_mean(ranked_result: Make) -> None:
    result = ranked_result(3)
    words = choice_words(result)
    assert len(words) == 3 * 2 + 2
    assert words[2].startswith(f"\u2068{series_names(result)[1]}\u2069: For the most gain start RL at step ")
    assert words[6].startswith(
        "On average over series, in gain other choices fall short by: the last checkpoint "
    )


def test_without_gains_nobody_is_sure(ranked_result: Make) -> None:
    words = choice_words(ranked_result(seeds=0))
    assert words[2:] == ["How sure that is, nothing says: no RL was run."]


def test_flat_rewards_recommend_nothing_and_say_why(ranked_result: Make) -> None:
    words = choice_words(ranked_result(flat=tuple(range(14)), seeds=0))
    assert words[0].startswith(
        "For the most gain no checkpoint is recommended: no checkpoint has a score above 0"
    )


def test_choices_of_rivals_are_read_from_the_table(ranked_result: Make) -> None:
    result = ranked_result(3)
    scores = result.tables["scores"]
    for series in series_names(result):
        own = scores[scores["series"] == series]
        widest = own["checkpoint"][own["reward_std"] == own["reward_std"].max()].tolist()
        assert chosen(result, "reward_std", series) in widest
        row = judged_regret(result, "last checkpoint", series, "final_reward")
        assert row is not None
        assert row["checkpoint"] == own["checkpoint"].iloc[-1]
    assert chosen(ranked_result(seeds=0), "reward_std", series_names(result)[0]) == ""
    assert pooled([]) is None
