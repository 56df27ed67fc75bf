"""Noise of shift policies: densities against scipy, and samples against their distribution."""

import pytest
import torch
from scipy import stats

from valuelens.models.control import Noise, ShiftPolicy

DENSITIES = {"gaussian": stats.norm, "laplace": stats.laplace, "logistic": stats.logistic}

each_noise = pytest.mark.parametrize("noise", DENSITIES)


def policy(noise: Noise, scale: float = 0.7) -> ShiftPolicy:
    torch.manual_seed(100)
    return ShiftPolicy(torch.nn.Linear(2, 3).double(), noise=noise, scale=scale)


@each_noise
def test_log_prob_is_the_density_around_the_mean(noise: Noise) -> None:
    shifted, generator = policy(noise), torch.Generator().manual_seed(1)
    state = torch.randn(5, 2, generator=generator, dtype=torch.float64)
    action = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    around = (action - shifted.mean(state)).detach().numpy()
    expected = DENSITIES[noise](scale=0.7).logpdf(around).sum(-1)
    torch.testing.assert_close(shifted.log_prob(state, action).detach(), torch.from_numpy(expected))


@each_noise
def test_noise_has_the_distribution_that_it_claims(noise: Noise) -> None:
    drawn = policy(noise).noise((4000, 3), torch.Generator().manual_seed(0)).flatten().numpy()
    assert stats.kstest(drawn, DENSITIES[noise](scale=0.7).cdf).pvalue > 0.01
    wrong = stats.kstest(drawn, DENSITIES[noise](scale=0.8).cdf).pvalue
    assert wrong < 1e-6


def test_the_generator_decides_the_noise() -> None:
    shifted = policy("laplace")
    first, second = (shifted.noise((4, 3), torch.Generator().manual_seed(5)) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_an_action_is_the_mean_plus_noise() -> None:
    shifted, state = policy("gaussian"), torch.ones(2, dtype=torch.float64)
    eps = torch.full((3,), 0.25, dtype=torch.float64)
    torch.testing.assert_close(shifted(state, eps) - shifted.mean(state), eps)


def test_a_scale_must_be_positive() -> None:
    with pytest.raises(ValueError, match="the scale of a noise must be positive; found 0; shift policy"):
        policy("gaussian", 0)
