"""The passes of the surrogate over all rollouts, a group at a time, and what is kept of them.

One pass back over the parameters for each rollout serves all: within a group, advantages against a leave-one-out
baseline are those of GRPO, (R - mean) / (std + 1e-4), times (std + 1e-4) n / (n-1). So each group's gradient gives both
the gradient of E[Rew] and the update, and each half of the prompts can be held against the other, both ways round.

Shape legend: `rollout` rows of all groups, `state` k: after k sampled tokens, `group` prompts, `half` two of them,
`parameter` all numbers of a model in a line, `d_model` width of the residual stream.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from valuelens.analyses._token_weights import counted_tokens
from valuelens.analyses.impact._config import ScoreConfig
from valuelens.models.lm import LanguageModel, Rollouts
from valuelens.probe import (
    STD_EPSILON,
    PolicyGradient,
    Sequences,
    Surrogate,
    TokenScores,
    checked_scores,
    half_costates,
    policy_gradient,
    rollout_advantages,
    unequal,
    update_aligned,
)

NARROW = 1e-6
"""Nats of entropy below which a policy has nothing left to change, so that no gradient is an answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Passes:
    """What is kept.

    Attributes:
        layer: Of the stream.
        scores: Of all tokens.
        stream: |h| / sqrt(d) at the states.
        halves: Mean costates of two halves of each group at its start state; none if not asked for.
        start_stream: |h| / sqrt(d) there.
        aligned: First-order gain of one step (theory B6); not a number of one prompt.
        gradient_norm: Of GRPO's gradient as trainers log it.
        tokens: Tokens times passes.
    """

    layer: int
    scores: TokenScores
    stream: Float[Tensor, "rollout state"]
    halves: Float[Tensor, "group half d_model"] | None
    start_stream: Float[Tensor, " group"]
    aligned: float
    gradient_norm: float
    tokens: int


def passes(
    language_model: LanguageModel,
    rollouts: Rollouts,
    batch: Sequences,
    config: ScoreConfig,
    *,
    layer: int,
    start: bool,
) -> Passes:
    """All passes but those of hops.

    Halves are our definition: for `update_aligned` the prompts, so that the gain is that on prompts that the step was
    not taken on, and groups keep their size; for `usable` the rollouts of each group. Both are drawn from the seed, as
    rollouts of a file may have an order. GRPO's gradient is that of TRL's default loss, `dapo`: 1 / tokens.

    Args:
        language_model: The checkpoint.
        rollouts: With rewards.
        batch: Their tokens.
        config: Sampling, micro-batch and seed.
        layer: Of the stream.
        start: Whether halves of groups are wanted.

    Raises:
        ValueError: As `policy_gradient`; or rewards differ and the gradient is exactly zero.
    """
    rewards, group = torch.tensor(rollouts.rewards, dtype=torch.float64), torch.tensor(rollouts.group)
    advantages = torch.where(unequal(rewards, group), rollout_advantages(rewards, group, scale="group"), 0.0)
    counted = counted_tokens(rollouts, batch)
    update, plain = (
        Surrogate(weights=each * counted, sampling=config.sampling) for each in (advantages[:, None], 1.0)
    )
    generator = torch.Generator().manual_seed(config.seed)
    bounds = _bounds(rollouts.group)
    of_prompt = _halves(len(bounds), generator)
    gradients = _Gradients()
    found, halves, tokens = [], [], 0
    for number, (first, last) in enumerate(bounds):
        rows = batch.rows(first, last)
        one = policy_gradient(
            language_model.model,
            rows.to(language_model.device),
            update.rows(first, last),
            layer=layer,
            start=plain.rows(first, last) if start else None,
            micro_batch=config.micro_batch,
        )
        gradients.add(one.gradient, rewards[first:last], int(of_prompt[number]))
        half = _halves(last - first, generator)
        if start:
            halves.append(_half_costates(one, rewards[first:last], half, language_model.d_model))
        tokens += one.passes * int(rows.attention_mask.sum())
        found.append(one)
    if rollouts.prompts is not None:
        tokens += _sampled_tokens(batch, bounds)
    width = batch.valid.shape[1]
    stream = torch.cat([_widened(one.stream.double().cpu(), width) for one in found])
    parts = [(one.scores[0].cpu(), one.scores[1].cpu(), one.scores[2].cpu()) for one in found]
    scores = checked_scores(parts, batch, config.sampling, language_model.model.dtype)
    norm = gradients.norm() / max(1, int(counted.sum()))
    undecided = (scores.entropy > NARROW) & (update.weights != 0)
    if norm == 0 and bool(undecided.any()):
        must = "the gradient by the parameters must not vanish where rewards differ"
        raise ValueError(f"{must}; found exactly zero; something is detached from the graph")
    return Passes(
        layer=layer,
        scores=scores,
        stream=stream,
        halves=torch.stack(halves) if start else None,
        start_stream=torch.stack([stream[first, 0] for first, _ in bounds]),
        aligned=gradients.aligned(),
        gradient_norm=norm,
        tokens=tokens,
    )


def _sampled_tokens(batch: Sequences, bounds: list[tuple[int, int]]) -> int:
    """Read or drawn by the sampler: the prompt of a group once."""
    prompts = sum(int(batch.prompt_length[first]) for first, _ in bounds)
    return prompts + int(batch.completion_length.sum())


class _Gradients:
    """Sums over the prompts of each half: of the gradient of E[Rew], and of GRPO's."""

    def __init__(self) -> None:
        self._raw: list[Tensor | None] = [None, None]
        self._update: list[Tensor | None] = [None, None]
        self._prompts = [0, 0]

    def add(
        self, gradient: Float[Tensor, " parameter"] | None, rewards: Float[Tensor, " rollout"], half: int
    ) -> None:
        """Add a prompt, whose rewards are equal if it has no gradient."""
        self._prompts[half] += 1
        if gradient is None:
            return
        n = len(rewards)
        # GRPO's advantages times this are those against a leave-one-out baseline; over n, their mean
        factor = (float(rewards.std()) + STD_EPSILON) / (n - 1)
        self._raw[half] = _sum(self._raw[half], factor * gradient)
        self._update[half] = _sum(self._update[half], gradient)

    def aligned(self) -> float:
        """Of the mean gradient of each half with the direction that the other half gives; the mean of both."""
        if not all(self._prompts):
            return math.nan
        gains = []
        for one, other in ((0, 1), (1, 0)):
            raw, update = self._raw[one], self._update[other]
            gain = 0.0 if raw is None or update is None else update_aligned(raw, update)
            gains.append(gain / self._prompts[one])
        return sum(gains) / 2

    def norm(self) -> float:
        """Of the sum over all prompts."""
        halves = [each for each in self._update if each is not None]
        return float(torch.stack(halves).sum(0).norm()) if halves else 0.0


def _sum(total: Tensor | None, more: Tensor) -> Tensor:
    return more.clone() if total is None else total.add_(more)


def _half_costates(
    one: PolicyGradient, rewards: Float[Tensor, " rollout"], half: Int[Tensor, " rollout"], d_model: int
) -> Float[Tensor, "half d_model"]:
    if one.at_start is None:  # rewards are equal
        return torch.zeros(2, d_model, dtype=torch.float64)
    return half_costates(one.at_start.double().cpu(), rewards, half)


def _halves(count: int, generator: torch.Generator) -> Int[Tensor, " each"]:
    """0 or 1 for each, as many of both, or one more of 0."""
    half = torch.zeros(count, dtype=torch.long)
    half[torch.randperm(count, generator=generator)[: count // 2]] = 1
    return half


def _bounds(group: tuple[int, ...]) -> list[tuple[int, int]]:
    """First row of each group, and the row behind its last."""
    starts = [row for row, each in enumerate(group) if row == 0 or each != group[row - 1]]
    return list(zip(starts, [*starts[1:], len(group)], strict=True))


def _widened(values: Float[Tensor, "rollout state"], width: int) -> Float[Tensor, "rollout longer"]:
    return torch.nn.functional.pad(values, (0, width - values.shape[1]))
