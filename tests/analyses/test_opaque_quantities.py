"""Quantities stand in the column where a network would keep them; choices fall on training contexts."""

import torch
from torch.testing import assert_close

from valuelens.analyses._opaque_quantities import (
    COPIED,
    ERROR,
    MOVED,
    NEXT,
    REWARD,
    TARGET,
    VALUE,
    as_chosen,
    decoded,
    quantities,
)
from valuelens.analyses._opaque_rules import SOFTMAX, FittedRule
from valuelens.models.icrl import Context, TaskConfig, at_states, context_of, task_sampler

RULE = FittedRule(name=SOFTMAX, parameters=(0.8, 3.0), steps=3, error=0.0)


def drawn() -> tuple[Context, torch.Tensor]:
    generator = torch.Generator().manual_seed(100)
    mrp, states = task_sampler(TaskConfig(), generator).sample(12, 9, generator, torch.float64)
    return context_of(mrp, states), at_states(mrp.value, states)


def test_each_column_holds_its_own() -> None:
    context, truth = drawn()
    named = {each.name: each.candidates for each in quantities(context, truth, {SOFTMAX: RULE})}
    v = RULE.iterates(context)
    for j in range(1, 9):
        for step in (1, 2, 3):
            assert_close(named[VALUE][step][:, j - 1], v[step, :, j])
            assert_close(named[TARGET][step][:, j - 1], v[step, :, j + 1])
            error = context.rewards[:, j] + 0.5 * v[step, :, j + 1] - v[step, :, j]
            assert_close(named[ERROR][step][:, j - 1], error)
        assert_close(named[REWARD][0][:, j - 1], context.rewards[:, j])
        assert_close(named["R_j, one column late"][0][:, j - 1], context.rewards[:, j - 1])
        assert_close(named["v_pi(S_j)"][0][:, j - 1], truth[:, j])
        assert_close(named["v_pi(S_j+1)"][0][:, j - 1], truth[:, j + 1])
        assert_close(named[NEXT][0][:, j - 1], context.features[:, j + 1, -1])
    assert list(named[MOVED]) == list(named[COPIED]) == [1, 2]


def test_the_iterate_that_a_stream_shows_is_chosen_and_scored_beside_controls() -> None:
    context, truth = drawn()
    wanted = quantities(context, truth, {SOFTMAX: RULE})[:2]
    generator = torch.Generator().manual_seed(0)
    v = RULE.iterates(context)
    stream = torch.stack([v[2], torch.randn(12, 10, generator=generator, dtype=torch.float64)], dim=-1)
    value, target = decoded(stream, wanted, generator)
    assert value.iterate == 2
    assert value.r2 > 0.999
    assert_close(value.target, v[2][:, 1:9])
    assert_close(value.weights, torch.tensor([1.0, 0.0], dtype=torch.float64), atol=1e-4, rtol=0)
    for residual, total in (value.other, value.shuffled):
        assert 1 - float(residual.sum() / total.sum()) < 0.3
    assert target.r2 < 0.9
    chosen = as_chosen([value])[0]
    assert_close(chosen.candidates[2], v[2][:, 1:9])
    assert list(chosen.candidates) == [2]
