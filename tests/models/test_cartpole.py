import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from valuelens.models._errors import InputError
from valuelens.models.icrl._cartpole import (
    NUM_CELLS,
    _cart_poles,
    _cell,
    _simulate,
    cart_pole_pool,
)

gymnasium_cartpole = pytest.importorskip("gymnasium.envs.classic_control.cartpole")
PHYSICS = ("masscart", "masspole", "length", "force_mag", "gravity", "tau")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def pool():
    return cart_pole_pool(generator(), num_poles=6, num_steps=4000, num_runs=2)


def test_each_cart_pole_moves_as_a_single_one_of_the_same_physics():
    env = _cart_poles(num_poles=5, num_runs=2, generator=generator())
    env.reset(seed=0)
    singles = [gymnasium_cartpole.CartPoleEnv() for _ in range(10)]
    for lane, single in enumerate(singles):
        single.reset(seed=0)
        for name in PHYSICS:
            setattr(single, name, getattr(env, name)[lane])
        single.total_mass = single.masscart + single.masspole
        single.polemass_length = single.masspole * single.length
        single.state = env.state[:, lane].copy()
    for t in range(8):
        action = np.arange(10) // (t + 1) % 2
        observation, _, fallen, _, _ = env.step(action)
        assert not fallen.any()
        expected = [single.step(int(a))[0] for single, a in zip(singles, action, strict=True)]
        assert_close(torch.from_numpy(observation), torch.from_numpy(np.stack(expected)))


def test_physics_vary_by_half_around_those_of_gymnasium():
    env, plain = _cart_poles(4000, 2, generator()), gymnasium_cartpole.CartPoleEnv()
    scales = np.stack([getattr(env, name) / getattr(plain, name) for name in PHYSICS])
    assert_close(scales[:, ::2], scales[:, 1::2])  # both runs of a cart-pole share its physics
    assert 0.5 <= scales.min() < 0.501
    assert 1.499 < scales.max() <= 1.5
    scales = scales[:, ::2]
    five_errors = 5 / (12 * scales.shape[1]) ** 0.5
    assert np.abs(scales.mean(-1) - 1).max() < five_errors
    assert np.abs(np.corrcoef(scales) - np.eye(6)).max() < 5 / scales.shape[1] ** 0.5


def test_a_cell_is_the_signs_of_the_four_variables():
    signs = np.array([[(cell >> bit & 1) - 0.5 for bit in (3, 2, 1, 0)] for cell in range(16)])
    assert _cell(signs).tolist() == list(range(16))


def test_trajectories_follow_the_physics_the_policy_and_the_resets():
    # The first cart-pole always pushes right, the second never: one leans and falls left, the other right.
    env = _cart_poles(2, 1, generator())
    cells, starts = _simulate(env, torch.tensor([1.0, 0.0]), 300, generator(1))
    assert bool(starts[0].all())
    lengths = starts[:, 0].nonzero()[:, 0].diff()
    assert int(lengths.min()) > 3
    for lane, fallen in (
        (0, 0b1100),
        (1, 0b0011),
    ):  # right, rightwards, leaning left, leftwards; or the reverse
        last = starts[1:, lane].nonzero()[:, 0]
        assert set(cells[last, lane].tolist()) == {fallen}


def test_episodes_are_truncated_as_gymnasium_does():
    env = _cart_poles(1, 1, generator())
    env.tau = env.tau * 0  # time stands still, so nothing ever falls
    _, starts = _simulate(env, torch.tensor([0.5]), 1100, generator())
    assert starts[:, 0].nonzero()[:, 0].tolist() == [0, 501, 1002]


def test_actions_follow_the_policy():
    actions = []

    class Recorder:
        def reset(self, seed):
            return np.zeros((3, 4)), {}

        def step(self, action):
            actions.append(action.copy())
            return np.zeros((3, 4)), None, np.zeros(3, bool), np.zeros(3, bool), {}

    push_right = torch.tensor([0.1, 0.5, 0.8])
    _simulate(Recorder(), push_right, 4000, generator())
    shares = torch.from_numpy(np.stack(actions)).double().mean(0)
    assert bool(((shares - push_right).abs() < 5 * (push_right * (1 - push_right) / 4000).sqrt()).all())


def test_the_pool_is_the_empirical_chain_of_its_runs(pool):
    assert pool.cells.shape == (6, 2, 2001)
    for pole in range(6):
        counts = torch.zeros(NUM_CELLS, NUM_CELLS, dtype=torch.float64)
        for run in pool.cells[pole].tolist():
            for here, there in pairwise(run):
                counts[here, there] += 1
        for cell in range(NUM_CELLS):
            left = counts[cell].sum()
            assert_close(pool.P[pole, cell], counts[cell] / left if left else pool.p0[pole])


def test_the_runs_of_a_cart_pole_share_its_policy():
    cells = cart_pole_pool(generator(), num_poles=40, num_steps=2000, num_runs=2).cells
    rightwards = (cells & 0b0100 > 0).double().mean(-1)  # how often the cart moves right, by pole and run
    assert torch.corrcoef(rightwards.T)[0, 1] > 0.9


def test_episodes_start_anywhere_near_the_origin():
    pool = cart_pole_pool(generator(), num_poles=1, num_steps=40_000, num_runs=40)
    episodes = 40_000 / 60  # a lower bound: a random policy falls sooner
    assert float((pool.p0 - 1 / 16).abs().max()) < 5 * (1 / 16 / episodes) ** 0.5
    assert_close(pool.p0.sum(-1), torch.ones(1, dtype=torch.float64))


def test_a_cell_that_was_never_left_restarts():
    pool = cart_pole_pool(generator(), num_poles=3, num_steps=2, num_runs=2)
    for pole in range(3):
        left = set(pool.cells[pole, :, :-1].flatten().tolist())
        for cell in set(range(NUM_CELLS)) - left:
            assert_close(pool.P[pole, cell], pool.p0[pole])
    assert_close(pool.P.sum(-1), torch.ones(3, NUM_CELLS, dtype=torch.float64))


def test_windows_are_pieces_of_the_trajectories(pool):
    pole, states = pool.windows(200, 40, generator())
    assert (states.shape, states.dtype) == ((200, 41), torch.int64)
    assert set(pole.tolist()) == set(range(6))
    pieces = pool.cells.long().unfold(-1, 41, 1)
    for which, window in zip(pole.tolist(), states, strict=True):
        assert bool((pieces[which] == window).all(-1).any())


def test_windows_start_uniformly_from_the_first_to_the_last_possible(pool):
    _, whole = pool.windows(50, 2000, generator())
    runs = pool.cells.long().flatten(0, 1).tolist()
    assert all(window in runs for window in whole.tolist())
    _, almost = pool.windows(100, 1999, generator())
    for start in (0, 1):
        pieces = pool.cells.long()[..., start : start + 2000].flatten(0, 1)
        assert any(bool((pieces == window).all(-1).any()) for window in almost)


def test_a_window_longer_than_a_run_is_refused(pool):
    with pytest.raises(
        InputError, match="must fit into a simulated run; found 2001 transitions in runs of 2000"
    ):
        pool.windows(1, 2001, generator())


def test_the_seed_decides_everything():
    first, same, other = (cart_pole_pool(generator(seed), 3, 300, 2) for seed in (1, 1, 2))
    for name in ("P", "p0", "cells"):
        assert_close(getattr(first, name), getattr(same, name), atol=0, rtol=0)
        assert not torch.equal(getattr(first, name), getattr(other, name))


def test_runs_need_steps():
    with pytest.raises(InputError, match="at least one step; found num_steps 4, num_runs 8; cart-pole pool"):
        cart_pole_pool(generator(), num_poles=1, num_steps=4)


def test_without_gymnasium_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium.envs.classic_control.cartpole", None)
    with pytest.raises(
        InputError, match=r"needs gymnasium; found .*; run: pip install 'valuelens\[cartpole\]'"
    ):
        cart_pole_pool(generator())
