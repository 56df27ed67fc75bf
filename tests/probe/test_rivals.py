import math
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from valuelens.probe import _kernel as k
from valuelens.probe import _rivals as rivals
from valuelens.probe import _td as td

SIZES = st.fixed_dictionaries(
    {
        "batch": st.integers(1, 3),
        "n": st.integers(1, 10),
        "extra": st.integers(0, 2),
        "num_states": st.integers(1, 5),
        "seed": st.integers(0, 10_000),
    }
)
laws = settings(max_examples=25, deadline=None)
ALPHA, LAYERS = 0.3, 3


def case(batch=2, n=8, extra=1, num_states=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    states = torch.randint(num_states, (batch, n + 1 + extra), generator=g)
    table = torch.randn(batch, num_states, 3, generator=g, dtype=torch.float64)
    return SimpleNamespace(
        n=n,
        num_states=num_states,
        states=states,
        features=table[torch.arange(batch)[:, None], states],
        rewards=torch.randn(batch, n, generator=g, dtype=torch.float64),
        values=torch.randn(batch, n + 1 + extra, generator=g, dtype=torch.float64),
        gamma=torch.rand((), generator=g).item(),
    )


def arguments(c):
    return {"gamma": c.gamma, "alpha": ALPHA, "num_layers": LAYERS}


def loop_weights(c, b, update):
    """Values after 0..LAYERS sweeps of weights <- weights + ALPHA / n * sum_k update(k, delta_k, ...)."""
    x, weights, out = c.features[b], torch.zeros(3, dtype=torch.float64), []
    for _ in range(LAYERS + 1):
        out.append(x @ weights)
        deltas = [c.rewards[b, i] + c.gamma * x[i + 1] @ weights - x[i] @ weights for i in range(c.n)]
        weights = weights + ALPHA / c.n * sum(update(x, i, deltas[i]) for i in range(c.n))
    return torch.stack(out)


def check_linear(c, iterates, update):
    for b in range(len(c.states)):
        assert_close(iterates[:, b], loop_weights(c, b, update), atol=1e-10, rtol=1e-10)


@laws
@given(SIZES)
def test_tabular_td_equals_loop(sizes):
    c = case(**sizes)
    out = rivals.tabular_td(c.states, c.rewards, **arguments(c))
    for b, states in enumerate(c.states.tolist()):
        table = [0.0] * c.num_states
        for iterate in out[:, b]:
            assert_close(iterate, torch.tensor([table[s] for s in states], dtype=torch.float64))
            deltas = [
                c.rewards[b, i].item() + c.gamma * table[states[i + 1]] - table[states[i]] for i in range(c.n)
            ]
            own = [[d for i, d in enumerate(deltas) if states[i] == s] or deltas for s in range(c.num_states)]
            table = [v + ALPHA * sum(d) / len(d) for v, d in zip(table, own, strict=True)]


@laws
@given(SIZES)
def test_linear_td_equals_loop(sizes):
    c = case(**sizes)
    check_linear(c, rivals.linear_td(c.features, c.rewards, **arguments(c)), lambda x, i, delta: delta * x[i])


@laws
@given(SIZES)
def test_residual_gradient_equals_loop(sizes):
    c = case(**sizes)
    out = rivals.residual_gradient(c.features, c.rewards, **arguments(c))
    check_linear(c, out, lambda x, i, delta: delta * (x[i] - c.gamma * x[i + 1]))


def test_residual_gradient_descends_the_mean_squared_td_error():
    c = case(batch=1)
    weights = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    values = c.features[0] @ weights
    error = td.td_error(values[: c.n], c.rewards[0], c.gamma, values[1 : c.n + 1])
    (gradient,) = torch.autograd.grad(error.square().mean() / 2, weights)
    out = rivals.residual_gradient(c.features, c.rewards, **arguments(c))
    assert_close(out[1, 0], c.features[0] @ (-ALPHA * gradient))


@laws
@given(SIZES, st.floats(0, 1))
def test_td_lambda_equals_loop_with_traces(sizes, lambda_):
    c = case(**sizes)

    def update(x, i, delta):
        trace = torch.zeros(3, dtype=torch.float64)
        for past in range(i + 1):
            trace = c.gamma * lambda_ * trace + x[past]
        return delta * trace

    check_linear(c, rivals.td_lambda(c.features, c.rewards, **arguments(c), lambda_=lambda_), update)


@laws
@given(SIZES)
def test_source_centred_linear_td_equals_loop(sizes):
    c = case(**sizes)
    out = rivals.source_centred_linear_td(c.features, c.rewards, **arguments(c))
    for b, x in enumerate(c.features):
        centre, values = sum(x[: c.n]) / c.n, torch.zeros(len(x), dtype=torch.float64)
        for iterate in out[:, b]:
            assert_close(iterate, values)
            deltas = [c.rewards[b, i] + c.gamma * values[i + 1] - values[i] for i in range(c.n)]
            pull = sum(delta * (x[i] - centre) for i, delta in enumerate(deltas)) / c.n
            values = values + ALPHA * torch.stack([sum(deltas) / c.n + x_j @ pull for x_j in x])


@laws
@given(SIZES)
def test_softmax_td_of_a_log_similarity_is_non_parametric_td(sizes):
    c = case(**sizes)
    g = k.log_rbf_scores(c.features, c.features[:, : c.n], 0.8)
    softmax = td.softmax_td(
        torch.zeros_like(c.values),
        c.rewards,
        k.softmax_kernel(g),
        gamma=c.gamma,
        num_layers=LAYERS,
        w=ALPHA * k.TD_WEIGHTS,
    )
    out = rivals.non_parametric_td((g - g.amax(-1, keepdim=True)).exp(), c.rewards, **arguments(c))
    assert_close(softmax, out, atol=1e-12, rtol=1e-12)
    similarity, first = g.exp(), torch.zeros_like(c.values)
    for b, j in torch.cartesian_prod(torch.arange(len(g)), torch.arange(g.shape[1])).tolist():
        first[b, j] = (
            ALPHA * sum(similarity[b, j, i] * c.rewards[b, i] for i in range(c.n)) / similarity[b, j].sum()
        )
    assert_close(out[1], first)


def test_sharp_one_hot_softmax_td_approaches_tabular_td_exponentially():
    # State 4 is never a source: all its scores tie, at every sharpness.
    states = torch.tensor([[0, 1, 2, 0, 3, 3, 1, 2, 4], [3, 2, 1, 0, 1, 1, 2, 3, 0]])
    c = case(n=8, extra=0)
    x = torch.nn.functional.one_hot(states, 5).double()
    args = {"gamma": 0.5, "w": 1.0 * k.TD_WEIGHTS}
    tabular = td.softmax_td_step(c.values, c.rewards, rivals.tabular_td_kernel(states, 8), **args)

    def error(sharpness):
        kernel = k.softmax_kernel(sharpness * k.inner_product_scores(x, x[:, :8]))
        return (td.softmax_td_step(c.values, c.rewards, kernel, **args) - tabular).abs()

    for sharpness in (10.0, 14.0, 18.0):
        ratio = error(sharpness + 2)[error(sharpness) > 1e-12].max() / error(sharpness).max()
        assert_close(ratio.item(), math.exp(-2), rtol=2e-3, atol=0)
    assert error(200.0).max() < 1e-13
    assert error(1.0)[0, 8] < 1e-13


def test_small_features_approach_source_centred_linear_td_at_fourth_order():
    # The state-dependent part of the increment is of order scale^2; what is left beyond it falls as scale^4.
    c = case(batch=3, n=12)
    scales = [2.0**-p for p in range(3, 7)]
    leading, beyond = [], []
    for scale in scales:
        x = scale * c.features
        softmax = k.softmax_kernel(k.inner_product_scores(x, x[:, : c.n]))
        centred = rivals.source_centred_kernel(x, c.n)
        step = [
            td.softmax_td_step(c.values, c.rewards, kernel, gamma=c.gamma) for kernel in (softmax, centred)
        ]
        mean = td.softmax_td_step(c.values, c.rewards, torch.full_like(softmax, 1 / c.n), gamma=c.gamma)
        leading.append((step[1] - mean).abs().max().log2().item())
        beyond.append((step[0] - step[1]).abs().max().log2().item())
    assert_close([a - b for a, b in pairwise(leading)], [2.0] * 3, atol=1e-3, rtol=0)
    slope = (beyond[0] - beyond[-1]) / 3
    assert 3.9 < slope < 4.1
    assert 3.95 < beyond[-2] - beyond[-1] < 4.05


@laws
@given(SIZES)
def test_td_lambda_without_traces_and_residual_gradient_without_future_are_linear_td(sizes):
    c = case(**sizes)
    linear = rivals.linear_td(c.features, c.rewards, **arguments(c))
    assert_close(rivals.td_lambda(c.features, c.rewards, **arguments(c), lambda_=0.0), linear)
    myopic = {**arguments(c), "gamma": 0.0}
    linear = rivals.linear_td(c.features, c.rewards, **myopic)
    assert_close(rivals.residual_gradient(c.features, c.rewards, **myopic), linear)
    assert_close(rivals.td_lambda(c.features, c.rewards, **myopic, lambda_=0.9), linear)


def test_tabular_td_is_linear_td_with_one_hot_features_and_equal_visits():
    states = torch.tensor([[0, 1, 2, 0, 1, 2, 0]])
    rewards = case(batch=1, n=6).rewards
    x = torch.nn.functional.one_hot(states, 3).double()
    tabular = rivals.tabular_td(states, rewards, gamma=0.5, alpha=0.3, num_layers=4)
    assert_close(rivals.linear_td(x, rewards, gamma=0.5, alpha=0.9, num_layers=4), tabular)


def converging():
    c = case(batch=3, n=40, num_states=6)
    c.gamma = 0.5
    return c


def test_lstd_is_the_limit_of_linear_td():
    c = converging()
    last = rivals.linear_td(c.features, c.rewards, gamma=0.5, alpha=0.3, num_layers=2000)[-1]
    assert_close(rivals.lstd(c.features, c.rewards, gamma=0.5, ridge=0.0), last, atol=1e-9, rtol=0)


def test_lstd_zeroes_the_ridged_projected_td_error():
    c = converging()
    values = rivals.lstd(c.features, c.rewards, gamma=0.5, ridge=0.2)
    for b, x in enumerate(c.features):
        weights = torch.linalg.lstsq(x, values[b]).solution
        update = (
            sum((c.rewards[b, i] + 0.5 * values[b, i + 1] - values[b, i]) * x[i] for i in range(c.n)) / c.n
        )
        assert_close(update, 0.2 * weights)


def test_monte_carlo_without_future_is_lstd_and_the_limit_of_linear_td():
    c = converging()
    out = rivals.monte_carlo(c.features, c.rewards, gamma=0.0, ridge=0.1)
    assert_close(out, rivals.lstd(c.features, c.rewards, gamma=0.0, ridge=0.1))
    last = rivals.linear_td(c.features, c.rewards, gamma=0.0, alpha=0.3, num_layers=2000)[-1]
    assert_close(rivals.monte_carlo(c.features, c.rewards, gamma=0.0, ridge=0.0), last, atol=1e-9, rtol=0)


@laws
@given(SIZES)
def test_monte_carlo_equals_ridge_regression_on_looped_returns(sizes):
    c = case(**sizes)
    out = rivals.monte_carlo(c.features, c.rewards, gamma=c.gamma, ridge=0.1)
    returns = rivals.monte_carlo_returns(c.rewards, gamma=c.gamma)
    for b, x in enumerate(c.features):
        expected, tail = [], 0.0
        for reward in reversed(c.rewards[b].tolist()):
            tail = reward + c.gamma * tail
            expected.insert(0, tail)
        assert_close(returns[b].tolist(), expected)
        # Ridge is least squares on d more rows, sqrt(n ridge) I with target 0.
        rows = torch.cat([x[: c.n], math.sqrt(0.1 * c.n) * torch.eye(3, dtype=torch.float64)])
        targets = torch.tensor([*expected, 0.0, 0.0, 0.0], dtype=torch.float64)
        assert_close(out[b], x @ torch.linalg.lstsq(rows, targets).solution)


def test_returns_at_full_discount_are_reward_sums_to_go():
    assert_close(
        rivals.monte_carlo_returns(torch.ones(1, 4), gamma=1.0), torch.tensor([[4.0, 3.0, 2.0, 1.0]])
    )
    assert_close(rivals.monte_carlo_returns(torch.ones(1, 4), gamma=0.0), torch.ones(1, 4))


@laws
@given(SIZES)
def test_kernel_regression_is_the_first_layer_from_zero(sizes):
    c = case(**sizes)
    kernel = k.softmax_kernel(k.inner_product_scores(c.features, c.features[:, : c.n]))
    first = td.softmax_td(torch.zeros_like(c.values), c.rewards, kernel, gamma=c.gamma, num_layers=1)[1]
    masked = torch.cat([kernel, torch.zeros_like(kernel)], dim=-1)
    assert_close(rivals.kernel_regression(c.rewards, masked), first)
    ones = torch.ones_like(c.rewards)
    assert_close(rivals.kernel_regression(ones, kernel), torch.ones_like(c.values))


def test_float32_stays_float32():
    out = rivals.tabular_td(
        torch.zeros(1, 3, dtype=torch.int64), torch.ones(1, 2), gamma=0.5, alpha=1.0, num_layers=2
    )
    assert out.dtype == torch.float32


def test_similarities_must_be_weights():
    text = r"similarities must be >= 0 with positive row sums; found smallest -1, smallest row sum 1; non_parametric"
    with pytest.raises(ValueError, match=text):
        rivals.non_parametric_td_kernel(torch.tensor([[[-1.0, 2.0]]]))
    with pytest.raises(ValueError, match=r"found smallest 0, smallest row sum 0; non_parametric_td"):
        rivals.non_parametric_td_kernel(torch.zeros(1, 2, 2))


@pytest.mark.parametrize("rule", ["linear_td_kernel", "source_centred_kernel", "tabular_td_kernel"])
def test_kernels_refuse_too_few_columns(rule):
    columns = torch.zeros(1, 2, dtype=torch.int64) if rule == "tabular_td_kernel" else torch.ones(1, 2, 3)
    with pytest.raises(
        ValueError, match=r"2 transitions need at least 3 columns; found 2; rival of softmax TD"
    ):
        getattr(rivals, rule)(columns, 2)


@pytest.mark.parametrize("rule", [rivals.lstd, rivals.monte_carlo])
def test_solved_rules_refuse_too_few_columns(rule):
    with pytest.raises(
        ValueError, match=r"2 transitions need at least 3 columns; found 2; rival of softmax TD"
    ):
        rule(torch.ones(1, 2, 3), torch.ones(1, 2), gamma=0.5, ridge=0.1)
