"""Values of one-dimensional systems by quadrature: an oracle that samples nothing.

Shape legend: `node` points of a quadrature rule, `batch` states.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.polynomial import Chebyshev
from numpy.typing import NDArray

from valuelens.models.control._shift_policy import ShiftPolicy
from valuelens.models.control._systems import System

_REACH = 40.0
"""Scales of the noise beyond which its density is below exp(-40), or 0."""

_NODES = 120


def value_by_quadrature(
    system: System,
    policy: ShiftPolicy,
    *,
    horizon: int,
    reach: float,
    degree: int = 160,
) -> list[Chebyshev]:
    """V_0..V_{T-1} of a one-dimensional system as Chebyshev interpolants; `.deriv()` gives dV_t/ds.

    V_t(s) = integral of nu(eps) (r(s, a) + gamma V_{t+1}(s')) by Gauss-Legendre rules on either side of 0 (where
    Laplace's density has a kink). Later values are interpolated on wider intervals, which hold every state that can be
    reached within 40 scales of the noise a step.

    Args:
        system: With one state and one action component.
        policy: In double precision.
        horizon: T.
        reach: V_0 is wanted on [-reach, reach].
        degree: Of the interpolants.

    Raises:
        ValueError: The system has more than one dimension.
    """
    if (system.state_dim, system.action_dim) != (1, 1):
        found = f"found {system.state_dim} and {system.action_dim}"
        raise ValueError(f"quadrature needs one state and one action component; {found}; value_by_quadrature")
    eps, weights = _noise_rule(policy)
    domains = [reach]
    for _ in range(1, horizon):
        domains.append(_reached(system, policy, domains[-1], eps))
    values: list[Chebyshev] = []
    later: Callable[[NDArray[np.float64]], NDArray[np.float64]] = np.zeros_like
    for domain in reversed(domains):
        step = _backup(system, policy, eps, weights, later)
        values.append(Chebyshev.interpolate(step, degree, domain=[-domain, domain]))
        later = values[-1]
    return values[::-1]


def _noise_rule(policy: ShiftPolicy) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nodes and probabilities of the noise."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    scale = float(policy.density.icdf(torch.tensor(0.75, dtype=torch.float64)))
    half = _REACH * scale * (nodes + 1) / 2
    eps = np.concatenate([-half[::-1], half])
    density = policy.density.log_prob(torch.from_numpy(eps)).exp().numpy()
    each = _REACH * scale / 2 * np.concatenate([weights[::-1], weights]) * density
    return eps, each / each.sum()


def _step(
    system: System, policy: ShiftPolicy, state: NDArray[np.float64], eps: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Next states and rewards of every state under every noise."""
    s = torch.from_numpy(np.broadcast_to(state[:, None, None], (len(state), len(eps), 1)).copy())
    with torch.no_grad():
        a = policy(s, torch.from_numpy(eps)[None, :, None].expand_as(s))
        return system.dynamics(s, a)[..., 0].numpy(), system.reward(s, a).numpy()


def _backup(
    system: System,
    policy: ShiftPolicy,
    eps: NDArray[np.float64],
    weights: NDArray[np.float64],
    later: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    def value(state: NDArray[np.float64]) -> NDArray[np.float64]:
        following, reward = _step(system, policy, np.atleast_1d(state), eps)
        expected: NDArray[np.float64] = (reward + system.gamma * later(following)) @ weights
        return expected

    return value


def _reached(system: System, policy: ShiftPolicy, domain: float, eps: NDArray[np.float64]) -> float:
    grid = np.linspace(-domain, domain, 401)
    following, _ = _step(system, policy, grid, eps[[0, -1]])
    return max(domain, float(np.abs(following).max())) * 1.001
