"""Rollouts of tasks: groups, rewards, targets, ends, and what is refused."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from valuelens.models import InputError
from valuelens.models.lm import CompletionEnds, GenerateConfig, LanguageModel, Prompt, generate

SMALL = GenerateConfig(num_prompts=3, num_generations=4, max_completion_length=5)


class CountA:
    """Prompts of one to three words; the reward is the share of `a` among 5 words."""

    reward_range = (0.0, 1.0)
    completion_length = 5
    ends = True

    def __init__(self, answer: str | None = "a a a a a") -> None:
        self.answer = answer
        self.seen: list[str] = []

    def prompts(self, count: int, generator: torch.Generator) -> list[Prompt]:
        words = torch.randint(3, (count,), generator=generator).tolist()
        return [
            Prompt(text=" ".join("b" for _ in range(1 + i % 3)) + f" {'bcd'[w]}", answer=self.answer)
            for i, w in enumerate(words)
        ]

    def reward(self, prompt: Prompt, completion: str) -> float:
        self.seen.append(completion)
        return completion.split().count("a") / 5


@pytest.fixture
def speaker(
    tiny_language_model: Callable[..., LanguageModel], word_tokenizer: Callable[..., Any]
) -> LanguageModel:
    """A random Llama of five words, one of which ends completions."""
    return dataclasses.replace(
        tiny_language_model("llama"), tokenizer=word_tokenizer("a b c d end", end="end")
    )


def test_groups_share_prompts_and_carry_their_rewards(speaker: LanguageModel) -> None:
    task = CountA()
    rollouts = generate(speaker, task, SMALL)
    assert rollouts.group == (0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2)
    assert len(set(rollouts.prompt_ids)) == 3
    assert all(rollouts.prompt_ids[i] == rollouts.prompt_ids[4 * (i // 4)] for i in range(12))
    assert rollouts.reward_range == (0.0, 1.0)
    assert len(rollouts) == len(task.seen) == 12
    assert rollouts.rewards is not None
    assert rollouts.log_probs is not None
    for i, tokens in enumerate(rollouts.completion_ids):
        assert rollouts.rewards[i] == tokens.count(0) / 5
        assert "end" not in task.seen[i]
        assert rollouts.ended[i] == (tokens[-1] == 4)
        assert rollouts.ended[i] or len(tokens) == 5
        assert len(rollouts.log_probs[i]) == len(tokens)
    assert len(set(rollouts.ended)) == 2


def test_progress_counts_tokens_up_to_all_there_can_be(speaker: LanguageModel) -> None:
    seen: list[tuple[int, int]] = []
    config = dataclasses.replace(SMALL, batch_size=5)
    told = generate(speaker, CountA(), config, progress=lambda *each: seen.append(each))
    assert told.completion_ids == generate(speaker, CountA(), config).completion_ids
    assert seen == sorted(seen)
    assert (seen[-1], len(seen) > 3) == ((12 * 5, 12 * 5), True)


def test_the_seed_decides_and_the_batch_does_not(speaker: LanguageModel) -> None:
    first = generate(speaker, CountA(), SMALL)
    small = generate(speaker, CountA(), dataclasses.replace(SMALL, batch_size=5))
    assert small.completion_ids == first.completion_ids
    assert small.rewards == first.rewards
    other = generate(speaker, CountA(), dataclasses.replace(SMALL, seed=1))
    assert other.completion_ids != first.completion_ids


@pytest.mark.parametrize(("asked", "ends"), [("auto", True), ("yes", True), ("no", False)])
def test_completions_end_as_asked_or_as_the_task_says(
    speaker: LanguageModel, asked: CompletionEnds, *, ends: bool
) -> None:
    rollouts = generate(speaker, CountA(), dataclasses.replace(SMALL, completion_ends=asked))
    lengths = {len(tokens) for tokens in rollouts.completion_ids}
    assert (lengths == {5}) is not ends
    assert all(rollouts.ended) is not ends  # whole by the one length that all have


def test_targets_are_the_answer_and_then_the_end(speaker: LanguageModel) -> None:
    rollouts = generate(speaker, CountA("a c"), SMALL)
    assert rollouts.targets is not None
    for tokens, target in zip(rollouts.completion_ids, rollouts.targets, strict=True):
        assert target == (0, 2, 4, 4, 4)[: len(tokens)]
    assert generate(speaker, CountA(None), SMALL).targets is None


def test_completions_are_cut_where_the_task_or_the_caller_says(speaker: LanguageModel) -> None:
    for asked, length in ((3, 3), (None, 5), (64, 5)):
        config = dataclasses.replace(SMALL, max_completion_length=asked, completion_ends="no")
        rollouts = generate(speaker, CountA(), config)
        assert {len(tokens) for tokens in rollouts.completion_ids} == {length}
        assert rollouts.targets == ((0,) * length,) * 12
        assert set(rollouts.ended) == {length == 5}


def test_other_end_tokens_of_the_model_count(speaker: LanguageModel) -> None:
    model = copy.deepcopy(speaker.model)
    model.generation_config.eos_token_id = [4, 1]
    rollouts = generate(dataclasses.replace(speaker, model=model), CountA(), SMALL)
    assert {
        tokens[-1] for tokens, ended in zip(rollouts.completion_ids, rollouts.ended, strict=True) if ended
    } == {1, 4}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 0.0}, "temperature must be above 0; found 0.0; option --temperature"),
        ({"temperature": -1.0}, "temperature must be above 0; found -1.0; option --temperature"),
        ({"top_p": 0.0}, r"top_p must lie in \(0, 1\]; found 0.0; option --top-p"),
        ({"top_k": -1}, "top_k must be at least 0; found -1; option --top-k"),
        (
            {"num_generations": 1},
            r"at least 2 \(n_group = 1 has no baseline\); found 1; option --num-generations",
        ),
        ({"max_completion_length": 0}, "must be at least 1; found 0; option --max-completion-length"),
        ({"seed": 2**63}, r"seed must lie in 0\.\.9223372036854775807; found .*; option --seed"),
    ],
)
def test_numbers_out_of_range_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dataclasses.replace(SMALL, **change)


def test_a_model_without_a_tokenizer_or_an_end_is_refused(
    speaker: LanguageModel, word_tokenizer: Callable[..., Any]
) -> None:
    with pytest.raises(
        InputError, match=r"text must have a tokenizer; found a model without one .*; task CountA"
    ):
        generate(dataclasses.replace(speaker, tokenizer=None), CountA(), SMALL)
    endless = dataclasses.replace(speaker, tokenizer=word_tokenizer("a b c d e"))
    with pytest.raises(InputError, match="must have an end-of-sequence token; found none in the tokenizer"):
        generate(endless, CountA(), SMALL)


def test_a_prompt_longer_than_the_window_is_refused(speaker: LanguageModel) -> None:
    task = CountA()
    task.completion_length = 62
    with pytest.raises(InputError, match=r"window of 64 tokens; found 4 \+ 62; task CountA, prompt 2"):
        generate(speaker, task, dataclasses.replace(SMALL, max_completion_length=None))


def test_an_answer_that_does_not_fit_is_refused(speaker: LanguageModel) -> None:
    config = dataclasses.replace(SMALL, completion_ends="no")
    with pytest.raises(InputError, match="or completions must end; found 2 and 5; answer 'a c'"):
        generate(speaker, CountA("a c"), config)


@pytest.mark.parametrize("reward", [float("nan"), 1.5])
def test_a_reward_out_of_its_range_is_refused(speaker: LanguageModel, reward: float) -> None:
    task = CountA()
    task.reward = lambda prompt, completion: reward  # type: ignore[method-assign]
    with pytest.raises(InputError, match=rf"a reward must lie in \[0, 1\]; found {reward:g}; task CountA"):
        generate(speaker, task, SMALL)
