"""One pass back for each group against plain passes with each kind of advantage; which tokens and passes count."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from valuelens.analyses.impact import ScoreConfig
from valuelens.analyses.impact._passes import Passes, passes
from valuelens.models.lm import LanguageModel, Rollouts
from valuelens.probe import STD_EPSILON, Sampling, Surrogate, language_costates, sequences

SAMPLING = Sampling(temperature=0.8)
CONFIG = ScoreConfig(sampling=SAMPLING, micro_batch=3)


@pytest.fixture
def model(tiny_language_model: Callable[..., LanguageModel]) -> LanguageModel:
    return tiny_language_model("llama", dtype=torch.float64)


@pytest.fixture
def rollouts(generator: torch.Generator) -> Rollouts:
    """Five prompts of four or five completions, of any length; the third prompt's rewards are equal."""
    prompts, group, completions = [(1, 2, 3), (4, 0), (1,), (2, 2), (0, 3)], [], []
    for number, count in enumerate((4, 5, 4, 4, 5)):
        group += [number] * count
        lengths = torch.randint(1, 5, (count,), generator=generator).tolist()
        completions += [
            tuple(torch.randint(5, (length,), generator=generator).tolist()) for length in lengths
        ]
    rewards = torch.rand(len(group), generator=generator, dtype=torch.float64)
    rewards[torch.tensor(group) == 2] = 0.1
    return Rollouts(
        prompt_ids=tuple(prompts[each] for each in group),
        completion_ids=tuple(completions),
        group=tuple(group),
        ended=(True,) * len(group),
        rewards=tuple(rewards.tolist()),
    )


def found_of(
    model: LanguageModel, rollouts: Rollouts, config: ScoreConfig = CONFIG, **options: Any
) -> Passes:
    batch = sequences(rollouts.prompt_ids, rollouts.completion_ids)
    return passes(model, rollouts, batch, config, **{"layer": 2, "start": True, **options})


def plain_gradient(model: LanguageModel, rollouts: Rollouts, weights: Tensor) -> Tensor:
    """Of sum_i w_i log pi(o_i), a rollout at a time."""
    other = copy.deepcopy(model.model).requires_grad_(True)
    for prompt, completion, weight in zip(
        rollouts.prompt_ids, rollouts.completion_ids, weights.tolist(), strict=True
    ):
        logits = other(torch.tensor([prompt + completion])).logits[0] / SAMPLING.temperature
        log_probs = logits.log_softmax(-1)[len(prompt) - 1 : -1]
        (weight * log_probs.gather(-1, torch.tensor(completion)[:, None]).sum()).backward()
    return torch.cat([each.grad.flatten() for each in other.parameters()])


def halves(count: int, generator: torch.Generator) -> Tensor:
    half = torch.zeros(count)
    half[torch.randperm(count, generator=generator)[: count // 2]] = 1
    return half


def test_one_pass_gives_both_gradients(model: LanguageModel, rollouts: Rollouts) -> None:
    """Raw leave-one-out advantages on one half of the prompts, GRPO's on the other; both ways; and the whole's norm."""
    rewards, group = torch.tensor(rollouts.rewards).double(), torch.tensor(rollouts.group)
    raw, update = torch.zeros(2, len(group)).double()
    for each in (0, 1, 3, 4):
        mine, n = group == each, int((group == each).sum())
        others = (rewards[mine].sum() - rewards[mine]) / (n - 1)
        raw[mine] = (rewards[mine] - others) / n
        update[mine] = (rewards[mine] - rewards[mine].mean()) / (rewards[mine].std() + STD_EPSILON)
    of_prompt = halves(5, torch.Generator().manual_seed(0))[group]
    gains = []
    for one, other, prompts in ((0, 1, 3), (1, 0, 2)):
        value = plain_gradient(model, rollouts, raw * (of_prompt == one)) / prompts
        gains.append(value @ plain_gradient(model, rollouts, update * (of_prompt == other)).sign())
    found = found_of(model, rollouts)
    assert found.aligned == pytest.approx(float(sum(gains)) / 2, rel=1e-5)
    whole = plain_gradient(model, rollouts, update)
    tokens = sum(map(len, rollouts.completion_ids))
    assert found.gradient_norm == pytest.approx(float(whole.norm()) / tokens, rel=1e-5)


def test_halves_of_a_group_are_costates_of_their_own(model: LanguageModel, rollouts: Rollouts) -> None:
    rewards, group = torch.tensor(rollouts.rewards).double(), torch.tensor(rollouts.group)
    generator = torch.Generator().manual_seed(0)
    halves(5, generator)
    found, batch = found_of(model, rollouts), sequences(rollouts.prompt_ids, rollouts.completion_ids)
    assert found.halves is not None
    for number in range(5):
        rows = (group == number).nonzero()[:, 0]
        half = halves(len(rows), generator)
        for each in (0, 1):
            mine = rows[half == each]
            others = (rewards[mine].sum() - rewards[mine]) / (len(mine) - 1)
            weights = torch.zeros(len(group)).double()
            weights[mine] = (rewards[mine] - others) / len(mine)
            expected = torch.zeros(16)
            if number != 2:
                surrogate = Surrogate(weights=weights[:, None].expand(-1, 4), sampling=SAMPLING)
                expected = language_costates(model.model, batch, surrogate, layers=[2]).values[:, 0, 0].sum(0)
            torch.testing.assert_close(found.halves[number, each], expected.double(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("micro_batch", [1, 2, 64])
def test_the_size_of_a_pass_changes_nothing(
    model: LanguageModel, rollouts: Rollouts, micro_batch: int
) -> None:
    one = found_of(model, rollouts)
    other = found_of(model, rollouts, dataclasses.replace(CONFIG, micro_batch=micro_batch))
    assert other.aligned == pytest.approx(one.aligned, rel=1e-5)
    assert other.gradient_norm == pytest.approx(one.gradient_norm, rel=1e-5)
    torch.testing.assert_close(other.halves, one.halves, rtol=1e-5, atol=1e-7)
    assert other.tokens == one.tokens


def test_passes_are_counted(model: LanguageModel, rollouts: Rollouts) -> None:
    """Forward 1, back 2; nothing is pulled back of a prompt whose rewards are equal."""
    length = [len(p) + len(c) for p, c in zip(rollouts.prompt_ids, rollouts.completion_ids, strict=True)]
    flat = sum(each for each, group in zip(length, rollouts.group, strict=True) if group == 2)
    varied = sum(length) - flat
    assert found_of(model, rollouts).tokens == flat + 5 * varied
    assert found_of(model, rollouts, start=False).tokens == flat + 3 * varied


def test_masked_tokens_have_no_part(model: LanguageModel, rollouts: Rollouts) -> None:
    """The last token of each completion is left out: as if it had not been drawn."""
    mask = tuple((1,) * (len(each) - 1) + (0,) for each in rollouts.completion_ids)
    found = found_of(model, dataclasses.replace(rollouts, mask=mask))
    shorter = tuple(each[:-1] for each in rollouts.completion_ids)
    expected = found_of(model, dataclasses.replace(rollouts, completion_ids=shorter))
    assert found.aligned == pytest.approx(expected.aligned, rel=1e-5)
    assert found.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-5)
    torch.testing.assert_close(found.halves, expected.halves, rtol=1e-5, atol=1e-7)


def test_a_single_prompt_cannot_be_split(model: LanguageModel, rollouts: Rollouts) -> None:
    names = ("prompt_ids", "completion_ids", "group", "ended", "rewards")
    one = dataclasses.replace(rollouts, **{name: getattr(rollouts, name)[:4] for name in names})
    assert found_of(model, one).aligned != found_of(model, one).aligned


def test_a_gradient_that_is_cut_is_refused(model: LanguageModel, rollouts: Rollouts) -> None:
    class Cut(torch.nn.Module):
        def forward(self, hidden: Tensor) -> Tensor:
            return (hidden @ self.weight.mT).detach() + 0 * hidden[..., :5]

    broken = copy.deepcopy(model.model)
    head = Cut()
    head.weight = broken.lm_head.weight
    broken.lm_head = head
    with pytest.raises(ValueError, match="must not vanish where rewards differ; found exactly zero"):
        found_of(dataclasses.replace(model, model=broken), rollouts)
