"""What a row of scores says, and when it says nothing."""

import math

import pytest

from valuelens.analyses.impact import remarks


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ({}, []),
        ({"frac_reward_zero_std": 0.0, "gap_relaxed": math.nan, "gap_discrete": math.nan}, []),
        ({"frac_reward_zero_std": 1.0, "update_aligned": 0.0}, ["Rewards are equal within every group"]),
        (
            {"frac_reward_zero_std": 0.25, "update_aligned": 0.1},
            ["Rewards are equal within 25% of the groups"],
        ),
        (
            {"frac_reward_zero_std": 0.97, "update_aligned": 0.0},
            ["Rewards are equal within 97%", "Rewards differ in one half of the prompts only"],
        ),
        (
            {"gap_relaxed": 0.01, "gap_discrete": 0.5},
            ["The relaxed gap is small (0.01), the discrete one is not"],
        ),
        ({"gap_relaxed": 0.01, "gap_discrete": math.nan}, []),
        ({"gap_relaxed": 0.4, "gap_discrete": 0.5}, []),
        ({"gap_relaxed": 0.01, "gap_discrete": 0.02}, []),
    ],
)
def test_what_is_said(scores: dict[str, float], said: list[str]) -> None:
    found = remarks(scores)
    assert len(found) == len(said)
    for sentence, beginning in zip(found, said, strict=True):
        assert sentence.startswith(beginning)
