"""The signal of a differentiable reward: what hop 0 has beyond the hops that it lacks.

Shape legend: `rollout` rows of all groups, `state` k: after k sampled tokens.
"""

import math
from dataclasses import dataclass
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._token_weights import target_probability
from valuelens.analyses.impact._config import ScoreConfig
from valuelens.analyses.impact._passes import Passes
from valuelens.models.lm import LanguageModel, Rollouts
from valuelens.probe import Hops, Relaxation, Sequences, hop_batches, subtractive, unequal


@dataclass(frozen=True, kw_only=True, slots=True)
class HopSignal:
    """Of a checkpoint.

    Attributes:
        signal: `subtractive`.
        gap: |sum of hops 1, 2, ...| / |sum of all| over completion states, the relaxed gap; not a number without
            any gradient.
        reached: Whether there is a gradient.
        tokens: Tokens times passes.
    """

    signal: float
    gap: float
    reached: bool
    tokens: int

    @classmethod
    def none(cls) -> "HopSignal":
        """Where none is asked for."""
        return cls(signal=math.nan, gap=math.nan, reached=False, tokens=0)


def hop_signal(
    language_model: LanguageModel, rollouts: Rollouts, batch: Sequences, config: ScoreConfig, made: Passes
) -> HopSignal:
    """Credit by hop of all rollouts at one layer: one forward pass, and one backward for each hop.

    Where no right token has a probability that can change, to the last bit, the signal is 0.

    Args:
        language_model: The checkpoint.
        rollouts: With targets.
        batch: Their tokens.
        config: Hops, tolerance, sampling.
        made: Layer, and what the stream is there.

    Raises:
        ValueError: As `hop_batches`.
    """
    relaxation = Relaxation(sampling=config.sampling, max_hops=config.max_hops, tolerance=config.tolerance)
    pieces = hop_batches(
        language_model.model,
        batch,
        target_probability(rollouts, config.sampling),
        layers=[made.layer],
        relaxation=relaxation,
        micro_batch=config.micro_batch,
    )
    shape, row, tokens = batch.valid.shape, 0, 0
    direct, missing, whole = (torch.zeros(shape, dtype=torch.float64) for _ in range(3))
    # not to its end, where it refuses a gradient that is all 0; one that is cut is refused in every piece
    for hops in islice(pieces, math.ceil(shape[0] / config.micro_batch)):
        rows = slice(row, row + len(hops.values))
        for into, norm in zip((direct, missing, whole), _norms(hops), strict=True):
            into[rows, : norm.shape[1]] = norm
        tokens += (1 + 2 * hops.values.shape[1]) * int(batch.attention_mask[rows].sum())
        row = rows.stop
    counted = unequal(torch.tensor(rollouts.rewards, dtype=torch.float64), torch.tensor(rollouts.group))
    return HopSignal(
        signal=subtractive(
            direct * made.stream, missing * made.stream, counted[:, None] & batch.valid, batch.valid
        ),
        gap=float(missing.norm() / whole.norm()) if bool(whole.any()) else math.nan,
        reached=bool(direct.any()),
        tokens=tokens,
    )


def _norms(hops: Hops) -> tuple[Float[Tensor, "rollout state"], ...]:
    """Of hop 0, of what it lacks, and of the sum."""
    values = hops.values[:, :, 0].double().cpu()
    return (
        values[:, 0].norm(dim=-1),
        values[:, 1:].sum(1).norm(dim=-1),
        values.sum(1).norm(dim=-1),
    )
