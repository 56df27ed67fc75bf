"""How far the empirical costate of a differentiable reward is from the true value gradient, where that is cheap."""

import math
from itertools import islice

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from valuelens.models.lm import LanguageModel, Rollouts
from valuelens.probe import (
    Sampling,
    TargetProbability,
    continuations,
    costate_batches,
    enumerated_value_gradient,
)

_SHARE = 6
"""Of so many rollouts one is paid for by an enumerated continuation: two forward and two backward passes are 6."""


_BATCH = 1024


def discrete_gap(
    language_model: LanguageModel, rollouts: Rollouts, layer: int, sampling: Sampling
) -> tuple[float, int]:
    """|| E lambda_hat - dV/dh || / || dV/dh || at the start states of the first prompts, and the tokens of all passes.

    Both are expectations over every continuation, so that no noise is in it. Prompts are taken while all their
    continuations together are at most a sixth of the rollouts: the enumeration then costs one pass of each rollout
    (our definition). Not a number where not even the first prompt fits, where completions differ in length or end by
    themselves, or where there is no gradient.

    Source: theory B4.

    Args:
        language_model: That sampled them.
        rollouts: With targets.
        layer: Below L.
        sampling: How tokens were drawn.
    """
    horizon, vocabulary = (
        len(rollouts.completion_ids[0]),
        int(language_model.model.config.get_text_config().vocab_size),
    )
    if not _enumerable(language_model, rollouts, horizon):
        return math.nan, 0
    first = {group: row for row, group in reversed(list(enumerate(rollouts.group)))}
    affordable = len(rollouts) // (_SHARE * vocabulary**horizon)
    missed = square = tokens = 0.0
    for group in sorted(first)[:affordable]:
        prefix, targets = rollouts.prompt_ids[first[group]], (rollouts.targets or ())[first[group]]
        reward = TargetProbability(targets=torch.tensor([targets]), sampling=sampling)
        mean, gradient = _both(language_model, prefix, reward, layer, horizon)
        missed += float((mean - gradient).square().sum())
        square += float(gradient.square().sum())
        tokens += _SHARE * vocabulary**horizon * (len(prefix) + horizon)
    return (math.sqrt(missed / square) if square > 0 else math.nan), int(tokens)


def _enumerable(language_model: LanguageModel, rollouts: Rollouts, horizon: int) -> bool:
    end = getattr(language_model.tokenizer, "eos_token_id", None)
    fixed = all(len(each) == horizon and end not in each for each in rollouts.completion_ids)
    return fixed and horizon > 0


def _both(
    language_model: LanguageModel,
    prefix: tuple[int, ...],
    reward: TargetProbability,
    layer: int,
    horizon: int,
) -> tuple[Float[Tensor, " d_model"], Float[Tensor, " d_model"]]:
    """Mean costate of hop 0, and dV/dh."""
    model = language_model.model
    vocabulary = int(model.config.get_text_config().vocab_size)
    every = continuations(prefix, vocabulary=vocabulary, horizon=horizon, limit=vocabulary**horizon)
    found = enumerated_value_gradient(model, every, reward.values, layers=[layer], sampling=reward.sampling)
    targets = TargetProbability(
        targets=reward.targets.expand(len(every.input_ids), -1), sampling=reward.sampling
    )
    pieces = costate_batches(model, every, targets, layers=[layer], micro_batch=_BATCH)
    # not to its end, where it refuses costates that are all 0
    found_pieces = islice(pieces, math.ceil(len(every.input_ids) / _BATCH))
    costates = torch.cat([each.values[:, 0, 0].double() for each in found_pieces])
    mean = einsum(found.log_prob.double().exp(), costates, "batch, batch d_model -> d_model")
    return mean, found.values[0].double()
