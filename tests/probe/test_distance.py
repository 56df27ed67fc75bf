"""Distance to the set of theta*: planted truths, gauges that must not count, and plain loops."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from valuelens.probe import (
    ThetaStarDistance,
    functional_distance,
    softmax_gauge,
    theta_star_distance,
)

sizes = {"d": st.integers(2, 5), "layers": st.integers(1, 4), "seed": st.integers(0, 10_000)}
TD = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
INVARIANT = (
    "w",
    "w_identified",
    "step_size",
    "weight_cosine",
    "effective_discount",
    "reward_scale",
    "sharpness",
    "attention_residual",
    "off_support_A",
    "off_support_V",
    "target_residual",
)


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def star(alpha: Tensor, c: Tensor, d: int) -> tuple[Tensor, Tensor]:
    A, V = torch.zeros(2, len(alpha), d + 3, d + 3, dtype=torch.float64)
    for i in range(d):
        A[:, i, i] = c
    V[:, -1, -3:] = alpha[:, None] * TD
    return A, V


def noisy(d: int, layers: int, seed: int) -> tuple[Tensor, Tensor, torch.Generator]:
    generator = torch.Generator().manual_seed(seed)
    A, V = star(torch.ones(layers), torch.full((layers,), 3.0), d)
    A, V = (x + 0.2 * normal(generator, *x.shape) for x in (A, V))
    return A, V, generator


def same(here: ThetaStarDistance, there: ThetaStarDistance, names: tuple[str, ...] = INVARIANT) -> None:
    assert here.sign_pattern == there.sign_pattern
    for name in names:
        assert_close(getattr(there, name), getattr(here, name), atol=1e-9, rtol=1e-9, equal_nan=True)


@given(**sizes, gamma=st.floats(0, 0.99), gauged=st.booleans(), dual=st.booleans())
def test_theta_star_is_at_distance_zero(
    d: int, layers: int, seed: int, gamma: float, gauged: bool, dual: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    alpha, c = 0.1 + 1.4 * torch.rand(2, layers, generator=generator, dtype=torch.float64)
    A, V = star(alpha, 10 * c, d)
    gauge = normal(generator, d) if gauged else None
    found = theta_star_distance(A, V, gamma=gamma, V_target=V.roll(-1, dims=1) if dual else None, gauge=gauge)
    assert found.sign_pattern == ("++-",) * layers
    assert_close(found.target_scale, 1.0)
    one, zero = torch.ones_like(alpha), torch.zeros_like(alpha)
    assert_close(found.w, alpha[:, None] * TD)
    for value, truth in (
        (found.step_size, alpha),
        (found.sharpness, 10 * c),
        (found.weight_cosine, one),
        (found.reward_scale, one),
        (found.effective_discount, gamma * one),
        (found.attention_residual, zero),
        (found.off_support_A, zero),
        (found.off_support_V, zero),
    ):
        assert_close(value, truth, atol=1e-12, rtol=1e-12)


@given(**sizes)
def test_every_number_equals_loops(d: int, layers: int, seed: int) -> None:
    A, V, generator = noisy(d, layers, seed)
    u0 = normal(generator, d)
    masks = tuple(torch.rand(A.shape, generator=generator) < 0.8 for _ in range(2))
    found = theta_star_distance(A, V, gamma=0.7, gauge=u0, identified=masks)
    Pi = [[(i == j) - float(u0[i] * u0[j] / (u0 @ u0)) for j in range(d)] for i in range(d)]
    D = d + 3
    for layer in range(layers):
        known_A, known_V = (mask[layer].tolist() for mask in masks)
        a, v = A[layer].tolist(), V[layer].tolist()
        projected = [
            [sum(Pi[i][k] * a[k][j] for k in range(d)) if i < d else a[i][j] for j in range(D)]
            for i in range(D)
        ]
        c = sum(projected[i][i] for i in range(d)) / (d - 1)
        w, known = v[D - 1][d:], known_V[D - 1][d:]
        scaled = [x * s for x, s, k in zip(w, (1, 1, -1), known, strict=True) if k]
        alpha = sum(scaled) / len(scaled) if scaled else math.nan
        misfit = [
            (i, j, projected[i][j] / c - (Pi[i][j] if i < d and j < d else 0))
            for i in range(D)
            for j in range(D)
            if known_A[i][j]
        ]
        off_a = [abs(x) for i, j, x in misfit if not (i == j < d)]
        off_v = [abs(v[i][j]) for i in range(D) for j in range(D) if known_V[i][j] and (i < D - 1 or j < d)]
        raw = sum((a[i][j] - (i == j < d)) ** 2 for i in range(D) for j in range(D) if known_A[i][j]) + sum(
            (v[i][j] - (TD[j - d].item() if i == D - 1 and j >= d else 0)) ** 2
            for i in range(D)
            for j in range(D)
            if known_V[i][j]
        )
        positive = alpha > 0
        for value, truth in (
            (found.step_size, alpha),
            (found.sharpness, c),
            (
                found.attention_residual,
                math.sqrt(sum(x * x for *_, x in misfit) / (d - 1)) if c > 0 else math.nan,
            ),
            (found.off_support_A, sum(off_a) / len(off_a) if c > 0 else math.nan),
            (found.off_support_V, sum(off_v) / len(off_v) / alpha if positive else math.nan),
            (found.frobenius, math.sqrt(raw)),
            (found.effective_discount, 0.7 * w[1] / abs(w[2]) if known[1] and known[2] else math.nan),
            (found.reward_scale, w[0] / abs(w[2]) if known[0] and known[2] else math.nan),
            (
                found.weight_cosine,
                (w[0] + w[1] - w[2]) / math.sqrt(3 * sum(x * x for x in w)) if all(known) else math.nan,
            ),
        ):
            assert_close(value[layer].item(), truth, atol=1e-9, rtol=1e-9, equal_nan=True)


@given(**sizes, s=st.floats(0.1, 10))
def test_alpha_and_c_are_free(d: int, layers: int, seed: int, s: float) -> None:
    A, V, _ = noisy(d, layers, seed)
    here, there = theta_star_distance(A, V, gamma=0.5), theta_star_distance(s * A, V / s, gamma=0.5)
    assert_close(there.step_size * s, here.step_size)
    assert_close(there.sharpness / s, here.sharpness)
    free = ("w", "step_size", "sharpness")
    same(here, there, tuple(name for name in INVARIANT if name not in free))


@given(**sizes)
def test_the_softmax_gauge_is_free(d: int, layers: int, seed: int) -> None:
    A, V, generator = noisy(d, layers, seed)
    u0 = normal(generator, d)
    move = torch.nn.functional.pad(u0, (0, 3))[:, None] * normal(generator, layers, 1, d + 3)
    here, there = (theta_star_distance(each, V, gamma=0.5, gauge=u0) for each in (A, A + move))
    same(here, there)
    assert float((here.frobenius - there.frobenius).abs().max()) > 1e-6


def test_without_its_gauge_a_moved_theta_star_seems_far() -> None:
    A, V = star(torch.ones(1), torch.full((1,), 3.0), 4)
    moved = A + torch.tensor([1.0, 1, 1, 1, 0, 0, 0])[:, None]
    free = theta_star_distance(moved, V, gamma=0.5, gauge=torch.ones(4, dtype=torch.float64))
    assert_close(free.attention_residual, torch.zeros(1, dtype=torch.float64))
    assert float(theta_star_distance(moved, V, gamma=0.5).attention_residual) > 0.5


several = {**sizes, "layers": st.integers(2, 4)}  # the target head of a single layer is never read


@given(**several, s=st.floats(-10, 10).filter(lambda s: abs(s) > 0.1))
def test_the_scale_of_the_target_slot_is_free(d: int, layers: int, seed: int, s: float) -> None:
    A, V, generator = noisy(d, layers, seed)
    V_target = normal(generator, *V.shape)
    moved, moved_target = V.clone(), V_target.clone()
    moved[:, -1, -2] /= s
    moved_target[:, -2, -3] *= s
    moved_target[:, -2, -1] *= s
    here = theta_star_distance(A, V, gamma=0.5, V_target=V_target)
    there = theta_star_distance(A, moved, gamma=0.5, V_target=moved_target)
    same(here, there)
    assert_close(there.target_scale, here.target_scale * s)


@given(**sizes)
def test_the_sign_of_the_target_slot_is_read_from_its_own_head(d: int, layers: int, seed: int) -> None:
    alpha = 0.1 + torch.rand(layers + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    A, V = star(alpha, torch.ones_like(alpha), d)
    V_target = V.roll(-1, dims=1)
    V[:, -1, -2] *= -1
    V_target[:, -2, -3] *= -1
    V_target[:, -2, -1] *= -1
    assert set(theta_star_distance(A, V, gamma=0.5).sign_pattern) == {"+--"}
    found = theta_star_distance(A, V, gamma=0.5, V_target=V_target)
    assert set(found.sign_pattern) == {"++-"}
    assert_close(found.target_scale, -1.0)
    assert_close(found.target_residual[:-1], torch.zeros_like(alpha[:-1]))


@given(**sizes)
def test_the_target_head_of_the_last_layer_is_never_read(d: int, layers: int, seed: int) -> None:
    A, V, generator = noisy(d, layers, seed)
    V_target = normal(generator, *V.shape)
    other = V_target.clone()
    other[-1] = normal(generator, d + 3, d + 3)
    here, there = (theta_star_distance(A, V, gamma=0.5, V_target=each) for each in (V_target, other))
    same(here, there)
    assert here.target_scale == there.target_scale
    assert bool(here.target_residual[-1].isnan())


def test_a_head_that_disagrees_has_a_residual() -> None:
    A, V = star(torch.ones(2), torch.ones(2), 3)
    V_target = V.roll(-1, dims=1)
    V_target[0, -2, -2] = 0.5  # w_T of the target head is half that of the current head
    found = theta_star_distance(A, V, gamma=0.5, V_target=V_target)
    assert_close(found.target_residual[0].item(), 0.5 / math.sqrt(3))


def test_unidentified_entries_are_left_out() -> None:
    A, V = star(torch.tensor([0.3, 0.8]), torch.tensor([2.0, 5.0]), 3)
    known = torch.ones(2, 6, 6, dtype=torch.bool)
    known[0, -1, -2:] = known[0, :3, 3:] = known[0, 3:, :] = False  # the first of several untied layers
    known[0, -1, -3] = True
    V[0, -1, -2:] = torch.tensor([70.0, 80.0])
    V[0, 0, 0], A[0, -1, 0] = 90, 60
    found = theta_star_distance(A, V, gamma=0.5, identified=(known, known & (V[:1] != 90)))
    assert found.sign_pattern == ("unidentified", "++-")
    assert_close(found.step_size, torch.tensor([0.3, 0.8], dtype=torch.float64), atol=1e-6, rtol=0)
    nan = torch.tensor([False, False, True, True])
    assert_close(found.w[0, 1:].isnan(), torch.ones(2, dtype=torch.bool))
    for name in ("weight_cosine", "effective_discount", "reward_scale"):
        assert_close(getattr(found, name).isnan(), nan[[2, 0]])
    zero = torch.zeros(2, dtype=torch.float64)
    assert_close((found.attention_residual, found.off_support_A, found.off_support_V), (zero, zero, zero))


def test_scales_that_are_not_positive_give_no_distance() -> None:
    A, V = star(torch.tensor([-0.5]), torch.tensor([-2.0]), 3)
    found = theta_star_distance(A, V, gamma=0.5)
    assert found.sign_pattern == ("--+",)
    for name in ("attention_residual", "off_support_A", "off_support_V"):
        assert bool(getattr(found, name).isnan().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gauge_of_one_hot_features(dtype: torch.dtype) -> None:
    found = softmax_gauge(torch.eye(5, dtype=dtype).expand(3, -1, -1))
    assert found is not None
    assert_close(found, torch.ones(5, dtype=dtype))


@given(d=st.integers(2, 5), seed=st.integers(0, 10_000))
def test_the_gauge_of_features_on_a_plane(d: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    u0, x = normal(generator, d), normal(generator, 40, d)
    found = softmax_gauge(x + (1 - x @ u0)[:, None] * u0 / (u0 @ u0))
    assert found is not None
    assert_close(found, u0, atol=1e-6, rtol=1e-6)
    assert softmax_gauge(x) is None


def test_one_vector_is_no_sample() -> None:
    assert softmax_gauge(torch.eye(3)[:1]) is None


@given(layers=st.integers(1, 3), batch=st.integers(1, 3), pos=st.integers(1, 4), seed=st.integers(0, 10_000))
def test_functional_distance_equals_loops(layers: int, batch: int, pos: int, seed: int) -> None:
    values, reference = normal(torch.Generator().manual_seed(seed), 2, layers, batch, pos)
    found = functional_distance(values, reference)
    for layer in range(layers):
        columns = [(b, j) for b in range(batch) for j in range(pos)]
        error = sum((values[layer, b, j] - reference[layer, b, j]) ** 2 for b, j in columns)
        assert_close(found[layer], (error / sum(values[layer, b, j] ** 2 for b, j in columns)) ** 0.5)
    assert_close(functional_distance(values, values), torch.zeros(layers, dtype=torch.float64))
    assert_close(functional_distance(values, 0 * values), torch.ones(layers, dtype=torch.float64))
