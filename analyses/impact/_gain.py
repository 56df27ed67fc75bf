"""What RL really gains from a checkpoint: GRPO on the loss that costates use, and the reward before and after."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import get_args

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from valuelens.analyses._costate_config import Update
from valuelens.analyses._request import blamed
from valuelens.analyses._token_weights import token_weights
from valuelens.analyses.impact._config import Recipe
from valuelens.models import InputError, Shown
from valuelens.models.icrl import one_thread
from valuelens.models.lm import (
    CompletionEnds,
    GenerateConfig,
    GRPOConfig,
    LanguageModel,
    Rollouts,
    Task,
    generate,
    grpo,
)
from valuelens.probe import Sampling, Surrogate, credit_cut, sequences, state_logits

UPDATE = Update(scale_rewards="group", loss_type="dapo")
"""As TRL trains by default: advantages divided by the group's standard deviation, one weight for every token."""

RECIPES: dict[Recipe, GRPOConfig] = {
    "default": GRPOConfig(),
    "fast": GRPOConfig(steps=20, learning_rate=3e-4),
    "long": GRPOConfig(steps=240, learning_rate=5e-4),
}
"""40 steps of 8 prompts x 16 rollouts at 1e-4; three times the learning rate for half the steps; and twice the steps of
theory B7's pilot, for tasks where something must be built first."""

_SIDE_BY_SIDE = 128
"""Held-out completions sampled at once: as many as the default recipe trains on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GainConfig:
    """One RL run from a checkpoint, and how its gain is measured.

    Attributes:
        recipe: Steps and learning rate.
        rl_seed: Decides what the run draws.
        cut: Cut all credit through attention while training (`credit_cut`).
        num_prompts: Held-out prompts, the same before and after and for every run.
        num_generations: Completions of each.
        max_completion_length: Tokens after which a completion is cut; the task's own if none.
        completion_ends: Whether the end-of-sequence token ends a completion; `auto` for what the task says.
        sampling: Temperature, top-k and top-p, of training and of held-out completions.
        seed: Decides held-out prompts and their uniform numbers.
    """

    recipe: Recipe = "default"
    rl_seed: int = 0
    cut: bool = False
    num_prompts: int = 128
    num_generations: int = 4
    max_completion_length: int | None = None
    completion_ends: CompletionEnds = "auto"
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a recipe that is not offered, and numbers out of their range."""
        if self.recipe not in get_args(Recipe):
            offered = ", ".join(get_args(Recipe))
            raise InputError(f"--recipe takes {offered}", f"found {self.recipe!r}", "option --recipe")
        if self.seed < 0:
            raise InputError("seed must be at least 0", f"found {self.seed}", "option --seed")
        _ = self.training, self.held_out

    @property
    def training(self) -> GRPOConfig:
        """The run."""
        return replace(
            RECIPES[self.recipe],
            temperature=self.sampling.temperature,
            top_k=self.sampling.top_k,
            top_p=self.sampling.top_p,
            max_completion_length=self.max_completion_length,
            completion_ends=self.completion_ends,
            seed=self.rl_seed,
        )

    @property
    def held_out(self) -> GenerateConfig:
        """How held-out completions are sampled."""
        return GenerateConfig(
            num_prompts=self.num_prompts,
            num_generations=self.num_generations,
            max_completion_length=self.max_completion_length,
            completion_ends=self.completion_ends,
            temperature=self.sampling.temperature,
            top_k=self.sampling.top_k,
            top_p=self.sampling.top_p,
            batch_size=_SIDE_BY_SIDE,
            seed=held_out_seed(self.seed),
        )


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Gain(Shown):
    """What a run gained.

    Attributes:
        reward_before: Mean reward on held-out prompts.
        reward_after: The same behind the run.
        curve: Mean reward of the rollouts of each step.
        zero_variance: Groups of each step without variance in their rewards.
    """

    reward_before: float
    reward_after: float
    curve: tuple[float, ...]
    zero_variance: tuple[int, ...]

    @property
    def gain(self) -> float:
        """After minus before."""
        return self.reward_after - self.reward_before

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """The gain, what it is the difference of, and how the run went."""
        rows: dict[str, object] = {
            "held-out reward before": f"{self.reward_before:.4g}",
            "held-out reward after": f"{self.reward_after:.4g}",
            "steps": len(self.curve),
            "groups without variance": sum(self.zero_variance),
        }
        return f"Gain {self.gain:+.4g}", rows


def gain(language_model: LanguageModel, task: Task, config: GainConfig | None = None) -> Gain:
    """Run RL from a checkpoint and measure what it gained.

    Before and after answer the same held-out prompts with the same uniform numbers, so that most of the sampling noise
    cancels; no step of a run draws the seed of these. Our definition: the reward of a model is its mean over them.

    Args:
        language_model: The checkpoint; left as it is.
        task: Prompts and rewards.
        config: Recipe, seeds, and whether credit is cut.

    Raises:
        InputError: As `grpo`; or credit cannot be cut in a model of this kind.
    """
    config = config or GainConfig()
    with one_thread(), blamed(language_model.name):
        before = held_out_reward(language_model, task, config)
        run = grpo(language_model, task, config.training, grpo_loss(config.sampling, cut=config.cut))
        after = held_out_reward(run.language_model, task, config)
    return Gain(reward_before=before, reward_after=after, curve=run.rewards, zero_variance=run.zero_variance)


def grpo_loss(sampling: Sampling, *, cut: bool = False) -> Callable[[PreTrainedModel, Rollouts], Tensor]:
    """The loss of GRPO at ratio 1: minus the surrogate that costates are taken of, with TRL's default weights.

    Args:
        sampling: How rollouts were drawn.
        cut: Cut all credit through attention.
    """

    def loss(model: PreTrainedModel, rollouts: Rollouts) -> Tensor:
        batch = sequences(rollouts.prompt_ids, rollouts.completion_ids)
        weights = token_weights(rollouts, batch, UPDATE)
        objective = Surrogate(weights=weights.rollout[:, None] * weights.token, sampling=sampling)
        batch = batch.to(model.device)
        with credit_cut(model) if cut else nullcontext():
            logits = state_logits(model, batch)
        return -objective.values(logits, batch).sum()

    return loss


def held_out_reward(language_model: LanguageModel, task: Task, config: GainConfig) -> float:
    """Mean reward on the held-out prompts.

    Args:
        language_model: Any.
        task: Prompts and rewards.
        config: How many prompts and completions, the sampling, and the seed.

    Raises:
        InputError: As `generate`.
    """
    return float(np.mean(generate(language_model, task, config.held_out).rewards or ()))


def held_out_seed(seed: int) -> int:
    """A seed of prompts that no step of a run draws: odd, where theirs are even.

    Args:
        seed: Of the configuration.
    """
    return int(np.random.SeedSequence((seed, 1)).generate_state(1)[0]) | 1


def token_passes(config: GRPOConfig, prompt_tokens: float, completion_tokens: float) -> float:
    """Cost of a run in passes of one token through the model: forward 1, backward 2.

    A step reads each prompt once and every completion token once to sample (a prompt's rollouts share its key-value
    cache), then all prompts and completions forward and backward. Held-out completions are not in it.

    Args:
        config: Of the run.
        prompt_tokens: Of a prompt, on average.
        completion_tokens: Of a completion, on average.

    Example:
        >>> token_passes(GRPOConfig(), 13, 6)
        326720
    """
    rollouts = config.num_prompts * config.num_generations
    sampled = config.num_prompts * prompt_tokens + rollouts * completion_tokens
    trained = 3 * rollouts * (prompt_tokens + completion_tokens)
    return config.steps * (sampled + trained)
