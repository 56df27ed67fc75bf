"""Convergence on chains whose rate, fixed point and floor are known, and each measure against a slow loop."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from valuelens.models.icrl import MarkovRewardProcess, boyan_chains, context_of, rollout
from valuelens.probe import (
    TD_WEIGHTS,
    StateKernel,
    contraction_norm,
    contraction_ratios,
    deep_values,
    depth_rate,
    error_bound,
    fixed_point,
    floor_slope,
    floor_slope_interval,
    population_state_kernel,
    softmax_td_states,
    spectral_radius,
    state_kernel_from_scores,
    sup_distance,
)

GAMMA, DEPTH = 0.5, 40


def chains(tasks: int, seed: int = 0, states: int = 6) -> MarkovRewardProcess:
    generator = torch.Generator().manual_seed(seed)
    P, r, p0 = boyan_chains(tasks, states, generator, torch.float64)
    one_hot = torch.eye(states, dtype=torch.float64).expand(tasks, -1, -1)
    return MarkovRewardProcess(P=P, r=r, p0=p0, features=one_hot, gamma=GAMMA)


def planted(mrp: MarkovRewardProcess, n: int, seed: int = 1, scores: Tensor | None = None) -> StateKernel:
    """The kernel of theta* with c = 8 on one-hot features, or of given scores, on contexts of n transitions."""
    states = rollout(mrp, n, torch.Generator().manual_seed(seed))
    return state_kernel_from_scores(
        8 * mrp.features if scores is None else scores, states, context_of(mrp, states).rewards
    )


def values(kernel: StateKernel, w: Tensor = TD_WEIGHTS, depth: int = DEPTH) -> Tensor:
    return softmax_td_states(torch.zeros_like(kernel.r_hat), kernel, gamma=GAMMA, num_layers=depth, w=w)


def errors_to_fixed_point(kernel: StateKernel, w: Tensor = TD_WEIGHTS) -> Tensor:
    target = fixed_point(kernel, gamma=GAMMA, w=w)
    return sup_distance(values(kernel, w), target, kernel.visited)[:, kernel.closed]


def test_sup_distance_equals_a_loop() -> None:
    kernel = planted(chains(8), 6)
    v, target = values(kernel, depth=3), torch.linspace(0, 1, 48, dtype=torch.float64).view(8, 6)
    target = target.where(kernel.visited, 5.0)  # far off where it must not count
    assert not bool(kernel.visited.all())
    for layer in range(4):
        for b in range(8):
            places = [s for s in range(6) if kernel.visited[b, s]]
            largest = max(abs(float(v[layer, b, s] - target[b, s])) for s in places)
            assert_close(float(sup_distance(v, target, kernel.visited)[layer, b]), largest)


@pytest.mark.parametrize("alpha", [1.0, 0.7, 0.3])
@pytest.mark.parametrize("n", [5, 30, 300])
def test_no_layer_contracts_less_than_the_norm_where_that_is_below_1(n: int, alpha: float) -> None:
    mrp, w = chains(128), alpha * TD_WEIGHTS
    kernel = planted(mrp, n)
    norm = contraction_norm(kernel, gamma=GAMMA, w=w)[kernel.closed]
    errors = errors_to_fixed_point(kernel, w)
    ratios = contraction_ratios(errors)
    assert bool((norm < 1).all())
    assert len(norm) > 10
    assert bool((errors[1:] <= norm * errors[:-1] + 1e-14).all())
    assert not bool((ratios > norm * (1 + 1e-6)).any())  # errors down to 1e-9 carry that much rounding
    assert int((~ratios.isnan()).sum()) > 10 * len(norm)
    to_truth = sup_distance(values(kernel, w), mrp.value, kernel.visited)[:, kernel.closed]
    assert bool((contraction_ratios(to_truth) > norm * (1 + 1e-6)).any())  # so the assertion can fail


def test_theorem_2_decays_geometrically_down_to_the_floor() -> None:
    mrp = chains(64)
    kernel = planted(mrp, 300)
    kept = kernel.closed & kernel.visited.all(-1)
    truth = sup_distance(values(kernel), mrp.value, kernel.visited)[:, kept]
    left = sup_distance(fixed_point(kernel, gamma=GAMMA), mrp.value, kernel.visited)[kept]
    norm = contraction_norm(kernel, gamma=GAMMA)[kept].expand(DEPTH, -1)
    start = errors_to_fixed_point(kernel)[0][kept[kernel.closed]]
    bound = error_bound(start, norm, left)
    assert bool((truth <= bound * (1 + 1e-12)).all())
    early = truth[: 1 + int((truth.mean(1) > 3 * left.mean()).sum())].mean(1)
    assert len(early) >= 3
    assert bool((early[1:] < 0.65 * early[:-1]).all())  # halves, until the floor shows
    assert_close(truth[-1], left, atol=1e-9, rtol=0)


def test_the_fitted_rate_stays_below_the_norm_and_ends_at_the_radius() -> None:
    generator = torch.Generator().manual_seed(3)
    mrp = chains(64)
    mixing = 2.5 * mrp.features + 0.3 * torch.randn(64, 6, 6, generator=generator, dtype=torch.float64)
    for scores in (8 * mrp.features, mixing):
        kernel = planted(mrp, 60, scores=scores)
        target = fixed_point(kernel, gamma=GAMMA)
        errors = sup_distance(values(kernel, depth=400), target, kernel.visited)[:, kernel.closed]
        norm, radius = (m(kernel, gamma=GAMMA)[kernel.closed] for m in (contraction_norm, spectral_radius))
        assert bool((depth_rate(errors) <= norm * (1 + 1e-9)).all())
        late = depth_rate(errors, first=15)
        known = late.isfinite()
        assert int(known.sum()) > 40
        off, early = ((each - radius)[known].abs().mean() for each in (late, depth_rate(errors)))
        assert float(off) < 0.01
        assert float(off) < 0.7 * float(early)


def test_a_rate_is_fitted_up_to_the_floor_only() -> None:
    layer = torch.arange(12, dtype=torch.float64)
    clean = 3 * 0.1**layer
    assert_close(depth_rate(clean[:, None]), torch.tensor([0.1], dtype=torch.float64))
    noisy = clean + 1e-10  # flat below the floor of 1e-9
    assert_close(depth_rate(noisy[:, None]), torch.tensor([0.1], dtype=torch.float64), rtol=0.02, atol=0)
    assert float(depth_rate(noisy[:, None], floor=0.0)) > 0.105
    back = torch.tensor([1.0, 0.5, 0.25, 0.0, 0.9, 0.9], dtype=torch.float64)
    assert_close(depth_rate(back[:, None]), torch.tensor([0.5], dtype=torch.float64))
    assert bool(depth_rate(clean[:2, None]).isnan())
    assert bool(depth_rate(torch.zeros(5, 1)).isnan())


def test_the_fitted_rate_is_that_of_polyfit(generator: torch.Generator) -> None:
    errors = torch.rand(7, 5, generator=generator, dtype=torch.float64) + 0.1
    slopes = np.polyfit(np.arange(2, 7), errors[2:].log().numpy(), 1)[0]
    assert_close(depth_rate(errors, first=2), torch.from_numpy(np.exp(slopes)))


def test_ratios_end_at_the_floor() -> None:
    errors = torch.tensor([[1.0], [0.5], [2e-9], [1e-10], [1e-11]], dtype=torch.float64)
    found = contraction_ratios(errors)[:, 0]
    assert_close(found[:3], torch.tensor([0.5, 4e-9, 0.05], dtype=torch.float64))
    assert bool(found[3].isnan())


def test_a_bound_is_a_running_product(generator: torch.Generator) -> None:
    start, left = torch.rand(2, 4, generator=generator)
    norms = torch.rand(3, 4, generator=generator)
    found, expected = error_bound(start, norms, left), start
    for layer in range(4):
        assert_close(found[layer], expected + left)
        expected = expected * norms[min(layer, 2)]


@pytest.mark.parametrize("n", [100, 1000])
def test_endless_contexts_are_the_limit(n: int) -> None:
    """The distance to the endless kernel falls as the root of n."""
    mrp = chains(32)
    endless = population_state_kernel(2 * mrp.features, mrp.P, mrp.r, mrp.stationary)
    off = []
    for length in (n, 10 * n):
        kernel = planted(mrp, length, scores=2 * mrp.features)
        off.append(float((kernel.P_hat - endless.P_hat).abs().mean()))
    assert 0.22 < off[1] / off[0] < 0.45  # 10^-1/2 = .32
    assert bool(endless.closed.all())


@pytest.mark.parametrize("w", [(1.0, 1.0, -1.0), (0.4, 0.4, -0.4), (1.3, 0.9, -1.1), (1.0, 1.7, -1.2)])
def test_the_fixed_point_is_that_of_the_effective_discount_whatever_the_kernel(
    w: tuple[float, float, float], generator: torch.Generator
) -> None:
    mrp, weights = chains(8), torch.tensor(w, dtype=torch.float64)
    scores = mrp.features + 0.5 * torch.randn(8, 6, 6, generator=generator, dtype=torch.float64)
    endless = population_state_kernel(scores, mrp.P, mrp.r, mrp.stationary)
    discount, scale = GAMMA * w[1] / -w[2], w[0] / -w[2]
    eye = torch.eye(6, dtype=torch.float64)
    expected = scale * torch.linalg.solve(eye - discount * mrp.P, mrp.r)
    assert_close(fixed_point(endless, gamma=GAMMA, w=weights), expected, atol=1e-8, rtol=1e-8)
    assert bool(((expected - mrp.value).abs().max() > 0.01) == (w[0] != w[1] or w[1] != -w[2]))


def test_depth_without_end_reaches_the_fixed_point_and_doubling_is_repeating() -> None:
    kernel = planted(chains(32), 12)
    assert_close(deep_values(kernel, gamma=GAMMA, doublings=5), values(kernel, depth=32)[-1])
    deep, target = deep_values(kernel, gamma=GAMMA, doublings=14), fixed_point(kernel, gamma=GAMMA)
    kept = kernel.visited & kernel.closed[:, None]
    assert_close(deep[kept], target[kept])
    assert bool(deep.isfinite().all())  # also at states that were never a source
    assert not bool(kernel.visited.all())
    w = torch.tensor([1.0, 2.6, -1.0], dtype=torch.float64)
    assert not bool(deep_values(kernel, gamma=GAMMA, w=w, doublings=14).isfinite().all())


LENGTHS = torch.tensor([10.0, 100.0, 1000.0], dtype=torch.float64)


def law(tasks: int, generator: torch.Generator, power: float = -0.5) -> Tensor:
    """Errors with mean n^power that vary over tasks."""
    spread = torch.empty(3, tasks, dtype=torch.float64).exponential_(generator=generator)
    return spread * LENGTHS[:, None] ** power


def test_a_slope_is_that_of_polyfit_over_the_kept(generator: torch.Generator) -> None:
    errors, kept = law(40, generator), torch.rand(3, 40, generator=generator) < 0.6
    means = [float(row[mask].mean()) for row, mask in zip(errors, kept, strict=True)]
    expected = np.polyfit(np.log(LENGTHS.numpy()), np.log(means), 1)[0]
    assert_close(floor_slope(errors, LENGTHS, kept), float(expected))


def test_lengths_with_fewer_than_8_tasks_do_not_count(generator: torch.Generator) -> None:
    errors, kept = law(40, generator), torch.ones(3, 40, dtype=torch.bool)
    kept[0, 7:] = False
    assert_close(floor_slope(errors, LENGTHS, kept), floor_slope(errors[1:], LENGTHS[1:], kept[1:]))
    kept[1, 7:] = False
    assert math.isnan(floor_slope(errors, LENGTHS, kept))
    assert floor_slope_interval(errors, LENGTHS, kept) is None


def test_the_interval_of_a_slope_covers(generator: torch.Generator) -> None:
    kept, covered = torch.ones(3, 48, dtype=torch.bool), 0
    for k in range(60):
        limits = floor_slope_interval(law(48, generator), LENGTHS, kept, seed=k)
        assert limits is not None
        covered += limits[0] <= -0.5 <= limits[1]
    assert covered >= 52  # of 60 at 95 %: 57 and three standard deviations


def test_a_slope_without_spread_has_no_interval() -> None:
    errors = (LENGTHS**-0.5)[:, None].expand(3, 16)
    kept = torch.ones(3, 16, dtype=torch.bool)
    assert_close(floor_slope(errors, LENGTHS, kept), -0.5)
    assert floor_slope_interval(errors, LENGTHS, kept) is None
    assert floor_slope_interval(errors * torch.inf, LENGTHS, kept) is None
