"""Costates of rollouts: autodiff, recursion, closed forms, and the law that they average to the value gradient."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from valuelens.models.control import (
    DoubleWell,
    Noise,
    Pendulum,
    ShiftPolicy,
    System,
    local_derivatives,
    pathwise_costates,
    regulator,
    rollout,
    value_by_quadrature,
)
from valuelens.probe import closed_loop, costate_recursion

NOISES: tuple[Noise, ...] = ("gaussian", "laplace", "logistic")
SYSTEMS: dict[str, System] = {"regulator": regulator(), "well": DoubleWell(), "pendulum": Pendulum()}

each_noise = pytest.mark.parametrize("noise", NOISES)


def policy(system: System, noise: Noise, *, linear: bool = False) -> ShiftPolicy:
    torch.manual_seed(100)
    into, out = system.state_dim, system.action_dim
    hidden = [torch.nn.Linear(into, 6), torch.nn.Tanh(), torch.nn.Linear(6, out)]
    mean = torch.nn.Linear(into, out, bias=False) if linear else torch.nn.Sequential(*hidden)
    return ShiftPolicy(mean.double(), noise=noise, scale=0.4)


def start(system: System, batch: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, system.state_dim, generator=generator, dtype=torch.float64)


@given(name=st.sampled_from(sorted(SYSTEMS)), noise=st.sampled_from(NOISES), horizon=st.integers(1, 6))
def test_the_recursion_is_automatic_differentiation(name: str, noise: Noise, horizon: int) -> None:
    system = SYSTEMS[name]
    chosen, s0 = policy(system, noise), start(system, 3)
    eps = chosen.noise((3, horizon, system.action_dim), torch.Generator().manual_seed(1))
    local = local_derivatives(system, chosen, rollout(system, chosen, s0, eps))
    reward = closed_loop(local.reward_state, local.reward_action, local.mean_state)
    dynamics = closed_loop(local.dynamics_state, local.dynamics_action, local.mean_state)
    found = costate_recursion(reward, dynamics, gamma=system.gamma)
    torch.testing.assert_close(found, pathwise_costates(system, chosen, s0, eps), rtol=1e-10, atol=1e-10)


def test_a_costate_is_a_finite_difference_of_the_return() -> None:
    system = Pendulum()
    chosen, s0 = policy(system, "gaussian"), start(system, 4)
    eps = chosen.noise((4, 5, 1), torch.Generator().manual_seed(1))
    found, step = pathwise_costates(system, chosen, s0, eps)[:, 0], 1e-5
    for component in range(2):
        move = step * torch.eye(2, dtype=torch.float64)[component]
        high, low = (rollout(system, chosen, s0 + sign * move, eps).returns_to_go[:, 0] for sign in (1, -1))
        torch.testing.assert_close(
            found[:, component], (high - low).detach() / (2 * step), rtol=1e-6, atol=1e-8
        )


def test_returns_to_go_are_discounted_sums() -> None:
    system = DoubleWell()
    chosen, s0 = policy(system, "gaussian"), start(system, 2)
    run = rollout(system, chosen, s0, chosen.noise((2, 4, 1), torch.Generator().manual_seed(1)))
    loop = [
        [sum(system.gamma ** (k - t) * float(r[k]) for k in range(t, 4)) for t in range(4)]
        for r in run.rewards.detach()
    ]
    torch.testing.assert_close(run.returns_to_go.detach(), torch.tensor(loop, dtype=torch.float64))


@each_noise
def test_costates_average_to_the_closed_form(noise: Noise) -> None:
    """Within 3 standard errors at 100,000 rollouts of the linear-quadratic case, at the start and later states."""
    system, n, horizon = regulator(), 100_000, 6
    chosen = policy(system, noise, linear=True)
    s0 = torch.tensor([[1.0, -0.5]], dtype=torch.float64).expand(n, 2)
    eps = chosen.noise((n, horizon, 1), torch.Generator().manual_seed(3))
    costates = pathwise_costates(system, chosen, s0, eps)
    states = rollout(system, chosen, s0, eps).states.detach()
    gain = chosen.mean.weight.detach()  # type: ignore[union-attr]
    assert isinstance(gain, Tensor)
    # given s_t the rest of the costate has mean zero: at t = 0 for one state, later pooled over the states reached
    excess = (costates - system.value_gradient(gain, states))[:, :-1]
    error = excess.mean(0) / (excess.std(0) / n**0.5)
    assert float(error[0].abs().max()) < 3
    assert float(error.abs().max()) < 4  # of 12 numbers, so a little more room


@each_noise
def test_costates_average_to_the_quadrature_value_gradient_at_the_monte_carlo_rate(noise: Noise) -> None:
    """One non-linear dimension: within 3 standard errors at 100,000 rollouts; the error falls with slope -1/2."""
    system, horizon, s = DoubleWell(), 8, 0.4
    chosen = policy(system, noise)
    truth = value_by_quadrature(system, chosen, horizon=horizon, reach=1.0)[0].deriv()(s)
    sizes, repeats = (100, 1000, 10_000), 40
    drawn = chosen.noise((100_000, horizon, 1), torch.Generator().manual_seed(4))
    s0 = torch.full((100_000, 1), s, dtype=torch.float64)
    costates = pathwise_costates(system, chosen, s0, drawn)[:, 0, 0]
    assert abs(float(costates.mean()) - truth) < 3 * float(costates.std()) / 100_000**0.5
    rms = []
    for size in sizes:
        parts = costates[: size * min(repeats, 100_000 // size)].reshape(-1, size).mean(1) - truth
        rms.append(float(parts.square().mean().sqrt()))
    slope = np.polyfit(np.log(sizes), np.log(rms), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.12)
