"""Rollouts of a task by a language model: groups of completions with their rewards."""

from collections.abc import Callable

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from valuelens.models._errors import InputError, told
from valuelens.models.lm._generate_config import GenerateConfig
from valuelens.models.lm._language_model import LanguageModel
from valuelens.models.lm._rollouts import Rollouts, Tokens
from valuelens.models.lm._sampler import sampled_completions
from valuelens.models.lm._task import Prompt, Task
from valuelens.models.lm._tokenisation import completion_tokens, decoded, end_tokens, needed, prompt_tokens


def generate(
    language_model: LanguageModel,
    task: Task,
    config: GenerateConfig | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Rollouts:
    """Sample groups of completions of a task's prompts and reward them.

    A completion holds the end-of-sequence token where it ended by itself, and nothing behind it. Rewards are those of
    the completion decoded without special tokens. Where every prompt has an answer, `targets` are the answer's tokens,
    as many as the completion has; behind a shorter answer the right thing is to end (our definition).

    Args:
        language_model: Model and tokenizer; the model's own context window must hold prompt and completion.
        task: Prompts and rewards.
        config: Sizes, sampling and seed.
        progress: Called as progress(tokens done, most there can be).

    Raises:
        InputError: The model has no tokenizer, or no end-of-sequence token where completions end; a prompt is empty or
            too long; an answer does not fit; a reward is not a number within the task's range; logits are not finite.
    """
    config, where = config or GenerateConfig(), f"task {type(task).__name__}"
    tokenizer = needed(language_model.tokenizer, where)
    length = min(config.max_completion_length or task.completion_length, task.completion_length)
    ends = task.ends if config.completion_ends == "auto" else config.completion_ends == "yes"
    stops = end_tokens(tokenizer, language_model.model.generation_config) if ends else ()
    if ends and not stops:
        raise InputError(
            "completions that end must have an end-of-sequence token", "found none in the tokenizer", where
        )
    generator = torch.Generator().manual_seed(config.seed)
    with told("a task must draw prompts", where):
        prompts = task.prompts(config.num_prompts, generator)
    if not prompts:
        raise InputError("a task must draw prompts", "found none", where)
    prompt_ids = [
        prompt_tokens(tokenizer, prompt.text, f"{where}, prompt {i}") for i, prompt in enumerate(prompts)
    ]
    _within_window(language_model.model, prompt_ids, length, where)
    uniforms = torch.rand(
        len(prompts) * config.num_generations, length, generator=generator, dtype=torch.float64
    )
    rows = [prompt for prompt in range(len(prompts)) for _ in range(config.num_generations)]
    sampled = sampled_completions(
        language_model.model, [prompt_ids[i] for i in rows], uniforms, stops, config, progress
    )
    return Rollouts(
        prompt_ids=tuple(prompt_ids[i] for i in rows),
        completion_ids=tuple(sampled.tokens),
        group=tuple(rows),
        ended=_ended(sampled.tokens, stops, task, length),
        rewards=_rewards(task, [prompts[i] for i in rows], sampled.tokens, tokenizer),
        log_probs=tuple(sampled.log_probs),
        targets=_targets(tokenizer, [prompts[i] for i in rows], sampled.tokens, stops),
        reward_range=task.reward_range,
        prompts=tuple(prompts[i] for i in rows),
        source=f"{len(prompts)} prompts x {config.num_generations} completions of {where} by {language_model.name}",
    )


def _ended(tokens: list[Tokens], stops: Tokens, task: Task, length: int) -> tuple[bool, ...]:
    """Which completions are whole: by their end-of-sequence token, or by the one length that their task has."""
    if stops:
        return tuple(each[-1] in stops for each in tokens)
    return (length == task.completion_length,) * len(tokens)


def _within_window(model: PreTrainedModel, prompt_ids: list[Tokens], length: int, where: str) -> None:
    window = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    longest = max(range(len(prompt_ids)), key=lambda i: len(prompt_ids[i]))
    total = len(prompt_ids[longest]) + length
    if window is not None and total > window:
        raise InputError(
            f"prompt and completion must fit the context window of {window} tokens",
            f"found {len(prompt_ids[longest])} + {length}",
            f"{where}, prompt {longest}",
        )


def _rewards(
    task: Task, prompts: list[Prompt], tokens: list[Tokens], tokenizer: PreTrainedTokenizerBase
) -> tuple[float, ...]:
    low, high = task.reward_range
    texts = decoded(tokenizer, tokens, task)
    with told("a task must reward every completion", f"task {type(task).__name__}"):
        rewards = tuple(float(task.reward(prompt, text)) for prompt, text in zip(prompts, texts, strict=True))
    slack = 1e-9 * max(1.0, abs(low), abs(high))
    for reward, text in zip(rewards, texts, strict=True):
        if not low - slack <= reward <= high + slack:  # nor NaN
            where = f"task {type(task).__name__}, completion {text!r}"
            raise InputError(f"a reward must lie in [{low:g}, {high:g}]", f"found {reward:g}", where)
    return rewards


def _targets(
    tokenizer: PreTrainedTokenizerBase, prompts: list[Prompt], tokens: list[Tokens], stops: Tokens
) -> tuple[Tokens, ...] | None:
    if any(prompt.answer is None for prompt in prompts):
        return None
    answers = {
        answer: completion_tokens(tokenizer, answer, f"answer {answer!r}")
        for answer in dict.fromkeys(str(prompt.answer) for prompt in prompts)
    }
    targets = []
    for prompt, completion in zip(prompts, tokens, strict=True):
        answer, where = answers[str(prompt.answer)], f"answer {prompt.answer!r}"
        if not stops and len(answer) < len(completion):
            rule = "an answer must have a token for each of the completion, or completions must end"
            raise InputError(rule, f"found {len(answer)} and {len(completion)}", where)
        targets.append((*answer, *stops[:1] * len(completion))[: len(completion)])
    return tuple(targets)
