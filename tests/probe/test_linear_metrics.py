"""The measures of arXiv 2405.13861 against its own code's numbers, plain loops and known answers."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from valuelens.models.icrl import Context, theta_td
from valuelens.probe import (
    batch_td_weight,
    implicit_weight,
    implicit_weight_similarity,
    matrix_entries,
    query_gradients,
    sensitivity_similarity,
    value_difference,
)

FIXTURES = Path(__file__).parents[1] / "fixtures" / "incontexttd"
each_run = pytest.mark.parametrize("name", ["tied", "untied"])
seeds = given(seed=st.integers(0, 2**16))


def arrays(name: str, file: str) -> dict[str, Tensor]:
    with np.load(FIXTURES / name / file, allow_pickle=False) as data:
        return {key: torch.from_numpy(np.asarray(data[key], dtype=np.float64)) for key in data}


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shares(*shape: int, seed: int) -> Tensor:
    return normal(*shape, seed=seed).softmax(-1)


def columns_then_queries(columns: Tensor, P: Tensor, Q: Tensor, queries: Tensor, layers: int) -> Tensor:
    """Values of queries by the formula of the paper, in column orientation, one query at a time."""
    n = columns.shape[1]
    values = []
    for x in queries:
        Z = torch.cat([columns, torch.cat([x, x.new_zeros(len(columns) - len(x))])[:, None]], dim=1)
        M = torch.diag(torch.cat([x.new_ones(n), x.new_zeros(1)]))
        for layer in range(layers):
            p, q = P[layer % len(P)], Q[layer % len(Q)]
            Z = Z + p @ Z @ M @ Z.T @ q @ Z / n
        values.append(-Z[-1, -1])
    return torch.stack(values)


@each_run
def test_its_own_code_finds_the_same(name: str) -> None:
    theirs, data = arrays(name, "expected.npz"), arrays(name, "data.npz")
    features, mu = theirs["features"], theirs["stationary"]
    d = features.shape[-1]
    star_P, star_Q = torch.zeros(2, 1, 2 * d + 1, 2 * d + 1, dtype=torch.float64)
    star_P[0, -1, -1] = 1
    star_Q[0, :d, : 2 * d] = data["alpha"][-1] * torch.cat([-torch.eye(d), torch.eye(d)], dim=1)
    layers = {"tied": 3, "untied": 2}[name]

    def of(P: Tensor, Q: Tensor, queries: Tensor) -> Tensor:
        rows = zip(theirs["context"], queries, strict=True)
        return torch.stack([columns_then_queries(columns, P, Q, x, layers) for columns, x in rows])

    own, td = (data["P"][-1], data["Q"][-1]), (star_P, star_Q)
    values, td_values = of(*own, features), of(*td, features)
    gradients, td_gradients = (query_gradients(lambda x, m=m: of(*m, x), features) for m in (own, td))
    found = {
        "value_difference": value_difference(values, td_values, mu),
        "implicit_weight_similarity": implicit_weight_similarity(
            implicit_weight(values, features, mu), td_gradients[:, 0]
        ),
        "sensitivity_similarity": sensitivity_similarity(gradients, td_gradients, mu),
    }
    for key, each in found.items():
        assert_close(each, theirs[key], atol=2e-6, rtol=2e-5)


@each_run
def test_its_own_code_finds_the_same_entries_but_for_a_sign(name: str) -> None:
    theirs, data = arrays(name, "expected.npz"), arrays(name, "data.npz")
    P, Q = data["P"][-1], data["Q"][-1]
    sign = P[:, -1, -1].sign()
    own_P, own_Q = matrix_entries(P, Q)
    assert_close(own_P, theirs["P_entries"] * torch.stack([sign, sign.abs()], dim=-1), atol=1e-6, rtol=1e-6)
    assert_close(own_Q[:, :2], sign[:, None] * theirs["Q_entries"][:, :2], atol=1e-6, rtol=1e-6)
    d = Q.shape[-1] // 2
    diagonals = torch.cat([Q[:, range(d), range(d)], Q[:, range(d), range(d, 2 * d)]], dim=-1)
    twice = (diagonals.abs() - diagonals).sum(-1) / (Q[0].numel() - 2 * d)
    assert_close(own_Q[:, 2] + twice, theirs["Q_entries"][:, 2], atol=1e-6, rtol=1e-6)


@settings(max_examples=10)
@given(
    seed=st.integers(0, 2**16),
    gamma=st.floats(0, 0.99),
    steps=st.lists(st.floats(-1, 1), min_size=1, max_size=4),
)
def test_batch_td_is_what_theta_td_computes(seed: int, gamma: float, steps: list[float]) -> None:
    x, rewards, queries = (
        normal(3, 7, 2, seed=seed),
        normal(3, 6, seed=seed + 1),
        normal(3, 4, 2, seed=seed + 2),
    )
    model = theta_td(feature_dim=2, num_layers=len(steps), gamma=gamma, alpha=steps, dtype=torch.float64)
    context = Context(states=torch.zeros(3, 7).long(), features=x, rewards=rewards, gamma=gamma)
    w = batch_td_weight(x, rewards, gamma=gamma, step_sizes=torch.tensor(steps, dtype=torch.float64))
    assert_close((queries @ w[..., None])[..., 0], model.values(context, queries).detach())


@settings(max_examples=10)
@seeds
def test_value_difference_is_a_weighted_mean_square(seed: int) -> None:
    v, reference, mu = normal(3, 5, seed=seed), normal(3, 5, seed=seed + 1), shares(3, 5, seed=seed)
    found = value_difference(v, reference, mu)
    for row in range(3):
        wanted = sum(float(mu[row, s] * (v[row, s] - reference[row, s]) ** 2) for s in range(5))
        assert float(found[row]) == pytest.approx(wanted, rel=1e-12)


@settings(max_examples=10)
@seeds
def test_the_implicit_weight_leaves_a_residual_without_features(seed: int) -> None:
    v, x, mu = normal(3, 6, seed=seed), normal(3, 6, 2, seed=seed + 1), shares(3, 6, seed=seed)
    residual = v - torch.einsum("bsd,bd->bs", x, implicit_weight(v, x, mu))
    assert_close(
        torch.einsum("bs,bs,bsd->bd", mu, residual, x), torch.zeros(3, 2).double(), atol=1e-9, rtol=0
    )


@settings(max_examples=10)
@seeds
def test_linear_values_have_their_own_weight_and_gradient(seed: int) -> None:
    x, w, mu = normal(3, 6, 2, seed=seed), normal(3, 2, seed=seed + 1), shares(3, 6, seed=seed)
    values = torch.einsum("bsd,bd->bs", x, w)
    assert_close(implicit_weight(values, x, mu), w)
    assert_close(implicit_weight_similarity(w, -2 * w), -torch.ones(3).double())
    gradients = query_gradients(lambda q: torch.einsum("bsd,bd->bs", q, w), x)
    assert_close(gradients, w[:, None].expand_as(x))
    assert_close(sensitivity_similarity(gradients, 3 * gradients, mu), torch.ones(3).double())


def test_gradients_of_values_that_are_not_linear_in_the_query() -> None:
    x = normal(2, 3, 4, seed=0)
    assert_close(query_gradients(lambda q: q.pow(3).sum(-1), x), 3 * x.square())
    assert not x.requires_grad


def test_no_direction_is_no_similarity() -> None:
    zero, one = torch.zeros(1, 2), torch.ones(1, 2)
    assert math.isnan(float(implicit_weight_similarity(zero, one)))
    assert math.isnan(float(sensitivity_similarity(zero[None], one[None], torch.ones(1, 1))))


@settings(max_examples=10)
@seeds
def test_entries_of_random_matrices_by_loops(seed: int) -> None:
    P, Q, d = normal(2, 5, 5, seed=seed), normal(2, 5, 5, seed=seed + 1), 2
    own_P, own_Q = matrix_entries(P, Q)
    for layer in range(2):
        sign = math.copysign(1, float(P[layer, -1, -1]))
        off_P = [abs(float(P[layer, i, j])) for i in range(5) for j in range(5) if (i, j) != (4, 4)]
        support = {(i, i) for i in range(d)} | {(i, i + d) for i in range(d)}
        off_Q = [abs(float(Q[layer, i, j])) for i in range(5) for j in range(5) if (i, j) not in support]
        traces = [sign * sum(float(Q[layer, i, i + shift]) for i in range(d)) for shift in (0, d)]
        wanted_P = [abs(float(P[layer, 4, 4])), sum(off_P) / 24]
        assert own_P[layer].tolist() == pytest.approx(wanted_P)
        assert own_Q[layer].tolist() == pytest.approx([*traces, sum(off_Q) / 21])
