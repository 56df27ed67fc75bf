"""Scores of constructed checkpoints come out as they must; what cannot be scored is refused."""

import copy
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from valuelens.analyses.impact import RECIPES, SCORES, ScoreConfig, remarks, score, token_passes
from valuelens.models import InputError
from valuelens.models.lm import GenerateConfig, LanguageModel, Prompt, Rollouts, generate

ALL = ScoreConfig(every_variant=True)


@dataclasses.dataclass(frozen=True)
class TwoWords:
    """Label copying where every prompt has the same answer."""

    answer: str = "L0 L0"
    reward_range: tuple[float, float] = (0.0, 1.0)
    completion_length: int = 2
    ends: bool = False

    def prompts(self, count: int, generator: torch.Generator) -> list[Prompt]:
        labels = torch.randint(2, (count, 2), generator=generator).tolist()
        return [Prompt(text=f"i0 L{a} i1 L{b} =>", answer=self.answer) for a, b in labels]

    def reward(self, prompt: Prompt, completion: str) -> float:
        pairs = zip(self.answer.split(), completion.split(), strict=True)
        return sum(right == word for right, word in pairs) / 2


WORDS = ("<pad>", "<eos>", "i0", "i1", "L0", "L1", "=>")


@pytest.fixture(scope="module")
def leaning(copier: Any) -> Callable[..., LanguageModel]:
    """`leaning(L0=5.0)`: the copier with so much added to the logits of these words; 1e4 less of those not named."""

    def model(**bias: float) -> LanguageModel:
        changed = copy.deepcopy(copier.model.model)
        head = torch.nn.Linear(16, 7)
        head.weight = changed.lm_head.weight
        head.bias = torch.nn.Parameter(torch.tensor([bias.get(word, -1e4) for word in WORDS]))
        changed.lm_head = head.requires_grad_(False)
        return dataclasses.replace(copier.model, model=changed)

    return model


@pytest.fixture(scope="module")
def chain(copier: Any) -> Callable[[dict[str, tuple[float, float]]], LanguageModel]:
    """`chain({"L0": (6.0, 0.0)})`: logits of L0 and L1 behind this word, nearly; everything else is 30 below.

    Embeddings drown what the blocks add, so that a linear head can read the last word.
    """

    def model(logits: dict[str, tuple[float, float]]) -> LanguageModel:
        changed = copy.deepcopy(copier.model.model)
        changed.model.embed_tokens.weight.mul_(30)
        wanted = torch.full((len(WORDS), len(WORDS)), -30.0)
        for word, pair in logits.items():
            wanted[4:6, WORDS.index(word)] = torch.tensor(pair)
        seen = changed.model.norm(changed.model.embed_tokens.weight)
        changed.lm_head.weight.copy_(wanted @ torch.linalg.pinv(seen.mT))
        return dataclasses.replace(copier.model, model=changed)

    return model


@pytest.fixture(scope="module")
def model(leaning: Callable[..., LanguageModel]) -> LanguageModel:
    """Labels only."""
    return leaning(L0=0.0, L1=0.0)


@pytest.fixture(scope="module")
def rollouts(copier: Any, model: LanguageModel) -> Rollouts:
    return generate(model, copier.task, GenerateConfig(num_prompts=8, num_generations=16))


def comparable(found: dict[str, float]) -> dict[str, float | str]:
    """Not-a-number as a word, which equals itself."""
    return {name: "nan" if math.isnan(value) else value for name, value in found.items()}


def test_every_column_is_there(model: LanguageModel, rollouts: Rollouts) -> None:
    found = score(model, rollouts, ALL, held_out_loss=1.5)
    assert list(found) == list(SCORES[3:])
    assert found["held_out_loss"] == 1.5
    missing = {name for name, value in found.items() if math.isnan(value)}
    assert missing == {"gap_discrete"}  # 49 continuations are too many for 128 rollouts
    assert found["signal"] == found["signal_subtractive"]
    assert found["impact"] == found["signal"] * found["headroom"]


def test_the_same_model_twice_is_equal_to_the_last_bit(model: LanguageModel, rollouts: Rollouts) -> None:
    one, other = (score(model, rollouts, ALL) for _ in range(2))
    assert comparable(one) == comparable(other)


def test_a_saturated_policy_has_no_headroom(leaning: Callable[..., LanguageModel]) -> None:
    """Nearly and wholly: p = 1 to the last bit leaves no gradient, which is an answer here and no error."""
    for bias in (40.0, 1e6):
        model = leaning(L0=bias, L1=0.0)
        found = score(model, sample(model, TwoWords()), ALL)
        assert found["reward"] == 1
        assert found["entropy"] < 1e-6
        for name in ("headroom", "signal", "impact", "update_aligned", "gradient_norm"):
            assert found[name] == 0


def test_a_better_answer_outside_the_support_is_no_headroom(leaning: Callable[..., LanguageModel]) -> None:
    """L0 is never drawn: half of the reward is all there is, however the completions differ otherwise."""
    model = leaning(L1=0.0)
    found = score(model, sample(model, TwoWords(answer="L0 L1")), ALL)
    assert found["reward"] == 0.5
    for name in ("headroom_tilt", "headroom_shortfall", "headroom_best_of_k", "pass_at_k", "impact"):
        assert found[name] == 0
    wider = leaning(L1=0.0, i0=0.0, i1=0.0)
    reachable = score(wider, sample(wider, TwoWords(answer="L0 L0")), ALL)
    assert reachable["entropy"] > 0.1
    assert reachable["headroom"] == 0


def test_low_entropy_with_the_wrong_answer_has_a_discrete_gap(chain: Callable[..., LanguageModel]) -> None:
    """The relaxed gap closes with entropy, the discrete one does not (theory B4)."""
    gaps = {}
    for lean in (0.0, 6.0):
        model = chain({"=>": (0.0, lean), "L0": (6.0, 0.0), "L1": (0.0, 6.0)})
        found = score(model, sample(model, TwoWords()), ALL)
        gaps[lean] = (found["entropy"], found["gap_relaxed"], found["gap_discrete"])
    assert gaps[6.0][0] < 0.05
    assert gaps[6.0][1] < 0.1
    assert gaps[6.0][2] > 0.3
    assert "The relaxed gap is small" in remarks(found)[-1]


def sample(model: LanguageModel, task: TwoWords) -> Rollouts:
    return generate(model, task, GenerateConfig(num_prompts=20, num_generations=16))


def test_a_constant_reward_has_neither_signal_nor_headroom(model: LanguageModel, rollouts: Rollouts) -> None:
    constant = dataclasses.replace(rollouts, rewards=(0.1,) * len(rollouts), reward_range=None)
    found = score(model, constant, ALL)
    for name in ("signal_subtractive", "signal_usable", "signal_update_aligned", "gradient_norm"):
        assert found[name] == 0
    for name in ("headroom_tilt", "headroom_shortfall", "headroom_best_of_k", "pass_at_k", "impact"):
        assert found[name] == 0
    assert found["frac_reward_zero_std"] == 1
    assert remarks(found)[0].startswith("Rewards are equal within every group")


@pytest.mark.parametrize("factor", [10, 100])
def test_rewards_may_have_any_unit(copier: Any, model: LanguageModel, factor: int) -> None:
    """Rewards, their range and nothing else: every headroom is so many times as large, the order stays."""
    rows = [
        generate(model, copier.task, GenerateConfig(num_prompts=6, num_generations=16, seed=seed))
        for seed in range(4)
    ]
    config = ScoreConfig(signal="usable")

    def scores(times: int) -> list[dict[str, float]]:
        scaled = [
            dataclasses.replace(
                each,
                rewards=tuple(times * one for one in each.rewards or ()),
                reward_range=(0.0, float(times)),
            )
            for each in rows
        ]
        return [score(model, each, config) for each in scaled]

    plain, larger = scores(1), scores(factor)
    for one, other in zip(plain, larger, strict=True):
        for name in ("headroom_tilt", "headroom_shortfall", "headroom_best_of_k", "signal_usable"):
            assert other[name] == pytest.approx(factor * one[name], rel=1e-6)
        assert other["pass_at_k"] == one["pass_at_k"]
        assert other["update_aligned"] == pytest.approx(factor * one["update_aligned"], rel=1e-2)
    for name in ("impact", "signal", "headroom", "update_aligned", "reward_std"):
        order, same = ([each[name] for each in found] for found in (plain, larger))
        assert torch.tensor(order).argsort().tolist() == torch.tensor(same).argsort().tolist()


@pytest.mark.parametrize(
    ("signal", "most"), [("update-aligned", 0.25), ("usable", 0.25), ("subtractive", 0.5)]
)
def test_a_score_costs_a_share_of_a_run(tiny_language_model: Any, signal: Any, most: float) -> None:
    """32 prompts x 16 rollouts, every reward different, more tokens than hops and none of them left out."""
    generator = torch.Generator().manual_seed(0)
    prompts, completions = torch.randint(5, (2, 512, 7), generator=generator).tolist()
    rollouts = Rollouts(
        prompt_ids=tuple(tuple(prompts[i // 16]) for i in range(512)),
        completion_ids=tuple(map(tuple, completions)),
        group=tuple(i // 16 for i in range(512)),
        ended=(True,) * 512,
        rewards=tuple(float(i) for i in range(512)),
        targets=tuple(map(tuple, prompts)),
        prompts=(Prompt(text=""),) * 512,
    )
    config = ScoreConfig(signal=signal, tolerance=0.0)
    found = score(tiny_language_model("llama"), rollouts, config)["token_passes"]
    passes = {"update-aligned": 3, "usable": 5, "subtractive": 3 + 1 + 6 * 2}[signal]
    assert found == 32 * 7 + 512 * 7 + passes * 512 * 14
    assert found <= most * token_passes(RECIPES["default"], 7, 7)


def test_only_the_chosen_signal_is_taken(model: LanguageModel, rollouts: Rollouts) -> None:
    untargeted = dataclasses.replace(rollouts, targets=None)
    found = score(model, untargeted)
    assert found["signal"] == found["signal_usable"] > 0
    assert math.isnan(found["signal_subtractive"])
    other = score(model, rollouts, ScoreConfig(signal="update-aligned", headroom="shortfall"))
    assert other["signal"] == other["update_aligned"]
    assert other["headroom"] == other["headroom_shortfall"]
    assert math.isnan(other["signal_usable"])


@pytest.mark.parametrize(
    ("changes", "config", "message"),
    [
        ({"rewards": None}, {}, "a score needs the rewards of its rollouts; found neither"),
        (
            {"rewards": None, "advantages": ((0.0,),) * 128},
            {},
            "rewards of its rollouts; found advantages only",
        ),
        ({"rewards": (math.nan,) * 128}, {}, "a reward must be a number; found nan; .*row 0"),
        (
            {"group": tuple(range(128))},
            {},
            "at least two rollouts .n_group = 1 has no baseline.; found 1 in group 0",
        ),
        ({"targets": None}, {"signal": "subtractive"}, "--signal subtractive needs right tokens"),
        (
            {"group": tuple(i // 2 for i in range(128))},
            {"signal": "usable"},
            "usable needs 4 rollouts of a prompt",
        ),
        ({"group": (0,) * 128}, {"signal": "update-aligned"}, "update-aligned needs two prompts"),
        ({"log_probs": ((-9.0, -9.0),) * 128}, {}, "logged log-probabilities must be this model's"),
        ({}, {"layer": "L"}, "--layer must lie below the number of layers, 4; found L"),
    ],
)
def test_what_cannot_be_scored_is_refused(
    model: LanguageModel, rollouts: Rollouts, changes: dict[str, Any], config: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        score(model, dataclasses.replace(rollouts, **changes), ScoreConfig(**config))
