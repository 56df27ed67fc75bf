"""Sums over costates against all costates at once, for groups that cross the borders of micro-batches."""

from typing import Any

import pytest
import torch

from valuelens.analyses._costate_measures import Request, measured
from valuelens.probe import Surrogate, language_costates, sequences


@pytest.mark.parametrize("micro_batch", [1, 3, 8])
def test_sums_are_those_of_all_costates(copier: Any, micro_batch: int) -> None:
    batch = sequences(
        [[2, 3]] * 3 + [[4]] * 2 + [[5, 2, 3]] * 4,
        [[2, 3, 4], [3], [2, 2], [2], [], [3, 3, 3], [2], [4, 4], [2, 3, 2]],
    )
    scale = torch.linspace(-1, 2, 9).double()
    request = Request(
        language_model=copier.model,
        batch=batch,
        group=[0, 0, 0, 1, 1, 2, 2, 2, 2],
        objective=Surrogate(weights=batch.valid.double()),
        scale=scale,
        layers=[0, 2],
        positions="completion",
        micro_batch=micro_batch,
    )
    done: list[tuple[int, int]] = []
    found = measured(request, lambda what, at, total: done.append((at, total)))
    whole = language_costates(copier.model.model, batch, request.objective, layers=[0, 2]).values.double()
    costates = scale[:, None, None, None] * whole
    torch.testing.assert_close(found.squares, costates.square().sum(-1), rtol=1e-4, atol=1e-8)
    torch.testing.assert_close(found.start, whole[:, :, 0], rtol=1e-4, atol=1e-6)
    assert done[-1] == (9, 9)
    assert found.layers == (0, 2)
    for group, rows in enumerate((slice(0, 3), slice(3, 5), slice(5, 9))):
        for state in range(3):
            there = batch.valid[rows, state]
            assert found.count[group, state] == there.sum()
            if there.sum() < 2:
                continue
            some = costates[rows, :, state][there]
            mean = some.mean(0)
            torch.testing.assert_close(
                found.mean_square[group, :, state], mean.square().sum(-1), rtol=1e-4, atol=1e-8
            )
            trace = (some - mean).square().sum((0, 2)) / (len(some) - 1)
            torch.testing.assert_close(found.trace[group, :, state], trace, rtol=1e-4, atol=1e-8)


def test_equal_rollouts_have_no_spread_at_all(copier: Any) -> None:
    batch = sequences([[2, 3]] * 7, [[2, 3, 4]] * 7)
    request = Request(
        language_model=copier.model,
        batch=batch,
        group=[0] * 7,
        objective=Surrogate(weights=batch.valid.double()),
        scale=torch.full((7,), 0.1).double(),
        layers=[0, 2],
        positions="completion",
        micro_batch=3,
    )
    found = measured(request)
    assert bool((found.mean_square > 0).all())
    assert not found.trace.any()
