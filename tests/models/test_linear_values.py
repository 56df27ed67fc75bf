"""Linear attention that shows the values of its context: they are linear TD's, and its function is unchanged."""

import pytest
import torch

from valuelens.models.icrl import Context, TaskConfig, context_of, network_of, task_sampler, theta_td
from valuelens.models.icrl._linear_values import LinearAttentionValues
from valuelens.probe import linear_td

GAMMA, STEP, LAYERS = 0.6, 0.7, 4


@pytest.fixture
def context(generator: torch.Generator) -> Context:
    task = TaskConfig(feature_dim=3, context_length=12, gamma=GAMMA)
    mrp, states = task_sampler(task, generator).sample(4, 12, generator, torch.float64)
    return context_of(mrp, states)


@pytest.fixture
def model() -> LinearAttentionValues:
    construction = theta_td(feature_dim=3, num_layers=LAYERS, gamma=GAMMA, alpha=STEP, dtype=torch.float64)
    return LinearAttentionValues(construction)


def test_every_layer_shows_the_iterate_of_linear_td(model: LinearAttentionValues, context: Context) -> None:
    iterates = linear_td(context.features, context.rewards, gamma=GAMMA, alpha=STEP, num_layers=LAYERS)
    network = network_of(model)
    returned, cache = model.run_with_cache(*network.inputs(context, context.features[:, :2]))
    for slot in network.slots:
        torch.testing.assert_close(cache[slot.hook], iterates[slot.layer + 1], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(returned[:, 0], iterates[-1, :, -1], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(returned[:, 1:], iterates[-1, :, :2], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("extra", [0, 1, 5])
def test_the_function_is_that_of_the_attention_inside(
    model: LinearAttentionValues, context: Context, extra: int
) -> None:
    queries = context.features[:, :extra]
    returned = model(model.prompt(context, queries), 1 + extra)
    expected = model.inner(model.inner.prompt(context, queries), 1 + extra)
    torch.testing.assert_close(returned, expected, rtol=1e-12, atol=1e-12)
