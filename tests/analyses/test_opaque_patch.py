"""Patches against theta* in its dual-head form, whose memories are there to be changed by hand."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from valuelens.analyses._opaque_patch import Bench
from valuelens.analyses._opaque_rules import SOFTMAX, FittedRule
from valuelens.models.icrl import Context, TaskConfig, context_of, task_sampler, theta_star

ALPHA, C, N = 0.8, 3.0, 12
CURRENT, TARGET = -1, -2


@pytest.fixture(scope="module")
def bench() -> Bench:
    generator = torch.Generator().manual_seed(100)
    mrp, states = task_sampler(TaskConfig(), generator).sample(6, N, generator, torch.float64)
    model = theta_star(feature_dim=4, num_layers=4, gamma=0.5, alpha=ALPHA, sharpness=C, arch="dual")
    rule = FittedRule(name=SOFTMAX, parameters=(ALPHA, C), steps=4, error=0.0)
    return Bench(model=model, context=context_of(mrp, states), rule=rule, seed=0)


def changes(bench: Bench, row: int) -> Tensor:
    """Columns of the dual-head prompt, one memory of one column raised by .3."""
    change = torch.zeros(len(bench.context.states), N + 1, 7, dtype=torch.float64)
    change[:, 5, row] = 0.3
    return change


@pytest.mark.parametrize("row", [CURRENT, TARGET])
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_predicted_responses_are_those_of_the_construction(bench: Bench, row: int, layer: int) -> None:
    change = changes(bench, row)
    clean, moved = bench.run(layer, 0 * change), bench.run(layer, change)
    memories = (change[..., CURRENT], change[..., TARGET])
    returned = moved[0] - clean[0]
    assert float(returned.abs().max()) > 1e-3
    assert_close(returned, bench.predicted(memories, 3 - layer), atol=1e-10, rtol=0)
    following = (moved[1] - clean[1])[..., CURRENT] - memories[0]
    assert_close(following, bench.predicted(memories, 1), atol=1e-10, rtol=0)


def test_a_consistent_change_needs_both_memories(bench: Bench) -> None:
    """A value that moves everywhere moves in its own column, and gamma times as much in the one before."""
    v = torch.zeros(len(bench.context.states), N + 1, dtype=torch.float64)
    v[:, 5] = 1.0
    kernel, gamma = bench.rule.kernel(bench.context), bench.context.gamma
    error = gamma * v[:, 1:] - v[:, :-1]
    assert_close(
        bench.predicted((v, gamma * v.roll(-1, dims=1)), 1), ALPHA * (kernel @ error[..., None])[..., 0]
    )


def test_nothing_stays_hooked_and_extra_queries_are_left_alone(bench: Bench) -> None:
    change = changes(bench, CURRENT)
    before, _ = bench.run(1, 0 * change)
    bench.run(1, change)
    after, _ = bench.run(1, 0 * change)
    assert_close(after, before, atol=0, rtol=0)
    assert isinstance(bench.context, Context)
