"""Distance of linear-attention weights to theta_TD.

Shape legend: `layer`; `D` = 2d+1 slots: features, gamma times the successor's features, reward; P and Q in the
papers' orientation.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.probe._shown import Measured


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ThetaTDDistance(Measured):
    """How far each layer's P and Q are from theta_TD(alpha).

    Attributes:
        step_size: alpha: mean of the two diagonals [-I, I] of p Q, p = P[2d, 2d].
        residual: ||p Q / alpha - Q*||_F / ||Q*||_F; NaN unless alpha > 0.
        off_support_P: Mean |entry| of P / p outside P[2d, 2d].
        off_support_Q: Mean |entry| of p Q / alpha outside the two diagonals; NaN unless alpha > 0.
    """

    step_size: Float[Tensor, "layer"]
    residual: Float[Tensor, "layer"]
    off_support_P: Float[Tensor, "layer"]
    off_support_Q: Float[Tensor, "layer"]


def theta_td_distance(P: Float[Tensor, "layer D D"], Q: Float[Tensor, "layer D D"]) -> ThetaTDDistance:
    """Compare layers of linear attention with theta_TD, after moving the free scale of P into Q.

    Args:
        P: What a source sends.
        Q: Merged key-query matrices.

    Source: arXiv 2405.13861 for theta_TD (theory A11); the distance is our definition.
    """
    d = (P.shape[-1] - 1) // 2
    star = torch.zeros_like(Q[0])
    star[range(d), range(d)], star[range(d), range(d, 2 * d)] = -1, 1
    p = P[:, -1, -1]
    scaled = p[:, None, None] * Q
    alpha = (scaled * star).sum((-2, -1)) / (2 * d)
    relative = scaled / torch.where(alpha > 0, alpha, torch.nan)[:, None, None]
    own = torch.zeros_like(star)
    own[-1, -1] = 1
    return ThetaTDDistance(
        step_size=alpha,
        residual=(relative - star).square().sum((-2, -1)).sqrt() / (2 * d) ** 0.5,
        off_support_P=_mean(P / p[:, None, None], own == 0),
        off_support_Q=_mean(relative, star == 0),
    )


def _mean(x: Tensor, mask: Tensor) -> Tensor:
    return (x.abs() * mask).sum((-2, -1)) / mask.sum()
