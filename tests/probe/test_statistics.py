"""Intervals: they cover at their stated rate, and where nothing varies there is none and no warning."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from torch import Tensor
from torch.testing import assert_close

from valuelens.models.icrl import (
    TaskConfig,
    at_states,
    context_of,
    context_statistics,
    state_form_values,
    task_sampler,
    theta_star,
)
from valuelens.probe import (
    constant_value,
    inner_product_interval,
    kernel_diagonality,
    mean_interval,
    median_interval,
    ratio_interval,
    share_interval,
    state_kernel_from_scores,
    student_interval,
    within_chain_sums,
)

REPLICATES, TASKS = 300, 64
STANDARD_ERROR = (0.95 * 0.05 / REPLICATES) ** 0.5


def draw(generator: torch.Generator) -> Tensor:
    return torch.empty(TASKS, dtype=torch.float64).exponential_(generator=generator)


def within(interval: tuple[float, float] | None, truth: float) -> bool:
    assert interval is not None
    return interval[0] <= truth <= interval[1]


def test_the_interval_of_a_mean_covers(generator: torch.Generator) -> None:
    covered = sum(within(mean_interval(draw(generator), seed=k), 1.0) for k in range(REPLICATES))
    assert abs(covered / REPLICATES - 0.95) < 5 * STANDARD_ERROR


def test_the_interval_of_a_ratio_covers(generator: torch.Generator) -> None:
    covered = 0
    for k in range(REPLICATES):
        denominator = draw(generator)
        numerator = 0.3 * denominator * draw(generator)  # a skewed share with mean 0.3
        covered += within(ratio_interval(numerator, denominator, seed=k), 0.3)
    assert abs(covered / REPLICATES - 0.95) < 5 * STANDARD_ERROR


NUM_TASKS, CONTEXTS = 256, 200
"""Tasks of an analysis by default, and analyses."""


@pytest.fixture(scope="module")
def per_task() -> dict[str, tuple[Tensor, Tensor]]:
    """Numerator and denominator of three estimates of theta* on every task of many analyses."""
    generator = torch.Generator().manual_seed(0)
    task = TaskConfig()
    sampler = task_sampler(task, generator)
    mrp, states = sampler.sample(NUM_TASKS * CONTEXTS, task.context_length, generator, torch.float64)
    model = theta_star(feature_dim=4, num_layers=10, gamma=task.gamma, sharpness=7.0)
    with torch.no_grad():
        values = at_states(state_form_values(model, context_statistics(mrp, states)), states)
    truth = at_states(mrp.value, states)
    blind = constant_value(context_of(mrp, states).rewards, gamma=task.gamma)[:, None]
    kernel = state_kernel_from_scores(
        7 * mrp.features @ mrp.features.mT, states, context_of(mrp, states).rewards
    )
    diagonal = kernel_diagonality(kernel.M_hat, kernel.visited).min
    return {
        "context_msve_vs_constant": ((values - truth).square().sum(-1), (blind - truth).square().sum(-1)),
        "within_chain_r2": within_chain_sums(values, truth),
        "kernel_diagonal_min": (diagonal, torch.ones_like(diagonal)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["context_msve_vs_constant", "within_chain_r2", "kernel_diagonal_min"])
def test_intervals_of_real_estimates_cover(per_task: dict[str, tuple[Tensor, Tensor]], name: str) -> None:
    numerator, denominator = per_task[name]
    truth = float(numerator.sum() / denominator.sum())
    parts = zip(numerator.split(NUM_TASKS), denominator.split(NUM_TASKS), strict=True)
    covered = sum(within(ratio_interval(x, y, seed=k), truth) for k, (x, y) in enumerate(parts))
    assert binomtest(covered, CONTEXTS, 0.95).pvalue > 1e-3


def test_the_interval_of_an_inner_product_covers(generator: torch.Generator) -> None:
    """|| E g ||^2 = 5 from gradients with unit covariance, 32 tasks a half."""
    mean, covered = torch.tensor([2.0, -1.0, 0.0]).double(), 0
    for k in range(80):
        left, right = mean + torch.randn(2, 32, 3, generator=generator, dtype=torch.float64)
        covered += within(inner_product_interval(left @ right.T, seed=k), 5.0)
    assert abs(covered / 80 - 0.95) < 5 * (0.95 * 0.05 / 80) ** 0.5


def test_an_inner_product_interval_scales_and_repeats(generator: torch.Generator) -> None:
    products = torch.randn(8, 10, generator=generator, dtype=torch.float64)
    plain, scaled = inner_product_interval(products), inner_product_interval(1e-12 * products)
    assert plain is not None
    assert scaled is not None
    assert_close(torch.tensor(scaled) * 1e12, torch.tensor(plain), rtol=1e-9, atol=0.0)
    assert plain[0] < float(products.mean()) < plain[1]
    assert plain == inner_product_interval(products) != inner_product_interval(products, seed=1)


@pytest.mark.parametrize("products", [torch.ones(1, 8), torch.ones(8, 8), torch.full((4, 4), torch.nan)])
def test_an_inner_product_without_spread_has_no_interval(products: Tensor) -> None:
    assert inner_product_interval(products) is None


def test_a_lower_confidence_is_narrower(generator: torch.Generator) -> None:
    sample = draw(generator)
    wide, narrow = mean_interval(sample), mean_interval(sample, confidence=0.5)
    assert wide is not None
    assert narrow is not None
    assert wide[0] < narrow[0] < float(sample.mean()) < narrow[1] < wide[1]


def test_a_seed_decides_the_resamples(generator: torch.Generator) -> None:
    sample = draw(generator)
    assert mean_interval(sample, seed=1) == mean_interval(sample, seed=1)
    assert mean_interval(sample, seed=1) != mean_interval(sample, seed=2)


@settings(max_examples=20)
@given(st.floats(1e-100, 1e100), st.floats(1e-100, 1e100), st.integers(0, 100))
def test_intervals_scale_with_the_sample(numerator: float, denominator: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, y = draw(generator), draw(generator)
    plain, scaled = ratio_interval(x, y), ratio_interval(numerator * x, denominator * y)
    assert plain is not None
    assert scaled is not None
    both = torch.tensor([plain, scaled], dtype=torch.float64)
    assert_close(both[1] / numerator * denominator, both[0], rtol=1e-9, atol=0.0)


def test_pairs_are_resampled_together(generator: torch.Generator) -> None:
    denominator = draw(generator)
    limits = ratio_interval(denominator * (1 + 1e-6 * torch.rand(TASKS, generator=generator)), denominator)
    assert limits is not None
    assert 0 < limits[1] - limits[0] < 1e-6


SPREAD = torch.linspace(0.1, 1, 8, dtype=torch.float64)
ONE = torch.eye(8, dtype=torch.float64)[3]
DEGENERATE = {
    "no task": (SPREAD[:0], SPREAD[:0]),
    "one task": (SPREAD[:1], SPREAD[:1]),
    "constant": (torch.ones(8), torch.full((8,), 2.0)),
    "all zero": (torch.zeros(8), torch.ones(8)),
    "proportional": (0.3 * SPREAD, SPREAD),
    "proportional and tiny": (1e-200 * SPREAD, SPREAD),
    "constant but for rounding": (1 + 1e-15 * SPREAD, torch.ones(8)),
    "denominators zero": (SPREAD, torch.zeros(8)),
    "one denominator": (SPREAD, ONE),
    "not a number": (SPREAD + torch.nan * ONE, SPREAD),
    "infinite": (SPREAD, SPREAD / (1 - ONE)),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_a_degenerate_sample_has_no_interval(name: str) -> None:
    assert ratio_interval(*DEGENERATE[name]) is None  # a warning would be an error


def test_a_mean_without_spread_has_no_interval() -> None:
    assert mean_interval(torch.full((5,), 0.1)) is None
    assert mean_interval(torch.tensor([1.0])) is None
    assert mean_interval(torch.tensor([1.0, 2.0])) is None  # half of its resamples have no spread
    assert mean_interval(SPREAD) is not None


@pytest.mark.parametrize(
    ("others", "digits", "dtype"),
    [
        (2, 0, torch.float64),
        (3, 1e-16, torch.float64),  # 16 tasks: one of 28 resamples holds ties alone
        (3, 1e-7, torch.float32),
    ],
)
def test_resamples_of_ties_have_no_spread_even_if_their_last_digits_differ(
    others: int, digits: float, dtype: torch.dtype
) -> None:
    """Spectral radii of .5 in most tasks gave [.496, 2e12]; a coverage of all states in most gave [0, 1.0085]."""
    sample = torch.full((16,), 0.5, dtype=torch.float64)
    sample[:others] = torch.tensor([0.9, 0.7, 0.8], dtype=torch.float64)[:others]
    sample += digits * (torch.arange(16) % 3 - 1)
    assert mean_interval(sample.to(dtype)) is None
    assert mean_interval((1.4 - sample).to(dtype)) is None  # the others are below, and nothing is negative


def test_nearly_zero_residuals_keep_their_interval(generator: torch.Generator) -> None:
    limits = mean_interval(1e-32 * draw(generator))
    assert limits is not None
    assert 0 < limits[0] < 1e-32 < limits[1]


def test_student_interval_equals_the_textbook() -> None:
    sample = torch.tensor([2.0, 3.0, 7.0, 8.0, 10.0], dtype=torch.float64)
    half = (
        2.7764451051977987 * float(sample.std()) / math.sqrt(5)
    )  # quantile 0.975 of t with 4 degrees of freedom
    assert_close(student_interval(sample), (6 - half, 6 + half))


def test_student_interval_covers_at_its_rate_with_five_values() -> None:
    draws = torch.randn(400, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    intervals = [student_interval(sample) for sample in draws]
    assert 0.92 < sum(low < 0 < high for low, high in filter(None, intervals)) / 400 < 0.98


@pytest.mark.parametrize("sample", [[1.0], [2.0, 2.0, 2.0], [1.0, math.nan], [1.0, math.inf]])
def test_no_student_interval_without_spread(sample: list[float]) -> None:
    assert student_interval(torch.tensor(sample)) is None


def test_rounding_is_no_spread() -> None:
    assert student_interval(torch.tensor([0.3, 0.1 + 0.2, 0.3], dtype=torch.float64)) is None


@pytest.mark.parametrize("total", [1, 8, 256])
def test_the_interval_of_a_share_without_hits_has_a_closed_form(total: int) -> None:
    low, high = share_interval(0, total) or (1.0, 0.0)
    assert low == 0
    assert_close(high, 1 - 0.025 ** (1 / total))
    mirrored = share_interval(total, total) or (0.0, 0.0)
    assert_close(torch.tensor(mirrored), torch.tensor((1 - high, 1.0)))


def test_the_interval_of_a_share_covers(generator: torch.Generator) -> None:
    hits = (torch.rand(REPLICATES, TASKS, generator=generator) < 0.1).sum(1)
    covered = sum(within(share_interval(int(k), TASKS), 0.1) for k in hits)
    assert covered / REPLICATES > 0.95 - 3 * STANDARD_ERROR  # exact, so it may cover more
    assert share_interval(0, 0) is None


def test_the_median_of_clusters_has_an_interval_that_covers(generator: torch.Generator) -> None:
    """Exponential values shared by the four observations of a cluster: log 2 is the median."""
    hits, cluster = 0, torch.arange(240) // 4
    for seed in range(60):
        shared = torch.empty(60).exponential_(generator=generator)
        interval = median_interval(shared[cluster], cluster, seed=seed)
        assert interval is not None
        hits += interval[0] <= math.log(2) <= interval[1]
    assert hits >= 51


def test_a_median_without_spread_or_clusters_has_no_interval() -> None:
    few = torch.tensor([0, 0, 1, 1])
    assert median_interval(torch.arange(4.0), few) is None
    assert median_interval(torch.ones(4), torch.arange(4)) is None
    assert median_interval(torch.tensor([1.0, 2, 3, torch.nan]), torch.arange(4)) is None
    assert median_interval(torch.ones(0), torch.arange(0)) is None
