"""Control problems: closed forms against brute force, physics against conservation."""

import math

import pytest
import torch

from valuelens.models.control import DoubleWell, Pendulum, regulator


def test_value_hessians_are_the_discounted_sum_of_costs() -> None:
    system, K, horizon = regulator(), torch.tensor([[-0.3, -0.6]], dtype=torch.float64), 6
    closed = system.A + system.B @ K
    cost = system.Q + K.mT @ system.R @ K
    powers = [torch.linalg.matrix_power(closed, t) for t in range(horizon)]
    expected = sum((system.gamma**t * M.mT @ cost @ M for t, M in enumerate(powers)), torch.zeros(2, 2))
    torch.testing.assert_close(system.value_hessians(K, horizon)[0], expected)


def test_value_gradient_without_noise_is_that_of_the_rollout() -> None:
    system, K = regulator(), torch.tensor([[-0.3, -0.6]], dtype=torch.float64)
    start = torch.tensor([[1.0, -0.5]], dtype=torch.float64, requires_grad=True)
    states, total = [start], torch.zeros(1, dtype=torch.float64)
    for t in range(5):
        action = states[-1] @ K.mT
        total = total + system.gamma**t * system.reward(states[-1], action)
        states.append(system.dynamics(states[-1], action))
    (expected,) = torch.autograd.grad(total.sum(), start)
    found = system.value_gradient(K, torch.stack(states, dim=1).detach())
    torch.testing.assert_close(found[:, 0], expected)
    torch.testing.assert_close(found[:, -1], torch.zeros_like(expected))


def test_the_double_well_has_two_wells_and_an_unstable_middle() -> None:
    system, rest = DoubleWell(), torch.zeros(1, dtype=torch.float64)
    ends = {}
    for start in (-0.1, 0.0, 0.1):
        state = torch.tensor([start], dtype=torch.float64)
        for _ in range(400):
            state = system.dynamics(state, rest)
        ends[start] = float(state)
    well = ends[0.1]
    assert ends[0.0] == 0
    assert ends[-0.1] == pytest.approx(-well)
    assert 2 * math.sin(well) == pytest.approx(well)
    assert float(system.reward(torch.ones(1), torch.full((1,), 2.0))) == pytest.approx(-0.2)


def test_a_pendulum_without_damping_keeps_its_energy_and_hangs_stably() -> None:
    system = Pendulum(dt=1e-4, damping=0.0)
    state, rest = torch.tensor([2.0, 0.0], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)

    def energy(state: torch.Tensor) -> float:
        return float(state[1].square() / 2 + system.gravity * torch.cos(state[0]))

    before = energy(state)
    for _ in range(5000):
        state = system.dynamics(state, rest)
    assert abs(float(state[0]) - 2) > 0.1
    assert energy(state) == pytest.approx(before, rel=1e-3)
    down = torch.tensor([math.pi, 0.0], dtype=torch.float64)
    torch.testing.assert_close(system.dynamics(down, rest), down)
    assert float(system.reward(torch.zeros(2), torch.zeros(1))) == 1
