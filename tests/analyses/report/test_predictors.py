"""Predictors and checkpoints have names that can be read, in any direction of writing."""

import pytest

from valuelens.analyses.impact import RIVALS
from valuelens.analyses.report._predictors import NAMES, checkpoint_name, checkpoint_words, predictor_name


def test_every_rival_has_a_name() -> None:
    assert set(RIVALS) <= set(NAMES)


@pytest.mark.parametrize(
    ("predictor", "name"),
    [
        ("reward + impact", "reward + signal x headroom"),
        ("correlation of reward_std", "correlation of standard deviation of rewards"),
        ("choice of held_out_loss", "choice of held-out loss, negated"),
        ("signal_usable x headroom_tilt", "signal usable x headroom tilt"),
    ],
)
def test_joined_names_are_read(predictor: str, name: str) -> None:
    assert predictor_name(predictor) == name


@pytest.mark.parametrize(
    ("label", "short", "words"),
    [
        ("step-00000000", "0", "step 0"),
        ("run/checkpoint-1500", "1,500", "step 1,500"),
        ("שלב", "שלב", "\u2068שלב\u2069"),
        ("a" * 23, "aaaaaaaaaa…aaaaaaaaaa", "a" * 23),
    ],
)
def test_checkpoints_are_named_short_and_in_words(label: str, short: str, words: str) -> None:
    assert (checkpoint_name(label), checkpoint_words(label)) == (short, words)
    assert checkpoint_name("step-7", step="step ") == "step 7"
