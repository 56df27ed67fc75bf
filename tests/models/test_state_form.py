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
    population_statistics,
    rollout,
    state_form_iterates,
    state_form_values,
)
from valuelens.probe import bilinear_scores, population_state_kernel, softmax_td_states


def process(S, d, seed):
    g = torch.Generator().manual_seed(seed)
    return MarkovRewardProcess(
        P=(2 * torch.randn(2, S, S, generator=g, dtype=torch.float64)).softmax(-1),
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


@pytest.mark.parametrize("tied", [True, False])
def test_iterates_pass_through_the_values_and_go_on_with_tied_layers(tied):
    mrp, model = process(4, 3, seed=0), learner(3, tied=tied)
    states = torch.randint(4, (2, 8), generator=torch.Generator().manual_seed(0))
    context = context_of(mrp, states), context_statistics(mrp, states)
    layers = {"A": model.A_features.detach(), "w": model.get_parameter("w").detach()}
    iterates = state_form_iterates(*layers.values(), context[1], gamma=0.8, num_layers=6)
    assert iterates.shape == (7, 2, 4)
    assert_close(iterates[0], torch.zeros(2, 4, dtype=torch.float64))
    assert_close(iterates[3], model.values(context[0], mrp.features).detach())
    if tied:
        deeper = learner(3, num_layers=6)
        assert_close(iterates[6], deeper.values(context[0], mrp.features).detach())


def test_in_the_population_it_is_the_recursion_with_the_population_kernel():
    mrp, g = process(5, 3, seed=1), torch.Generator().manual_seed(1)
    A, w = (torch.randn(1, *size, generator=g, dtype=torch.float64) for size in ((3, 3), (3,)))
    kernel = population_state_kernel(
        bilinear_scores(mrp.features, mrp.features, A[0]), mrp.P, mrp.r, mrp.stationary
    )
    found = state_form_iterates(A, w, population_statistics(mrp), gamma=0.8, num_layers=4)
    expected = softmax_td_states(torch.zeros_like(mrp.r), kernel, gamma=0.8, num_layers=4, w=w[0])
    assert_close(found, expected)


@pytest.mark.slow
def test_long_contexts_approach_the_population_map_at_rate_one_over_root_n():
    g = torch.Generator().manual_seed(0)
    one = process(4, 3, seed=2)
    parts = {
        name: getattr(one, name)[:1].expand(64, *getattr(one, name)[:1].shape[1:])
        for name in ("P", "r", "p0")
    }
    mrp = MarkovRewardProcess(**parts, features=one.features[:1].expand(64, 4, 3), gamma=0.8)
    A = torch.randn(1, 3, 3, generator=g, dtype=torch.float64)
    w = torch.tensor([[1.0, 1.0, -1.0]], dtype=torch.float64)
    states = rollout(mrp, 6400, g)

    def values(context):
        return state_form_iterates(A, w, context, gamma=0.8, num_layers=5)[-1]

    limit = values(population_statistics(mrp))
    errors = [
        float((values(context_statistics(mrp, states[:, : n + 1])) - limit).square().mean().sqrt())
        for n in (100, 400, 1600, 6400)
    ]
    slopes = torch.tensor(errors).log().diff() / torch.tensor(4.0).log()
    assert abs(float(slopes.mean()) + 0.5) < 0.1
