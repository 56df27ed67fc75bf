"""Means and noise at the shared start state, and permutations within groups only."""

import pytest
import torch

from valuelens.analyses._group_means import Starts, group_means


def starts(scale: torch.Tensor, generator: torch.Generator, groups: int = 3) -> Starts:
    n = len(scale) // groups
    costates = torch.randn(len(scale), 2, 5, generator=generator, dtype=torch.float64)
    return Starts(
        costates=costates,
        scale=scale,
        group=torch.arange(groups).repeat_interleave(n),
        layers=(0, 4),
        baseline=None,
    )


def test_means_and_noise_are_those_of_a_loop(generator: torch.Generator) -> None:
    given = starts(torch.randn(12, generator=generator, dtype=torch.float64), generator)
    found = group_means(given, None)
    scaled = (given.scale[:, None, None] * given.costates).reshape(3, 4, 2, 5)
    for group in range(3):
        for layer in range(2):
            rows = scaled[group, :, layer]
            torch.testing.assert_close(found.own.mean[group, layer], rows.mean(0))
            trace = torch.cov(rows.T).trace()
            torch.testing.assert_close(found.own.covariance_trace[group, layer], trace)
    assert found.permuted == ()
    assert found.permuted_ratio(0) is None


def test_permutations_stay_within_groups(generator: torch.Generator) -> None:
    """Groups of one scale each are what they were, however rollouts are shuffled within them."""
    given = starts(torch.tensor([1.0, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0]).double(), generator)
    found = group_means(given, generator)
    assert len(found.permuted) > 1
    for each in found.permuted:
        torch.testing.assert_close(each.mean, found.own.mean)


def test_permutations_destroy_a_planted_signal(generator: torch.Generator) -> None:
    """Costates along advantages: the mean is the direction; permuted, nothing is left of it."""
    advantages = torch.randn(4000, generator=generator, dtype=torch.float64)
    given = starts(advantages, generator, groups=1)
    direction = torch.ones(5, dtype=torch.float64)
    planted = Starts(
        costates=given.costates + given.scale[:, None, None] * direction,
        scale=given.scale,
        group=given.group,
        layers=given.layers,
        baseline=None,
    )
    found = group_means(planted, generator)
    ratio = found.own.signal_to_noise[0]
    assert float(ratio) == pytest.approx(
        5 / 15, rel=0.15
    )  # |E a^2 1|^2 = 5 over 5 E a^2 + 5 (E a^4 - 1) = 15
    assert abs(found.permuted_ratio(0) or 0.0) < 0.01


def test_parts_are_those_of_the_whole(generator: torch.Generator) -> None:
    found = group_means(starts(torch.ones(12).double(), generator), generator)
    part = found.at(4, [2, 0])
    torch.testing.assert_close(part.own.mean[:, 0], found.own.mean[[2, 0], 1])
    torch.testing.assert_close(part.own.covariance_trace[:, 0], found.own.covariance_trace[[2, 0], 1])
    assert part.layers == (4,)
    assert len(part.permuted) == len(found.permuted)
