"""The state form against the hooked model: same values, same gradients, whatever restricted `tsm` it is."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from valuelens.models.icrl import (
    LinearAttention,
    MarkovRewardProcess,
    ModelConfig,
    SoftmaxTD,
    context_of,
    context_statistics,
    has_state_form,
    state_form_values,
)


def process(S, d, seed):
    g = torch.Generator().manual_seed(seed)
    return MarkovRewardProcess(
        P=torch.full((2, S, S), 1 / S, dtype=torch.float64),
        r=torch.randn(2, S, generator=g, dtype=torch.float64),
        p0=torch.full((2, S), 1 / S, dtype=torch.float64),
        features=torch.randn(2, S, d, generator=g, dtype=torch.float64),
        gamma=0.8,
    )


def learner(d, *, num_layers=3, tied=True, seed=0):
    config = ModelConfig(num_layers=num_layers, tied=tied)
    g = torch.Generator().manual_seed(seed)
    model = SoftmaxTD(config, feature_dim=d, gamma=0.8, generator=g).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8)
    return model


@settings(max_examples=25)
@given(
    S=st.integers(1, 6),
    d=st.integers(1, 4),
    n=st.integers(1, 10),
    num_layers=st.integers(1, 4),
    tied=st.booleans(),
    seed=st.integers(0, 999),
)
def test_values_and_gradients_are_the_hooked_models_at_every_state(S, d, n, num_layers, tied, seed):
    mrp, model = process(S, d, seed), learner(d, num_layers=num_layers, tied=tied, seed=seed)
    states = torch.randint(S, (2, n + 1), generator=torch.Generator().manual_seed(seed))
    by_column = model.values(context_of(mrp, states), mrp.features)
    by_state = state_form_values(model, context_statistics(mrp, states))
    assert_close(by_state, by_column, atol=1e-10, rtol=1e-10)
    gradients = [
        torch.autograd.grad(values.square().sum(), list(model.parameters()))
        for values in (by_column, by_state)
    ]
    assert_close(gradients[1], gradients[0], atol=1e-10, rtol=1e-10)


def test_statistics_of_a_trajectory_by_hand():
    """0 -> 1 -> 0 -> 2: 0 twice a source (once to 1, once to 2), 1 once, 2 never."""
    mrp = process(3, 2, seed=0)
    statistics = context_statistics(mrp, torch.tensor([[0, 1, 0, 2], [1, 1, 1, 1]]))
    counts = torch.tensor([[2.0, 1, 0], [0, 3, 0]], dtype=torch.float64)
    assert_close(statistics.log_counts, counts.log())
    transitions = torch.zeros(2, 3, 3, dtype=torch.float64)
    transitions[0, 0, 1] = transitions[0, 0, 2] = 0.5
    transitions[0, 1, 0] = transitions[1, 1, 1] = 1
    assert_close(statistics.transitions, transitions)
    assert_close(statistics.query, torch.tensor([2, 1]))
    assert_close((statistics.features, statistics.rewards), (mrp.features, mrp.r))


@pytest.mark.parametrize("arch", ["tsm", "dual"])
@pytest.mark.parametrize("weights", ["restricted", "full", "factored"])
def test_only_restricted_tsm_has_it(arch, weights):
    config = ModelConfig(arch=arch, weights=weights, num_layers=2)
    model = SoftmaxTD(config, feature_dim=2, gamma=0.8, generator=torch.Generator())
    assert has_state_form(model) == (arch == "tsm" and weights == "restricted")


def test_linear_attention_has_none():
    config = ModelConfig(arch="linear", num_layers=2)
    linear = LinearAttention(config, feature_dim=2, gamma=0.8, generator=torch.Generator())
    assert not has_state_form(linear)
