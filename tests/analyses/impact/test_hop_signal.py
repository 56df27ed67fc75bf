"""The signal of a differentiable reward against sequential unrolling, a state at a time."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from valuelens.analyses.impact import ScoreConfig, score
from valuelens.models import InputError
from valuelens.models.lm import LanguageModel, Rollouts
from valuelens.probe import TargetProbability, language_costates, sequences, unrolled_batches

CONFIG = ScoreConfig(signal="subtractive", micro_batch=4, tolerance=0.0)


@pytest.fixture
def rollouts(generator: torch.Generator) -> Rollouts:
    """Three prompts of four completions of one to four tokens; the second prompt's rewards are equal."""
    prompts = [(1, 2, 3), (4, 0), (1,)]
    lengths = torch.randint(1, 5, (12,), generator=generator).tolist()
    completions, targets = (
        tuple(tuple(torch.randint(5, (n,), generator=generator).tolist()) for n in lengths) for _ in range(2)
    )
    return Rollouts(
        prompt_ids=tuple(prompts[i // 4] for i in range(12)),
        completion_ids=completions,
        group=tuple(i // 4 for i in range(12)),
        ended=(True,) * 12,
        rewards=tuple(0.5 if i // 4 == 1 else float(i) for i in range(12)),
        targets=targets,
    )


def test_it_is_what_unrolling_gives(
    tiny_language_model: Callable[..., LanguageModel], rollouts: Rollouts
) -> None:
    model = tiny_language_model("llama")
    found = score(model, rollouts, CONFIG)
    batch = sequences(rollouts.prompt_ids, rollouts.completion_ids)
    targets = torch.tensor([[*each, *[0] * (4 - len(each))] for each in rollouts.targets or ()])
    reward = TargetProbability(targets=targets)
    (unrolled,) = unrolled_batches(model.model, batch, reward, layers=[2], micro_batch=12)
    whole = unrolled.values[:, 0]
    direct = language_costates(model.model, batch, reward, layers=[2]).values[:, 0]
    signal, missed, square, states = 0.0, 0.0, 0.0, 0
    for row, (prompt, completion) in enumerate(
        zip(rollouts.prompt_ids, rollouts.completion_ids, strict=True)
    ):
        hidden = model.model(torch.tensor([prompt + completion]), output_hidden_states=True).hidden_states[2]
        for k in range(len(completion)):
            size = float(hidden[0, len(prompt) - 1 + k].norm()) / 16**0.5
            r, e = direct[row, k], whole[row, k] - direct[row, k]
            if row // 4 != 1:
                signal += size * max(float(r.norm() - e.norm()), 0.0)
            missed, square = missed + float(e.square().sum()), square + float(whole[row, k].square().sum())
            states += 1
    assert found["signal_subtractive"] == pytest.approx(signal / states, rel=1e-4)
    assert found["gap_relaxed"] == pytest.approx((missed / square) ** 0.5, rel=1e-4)


def test_a_cut_graph_is_refused(
    tiny_language_model: Callable[..., LanguageModel], rollouts: Rollouts
) -> None:
    """Where advantages have no gradient either; not a signal of 0."""

    class Cut(torch.nn.Module):
        def forward(self, hidden: Any) -> Any:
            return (hidden @ self.weight.mT).detach() + 0 * hidden[..., :5]

    model = tiny_language_model("llama")
    broken, head = copy.deepcopy(model.model), Cut()
    head.weight = broken.lm_head.weight
    broken.lm_head = head
    flat = dataclasses.replace(rollouts, rewards=(0.0,) * 12)
    with pytest.raises(InputError, match="gradient at layer 0 must not vanish; found exactly zero although"):
        score(dataclasses.replace(model, model=broken), flat, CONFIG)
