"""Distance of linear attention to theta_TD: known answers, the free scale of P, and plain loops."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from valuelens.probe import theta_td_distance

sizes = {"d": st.integers(1, 5), "layers": st.integers(1, 4), "seed": st.integers(0, 10_000)}


def star(alpha: Tensor, d: int) -> tuple[Tensor, Tensor]:
    P, Q = torch.zeros(2, len(alpha), 2 * d + 1, 2 * d + 1, dtype=torch.float64)
    P[:, 2 * d, 2 * d] = 1
    for i in range(d):
        Q[:, i, i], Q[:, i, d + i] = -alpha, alpha
    return P, Q


def noisy(d: int, layers: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    P, Q = star(torch.rand(layers, generator=generator, dtype=torch.float64) + 1, d)
    noise = 0.1 * torch.randn(2, *P.shape, generator=generator, dtype=torch.float64)
    return P + noise[0], Q + noise[1]


@given(**sizes)
def test_theta_td_is_found(d: int, layers: int, seed: int) -> None:
    alpha = 0.1 + torch.rand(layers, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found = theta_td_distance(*star(alpha, d))
    assert_close(found.step_size, alpha)
    for zero in (found.residual, found.off_support_P, found.off_support_Q):
        assert_close(zero, torch.zeros_like(alpha))


@given(**sizes, p=st.floats(-5, 5).filter(lambda p: abs(p) > 0.1))
def test_the_scale_of_p_is_free(d: int, layers: int, seed: int, p: float) -> None:
    P, Q = noisy(d, layers, seed)
    here, there = theta_td_distance(P, Q), theta_td_distance(p * P, Q / p)
    for name in ("step_size", "residual", "off_support_P", "off_support_Q"):
        assert_close(getattr(there, name), getattr(here, name))


@given(**sizes)
def test_every_number_equals_loops(d: int, layers: int, seed: int) -> None:
    P, Q = noisy(d, layers, seed)
    found = theta_td_distance(P, Q)
    D = 2 * d + 1
    support = {(i, i): -1.0 for i in range(d)} | {(i, d + i): 1.0 for i in range(d)}
    for layer in range(layers):
        p, q = P[layer, -1, -1], P[layer, -1, -1] * Q[layer]
        alpha = sum(sign * q[i] for i, sign in support.items()) / (2 * d)
        misfit = sum((q[i, j] / alpha - support.get((i, j), 0)) ** 2 for i in range(D) for j in range(D))
        off_q = [abs(q[i, j] / alpha) for i in range(D) for j in range(D) if (i, j) not in support]
        off_p = [abs(P[layer, i, j] / p) for i in range(D) for j in range(D) if (i, j) != (D - 1, D - 1)]
        assert_close(found.step_size[layer], alpha)
        assert_close(found.residual[layer], (misfit / (2 * d)) ** 0.5)
        assert_close(found.off_support_Q[layer], sum(off_q) / len(off_q))
        assert_close(found.off_support_P[layer], sum(off_p) / len(off_p))


def test_a_negative_step_is_no_distance() -> None:
    found = theta_td_distance(*star(torch.tensor([-0.5], dtype=torch.float64), 2))
    assert_close(found.step_size, torch.tensor([-0.5], dtype=torch.float64))
    assert bool(found.residual.isnan().all())
    assert bool(found.off_support_Q.isnan().all())
