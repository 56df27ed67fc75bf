import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from valuelens.models._errors import InputError
from valuelens.models.icrl._mrp import MarkovRewardProcess, at_states, context_of, rollout


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def random_mrp(batch, num_states=5, feature_dim=3, gamma=0.9, seed=0):
    g = generator(seed)
    P = torch.rand(*batch, num_states, num_states, generator=g, dtype=torch.float64) + 0.01
    P = P * (torch.rand(P.shape, generator=g) < 0.6) + 0.1 * torch.eye(num_states)
    p0 = torch.rand(*batch, num_states, generator=g, dtype=torch.float64) + 0.01
    return MarkovRewardProcess(
        P=P / P.sum(-1, keepdim=True),
        r=torch.randn(*batch, num_states, generator=g, dtype=torch.float64),
        p0=p0 / p0.sum(-1, keepdim=True),
        features=torch.randn(*batch, num_states, feature_dim, generator=g, dtype=torch.float64),
        gamma=gamma,
    )


def chain(P, p0, gamma=0.5):
    P, p0 = torch.tensor(P, dtype=torch.float64), torch.tensor(p0, dtype=torch.float64)
    return MarkovRewardProcess(
        P=P, r=torch.ones_like(p0), p0=p0, features=torch.eye(len(p0)).double(), gamma=gamma
    )


sizes = st.tuples(st.integers(1, 7), st.integers(0, 99), st.sampled_from([(), (1,), (4,), (2, 3)]))


@settings(max_examples=30)
@given(sizes, st.floats(0, 0.99))
def test_value_solves_the_bellman_equation(size, gamma):
    num_states, seed, batch = size
    mrp = random_mrp(batch, num_states, gamma=gamma, seed=seed)
    successor = torch.einsum("...st,...t->...s", mrp.P, mrp.value)
    assert_close(mrp.value, mrp.r + gamma * successor, atol=1e-10, rtol=1e-10)


def test_value_is_the_discounted_sum_of_expected_rewards():
    mrp = random_mrp((), gamma=0.6)
    total, reach = torch.zeros(5, dtype=torch.float64), torch.eye(5, dtype=torch.float64)
    for t in range(100):
        total += 0.6**t * reach @ mrp.r
        reach = reach @ mrp.P
    assert_close(mrp.value, total)


@settings(max_examples=30)
@given(sizes)
def test_stationary_is_a_fixed_distribution(size):
    num_states, seed, batch = size
    mrp = random_mrp(batch, num_states, seed=seed)
    mu = mrp.stationary
    assert_close(torch.einsum("...s,...st->...t", mu, mrp.P), mu, atol=1e-12, rtol=0)
    assert_close(mu.sum(-1), torch.ones(batch, dtype=torch.float64))


def test_stationary_of_a_periodic_chain():
    assert_close(
        chain([[0, 1], [1, 0]], [0.9, 0.1]).stationary, torch.tensor([0.5, 0.5], dtype=torch.float64)
    )


def test_stationary_of_a_reducible_chain_weighs_the_classes_as_p0_reaches_them():
    # State 0 is transient: 1/4 of it ends in {1}, 3/4 in the 2-cycle {2, 3}; p0 starts there half of the time.
    P = [[0.2, 0.2, 0.6, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    mu = chain(P, [0.5, 0.1, 0.4, 0]).stationary
    in_one = 0.1 + 0.5 * 0.25
    expected = [0, in_one, (1 - in_one) / 2, (1 - in_one) / 2]
    assert_close(mu, torch.tensor(expected, dtype=torch.float64), atol=1e-10, rtol=0)


def slow_rollout(mrp, num_steps, generator):
    batch = mrp.p0.shape[0]
    u = torch.rand((num_steps + 1, batch, 1), generator=generator, dtype=mrp.p0.dtype)
    states = []
    for b in range(batch):
        path = []
        for t in range(num_steps + 1):
            p = (mrp.p0[b] if t == 0 else mrp.P[b, path[-1]]).tolist()
            s, below = 0, p[0]
            while u[t, b, 0].item() >= below and s < len(p) - 1:
                s += 1
                below += p[s]
            path.append(s)
        states.append(path)
    return torch.tensor(states)


@pytest.mark.parametrize(("batch", "num_steps"), [(1, 40), (7, 1), (5, 40)])
def test_rollout_is_inverse_cdf_sampling(batch, num_steps):
    mrp = random_mrp((batch,))
    states = rollout(mrp, num_steps, generator(3))
    assert_close(states, slow_rollout(mrp, num_steps, generator(3)))
    assert states.shape == (batch, num_steps + 1)


def test_rollout_frequencies_are_those_of_p0_and_P():
    one = random_mrp((1,), num_states=4)
    n = 20_000
    mrp = MarkovRewardProcess(
        P=one.P.expand(n, -1, -1),
        r=one.r.expand(n, -1),
        p0=one.p0.expand(n, -1),
        features=one.features.expand(n, -1, -1),
        gamma=0.9,
    )
    states = rollout(mrp, 5, generator())
    one_hot = torch.nn.functional.one_hot(states, 4).double()
    law = one.p0[0]
    for t in range(6):  # the law of S_t is p0 P^t
        error = (one_hot[:, t].mean(0) - law).abs()
        assert bool((error <= 5 * (law * (1 - law) / n).sqrt()).all()), t
        law = law @ one.P[0]
    moves = torch.einsum("bts,btu->su", one_hot[:, :-1], one_hot[:, 1:])
    left, p = moves.sum(-1, keepdim=True), one.P[0]
    assert bool(((moves / left - p).abs() <= 5 * (p * (1 - p) / left).sqrt()).all())
    assert bool((moves[p == 0] == 0).all())


def test_rollout_never_takes_an_impossible_step_though_rows_sum_to_one_only_nearly():
    P = torch.tensor([[0.3, 0.69995, 0.0]] * 3).expand(20_000, -1, -1)
    zeros = torch.zeros(20_000, 3)
    mrp = MarkovRewardProcess(P=P, r=zeros, p0=P[:, 0], features=zeros[..., None], gamma=0)
    assert int(rollout(mrp, 20, generator()).max()) == 1


def test_rollout_depends_on_the_seed_alone():
    mrp = random_mrp((6,))
    assert_close(rollout(mrp, 30, generator(1)), rollout(mrp, 30, generator(1)))
    assert not torch.equal(rollout(mrp, 30, generator(1)), rollout(mrp, 30, generator(2)))


def test_context_holds_what_the_trajectory_showed():
    mrp = random_mrp((3,))
    states = rollout(mrp, 6, generator())
    context = context_of(mrp, states)
    assert (context.num_transitions, context.gamma) == (6, 0.9)
    assert_close(context.states, states)
    values = at_states(mrp.value, states)
    for b in range(3):
        for t, s in enumerate(states[b].tolist()):
            assert_close(context.features[b, t], mrp.features[b, s])
            assert_close(values[b, t], mrp.value[b, s])
            if t < 6:
                assert_close(context.rewards[b, t], mrp.r[b, s])


ERRORS = [
    ({"gamma": 1.0}, r"gamma must lie in \[0, 1\); found 1.0"),
    ({"gamma": -0.1}, r"gamma must lie in \[0, 1\); found -0.1"),
    ({"r": torch.tensor([0.0, torch.nan])}, "r must be finite; found NaN or infinity; .* r"),
    ({"features": torch.tensor([[torch.inf], [0.0]])}, "features must be finite"),
    ({"P": torch.tensor([[0.5, 0.5], [0.4, 0.5]])}, "each row of P must sum to 1; found 0.9; .* row 1"),
    ({"P": torch.tensor([[1.5, -0.5], [0.5, 0.5]])}, "P must not be negative; found -0.5"),
    ({"p0": torch.tensor([0.5, 0.6])}, "each row of p0 must sum to 1; found 1.1"),
]


@pytest.mark.parametrize(("change", "match"), ERRORS)
def test_an_impossible_process_is_refused(change, match):
    half = torch.full((2,), 0.5)
    fields = {"P": half.expand(2, 2), "r": half, "p0": half, "features": half[:, None], "gamma": 0.5}
    with pytest.raises(InputError, match=match):
        MarkovRewardProcess(**(fields | change))
