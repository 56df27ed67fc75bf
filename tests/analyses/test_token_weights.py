"""What multiplies each token's log-probability, by hand."""

import dataclasses
from typing import Any

import pytest
import torch

from valuelens.analyses import Update
from valuelens.analyses._token_weights import token_weights
from valuelens.models.lm import Rollouts
from valuelens.probe import sequences
from valuelens.probe._sequences import Sequences

ROLLOUTS = Rollouts(
    prompt_ids=((1,), (1,), (2,), (2,)),
    completion_ids=((1, 2), (3,), (1, 1, 1), ()),
    group=(0, 0, 1, 1),
    ended=(True,) * 4,
    rewards=(1.0, 0.0, 3.0, 1.0),
)


@pytest.fixture
def batch() -> Sequences:
    return sequences(ROLLOUTS.prompt_ids, ROLLOUTS.completion_ids)


@pytest.mark.parametrize(
    ("update", "expected", "words"),
    [
        (Update(), [1, -1, 2, -2], "rewards minus their group's mean, times n / (n - 1)"),
        (
            Update(baseline="leave-one-out"),
            [1, -1, 2, -2],
            "rewards minus the mean of the others in their group",
        ),
        (Update(loss_type="grpo"), [0.5 / 8, -0.5 / 4, 1 / 12, -1 / 4], "rewards minus their group's mean"),
        (Update(loss_type="dapo"), [0.5 / 6, -0.5 / 6, 1 / 6, -1 / 6], "rewards minus their group's mean"),
        (
            Update(loss_type="dr_grpo"),
            [0.5 / 12, -0.5 / 12, 1 / 12, -1 / 12],
            "rewards minus their group's mean",
        ),
        (
            Update(loss_type="dr_grpo", max_completion_length=10),
            [0.5 / 40, -0.5 / 40, 1 / 40, -1 / 40],
            "rewards minus their group's mean",
        ),
        (
            Update(scale_rewards="group"),
            [0.5 / (0.5**0.5 + 1e-4), -0.5 / (0.5**0.5 + 1e-4), 1 / (2**0.5 + 1e-4), -1 / (2**0.5 + 1e-4)],
            "rewards minus their group's mean, divided by its standard deviation",
        ),
    ],
)
def test_rewards_weigh_whole_completions(
    batch: Sequences, update: Update, expected: list[float], words: str
) -> None:
    found = token_weights(ROLLOUTS, batch, update)
    torch.testing.assert_close(found.rollout, torch.tensor(expected).double(), rtol=1e-6, atol=0)
    torch.testing.assert_close(found.token, batch.valid.double())
    assert found.whole
    assert found.words == words


@pytest.mark.parametrize(
    ("changes", "expected", "words"),
    [
        (
            {"rewards": None, "advantages": ((0.5, 1.0), (2.0,), (0.0, 0.0, 3.0), ())},
            [[0.5, 1, 0], [2, 0, 0], [0, 0, 3], [0, 0, 0]],
            "advantages as logged",
        ),
        (
            {"rewards": None, "advantages": ((1.0, 1.0), (2.0,), (3.0,) * 3, ()), "advantages_scaled": True},
            [[1, 1, 0], [2, 0, 0], [3, 3, 3], [0, 0, 0]],
            "advantages as logged, divided by an unknown standard deviation: their scale is lost",
        ),
    ],
)
def test_advantages_of_tokens(
    batch: Sequences, changes: dict[str, Any], expected: list[list[float]], words: str
) -> None:
    found = token_weights(dataclasses.replace(ROLLOUTS, **changes), batch, Update())
    torch.testing.assert_close(found.rollout[:, None] * found.token, torch.tensor(expected).double())
    assert not found.whole
    assert found.words == words


def test_tokens_that_the_loss_leaves_out_weigh_nothing(batch: Sequences) -> None:
    masked = dataclasses.replace(ROLLOUTS, mask=((1, 0), (1,), (0, 0, 0), ()))
    found = token_weights(masked, batch, Update(loss_type="dapo"))
    assert found.token.tolist() == [[1, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]]
    torch.testing.assert_close(found.rollout[:2], torch.tensor([0.25, -0.25]).double())
