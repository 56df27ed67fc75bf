"""Advantages of groups against loops."""

import pytest
import torch

from valuelens.probe import STD_EPSILON, group_advantages


def test_leaving_one_out_compares_with_the_others(generator: torch.Generator) -> None:
    returns = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    found = group_advantages(returns, baseline="leave-one-out")
    for g in range(3):
        for i in range(5):
            others = [float(returns[g, j]) for j in range(5) if j != i]
            assert float(found[g, i]) == pytest.approx(float(returns[g, i]) - sum(others) / 4)
    torch.testing.assert_close(group_advantages(returns) * 5 / 4, found)


def test_scaled_advantages_have_unit_spread_whatever_the_units(generator: torch.Generator) -> None:
    returns = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    scaled = group_advantages(returns, scale_by_std=True)
    expected = returns.std(1) / (returns.std(1) + STD_EPSILON)
    torch.testing.assert_close(scaled.std(1), expected)
    torch.testing.assert_close(group_advantages(1000 * returns, scale_by_std=True), scaled, rtol=1e-3, atol=0)


def test_a_group_without_spread_has_no_advantages() -> None:
    found = group_advantages(torch.full((1, 4), 0.5, dtype=torch.float64), scale_by_std=True)
    torch.testing.assert_close(found, torch.zeros_like(found))


def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(
        ValueError, match="a group must have at least two rollouts; found 1; group_advantages"
    ):
        group_advantages(torch.ones(3, 1))
