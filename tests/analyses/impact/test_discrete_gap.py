"""The exact gap of hop 0: what it misses is the credit of sampling, which the surrogate gives."""

import dataclasses
import math
from typing import Any

import pytest
import torch

from valuelens.analyses.impact._discrete_gap import discrete_gap
from valuelens.models.lm import Rollouts
from valuelens.probe import (
    Sampling,
    Surrogate,
    TargetProbability,
    continuations,
    enumerated_value_gradient,
    language_costates,
    state_logits,
)

SAMPLING = Sampling(temperature=0.9)


@pytest.fixture(scope="module")
def rollouts(copier: Any) -> Rollouts:
    """No completion holds the end-of-sequence token: it might have ended one."""
    found = copier.sample(num_prompts=20, num_generations=16)
    replaced = tuple(tuple(4 if token == 1 else token for token in each) for each in found.completion_ids)
    return dataclasses.replace(found, completion_ids=replaced)


def test_what_is_missed_is_the_credit_of_sampling(copier: Any, rollouts: Rollouts) -> None:
    """dV/dh = E[dRew/dh + Rew sum_k d log pi / dh] (theory B2)."""
    model, prefix = copier.model.model, rollouts.prompt_ids[0]
    every = continuations(prefix, vocabulary=7, horizon=2)
    reward = TargetProbability(targets=torch.tensor([(rollouts.targets or ())[0]]), sampling=SAMPLING)
    whole = enumerated_value_gradient(model, every, reward.values, layers=[2], sampling=SAMPLING)
    rewards = reward.values(state_logits(model, every), every)
    sampled = Surrogate(weights=rewards[:, None].expand(-1, 2), sampling=SAMPLING)
    costates = language_costates(model, every, sampled, layers=[2]).values[:, 0, 0]
    missed = (whole.log_prob.exp()[:, None] * costates).sum(0).norm() / whole.values.norm()
    gap, tokens = discrete_gap(copier.model, rollouts, 2, SAMPLING)
    assert gap == pytest.approx(float(missed), rel=1e-3)
    assert tokens == 6 * 49 * 7 <= 320 * 7


def test_prompts_are_taken_while_they_are_affordable(copier: Any, rollouts: Rollouts) -> None:
    names = ("prompt_ids", "completion_ids", "group", "ended", "targets")

    def tokens(count: int) -> int:
        some = dataclasses.replace(rollouts, **{name: getattr(rollouts, name)[:count] for name in names})
        return discrete_gap(copier.model, some, 2, SAMPLING)[1]

    assert [tokens(count) for count in (293, 294)] == [0, 6 * 49 * 7]


@pytest.mark.parametrize("change", [(3,), (4, 1), ()])
def test_completions_that_may_end_are_left_to_others(
    copier: Any, rollouts: Rollouts, change: tuple[int, ...]
) -> None:
    changed = dataclasses.replace(rollouts, completion_ids=(*rollouts.completion_ids[:-1], change))
    gap, tokens = discrete_gap(copier.model, changed, 2, SAMPLING)
    assert math.isnan(gap)
    assert tokens == 0
