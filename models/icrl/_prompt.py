"""Prompt matrices: a context written into the columns that a model reads.

Row-vector layout: a prompt is [batch pos D], one row a column of the papers' matrix Z. The last
`num_queries` rows are destinations only: the query S_n first, then extra query states, which no other row sees.

Softmax slots (D = d+3): features 0..d-1, reward d, target memory d+1, current memory d+2.
Linear slots (D = 2d+1): features, gamma times the successor's features, reward.
Token slots (D = d+2): features, reward, query marker.
"""

import torch
from einops import repeat
from jaxtyping import Float
from torch import Tensor

from valuelens.models.icrl._mrp import Context


def softmax_slots(feature_dim: int) -> dict[str, slice]:
    """Names of the columns of a softmax-TD prompt, by slice.

    Example:
        >>> softmax_slots(4)["current"]
        slice(6, 7, None)
    """
    d = feature_dim
    return {
        "features": slice(0, d),
        "reward": slice(d, d + 1),
        "target": slice(d + 1, d + 2),
        "current": slice(d + 2, d + 3),
    }


def softmax_prompt(
    context: Context, queries: Float[Tensor, "batch query feature"] | None = None
) -> Float[Tensor, "batch pos D"]:
    """Z_0 of softmax TD: features, rewards R_1..R_n then 0, both memories 0.

    Source: arXiv 2605.07333, by its audit (theory A3).

    Args:
        context: n transitions.
        queries: Features of states whose values are wanted besides S_n's.
    """
    features, rewards = _columns(context, queries)
    memories = rewards.new_zeros((*rewards.shape[:-1], 2))
    return torch.cat([features, rewards, memories], dim=-1)


def linear_prompt(
    context: Context, queries: Float[Tensor, "batch query feature"] | None = None
) -> Float[Tensor, "batch pos D"]:
    """Z_0 of linear attention: x(S_j), gamma x(S_{j+1}), R_{j+1}; queries x, 0, 0.

    Source: arXiv 2405.13861 and its public code (theory A11).
    """
    features, rewards = _columns(context, queries)
    n = context.num_transitions
    successors = torch.zeros_like(features)
    successors[:, :n] = context.gamma * context.features[:, 1:]
    return torch.cat([features, successors, rewards], dim=-1)


def token_prompt(
    context: Context, queries: Float[Tensor, "batch query feature"] | None = None
) -> Float[Tensor, "batch pos D"]:
    """Tokens of the standard transformer: x(S_j), R_{j+1}, and a marker that is 1 on queries."""
    features, rewards = _columns(context, queries)
    marker = torch.zeros_like(rewards)
    marker[:, context.num_transitions :] = 1
    return torch.cat([features, rewards, marker], dim=-1)


def source_mask(num_columns: int, num_queries: int, like: Tensor) -> Float[Tensor, "pos"]:
    """Additive mask over sources: 0 for transitions, minus infinity for the `num_queries` last columns."""
    mask = torch.zeros(num_columns, dtype=like.dtype, device=like.device)
    mask[num_columns - num_queries :] = -torch.inf
    return mask


def _columns(context: Context, queries: Tensor | None) -> tuple[Tensor, Tensor]:
    features = context.features if queries is None else torch.cat([context.features, queries], dim=1)
    num_queries = features.shape[1] - context.num_transitions
    pad = repeat(torch.zeros_like(context.rewards[:, :1]), "batch 1 -> batch query", query=num_queries)
    return features, torch.cat([context.rewards, pad], dim=1)[..., None]
