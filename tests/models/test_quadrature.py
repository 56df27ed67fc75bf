"""Quadrature against closed forms and against finer rules."""

import numpy as np
import pytest
import torch

from valuelens.models.control import (
    DoubleWell,
    LinearQuadratic,
    Noise,
    ShiftPolicy,
    System,
    regulator,
    value_by_quadrature,
)

each_noise = pytest.mark.parametrize("noise", ["gaussian", "laplace", "logistic"])


def policy(system: System, noise: Noise, *, linear: bool = False) -> ShiftPolicy:
    torch.manual_seed(100)
    into, out = system.state_dim, system.action_dim
    hidden = [torch.nn.Linear(into, 6), torch.nn.Tanh(), torch.nn.Linear(6, out)]
    mean = torch.nn.Linear(into, out, bias=False) if linear else torch.nn.Sequential(*hidden)
    return ShiftPolicy(mean.double(), noise=noise, scale=0.4)


@each_noise
def test_quadrature_knows_the_linear_quadratic_value_gradient(noise: Noise) -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    system = LinearQuadratic(A=0.9 * one, B=0.3 * one, Q=one, R=0.1 * one, gamma=0.9)
    chosen = policy(system, noise, linear=True)
    values = value_by_quadrature(system, chosen, horizon=4, reach=2.0, degree=8)
    gain = chosen.mean.weight.detach()  # type: ignore[union-attr]
    assert isinstance(gain, torch.Tensor)
    for t, P in enumerate(system.value_hessians(gain, 4)[:-1]):
        assert values[t].deriv()(1.3) == pytest.approx(-2 * 1.3 * float(P), rel=1e-8)


@each_noise
def test_the_first_backup_is_the_expected_reward(noise: Noise) -> None:
    """V_{T-1}(s) = -(s - goal)^2 - cost (mean(s)^2 + variance), with the variance of each density."""
    system, chosen = DoubleWell(), policy(DoubleWell(), noise)
    variance = {"gaussian": 1.0, "laplace": 2.0, "logistic": np.pi**2 / 3}[noise] * 0.4**2
    s = 0.7
    mean = float(chosen.mean(torch.tensor([s], dtype=torch.float64)).detach())
    expected = -((s - system.goal) ** 2) - system.cost * (mean**2 + variance)
    found = value_by_quadrature(system, chosen, horizon=1, reach=1.0)[0](s)
    assert found == pytest.approx(expected, rel=1e-9)


def test_more_nodes_of_interpolation_change_nothing() -> None:
    system, chosen = DoubleWell(), policy(DoubleWell(), "laplace")
    coarse, fine = (value_by_quadrature(system, chosen, horizon=8, reach=2.0, degree=d) for d in (160, 200))
    grid = np.linspace(-1.9, 1.9, 9)
    np.testing.assert_allclose(coarse[0].deriv()(grid), fine[0].deriv()(grid), rtol=1e-8)


def test_quadrature_refuses_more_than_one_dimension() -> None:
    with pytest.raises(
        ValueError, match="quadrature needs one state and one action component; found 2 and 1"
    ):
        value_by_quadrature(regulator(), policy(regulator(), "gaussian"), horizon=2, reach=1.0)
