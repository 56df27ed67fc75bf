import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from valuelens.models._errors import InputError
from valuelens.models.icrl._chains import (
    boyan_chains,
    garnet_chains,
    loop_chains,
    random_features,
    random_rewards,
    representable_rewards,
)
from valuelens.models.icrl._mrp import MarkovRewardProcess

FAMILIES = [boyan_chains, loop_chains, garnet_chains]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def assert_mean(draws, mean):
    """The mean of independent draws lies within five standard errors of `mean`."""
    draws = draws.double().flatten()
    error = abs(draws.mean().item() - mean)
    assert error <= 5 * draws.std().item() / len(draws) ** 0.5, (error, mean)


def boyan_support(num_states):
    edges = {(i, j) for i in range(num_states - 2) for j in (i + 1, i + 2)}
    return edges | {(num_states - 2, num_states - 1)} | {(num_states - 1, j) for j in range(num_states)}


@pytest.mark.parametrize("chains", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("num_chains", "num_states"), [(1, 3), (5, 4), (300, 10), (2, 60)])
def test_a_family_draws_distributions_and_rewards(chains, dtype, num_chains, num_states):
    P, r, p0 = chains(num_chains, num_states, generator(), dtype)
    assert P.shape == (num_chains, num_states, num_states)
    assert r.shape == p0.shape == (num_chains, num_states)
    assert {x.dtype for x in (P, r, p0)} == {dtype}
    assert float(P.min()) >= 0
    assert_close(P.sum(-1), torch.ones_like(r))
    assert_close(p0.sum(-1), torch.ones_like(r[:, 0]))
    assert bool((r.abs() <= 1).all())
    assert float((p0.amax(-1) / p0.amin(-1)).max()) <= 99.001  # weights U(.01, .99)
    assert float(p0.min()) > 0


@pytest.mark.parametrize("num_states", [3, 4, 10])
def test_boyan_has_exactly_its_edges(num_states):
    P, _, _ = boyan_chains(20, num_states, generator())
    for chain in P:
        edges = {(i, j) for i, j in chain.nonzero().tolist()}
        assert edges == boyan_support(num_states)
        assert chain[-2, -1] == 1


def test_boyan_steps_are_uniform():
    P, r, p0 = boyan_chains(4000, 8, generator(), torch.float64)
    one_step = P.diagonal(1, -2, -1)[:, :6]
    assert 0.01 <= float(one_step.min()) < 0.011 < 0.989 < float(one_step.max()) < 0.99
    assert_mean(one_step, 0.5)
    assert_mean((one_step - 0.5) ** 2, 0.98**2 / 12)
    assert_mean(r, 0)
    assert_mean(r**2, 1 / 3)
    # Neighbours, p0 and the last row are drawn independently of each other.
    assert_mean((one_step[:, 0] - 0.5) * (one_step[:, 1] - 0.5), 0)
    assert_mean((p0[:, 0] - 1 / 8) * (P[:, -1, 0] - 1 / 8), 0)


def test_loop_always_has_the_loop_and_every_other_edge_half_of_the_time():
    P, _, _ = loop_chains(3000, 5, generator(), torch.float64)
    present = P > 0
    for i in range(5):
        for j in range(5):
            if j == (i + 1) % 5:
                assert bool(present[:, i, j].all())
            else:
                assert_mean(present[:, i, j], 0.5)
    assert_mean((present[:, 0, 0].double() - 0.5) * (present[:, 0, 3].double() - 0.5), 0)


def test_loop_weights_are_uniform():
    # Rows with two edges: the ratio of two U(.01, .99) is below 1 half of the time, and below 99 always.
    P, _, _ = loop_chains(20_000, 3, generator(), torch.float64)
    rows = P.flatten(0, 1)[(P > 0).sum(-1).flatten() == 2]
    two = rows[rows > 0].reshape(-1, 2)
    assert_mean(two[:, 0] < two[:, 1], 0.5)
    assert float((two[:, 0] / two[:, 1]).max()) <= 99


def test_garnet_has_three_successors_anywhere_with_dirichlet_weights():
    P, _, _ = garnet_chains(3000, 6, generator(), torch.float64)
    assert bool(((P > 0).sum(-1) == 3).all())
    for i in range(6):
        for j in range(6):
            assert_mean(P[:, i, j] > 0, 0.5)
    weights = P[P > 0].reshape(-1, 3)
    for w in weights.unbind(-1):  # Dirichlet(1, 1, 1): E w = 1/3, E w^2 = 1/6
        assert_mean(w, 1 / 3)
        assert_mean(w**2, 1 / 6)


@pytest.mark.parametrize("chains", FAMILIES)
def test_a_family_refuses_fewer_than_three_states(chains):
    with pytest.raises(InputError, match="at least 3 states; found 2; task, num_states"):
        chains(4, 2, generator())


@pytest.mark.parametrize("chains", FAMILIES)
def test_the_seed_decides_everything(chains):
    first, same, other = chains(3, 5, generator(1)), chains(3, 5, generator(1)), chains(3, 5, generator(2))
    for a, b, c in zip(first, same, other, strict=True):
        assert_close(a, b, atol=0, rtol=0)
        assert not torch.equal(a, c)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("feature_dim", [1, 2, 7])
def test_sphere_features_have_norm_one(dtype, feature_dim):
    x = random_features("sphere", (50, 6, feature_dim), generator(), dtype)
    assert (x.shape, x.dtype) == ((50, 6, feature_dim), dtype)
    assert_close(x.norm(dim=-1), torch.ones(50, 6, dtype=dtype))


def test_sphere_features_are_isotropic():
    x = random_features("sphere", (4000, 3, 3), generator())
    for i in range(3):
        assert_mean(x[..., i], 0)
        assert_mean(x[..., i] ** 2, 1 / 3)
        assert_mean(x[..., i] ** 4, 1 / 5)  # a coordinate is uniform on [-1, 1] in three dimensions
    assert_mean(x[..., 0] * x[..., 1], 0)
    assert_mean((x[:, 0] * x[:, 1]).sum(-1), 0)  # states are independent


def test_uniform_features_fill_the_cube():
    x = random_features("uniform", (4000, 3, 2), generator())
    assert float(x.abs().max()) <= 1
    assert_mean(x, 0)
    assert_mean(x**2, 1 / 3)


def test_one_hot_features_are_the_identity_in_a_fresh_order():
    x = random_features("one-hot", (6000, 4, 4), generator())
    assert set(x.unique().tolist()) == {0.0, 1.0}
    assert_close(x.sum(1), torch.ones(6000, 4))
    assert_close(x.sum(2), torch.ones(6000, 4))
    for state in range(4):
        for index in range(4):
            assert_mean(x[:, state, index], 1 / 4)
    orders = x.argmax(-1)
    assert len({tuple(order) for order in orders.tolist()}) == 24


def test_one_hot_features_need_as_many_dimensions_as_states():
    with pytest.raises(InputError, match="feature_dim = num_states; found 5 states, feature_dim 4; task"):
        random_features("one-hot", (2, 5, 4), generator())


@settings(max_examples=30)
@given(
    st.integers(3, 9), st.integers(1, 6), st.floats(0, 0.99), st.sampled_from(FAMILIES), st.integers(0, 99)
)
def test_representable_values_are_linear_in_the_features(num_states, feature_dim, gamma, chains, seed):
    g = generator(seed)
    P, _, p0 = chains(3, num_states, g, torch.float64)
    x = random_features("sphere", (3, num_states, feature_dim), g, torch.float64)
    start = g.get_state()
    r = representable_rewards(P, x, gamma, g)
    g.set_state(start)
    w = torch.empty(3, feature_dim, dtype=torch.float64).uniform_(-1, 1, generator=g)
    value = MarkovRewardProcess(P=P, r=r, p0=p0, features=x, gamma=gamma).value
    for b in range(3):
        assert_close(value[b], x[b] @ w[b], atol=1e-10, rtol=0)


def test_rewards_are_uniform():
    r = random_rewards(2000, 5, generator(), torch.float64)
    assert (r.shape, r.dtype) == ((2000, 5), torch.float64)
    assert float(r.abs().max()) <= 1
    assert_mean(r, 0)
    assert_mean(r**2, 1 / 3)
