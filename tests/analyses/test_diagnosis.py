"""Why is my reward flat: the numbers by hand, and what is said of constructed rollouts."""

import dataclasses
import math
from typing import Any

import pytest
import torch

from valuelens.analyses import Diagnosis, diagnosis
from valuelens.models.lm import Rollouts
from valuelens.probe import TokenScores

LOG_PROB = -math.log(2)


def rollouts(rewards: list[list[float]] | None, **changes: Any) -> Rollouts:
    groups = rewards or [[0.0, 0.0], [0.0, 0.0]]
    rows = [(number, reward) for number, each in enumerate(groups) for reward in each]
    plain = Rollouts(
        prompt_ids=tuple((2, 3 + number) for number, _ in rows),
        completion_ids=tuple((2, 3) for _ in rows),
        group=tuple(number for number, _ in rows),
        ended=tuple(True for _ in rows),
        rewards=None if rewards is None else tuple(reward for _, reward in rows),
        reward_range=(0.0, 1.0),
    )
    return dataclasses.replace(plain, **changes)


def diagnosed(copier: Any, sampled: Rollouts, *, entropy: float = 1.0) -> Diagnosis:
    shape = (len(sampled), 2)
    rounded = torch.zeros(shape, dtype=torch.bool)
    scores = TokenScores(
        log_prob=torch.full(shape, LOG_PROB), entropy=torch.full(shape, entropy), rounded=rounded
    )
    return diagnosis(copier.model, sampled, scores)


def test_numbers_are_those_by_hand(copier: Any) -> None:
    found = diagnosed(copier, rollouts([[0.0, 1.0], [0.5, 0.5], [0.0, 0.0]])).result
    numbers = {each.name: each.estimate for each in found.findings}
    assert numbers["reward"] == pytest.approx(1 / 3)
    assert numbers["reward_std"] == pytest.approx(math.sqrt(0.5) / 3)
    assert numbers["frac_reward_zero_std"] == pytest.approx(2 / 3)
    assert numbers["best_of_k"] == pytest.approx(0.5)
    assert found.find("best_of_k")[0].index == {"k": 2}
    assert numbers["entropy"] == pytest.approx(1.0)
    assert found.find("entropy")[0].control.estimate == pytest.approx(math.log(7))  # type: ignore[union-attr]
    assert numbers["completion_length"] == 2
    assert numbers["log_prob_mismatch"] is None
    assert list(found.tables["groups"].reward_max) == [1.0, 0.5, 0.0]
    assert list(found.tables["rollouts"].columns) == [
        *("group", "prompt_ids", "completion_ids", "ended", "log_probs", "reward")
    ]


@pytest.mark.parametrize(
    ("rewards", "said", "varies"),
    [
        ([[0, 1], [1, 0]], "Rewards differ within every one of 2 groups.", True),
        (
            [[0, 1], [1, 1], [0, 0]],
            "Rewards differ within 1 of 3 groups; the others teach nothing. In 1 every completion got the least "
            "reward, 0: no better one was sampled. In 1 every completion got the largest, 1: there is nothing left to "
            "gain.",
            True,
        ),
        (
            [[0.5, 0.5], [0.2, 0.2]],
            "No group has rewards that differ: an update that compares them is exactly zero.",
            False,
        ),
        # equal rewards whose mean rounds: 0.1 + 0.1 + 0.1 is not 3 x 0.1
        ([[0.1, 0.1, 0.1]], "No group has rewards that differ", False),
    ],
)
def test_it_says_in_words_what_the_rewards_do(
    copier: Any, rewards: list[list[float]], said: str, varies: bool
) -> None:
    found = diagnosed(copier, rollouts(rewards))
    assert found.sentence.startswith(said)
    assert found.has_variance is varies


def test_equal_rewards_have_no_standard_deviation_at_all(copier: Any) -> None:
    found = diagnosed(copier, rollouts([[0.1] * 3, [0.7] * 3])).result
    assert found.find("reward_std")[0].estimate == 0
    assert not found.tables["groups"].reward_std.any()


def test_without_a_declared_range_one_reward_for_all_points_at_the_reward_function(copier: Any) -> None:
    found = diagnosed(copier, rollouts([[0.3, 0.3], [0.3, 0.3]], reward_range=None))
    assert (
        "Every completion was given the same reward, 0.3: look at the reward function first."
        in found.sentence
    )


def test_cut_completions_and_a_narrow_policy_are_named(copier: Any) -> None:
    sampled = rollouts([[0, 1], [1, 0]], ended=(True, False, False, False))
    said = diagnosed(copier, sampled, entropy=0.01).sentence
    assert "75% of the completions were cut at their greatest length before they ended." in said
    assert "The policy is narrow: 0.01 nats of entropy, of at most 1.95." in said
    assert "narrow" not in diagnosed(copier, rollouts([[0, 1]]), entropy=1.0).sentence


def test_logged_advantages_stand_in_for_rewards(copier: Any) -> None:
    sampled = rollouts(None, advantages=((0.5, 0.5), (-0.5, -0.5), (0.0, 0.0), (0.0, 0.0)))
    found = diagnosed(copier, sampled)
    assert found.sentence.startswith("Advantages differ within 1 of 2 groups")
    assert found.has_variance
    assert not found.result.find("reward")
    assert "advantage" in found.result.tables["rollouts"]


def test_the_mismatch_is_a_median_over_logged_tokens(copier: Any) -> None:
    logged = (
        (LOG_PROB, LOG_PROB),
        (LOG_PROB, LOG_PROB - 1),
        (LOG_PROB - 0.25, LOG_PROB - 0.5),
        (LOG_PROB - 2,) * 2,
    )
    found = diagnosed(copier, rollouts([[0, 1], [1, 0]], log_probs=logged))
    assert found.mismatch == pytest.approx(0.375)  # of 0 0 0 .25 .5 1 2 2


def test_a_diagnosis_shows_its_sentence_and_its_numbers(copier: Any) -> None:
    found = diagnosed(copier, rollouts([[0.0, 1.0], [0.5, 0.5]]))
    assert str(found).splitlines()[-1] == found.sentence
    assert repr(found) == str(found)
    assert str(found).count(found.sentence) == 1
    html = found._repr_html_()
    assert found.sentence in html
    assert "frac_reward_zero_std" in html
