"""How far log-probabilities that a sampler logged are from those of the model that is measured.

Shape legend: `batch` rollouts, `state` k: after k tokens of the completion.
"""

from jaxtyping import Bool, Float
from torch import Tensor

LOG_PROB_MISMATCH_LIMIT = 0.02
"""Nats a token: above it the rollouts are another policy's, or sampled otherwise than said. Our definition."""


def log_prob_mismatch(
    recomputed: Float[Tensor, "batch state"],
    logged: Float[Tensor, "batch state"],
    valid: Bool[Tensor, "batch state"],
) -> float:
    """Median over tokens of the absolute difference, in nats; NaN if there is no token.

    The median holds against a few tokens on which samplers of other precision differ by nats. Tokens that the sampler
    could not score (NaN) are left out.

    Args:
        recomputed: By the model that is measured, under the distribution sampled from.
        logged: By whoever sampled.
        valid: Tokens of completions.

    Example:
        >>> import torch
        >>> logged = torch.tensor([[-1.0, -2.0, torch.nan]])
        >>> log_prob_mismatch(torch.tensor([[-1.5, -2.0, -3.0]]), logged, torch.ones(1, 3, dtype=torch.bool))
        0.25
    """
    ordered = (recomputed - logged).abs()[valid & ~logged.isnan()].double().sort().values
    n = len(ordered)
    return float(ordered[(n - 1) // 2] + ordered[n // 2]) / 2 if n else float("nan")
