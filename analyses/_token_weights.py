"""How the rewards of rollouts become the weights of their tokens in an update."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from valuelens.analyses._costate_config import Update
from valuelens.models.lm import Rollouts
from valuelens.probe import (
    Normaliser,
    Sampling,
    Sequences,
    TargetProbability,
    generalised_advantages,
    loss_factors,
    rollout_advantages,
    surrogate_weights,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenWeights:
    """What multiplies log pi of each token: `rollout` times `token`.

    Attributes:
        rollout: Advantage and factor of a whole completion; 1 where its tokens have advantages of their own.
        token: 1 at counted tokens; the advantage and factor of each where they have their own.
        whole: Whether all tokens of a completion share one advantage.
        words: How they came about.
    """

    rollout: Float[Tensor, " batch"]
    token: Float[Tensor, "batch state"]
    whole: bool
    words: str


def token_weights(rollouts: Rollouts, batch: Sequences, update: Update) -> TokenWeights:
    """Advantages from rewards where they are known, else as logged, times the factors of the loss.

    With the loss `none` and nothing to scale by, advantages against the group mean are multiplied by n / (n - 1),
    which makes them those of leave-one-out and the mean costate unbiased (theory B2). Under a loss or a scale as
    trained nothing is corrected.

    Args:
        rollouts: With rewards or advantages.
        batch: Their tokens.
        update: Baseline, scale and loss.
    """
    counted = counted_tokens(rollouts, batch)
    longest = update.max_completion_length or counted.shape[1]
    normaliser = Normaliser(loss_type=update.loss_type, max_completion_length=longest)
    if rollouts.rewards is not None and rollouts.values is not None:
        estimates = _padded(rollouts.values, batch)
        advantages = generalised_advantages(torch.tensor(rollouts.rewards).double(), estimates, batch.valid)
        words = "generalised advantages from rewards and the column `values`"
        return _own(surrogate_weights(advantages, counted, normaliser), words)
    if rollouts.rewards is not None:
        advantages, words = _from_rewards(rollouts, update)
        factors = loss_factors(counted, normaliser).double()
        return TokenWeights(rollout=advantages * factors, token=counted.double(), whole=True, words=words)
    lost = (
        ", divided by an unknown standard deviation: their scale is lost"
        if rollouts.advantages_scaled
        else ""
    )
    logged = _padded(rollouts.advantages or (), batch)
    return _own(surrogate_weights(logged, counted, normaliser), f"advantages as logged{lost}")


def target_probability(rollouts: Rollouts, sampling: Sampling) -> TargetProbability:
    """The differentiable reward of rollouts that have right tokens.

    Args:
        rollouts: With targets.
        sampling: How tokens were drawn.
    """
    width = max(1, *map(len, rollouts.completion_ids))
    rows = [[*each, *[0] * (width - len(each))] for each in rollouts.targets or ()]
    return TargetProbability(targets=torch.tensor(rows), sampling=sampling)


def _from_rewards(rollouts: Rollouts, update: Update) -> tuple[Float[Tensor, " batch"], str]:
    corrected = update.as_defined and update.baseline == "group-mean"
    advantages = rollout_advantages(
        torch.tensor(rollouts.rewards, dtype=torch.float64),
        torch.tensor(rollouts.group),
        baseline="leave-one-out" if corrected else update.baseline,
        scale=update.scale_rewards,
    )
    scale = {"none": "", "group": ", divided by its standard deviation", "batch": ", divided by that of all"}
    words = f"rewards minus {_BASELINES[update.baseline]}{scale[update.scale_rewards]}"
    return advantages, f"{words}, times n / (n - 1)" if corrected else words


def _own(token: Float[Tensor, "batch state"], words: str) -> TokenWeights:
    ones = torch.ones(len(token), dtype=token.dtype)
    return TokenWeights(rollout=ones, token=token, whole=False, words=words)


def counted_tokens(rollouts: Rollouts, batch: Sequences) -> Bool[Tensor, "batch state"]:
    """Tokens of completions that the loss counts.

    Args:
        rollouts: With a mask, if some are left out.
        batch: Their tokens.
    """
    if rollouts.mask is None:
        return batch.valid
    return batch.valid & (_padded(rollouts.mask, batch) != 0)


def _padded(rows: tuple[tuple[float, ...], ...] | tuple[tuple[int, ...], ...], batch: Sequences) -> Tensor:
    padded = torch.zeros(batch.valid.shape, dtype=torch.float64)
    for row, each in enumerate(rows):
        padded[row, : len(each)] = torch.tensor(each, dtype=torch.float64)
    return padded


_BASELINES = {"group-mean": "their group's mean", "leave-one-out": "the mean of the others in their group"}
