"""Costates beside the true value gradient, where a task is so small that every continuation can be enumerated."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._costate_config import CostateConfig
from valuelens.analyses._group_means import NOT_PERMUTED, PERMUTED, GroupMeans
from valuelens.analyses._result import Array, Control, Finding, Result
from valuelens.models.lm import LanguageModel, Prompt, Rollouts, Task, decoded
from valuelens.probe import (
    Reward,
    Sequences,
    TargetProbability,
    continuations,
    enumerated_value_gradient,
    ratio_interval,
)

_PROMPTS = 8
"""Prompts whose continuations are enumerated: the first."""


def can_enumerate(
    language_model: LanguageModel, rollouts: Rollouts, task: Task | None, *, limit: int
) -> bool:
    """Whether rewards can be asked for, completions have one length, and all continuations of a prompt are few enough.

    Args:
        language_model: Whose vocabulary counts.
        rollouts: With the prompts that they are of.
        task: That they are of.
        limit: Of continuations.
    """
    if task is None or task.ends or rollouts.prompts is None or language_model.tokenizer is None:
        return False
    vocabulary = int(language_model.model.config.get_text_config().vocab_size)
    return bool(vocabulary**task.completion_length <= limit)


def oracle(
    language_model: LanguageModel, rollouts: Rollouts, task: Task, means: GroupMeans, config: CostateConfig
) -> Result:
    """The mean costate of a group beside the enumerated dV/dh at its start state: cosine and relative gap.

    Source: theory B2 and B4. Without the sampling path (objective `reward`) the gap does not vanish with more rollouts.

    Args:
        language_model: Measured.
        rollouts: With their prompts.
        task: That they are of, `can_enumerate`.
        means: Of costates at the start state.
        config: Objective and sampling.
    """
    prompts = dict(zip(rollouts.group, rollouts.prompts or (), strict=True))
    chosen = sorted(prompts)[:_PROMPTS]
    layers = [layer for layer in means.layers if layer < language_model.num_layers]
    first = {
        group: ids for group, ids in reversed(list(zip(rollouts.group, rollouts.prompt_ids, strict=True)))
    }
    if not layers:
        return Result(kind="costates")
    gradients = torch.stack(
        [_gradient(language_model, first[g], prompts[g], task, layers, config) for g in chosen]
    )
    findings = [
        finding
        for place, layer in enumerate(layers)
        for finding in _compared(gradients[:, place], means.at(layer, chosen), config)
    ]
    return Result(
        kind="costates",
        findings=tuple(findings),
        arrays={"enumerated_gradient": Array(axes="group layer d_model", values=gradients)},
    )


def _gradient(
    language_model: LanguageModel,
    prefix: Sequence[int],
    prompt: Prompt,
    task: Task,
    layers: Sequence[int],
    config: CostateConfig,
) -> Float[Tensor, "layer d_model"]:
    every = continuations(
        prefix,
        vocabulary=int(language_model.model.config.get_text_config().vocab_size),
        horizon=task.completion_length,
        limit=config.enumerate_up_to,
    )
    reward = _reward(language_model, prompt, task, config)
    found = enumerated_value_gradient(
        language_model.model, every, reward, layers=layers, sampling=config.sampling
    )
    return found.values.double().cpu()


def _reward(language_model: LanguageModel, prompt: Prompt, task: Task, config: CostateConfig) -> Reward:
    """The task's own reward of sampled tokens, or the probability of the right ones."""
    tokenizer: Any = language_model.tokenizer
    if config.objective == "reward":
        answer = tokenizer(prompt.answer, add_special_tokens=False).input_ids
        return TargetProbability(targets=torch.tensor([answer]), sampling=config.sampling).values

    def sampled(logits: Tensor, rows: Sequences) -> Tensor:
        texts = decoded(tokenizer, rows.completions.tolist(), task)
        return logits.new_tensor([task.reward(prompt, text) for text in texts])

    return sampled


def _compared(
    gradient: Float[Tensor, "group d_model"], means: GroupMeans, config: CostateConfig
) -> list[Finding]:
    """One layer."""
    index = {"objective": config.objective, "layer": means.layers[0], "against": "enumerated"}
    mean, square = means.own.mean[:, 0], gradient.square().sum(-1)
    noise = means.own.standard_error[:, 0].square()
    missed = (mean - gradient).square().sum(-1)
    interval = ratio_interval(missed, square, seed=config.seed)
    permuted = [_cosine(each.mean[:, 0], gradient) for each in means.permuted]
    cosine = Finding(
        name="cosine",
        estimate=_cosine(mean, gradient),
        unit="1",
        n=len(gradient),
        definition="derived",
        index=index,
        control=Control(name=PERMUTED, estimate=fmean(permuted)) if permuted else None,
        reasons={"interval": "gap_discrete has one", "control": NOT_PERMUTED},
    )
    scaled = config.objective == "surrogate" and not config.update.as_defined
    gap = Finding(
        name="gap_discrete",
        estimate=None if scaled else float((missed.sum() / square.sum()).sqrt()),
        unit="|dV/dh|",
        n=len(gradient),
        definition="derived",
        index=index,
        interval=None if scaled or interval is None else (interval[0] ** 0.5, interval[1] ** 0.5),
        control=Control(name="noise of the mean alone", estimate=float((noise.sum() / square.sum()).sqrt())),
        reasons=(
            {"estimate": "the factors of the loss or the scale change the length of costates"}
            if scaled
            else {}
        )
        | ({} if interval and not scaled else {"interval": "too few prompts, or no spread between them"}),
    )
    return [cosine, gap]


def _cosine(left: Float[Tensor, "group d_model"], right: Float[Tensor, "group d_model"]) -> float:
    inner = einsum(left, right, "group d_model, group d_model ->")
    return float(inner / (left.norm() * right.norm()))
