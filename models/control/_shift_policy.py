"""Policies that shift a fixed noise by a state-dependent mean.

Shape legend: `batch` rollouts, `time` steps, `state` and `action` components.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import (
    AffineTransform,
    Distribution,
    Laplace,
    Normal,
    SigmoidTransform,
    TransformedDistribution,
    Uniform,
)

Noise = Literal["gaussian", "laplace", "logistic"]


class ShiftPolicy(nn.Module):
    """pi(a|s) = nu(a - mean(s)): a = mean(s) + eps with noise eps that knows no state.

    nu is smooth and vanishes at the edge of its support. A uniform noise would not: there the score-function estimator
    is blind to the moving edges (pathwise .951, score .000), so it is not offered.

    Source: paper B's shift policies (theory B1).

    Args:
        mean: From states [..., state] to actions [..., action]; its parameters are the policy's.
        noise: Density nu of every component of the action, independently.
        scale: Its scale: standard deviation, Laplace's b, or the logistic scale.

    Example:
        >>> policy = ShiftPolicy(nn.Linear(2, 1), noise="logistic", scale=0.3)
        >>> policy.noise((5, 1), torch.Generator()).shape
        torch.Size([5, 1])
    """

    def __init__(self, mean: nn.Module, *, noise: Noise, scale: float) -> None:
        super().__init__()
        self.mean, self.density = mean, _density(noise, scale)

    def forward(
        self, state: Float[Tensor, "*batch state"], eps: Float[Tensor, "*batch action"]
    ) -> Float[Tensor, "*batch action"]:
        """The action that this noise leads to."""
        action: Tensor = self.mean(state) + eps
        return action

    def log_prob(
        self, state: Float[Tensor, "*batch state"], action: Float[Tensor, "*batch action"]
    ) -> Float[Tensor, "*batch"]:
        """log pi(a|s), components summed."""
        log_prob: Tensor = self.density.log_prob(action - self.mean(state)).sum(-1)
        return log_prob

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Float[Tensor, "..."]:
        """Noise by inverting its distribution function, so that the generator decides it.

        Args:
            shape: Of the result; the last axis is the action.
            generator: Source of randomness.
        """
        like = next(self.parameters())
        u = torch.rand(shape, generator=generator, dtype=torch.float64)
        u = u.clamp(torch.finfo(torch.float64).tiny, 1 - torch.finfo(torch.float64).eps / 2)
        eps: Tensor = self.density.icdf(u).to(like.dtype)
        return eps


def _density(noise: Noise, scale: float) -> Distribution:
    if not scale > 0:
        raise ValueError(f"the scale of a noise must be positive; found {scale}; shift policy")
    zero, one = torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64)
    if noise == "gaussian":
        return Normal(zero, scale * one, validate_args=False)
    if noise == "laplace":
        return Laplace(zero, scale * one, validate_args=False)
    logit = [SigmoidTransform().inv, AffineTransform(zero, scale * one)]
    return TransformedDistribution(Uniform(zero, one, validate_args=False), logit, validate_args=False)
