"""Gains: the loss is that of the costates, before and after are asked alike, and the cut reaches the training."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from valuelens.analyses.impact import (
    RECIPES,
    Gain,
    GainConfig,
    gain,
    grpo_loss,
    held_out_reward,
    held_out_seed,
    token_passes,
)
from valuelens.models import InputError
from valuelens.models.lm import GenerateConfig, GRPOConfig, generate, grpo
from valuelens.models.lm._grpo import step_seeds
from valuelens.probe import (
    Normaliser,
    Sampling,
    Surrogate,
    credit_cut,
    edited_stream,
    language_costates,
    loss_factors,
    rollout_advantages,
    sequences,
)

SAMPLING = Sampling(temperature=0.7)
SMALL = GainConfig(num_prompts=32, num_generations=4)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default recipe with few and small steps."""
    short = GRPOConfig(steps=3, num_prompts=4, num_generations=16, learning_rate=0.01)
    monkeypatch.setitem(RECIPES, "default", short)


@pytest.mark.parametrize("cut", [False, True])
def test_the_gradient_of_the_loss_is_minus_the_costate(copier: Any, *, cut: bool) -> None:
    """At every layer and state: advantages over the group's standard deviation, a weight for every token alike."""
    rollouts, model = copier.sample(temperature=0.7), copy.deepcopy(copier.model.model).requires_grad_(True)
    # of two lengths, or the types of loss would be alike
    lengths = zip(rollouts.completion_ids, rollouts.group, strict=True)
    rollouts = dataclasses.replace(
        rollouts, completion_ids=tuple(tokens[: 1 + group % 2] for tokens, group in lengths)
    )
    batch = sequences(rollouts.prompt_ids, rollouts.completion_ids)
    advantages = rollout_advantages(
        torch.tensor(rollouts.rewards), torch.tensor(rollouts.group), scale="group"
    )
    factors = loss_factors(batch.valid, Normaliser(loss_type="dapo"))
    objective = Surrogate(weights=(advantages * factors)[:, None] * batch.valid, sampling=SAMPLING)
    with credit_cut(model) if cut else torch.enable_grad():
        costates = language_costates(model, batch, objective, layers=(0, 1, 3), micro_batch=64)
    streams: dict[int, torch.Tensor] = {}

    def keep(layer: int) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda stream: streams.setdefault(layer, stream)

    with edited_stream(model, {layer: keep(layer) for layer in (0, 1, 3)}):
        loss = grpo_loss(SAMPLING, cut=cut)(model, rollouts)
    for at, (layer, gradient) in enumerate(
        zip(streams, torch.autograd.grad(loss, list(streams.values())), strict=True)
    ):
        index = batch.states[..., None].expand(-1, -1, gradient.shape[-1])
        found = -gradient.gather(1, index) * batch.valid[..., None]
        torch.testing.assert_close(found, costates.values[:, at], rtol=1e-4, atol=1e-7, msg=str(layer))


def test_before_and_after_answer_the_same_prompts_with_the_same_numbers(copier: Any, quick: None) -> None:
    found = gain(copier.model, copier.task, SMALL)
    sampling = GenerateConfig(num_prompts=32, num_generations=4, seed=held_out_seed(0))
    run = grpo(copier.model, copier.task, SMALL.training, grpo_loss(Sampling()))
    for model, reward in ((copier.model, found.reward_before), (run.language_model, found.reward_after)):
        rewards = generate(model, copier.task, sampling).rewards
        assert rewards is not None
        assert reward == pytest.approx(sum(rewards) / 128)
    assert (found.curve, found.zero_variance) == (run.rewards, run.zero_variance)
    assert found.gain == found.reward_after - found.reward_before != 0
    assert gain(copier.model, copier.task, SMALL) == found
    other = gain(copier.model, copier.task, dataclasses.replace(SMALL, rl_seed=1))
    assert other.reward_before == found.reward_before
    assert other.curve != found.curve
    another = dataclasses.replace(SMALL, seed=1)
    assert held_out_reward(copier.model, copier.task, another) != found.reward_before


def test_the_cut_reaches_the_training_and_nothing_else(copier: Any, quick: None) -> None:
    whole, cut = (
        gain(copier.model, copier.task, dataclasses.replace(SMALL, cut=cut)) for cut in (False, True)
    )
    assert (cut.curve[0], cut.reward_before) == (whole.curve[0], whole.reward_before)
    assert cut != whole


def test_held_out_seeds_are_of_no_step() -> None:
    steps = {seed for run in range(20) for seed in step_seeds(run, 240)}
    held_out = {held_out_seed(seed) for seed in range(100)}
    assert len(held_out) == 100
    assert not steps & held_out
    assert all(seed % 2 for seed in held_out)


def test_recipes_and_sampling_decide_the_run() -> None:
    fast = GainConfig(
        recipe="fast", rl_seed=3, sampling=Sampling(temperature=0.5, top_k=2, top_p=0.9)
    ).training
    assert (fast.steps, fast.num_prompts, fast.num_generations, fast.seed) == (20, 8, 16, 3)
    assert fast.learning_rate == pytest.approx(3 * GainConfig().training.learning_rate)
    assert (fast.temperature, fast.top_k, fast.top_p) == (0.5, 2, 0.9)
    assert GainConfig().training == GRPOConfig()
    assert GainConfig(max_completion_length=3).training.max_completion_length == 3
    ended = GainConfig(completion_ends="no")
    sampled = (ended.held_out, ended.training.sampling(0))
    assert [each.completion_ends for each in sampled] == ["no", "no"]
    config = GainConfig()
    object.__setattr__(config, "recipe", "slow")
    with pytest.raises(InputError, match="--recipe takes default, fast, long; found 'slow'; option --recipe"):
        config.__post_init__()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, "seed must be at least 0; found -1"),
        ({"rl_seed": -1}, "seed must be at least 0; found -1"),
        ({"num_prompts": 0}, "num_prompts must be at least 1; found 0"),
        ({"num_generations": 1}, r"at least 2 \(n_group = 1 has no baseline\); found 1"),
    ],
)
def test_numbers_out_of_range_are_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        GainConfig(**change)  # type: ignore[arg-type]


def test_token_passes_are_counted_as_they_are_made(copier: Any) -> None:
    """Every token that a module of the model sees, prompts once each; the last token sampled is never read."""
    model, seen = copy.deepcopy(copier.model.model), [0]
    hook = model.get_input_embeddings().register_forward_hook(
        lambda module, args, out: seen.__setitem__(0, seen[0] + args[0].numel())
    )
    config = GRPOConfig(steps=3, num_prompts=2, num_generations=4, learning_rate=1e-9)
    speaker = dataclasses.replace(copier.model, model=model)
    grpo(speaker, copier.task, config, grpo_loss(Sampling()))
    hook.remove()
    distinct = sum(
        len(set(generate(copier.model, copier.task, config.sampling(seed)).prompt_ids))
        for seed in step_seeds(0, 3)
    )
    passes = token_passes(config, 5, 2)
    backward, last = 3 * 2 * 8 * 7, 3 * 8
    assert seen[0] == passes - backward - last - 5 * (6 - distinct)


def test_a_model_that_cannot_be_cut_is_refused(copier: Any, quick: None) -> None:
    model = copy.deepcopy(copier.model.model)
    model.model.layers[1].self_attn.forward = lambda hidden_states, **options: (hidden_states, None)
    broken = dataclasses.replace(copier.model, model=model)
    with pytest.raises(
        InputError, match=r"every block must attend .* interface; found 3 of 4 blocks; copier, LlamaFor"
    ):
        gain(broken, copier.task, dataclasses.replace(SMALL, cut=True))


def test_a_gain_says_what_it_is_the_difference_of() -> None:
    text = str(Gain(reward_before=0.25, reward_after=0.75, curve=(0.25, 0.5), zero_variance=(1, 0)))
    assert text.splitlines() == [
        "Gain +0.5",
        "  held-out reward before   0.25",
        "  held-out reward after    0.75",
        "  steps                    2",
        "  groups without variance  1",
    ]
