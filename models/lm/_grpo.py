"""Critic-free RL on a task, small enough to be run from every checkpoint of a series.

The loss is handed in, so that what is trained on and what is measured can be one piece of code.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from transformers import PreTrainedModel

from valuelens.models._errors import InputError
from valuelens.models._shown import Shown
from valuelens.models.lm._generate import generate
from valuelens.models.lm._generate_config import CompletionEnds, GenerateConfig
from valuelens.models.lm._in_memory import language_model_of
from valuelens.models.lm._language_model import LanguageModel
from valuelens.models.lm._rollouts import Rollouts
from valuelens.models.lm._task import Task

ADAM_BETAS, ADAM_EPSILON = (0.9, 0.999), 1e-8
"""As torch and transformers have them."""

MAX_GRADIENT_NORM = 1.0
"""A longer gradient is shortened to this, as TRL does by default; our definition, as theory leaves it open."""

Loss = Callable[[PreTrainedModel, Rollouts], Tensor]
"""What is minimised, of the model as it is and the rollouts that it has just sampled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GRPOConfig:
    """How GRPO is run: one optimiser step for each batch of fresh rollouts, so that ratios are 1 and clipping is idle.

    Attributes:
        steps: Optimiser steps.
        num_prompts: Fresh prompts a step.
        num_generations: Rollouts of each prompt; at least 2.
        learning_rate: Of Adam; constant.
        temperature: Divides the logits; above 0.
        top_k: Only the k likeliest tokens; 0 for all.
        top_p: Only the likeliest tokens that together hold this probability; 1 for all.
        max_completion_length: Tokens after which a completion is cut; the task's own if none.
        completion_ends: Whether the end-of-sequence token ends a completion; `auto` for what the task says.
        seed: Decides prompts and samples of every step.

    Raises:
        InputError: A number out of its range.
    """

    steps: int = 40
    num_prompts: int = 8
    num_generations: int = 16
    learning_rate: float = 1e-4
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    max_completion_length: int | None = None
    completion_ends: CompletionEnds = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError("steps must be at least 1", f"found {self.steps}", "GRPO")
        if not 0 < self.learning_rate < np.inf:
            found = f"found {self.learning_rate}"
            raise InputError("learning_rate must be above 0", found, "GRPO, option --learning-rate")
        self.sampling(self.seed)

    def sampling(self, seed: int) -> GenerateConfig:
        """How the rollouts of a step are sampled, all at once.

        Args:
            seed: Of the step.
        """
        return GenerateConfig(
            num_prompts=self.num_prompts,
            num_generations=self.num_generations,
            max_completion_length=self.max_completion_length,
            completion_ends=self.completion_ends,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            batch_size=max(1, self.num_prompts * self.num_generations),
            seed=seed,
        )


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class GRPORun(Shown):
    """A model after RL, and the way there.

    Attributes:
        language_model: Frozen and in evaluation mode, as every language model.
        rewards: Mean reward of the rollouts of each step, before it is taken.
        zero_variance: Groups of each step whose rollouts are all rewarded alike and so add nothing to its gradient;
            where all are, the step is Adam's momentum alone.
    """

    language_model: LanguageModel
    rewards: tuple[float, ...]
    zero_variance: tuple[int, ...]

    def table(self) -> pd.DataFrame:
        """A line for each step."""
        return pd.DataFrame({"reward": self.rewards, "zero_variance": self.zero_variance}).rename_axis("step")

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """How far it went, and what it made of the rewards of its own rollouts."""
        rows: dict[str, object] = {
            "reward of the first step's rollouts": f"{self.rewards[0]:.4g}",
            "reward of the last step's rollouts": f"{self.rewards[-1]:.4g}",
            "groups without variance": sum(self.zero_variance),
        }
        return f"GRPO from {self.language_model.name}, {len(self.rewards)} steps", rows


def grpo(
    language_model: LanguageModel,
    task: Task,
    config: GRPOConfig,
    loss: Loss,
    *,
    progress: Callable[[int], object] | None = None,
) -> GRPORun:
    """Train a copy of a language model on a task: Adam, constant learning rate, no weight decay, no KL term.

    The model stays in evaluation mode (no dropout), so that what is trained is what sampled. The same arguments give
    the same bits on one thread of a CPU; a longer run begins with a shorter one.

    Args:
        language_model: Left as it is.
        task: Prompts and rewards.
        config: Sizes, learning rate, sampling and seed.
        loss: Handed the model, whose parameters all ask for gradients, and a step's rollouts.
        progress: Called with the number of steps done.

    Raises:
        InputError: As `generate`; or weights are of half precision, which loses small steps; or the loss or its
            gradient is not finite, or does not reach the model.
    """
    if language_model.model.dtype not in (torch.float32, torch.float64):
        found = f"found {str(language_model.model.dtype).removeprefix('torch.')}, which loses small steps"
        where = f"{language_model.name}, option --dtype"
        raise InputError("weights must be float32 or float64 to be trained", found, where)
    model = copy.deepcopy(language_model.model).requires_grad_(True)
    speaker = language_model_of(model, language_model.tokenizer, name=language_model.name)
    optimiser = torch.optim.Adam(
        model.parameters(), lr=config.learning_rate, betas=ADAM_BETAS, eps=ADAM_EPSILON, fused=True
    )
    rewards, zero_variance = [], []
    for step, seed in enumerate(step_seeds(config.seed, config.steps)):
        rollouts = generate(speaker, task, config.sampling(seed))
        rewards.append(float(np.mean(rollouts.rewards or ())))
        zero_variance.append(_zero_variance(rollouts))
        optimiser.zero_grad(set_to_none=True)
        _backward(loss(model, rollouts), model, f"GRPO of {language_model.name}, step {step + 1}")
        optimiser.step()
        if progress:
            progress(step + 1)
    done = f"{language_model.name} after {config.steps} steps of GRPO"
    return GRPORun(
        language_model=language_model_of(model.requires_grad_(False), language_model.tokenizer, name=done),
        rewards=tuple(rewards),
        zero_variance=tuple(zero_variance),
    )


def step_seeds(seed: int, steps: int) -> list[int]:
    """Seeds of the steps of a run: even numbers, so that odd ones seed prompts that no step draws.

    Args:
        seed: Of the run.
        steps: How many; fewer are the first of more.

    Example:
        >>> step_seeds(0, 3)[:2] == step_seeds(0, 2)
        True
    """
    drawn = np.random.SeedSequence(seed).generate_state(steps)  # 32 bits each: torch seeds with no more
    return [int(word) & ~1 for word in drawn]


def _zero_variance(rollouts: Rollouts) -> int:
    found = defaultdict[int, set[float]](set)
    for group, reward in zip(rollouts.group, rollouts.rewards or (), strict=True):
        found[group].add(reward)
    return sum(len(rewards) == 1 for rewards in found.values())


def _backward(value: Tensor, model: PreTrainedModel, where: str) -> None:
    if not bool(value.isfinite()):
        raise InputError("the loss must be finite", f"found {value.item()}", where)
    if not value.requires_grad:
        raise InputError("the loss must depend on the model", "found no gradient", where)
    value.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
    if not bool(norm.isfinite()):
        raise InputError("the gradient must be finite", f"found norm {norm.item()}", where)
