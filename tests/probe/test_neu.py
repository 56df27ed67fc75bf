"""NEU, MSTDE and the parameter form against enumeration, autograd and their known values at v_pi."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from valuelens.probe import bellman_residual, mstde, mstde_minimum, neu, task_gradients, update_norm


def chain(S: int, seed: int, batch: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """P, r and the stationary mu of random chains."""
    g = torch.Generator().manual_seed(seed)
    P = torch.rand(batch, S, S, generator=g, dtype=torch.float64) + 0.05
    P = P / P.sum(-1, keepdim=True)
    r = torch.randn(batch, S, generator=g, dtype=torch.float64)
    return P, r, torch.linalg.matrix_power(P, 400)[:, 0]


def true_value(P: Tensor, r: Tensor, gamma: float) -> Tensor:
    return torch.linalg.solve(torch.eye(P.shape[-1]).double() - gamma * P, r)


each_chain = given(S=st.integers(1, 6), seed=st.integers(0, 999), gamma=st.floats(0, 0.95))


@settings(max_examples=25)
@each_chain
def test_everything_equals_enumeration(S: int, seed: int, gamma: float) -> None:
    P, r, mu = chain(S, seed)
    v = torch.randn(2, S, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for b in range(2):
        updates, squares = [], 0.0
        for s in range(S):
            errors = [float(r[b, s] + gamma * v[b, t] - v[b, s]) for t in range(S)]
            updates.append(float(mu[b, s]) * sum(float(P[b, s, t]) * errors[t] for t in range(S)))
            squares += float(mu[b, s]) * sum(float(P[b, s, t]) * errors[t] ** 2 for t in range(S))
        assert_close((mu * bellman_residual(v, P, r, gamma))[b].tolist(), updates)
        assert_close(float(neu(v, P, r, mu, gamma)[b]), sum(u**2 for u in updates))
        assert_close(float(mstde(v, P, r, mu, gamma)[b]), squares)


@settings(max_examples=25)
@each_chain
def test_at_the_true_value_neu_vanishes_and_mstde_is_the_discounted_variance(
    S: int, seed: int, gamma: float
) -> None:
    P, r, mu = chain(S, seed)
    v = true_value(P, r, gamma)
    variance = torch.einsum("bst,bt->bs", P, v.square()) - torch.einsum("bst,bt->bs", P, v).square()
    assert_close(neu(v, P, r, mu, gamma), torch.zeros(2).double(), atol=1e-9, rtol=0)
    assert_close(mstde(v, P, r, mu, gamma), gamma**2 * (mu * variance).sum(-1), atol=1e-9, rtol=1e-9)


@settings(max_examples=25)
@each_chain
def test_the_minimiser_has_no_slope_and_nothing_is_below_it(S: int, seed: int, gamma: float) -> None:
    P, r, mu = chain(S, seed)
    least = mstde_minimum(P, r, mu, gamma)
    values = least.values.clone().requires_grad_()
    (slope,) = torch.autograd.grad(mstde(values, P, r, mu, gamma).sum(), values)
    assert_close(slope, torch.zeros_like(slope), atol=1e-9, rtol=0)
    others = least.values + torch.randn(50, 2, S, generator=torch.Generator().manual_seed(seed)).double()
    assert bool((mstde(others, *(x.expand(50, *x.shape) for x in (P, r, mu)), gamma) >= least.minimum).all())


def test_the_true_value_is_not_the_minimiser() -> None:
    P, r, mu = chain(5, seed=0)
    truth = mstde(true_value(P, r, 0.9), P, r, mu, 0.9)
    assert bool((mstde_minimum(P, r, mu, 0.9).minimum < 0.9 * truth).all())


def test_states_without_weight_do_not_hinder_the_minimum() -> None:
    P = torch.tensor([[[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]], dtype=torch.float64)
    r, mu = torch.tensor([[1.0, -1.0, 7.0]]).double(), torch.tensor([[0.5, 0.5, 0.0]]).double()
    assert_close(mstde_minimum(P, r, mu, 0.5).values, torch.tensor([[0.8, -0.8, 0.0]]).double())


def quadratic(theta: dict[str, Tensor], inputs: tuple[Tensor, ...]) -> Tensor:
    """v(s) = (x_s'a)^2 + b."""
    return (inputs[0] @ theta["a"]).square() + theta["b"]


def test_task_gradients_equal_a_loop(generator: torch.Generator) -> None:
    x = torch.randn(4, 3, 2, generator=generator, dtype=torch.float64)
    weights = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    theta = {"a": torch.tensor([0.3, -1.2]).double(), "b": torch.tensor([0.5]).double()}
    for b, row in enumerate(task_gradients(quadratic, theta, (x,), weights)):
        expected = torch.zeros(3).double()
        for s in range(3):
            slope = 2 * float(x[b, s] @ theta["a"]) * x[b, s]
            expected += weights[b, s] * torch.cat([slope, torch.ones(1).double()])
        assert_close(row, expected)


def test_two_halves_are_unbiased_and_the_plug_in_is_not(generator: torch.Generator) -> None:
    """E[g] = (1, 0), Cov = 4 I over 8 tasks: the plug-in expects 1 + 2 * 4 / 8 = 2."""
    found = [
        update_norm(2 * torch.randn(8, 2, generator=generator).double() + torch.tensor([1.0, 0.0]))
        for _ in range(4000)
    ]
    unbiased, plug_in = (torch.stack([getattr(f, name) for f in found]) for name in ("unbiased", "plug_in"))
    error = float(unbiased.std()) / 4000**0.5
    assert abs(float(unbiased.mean()) - 1) < 4 * error
    assert_close(float(plug_in.mean()), 2.0, atol=0.12, rtol=0)


def test_the_products_are_those_of_the_two_halves() -> None:
    gradients = torch.tensor([[1.0, 0.0], [2.0, 5.0], [3.0, 1.0], [0.0, 1.0]])
    norm = update_norm(gradients)
    assert_close(norm.products, torch.tensor([[2.0, 0.0], [11.0, 1.0]]))
    assert_close(norm.unbiased, torch.tensor(14 / 4))
    assert_close(norm.plug_in, torch.tensor(1.5**2 + 1.75**2))


@pytest.mark.parametrize("S", [1, 3])
def test_no_discount_leaves_the_reward(S: int) -> None:
    P, r, mu = chain(S, seed=1)
    assert_close(mstde_minimum(P, r, mu, 0.0).values, r)
    assert_close(bellman_residual(torch.zeros_like(r), P, r, 0.0), r)
