from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from valuelens.probe import _kernel as k
from valuelens.probe import _td as td

SIZES = st.fixed_dictionaries(
    {
        "batch": st.integers(1, 4),
        "n": st.integers(1, 12),
        "extra": st.integers(0, 3),
        "num_states": st.integers(1, 6),
        "seed": st.integers(0, 10_000),
    }
)
laws = settings(max_examples=30, deadline=None)


def case(batch=2, n=6, extra=0, num_states=4, seed=0, closed=False, sharpness=1.0):
    g = torch.Generator().manual_seed(seed)
    table = torch.randn(batch, num_states, 3, generator=g, dtype=torch.float64)
    states = torch.randint(num_states, (batch, n + 1 + extra), generator=g)
    if closed:
        states[:, n] = states[:, 0]
    rows = torch.arange(batch)[:, None]
    features = table[rows, states]
    rewards = torch.randn(batch, n, generator=g, dtype=torch.float64)
    scores = sharpness * k.inner_product_scores(table, table)
    table_values = torch.randn(batch, num_states, generator=g, dtype=torch.float64)
    return SimpleNamespace(
        n=n,
        num_states=num_states,
        states=states,
        features=features,
        rewards=rewards,
        kernel=k.softmax_kernel(sharpness * k.inner_product_scores(features, features[:, :n])),
        every=k.state_kernel_from_scores(scores, states, rewards),
        table_values=table_values,
        values=table_values[rows, states],
        w=torch.randn(3, generator=g, dtype=torch.float64),
        gamma=torch.rand((), generator=g).item(),
    )


def loop_step(c, values, kernel, w):
    out = values.clone()
    for b in range(values.shape[0]):
        for j in range(values.shape[1]):
            for i in range(c.n):
                error = w[0] * c.rewards[b, i] + w[1] * c.gamma * values[b, i + 1] + w[2] * values[b, i]
                out[b, j] += kernel[b, j, i] * error
    return out


def test_td_error():
    v = torch.tensor([1.0, 2.0, 4.0])
    assert_close(td.td_error(v[:-1], torch.tensor([3.0, 5.0]), 0.5, v[1:]), torch.tensor([3.0, 5.0]))


@laws
@given(SIZES)
def test_step_equals_loop(sizes):
    c = case(**sizes)
    assert_close(
        td.softmax_td_step(c.values, c.rewards, c.kernel, gamma=c.gamma, w=c.w),
        loop_step(c, c.values, c.kernel, c.w),
    )


@laws
@given(SIZES)
def test_step_at_theta_star_adds_attended_td_errors(sizes):
    c = case(**sizes)
    delta = td.td_error(c.values[:, : c.n], c.rewards, c.gamma, c.values[:, 1 : c.n + 1])
    expected = c.values + 0.3 * torch.einsum("bjk,bk->bj", c.kernel, delta)
    assert_close(
        td.softmax_td_step(c.values, c.rewards, c.kernel, gamma=c.gamma, w=0.3 * k.TD_WEIGHTS), expected
    )


def test_extra_queries_and_masked_keys_change_nothing():
    c = case(extra=3)
    pattern = torch.cat([c.kernel, torch.zeros(2, 10, 4, dtype=torch.float64)], dim=-1)
    long = td.softmax_td(c.values, c.rewards, pattern, gamma=0.9, num_layers=4)
    short = td.softmax_td(c.values[:, :7], c.rewards, c.kernel[:, :7], gamma=0.9, num_layers=4)
    assert_close(long[..., :7], short)


@pytest.mark.parametrize("kernel_layers", [None, 3])
@pytest.mark.parametrize("weight_layers", [None, 3])
def test_iterates_equal_a_loop_with_one_kernel_and_weight_or_one_a_layer(kernel_layers, weight_layers):
    c = case()
    g = torch.Generator().manual_seed(1)
    w = torch.randn(3, 3, generator=g, dtype=torch.float64)
    kernels = torch.softmax(torch.randn(3, 2, 7, 6, generator=g, dtype=torch.float64), -1)
    out = td.softmax_td(
        c.values,
        c.rewards,
        kernels if kernel_layers else kernels[0],
        gamma=c.gamma,
        num_layers=3,
        w=w if weight_layers else w[0],
    )
    values = c.values
    assert_close(out[0], values)
    for layer in range(3):
        values = loop_step(
            c, values, kernels[layer if kernel_layers else 0], w[layer if weight_layers else 0]
        )
        assert_close(out[layer + 1], values)


@laws
@given(SIZES)
def test_trajectory_form_equals_state_form(sizes):
    c = case(**sizes)
    layers = [c.w, 0.3 * c.w, 0.7 * k.TD_WEIGHTS]
    columns = td.softmax_td(c.values, c.rewards, c.kernel, gamma=c.gamma, num_layers=3, w=torch.stack(layers))
    for summary in (c.every, k.state_kernel(c.kernel, c.states, c.rewards, num_states=c.num_states)):
        table = td.softmax_td_states(
            c.table_values, summary, gamma=c.gamma, num_layers=3, w=torch.stack(layers)
        )
        read = torch.stack([iterate.gather(1, c.states) for iterate in table])
        assert_close(read, columns, atol=1e-10, rtol=1e-10)


def test_state_form_takes_one_kernel_a_layer():
    first, second = case(sharpness=1.0).every, case(sharpness=3.0).every
    start = case().table_values
    out = td.softmax_td_states(start, [first, second], gamma=0.9, num_layers=2)
    one = td.softmax_td_states_step(start, first, gamma=0.9)
    assert_close(out, torch.stack([start, one, td.softmax_td_states_step(one, second, gamma=0.9)]))


@laws
@given(SIZES)
def test_iteration_matrix_is_the_jacobian_of_a_state_step(sizes):
    c = case(**sizes)
    jacobian = torch.autograd.functional.jacobian(
        lambda v: td.softmax_td_states_step(v, c.every, gamma=c.gamma, w=c.w), c.table_values
    )
    own = torch.stack([jacobian[b, :, b] for b in range(len(jacobian))])
    assert_close(k.value_iteration_matrix(c.every, gamma=c.gamma, w=c.w), own)


@laws
@given(SIZES)
def test_fixed_point_is_fixed_whatever_the_step_size(sizes):
    c = case(**{**sizes, "extra": 0}, closed=True, sharpness=4.0)
    point = td.fixed_point(c.every, gamma=c.gamma)
    step = td.softmax_td_states_step(point, c.every, gamma=c.gamma, w=0.3 * k.TD_WEIGHTS)
    assert_close((step - point)[c.every.visited], torch.zeros_like(point[c.every.visited]), atol=1e-8, rtol=0)
    assert_close(point[~c.every.visited], torch.zeros_like(point[~c.every.visited]))


def test_fixed_point_with_general_weights_is_the_limit_of_the_iteration():
    c = case(batch=3, n=30, closed=True, sharpness=6.0)
    w = torch.tensor([0.8, 0.5, -0.7], dtype=torch.float64)
    assert c.every.visited.all()
    assert (k.spectral_radius(c.every, gamma=0.5, w=w) < 1).all()
    last = td.softmax_td_states(c.table_values, c.every, gamma=0.5, num_layers=3000, w=w)[-1]
    assert_close(last, td.fixed_point(c.every, gamma=0.5, w=w), atol=1e-9, rtol=0)


def test_fixed_point_of_a_deterministic_cycle_is_its_true_value():
    r = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    states = torch.tensor([[0, 1, 2, 0, 1, 2, 0]])
    sharp = k.state_kernel_from_scores(1e3 * torch.eye(4).double()[None], states, r[states[:, :6]])
    true = torch.linalg.solve(torch.eye(3).double() - 0.9 * torch.eye(3).double().roll(1, 1), r)
    assert_close(td.fixed_point(sharp, gamma=0.9), torch.cat([true, torch.zeros(1).double()])[None])


def test_fixed_point_survives_states_with_equal_features():
    scores = torch.ones(1, 2, 2, dtype=torch.float64)
    rewards = torch.tensor([[1.0, 3.0, 2.0]], dtype=torch.float64)
    twins = k.state_kernel_from_scores(scores, torch.tensor([[0, 1, 1, 0]]), rewards)
    point = td.fixed_point(twins, gamma=0.5)
    assert_close(td.softmax_td_states_step(point, twins, gamma=0.5), point)


@laws
@given(SIZES)
def test_a_layer_stretches_the_distance_to_the_fixed_point_by_at_most_the_norm(sizes):
    c = case(**{**sizes, "extra": 0}, closed=True, sharpness=4.0)
    point = td.fixed_point(c.every, gamma=c.gamma)
    start = c.table_values.where(c.every.visited, 0)
    after = td.softmax_td_states_step(start, c.every, gamma=c.gamma)
    before_error = (start - point).abs().where(c.every.visited, 0).amax(-1)
    after_error = (after - point).abs().where(c.every.visited, 0).amax(-1)
    assert (after_error <= k.contraction_norm(c.every, gamma=c.gamma) * before_error + 1e-8).all()


@pytest.mark.parametrize("row", ["current", "target", "both"])
def test_memories_respond_as_the_dual_head_form_does_to_a_change(row):
    """A slow loop of the dual-head form, run with and without the change; steps are affine."""
    generator = torch.Generator().manual_seed(0)
    n, gamma, w = 5, 0.7, torch.tensor([0.9, 1.1, -0.8], dtype=torch.float64)
    rewards, start_target = torch.randn(2, n, generator=generator, dtype=torch.float64).unbind(0)
    start = torch.randn(n + 2, generator=generator, dtype=torch.float64)
    kernel = torch.randn(n + 2, n, generator=generator, dtype=torch.float64).softmax(-1)
    current, target = torch.zeros(n + 2, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    if row != "target":
        current[3] = 2.0
    if row != "current":
        target[2] = -1.5

    def run(v, t):
        seen = [v.clone()]
        for _ in range(3):
            error = [w[0] * rewards[k] + w[1] * t[k] + w[2] * v[k] for k in range(n)]
            moved = [sum(kernel[j, k] * error[k] for k in range(n)) for j in range(n + 2)]
            v = torch.stack([v[j] + moved[j] for j in range(n + 2)])
            t = torch.stack([t[j] + gamma * moved[j + 1] for j in range(n)])
            seen.append(v.clone())
        return torch.stack(seen)

    expected = run(start + current, start_target + target) - run(start, start_target)
    found = td.memory_response(current[None], target[None], kernel[None], gamma=gamma, w=w, num_layers=3)
    assert_close(found[:, 0], expected)


def test_smallest_context_is_one_transition():
    # n = 1: both columns attend to the only source, so both take its whole error.
    out = td.softmax_td_step(
        torch.tensor([[1.0, 4.0]]), torch.tensor([[2.0]]), torch.ones(1, 2, 1), gamma=0.5
    )
    assert_close(out, torch.tensor([[4.0, 7.0]]))


def test_float32_stays_float32():
    out = td.softmax_td(torch.zeros(1, 2), torch.ones(1, 1), torch.ones(1, 2, 1), gamma=0.5, num_layers=2)
    assert out.dtype == torch.float32


def test_refusals_name_rule_finding_and_place():
    one = torch.ones(1, 2, 1)
    with pytest.raises(ValueError, match=r"2 transitions need at least 3 columns; found 2; softmax_td_step"):
        td.softmax_td_step(torch.zeros(1, 2), torch.ones(1, 2), one, gamma=0.5)
    with pytest.raises(ValueError, match=r"a kernel must have at least 2 sources; found 1; softmax_td_step"):
        td.softmax_td_step(torch.zeros(1, 3), torch.ones(1, 2), torch.ones(1, 3, 1), gamma=0.5)
    with pytest.raises(ValueError, match=r"kernels must be one or 3; found 2; softmax TD"):
        td.softmax_td(torch.zeros(1, 2), torch.ones(1, 1), torch.stack([one, one]), gamma=0.5, num_layers=3)
    with pytest.raises(ValueError, match=r"w must be one or 3; found 2; softmax TD"):
        td.softmax_td(torch.zeros(1, 2), torch.ones(1, 1), one, gamma=0.5, num_layers=3, w=torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"kernels must be one or 2; found 1; softmax_td_states"):
        td.softmax_td_states(case().table_values, [case().every], gamma=0.5, num_layers=2)
