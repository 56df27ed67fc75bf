"""What heads a ranking, and where it comes from, is told as far as it was recorded."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from valuelens.analyses import Result
from valuelens.analyses.report._origin import model_words, origin_words, sources
from valuelens.analyses.report._origin_impact import known, ranking_subject, variant

Make = Callable[..., Result]


def test_variants_range_rollouts_and_runs_head_the_ranking(ranked_result: Make) -> None:
    assert model_words(ranked_result()) == [
        "Ranked by: subtractive signal x tilt headroom (our definition), the same for all checkpoints",
        "Tilt: beta 5 / reward range; the range is 0 to 2, so 2.50 per unit of reward",
        "Models: llama, 2 layers, width 64, vocabulary of 15, the same shape at every checkpoint",
        "Task: label-copy num_pairs 3",
        "Rollouts of a checkpoint: 512 of 32 prompts",
        "Sampling: temperature 1, from all tokens",
        "RL: recipe default, 3 seeds, with credit through time and without",
    ]


@pytest.mark.parametrize(
    ("provenance", "words"),
    [
        ({}, None),
        ({"config": {"score": {"beta": 5.0, "headroom": "tilt"}}}, "Tilt: beta 5 / reward range"),
        (
            {"config": {"beta": 2, "reward_range": [1.0, 1.0]}},
            "Tilt: beta 2 / reward range; the range is 1 to 1",
        ),
        ({"beta": 5.0, "headroom": "shortfall"}, None),
        (
            {"beta": 5.0, "task": {"reward_range": [0, 1]}},
            "Tilt: beta 5 / reward range; the range is 0 to 1, so 5 per unit of reward",
        ),
    ],
)
def test_beta_is_told_where_it_matters(ranked_result: Make, provenance: dict, words: str | None) -> None:
    told = model_words(replace(ranked_result(), provenance=provenance))
    assert [line for line in told if line.startswith("Tilt")] == ([words] if words else [])


def test_variants_that_were_not_recorded_are_recognised(ranked_result: Make) -> None:
    bare = replace(ranked_result(), provenance={"signal": "auto"})
    assert (variant(bare, "signal"), variant(bare, "headroom")) == ("subtractive", "tilt")
    flat = replace(ranked_result(flat=tuple(range(14)), seeds=0), provenance={})
    assert (variant(flat, "signal"), variant(flat, "headroom")) == ("", "")
    assert (
        model_words(flat)[0] == "Ranked by: signal x headroom (our definition), the same for all checkpoints"
    )


def test_the_subject_says_whether_rl_was_run(ranked_result: Make) -> None:
    assert ranking_subject(ranked_result(3)) == (
        "Shown are 42 checkpoints of 3 series, scored before any RL. RL was run 252 times from them to see what it "
        "brings."
    )
    assert "No RL was run" in ranking_subject(ranked_result(seeds=0))
    assert ranking_subject(Result(kind="impact")) == "Shown is a ranking of checkpoints."


def test_the_origin_is_told(ranked_result: Make) -> None:
    result = ranked_result()
    told = origin_words(result, "")
    sha = "ab" * 32
    assert f"Checkpoints: step 20 sha256 {sha}, 12 more (below), step 2,520 sha256 {sha}" in told
    assert {"Seed: 3", "Versions: torch 2"} <= set(told)
    assert sources(result) == (("value gradients in critic-free RL", "2605.21654"),)
    assert origin_words(Result(kind="impact"), "") == []
    assert known({"request": {"score": {"beta": 3}}}, "beta") == 3


def test_numbers_of_rollouts_may_differ(ranked_result: Make) -> None:
    result = ranked_result()
    scores = result.tables["scores"].assign(rollouts=[64] + [512] * 13)
    told = model_words(replace(result, tables={**result.tables, "scores": scores}))
    assert "Rollouts of a checkpoint: at least 64 of at least 32 prompts" in told
