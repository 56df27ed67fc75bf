"""GRPO: against Adam written out, bit for bit, and that it learns what it is rewarded for."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from valuelens.models import InputError
from valuelens.models.lm import (
    GRPOConfig,
    GRPORun,
    LabelCopy,
    LanguageModel,
    Rollouts,
    generate,
    grpo,
    language_model_of,
    word_tokenizer,
)
from valuelens.models.lm._grpo import step_seeds

TASK = LabelCopy(num_items=2, num_labels=2, num_pairs=2)
SHORT = GRPOConfig(steps=3, num_prompts=2, num_generations=4, learning_rate=0.01)


def reinforce(model: Any, rollouts: Rollouts) -> Tensor:
    """Minus the mean of advantage x log-probability, rollout by rollout; all have the same lengths."""
    ids = torch.tensor([[*p, *c] for p, c in zip(rollouts.prompt_ids, rollouts.completion_ids, strict=True)])
    first, rewards = len(rollouts.prompt_ids[0]), torch.tensor(rollouts.rewards).view(-1, 4)
    log_probs = model(input_ids=ids[:, :-1]).logits[:, first - 1 :].log_softmax(-1)
    chosen = log_probs.gather(-1, ids[:, first:, None])[..., 0].mean(1)
    return -((rewards - rewards.mean(1, keepdim=True)).flatten() * chosen).mean()


@pytest.fixture
def speaker(tiny_language_model: Callable[..., LanguageModel]) -> LanguageModel:
    """A random Llama with the words of the task."""
    tokenizer = word_tokenizer(TASK.vocabulary, longest=64)
    model = tiny_language_model("llama", vocab_size=len(tokenizer), num_layers=2)
    return dataclasses.replace(model, tokenizer=tokenizer)


def weights(language_model: LanguageModel) -> dict[str, Tensor]:
    return {name: each.clone() for name, each in language_model.model.named_parameters()}


def test_the_same_seed_gives_the_same_bits_and_the_input_stays(speaker: LanguageModel) -> None:
    before = weights(speaker)
    first, again = (grpo(speaker, TASK, SHORT, reinforce) for _ in range(2))
    assert (first.rewards, first.zero_variance) == (again.rewards, again.zero_variance)
    assert all(
        torch.equal(each, weights(again.language_model)[name])
        for name, each in weights(first.language_model).items()
    )
    other = grpo(speaker, TASK, dataclasses.replace(SHORT, seed=1), reinforce)
    assert other.language_model.sha256 != first.language_model.sha256 == again.language_model.sha256
    assert all(torch.equal(each, before[name]) for name, each in weights(speaker).items())
    for model in (speaker.model, first.language_model.model):
        assert not model.training
        assert not any(parameter.requires_grad for parameter in model.parameters())


def test_a_longer_run_begins_with_a_shorter_one(speaker: LanguageModel) -> None:
    done: list[int] = []
    longer = grpo(
        speaker, TASK, dataclasses.replace(SHORT, steps=5), reinforce, progress=lambda step: done.append(step)
    )
    assert longer.rewards[:3] == grpo(speaker, TASK, SHORT, reinforce).rewards
    assert done == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("size", [0.1, 1e4])
def test_steps_are_those_of_adam_on_shortened_gradients(speaker: LanguageModel, size: float) -> None:
    """Written out; the large loss has gradients longer than 1."""

    def loss(model: Any, rollouts: Rollouts) -> Tensor:
        return size * reinforce(model, rollouts)

    model = copy.deepcopy(speaker.model).requires_grad_(True)
    parameters = list(model.parameters())
    first, second = ([torch.zeros_like(each) for each in parameters] for _ in range(2))
    norms = []
    for step, seed in enumerate(step_seeds(0, 3), start=1):
        rollouts = generate(language_model_of(model, speaker.tokenizer), TASK, SHORT.sampling(seed))
        gradients = torch.autograd.grad(loss(model, rollouts), parameters)
        norms.append(float(torch.stack([each.norm() for each in gradients]).norm()))
        for parameter, gradient, m, v in zip(parameters, gradients, first, second, strict=True):
            shortened = gradient * min(1.0, 1 / (norms[-1] + 1e-6))
            m.mul_(0.9).add_(0.1 * shortened)
            v.mul_(0.999).add_(0.001 * shortened**2)
            step_size = m / (1 - 0.9**step) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
            parameter.data.sub_(0.01 * step_size)
    assert (max(norms) < 1) is (size < 1)
    found = weights(grpo(speaker, TASK, SHORT, loss).language_model)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.data, rtol=1e-5, atol=3e-6, msg=name)


def test_rewards_are_those_of_fresh_rollouts_before_each_step(speaker: LanguageModel) -> None:
    run: GRPORun = grpo(speaker, TASK, SHORT, reinforce)
    rollouts = generate(speaker, TASK, SHORT.sampling(step_seeds(0, 1)[0]))
    assert rollouts.rewards is not None
    assert run.rewards[0] == pytest.approx(sum(rollouts.rewards) / 8)
    groups = [set(rollouts.rewards[:4]), set(rollouts.rewards[4:])]
    assert run.zero_variance[0] == sum(len(group) == 1 for group in groups)
    assert len(run.rewards) == len(run.zero_variance) == 3


def test_groups_without_variance_are_counted_and_teach_nothing(speaker: LanguageModel) -> None:
    class Praise:
        reward_range, completion_length, ends = (0.0, 1.0), 2, False
        prompts = staticmethod(TASK.prompts)

        def reward(self, prompt: Any, completion: str) -> float:
            return 1.0

    run = grpo(speaker, Praise(), SHORT, reinforce)  # type: ignore[arg-type]
    assert run.zero_variance == (2, 2, 2)
    assert run.rewards == (1.0, 1.0, 1.0)
    assert all(
        torch.equal(each, weights(speaker)[name]) for name, each in weights(run.language_model).items()
    )


def test_it_learns_to_copy_a_label(tiny_language_model: Callable[..., LanguageModel]) -> None:
    """Out of three, from random weights."""
    task = LabelCopy(num_items=3, num_labels=3, num_pairs=1)
    tokenizer = word_tokenizer(task.vocabulary, longest=64)
    model = tiny_language_model("llama", vocab_size=len(tokenizer), num_layers=2)
    config = dataclasses.replace(SHORT, steps=30, num_prompts=16)
    run = grpo(dataclasses.replace(model, tokenizer=tokenizer), task, config, reinforce)
    assert run.rewards[0] < 0.2
    assert sum(run.rewards[-5:]) / 5 > 0.95


def test_seeds_of_steps_are_even_and_distinct() -> None:
    seeds = [seed for run in range(20) for seed in step_seeds(run, 240)]
    assert len(set(seeds)) == 20 * 240
    assert all(seed % 2 == 0 and 0 <= seed < 2**32 for seed in seeds)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps must be at least 1; found 0; GRPO"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0; found 0.0; GRPO, option --learning-rate"),
        ({"learning_rate": float("nan")}, "learning_rate must be above 0; found nan"),
        ({"num_generations": 1}, r"at least 2 \(n_group = 1 has no baseline\); found 1"),
        ({"num_prompts": 0}, "num_prompts must be at least 1; found 0"),
        ({"temperature": -1.0}, "temperature must be above 0; found -1.0"),
        ({"seed": -1}, "seed must be at least 0; found -1"),
    ],
)
def test_numbers_out_of_range_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        GRPOConfig(**change)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            lambda model, rollouts: reinforce(model, rollouts) * torch.nan,
            "the loss must be finite; found nan",
        ),
        (lambda model, rollouts: torch.zeros(()), "the loss must depend on the model; found no gradient"),
        (
            lambda model, rollouts: (reinforce(model, rollouts) * 0).sqrt(),
            "the gradient must be finite; found norm nan",
        ),
    ],
)
def test_a_loss_that_cannot_be_followed_is_refused(
    speaker: LanguageModel, loss: Callable[..., Tensor], message: str
) -> None:
    with pytest.raises(InputError, match=f"{message}; GRPO of tiny-llama, step 1"):
        grpo(speaker, TASK, SHORT, loss)


def test_half_precision_is_refused(speaker: LanguageModel) -> None:
    half = dataclasses.replace(speaker, model=copy.deepcopy(speaker.model).bfloat16())
    message = "float32 or float64 to be trained; found bfloat16, which loses small steps; tiny-llama, option --dtype"
    with pytest.raises(InputError, match=message):
        grpo(half, TASK, SHORT, reinforce)


def test_a_run_that_diverges_is_refused(speaker: LanguageModel) -> None:
    with pytest.raises(InputError, match=r"logits must be finite|weights must be finite"):
        grpo(speaker, TASK, dataclasses.replace(SHORT, learning_rate=1e38), reinforce)
