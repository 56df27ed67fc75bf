"""Prompts that never came out of a chain but that a network must answer all the same: interventions on contexts.

Shape legend: `batch` contexts, `pos` the n+1 columns S_0..S_n.
"""

from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from valuelens.models.icrl._mrp import Context

_FACTOR = 3.0


def counterfactuals(context: Context, generator: torch.Generator) -> dict[str, Context]:
    """Changed copies of contexts, by name; each context is changed in a place of its own.

    `one reward`: of one transition, exchanged for a number of the same spread. `one successor`: one column takes the
    features of another one, so that a transition reaches and another leaves a different state; rewards stay.
    `repetition`: two columns and their rewards come twice, in place of the first two. `order`: columns S_0..S_{n-1}
    are shuffled with their rewards, S_n stays. `small features`, `large features`: a third, three times.
    `shorter`: without the first third. `reward scale`: all rewards three times.

    Args:
        context: At least four transitions.
        generator: Draws the places, on the CPU.

    Example:
        >>> from valuelens.models.icrl import TaskConfig, context_of, task_sampler
        >>> generator = torch.Generator().manual_seed(0)
        >>> mrp, states = task_sampler(TaskConfig(), generator).sample(2, 30, generator)
        >>> changed = counterfactuals(context_of(mrp, states), generator)
        >>> list(changed)[:4], changed["shorter"].num_transitions
        (['one reward', 'one successor', 'repetition', 'order'], 20)
    """
    n, batch = context.num_transitions, len(context.states)

    def places(low: int, high: int) -> Int[Tensor, "batch"]:
        return torch.randint(low, high, (batch,), generator=generator)

    rows, columns = torch.arange(batch), torch.arange(n + 1).expand(batch, n + 1)
    rewards, spread = context.rewards.clone(), context.rewards.std(correction=0)
    drawn = torch.randn(batch, generator=generator, dtype=rewards.dtype)
    rewards[rows, places(n // 2, n)] = spread * drawn
    successor = columns.clone()
    successor[rows, places(n // 2, n)] = places(0, n)
    start = places(2, n - 1)[:, None]
    repetition = columns + torch.where(columns < start, 2, 0)
    shuffled = torch.rand(batch, n, generator=generator).argsort(-1)
    order = torch.cat([shuffled, columns[:, n:]], dim=-1)
    return {
        "one reward": replace(context, rewards=rewards),
        "one successor": replace(_taken(context, successor), rewards=context.rewards),
        "repetition": _taken(context, repetition),
        "order": _taken(context, order),
        "small features": replace(context, features=context.features / _FACTOR),
        "large features": replace(context, features=context.features * _FACTOR),
        "shorter": _taken(context, columns[:, n // 3 :]),
        "reward scale": replace(context, rewards=_FACTOR * context.rewards),
    }


def _taken(context: Context, columns: Int[Tensor, "batch taken"]) -> Context:
    """The context of some columns, the last of which is a query."""
    rows = torch.arange(len(columns))[:, None]
    return Context(
        states=context.states[rows, columns],
        features=context.features[rows, columns],
        rewards=context.rewards[rows, columns[:, :-1]],
        gamma=context.gamma,
    )
