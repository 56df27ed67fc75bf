"""Factors of loss types against loops over passes, the surrogate against its definition, refusals by name; and parity.

Parity: loss, parameter gradient and advantages of TRL's own GRPOTrainer against those of our surrogate and its factors.
"""

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from valuelens.probe import (
    LossType,
    Normaliser,
    Sampling,
    Sequences,
    loss_factors,
    refuse_unsupported,
    rollout_advantages,
    sampled_logits,
    sequences,
    surrogate,
    surrogate_weights,
    unsupported,
)

LENGTHS = [3, 1, 0, 2, 4, 4, 2]
MASK = torch.arange(4) < torch.tensor(LENGTHS)[:, None]


def expected_factors(loss_type: LossType, micro_batch: int, accumulation: int) -> list[float]:
    """A step at a time, a pass at a time, a rollout at a time, as a trainer goes."""
    factors = []
    for start in range(0, len(LENGTHS), micro_batch * accumulation):
        step = LENGTHS[start : start + micro_batch * accumulation]
        passes = [step[i : i + micro_batch] for i in range(0, len(step), micro_batch)]
        for each in passes:
            for length in each:
                divisor = {
                    "none": 1,
                    "grpo": len(passes) * len(each) * max(1, length),
                    "bnpo": len(passes) * max(1, sum(each)),
                    "dapo": max(1, sum(step)),
                    "dr_grpo": len(passes) * len(each) * 10,
                }[loss_type]
                factors.append(1 / divisor)
    return factors


@pytest.mark.parametrize(("micro_batch", "accumulation"), [(7, 1), (2, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize("loss_type", ["none", "grpo", "bnpo", "dapo", "dr_grpo"])
def test_factors_are_those_of_a_loop_over_passes(
    loss_type: LossType, micro_batch: int, accumulation: int
) -> None:
    normaliser = Normaliser(
        loss_type=loss_type, micro_batch=micro_batch, accumulation=accumulation, max_completion_length=10
    )
    expected = torch.tensor(expected_factors(loss_type, micro_batch, accumulation))
    torch.testing.assert_close(loss_factors(MASK, normaliser), expected)


def test_a_batch_of_empty_completions_divides_by_one() -> None:
    for loss_type in ("grpo", "bnpo", "dapo"):
        factors = loss_factors(torch.zeros(1, 3, dtype=torch.bool), Normaliser(loss_type=loss_type))
        assert factors.tolist() == [1]


def test_the_surrogate_is_its_sum_and_leaves_weights_fixed(generator: torch.Generator) -> None:
    log_prob = torch.randn(7, 4, generator=generator).requires_grad_()
    advantages = torch.randn(7, generator=generator).requires_grad_()
    weights = surrogate_weights(advantages, MASK, Normaliser(loss_type="dapo"))
    total = surrogate(torch.where(MASK, log_prob, torch.nan), weights)
    terms = [
        float((advantages[i] * log_prob[i, k]).detach()) / sum(LENGTHS)
        for i in range(7)
        for k in range(LENGTHS[i])
    ]
    assert float(total.detach()) == pytest.approx(sum(terms), abs=1e-6)
    total.backward()  # type: ignore[no-untyped-call]
    assert advantages.grad is None
    torch.testing.assert_close(log_prob.grad, torch.where(MASK, advantages.detach()[:, None] / 16, 0.0))


def test_advantages_of_tokens_weigh_tokens(generator: torch.Generator) -> None:
    advantages = torch.randn(7, 4, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(surrogate_weights(advantages, MASK), torch.where(MASK, advantages, 0.0))


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="dr_grpo divides by max_completion_length; found none"):
        loss_factors(MASK, Normaliser(loss_type="dr_grpo"))
    with pytest.raises(ValueError, match="must be at least 1; found 0 and 1; loss_factors"):
        loss_factors(MASK, Normaliser(micro_batch=0))


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"beta": 0.04}, "KL term"),
        ({"importance_sampling_level": "sequence"}, "GSPO's sequence ratios"),
        ({"tool_mask": [[1, 0]]}, "tool masks"),
        ({"tools": ["search"]}, "tool masks"),
        ({"entropy_coef": 0.01}, "entropy bonus"),
        ({"loss_type": "luspo"}, "loss_type=luspo"),
        ({"loss_type": "cispo"}, "loss_type=cispo"),
        ({"loss_type": "sapo"}, "loss_type=sapo"),
        ({"loss_type": "vespo"}, "loss_type=vespo"),
        ({"loss_type": "ppo"}, r"loss_type=ppo \(it is not known here"),
        ({"num_iterations": 2}, "the ratio is not 1"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(settings: dict[str, object], names: str) -> None:
    with pytest.raises(ValueError, match="surrogate at ratio 1; found .*" + names) as refusal:
        refuse_unsupported(settings)
    assert "\n" not in str(refusal.value)


def test_everything_at_its_idle_value_is_supported() -> None:
    from trl import GRPOConfig  # its defaults are an objective of ours

    settings = GRPOConfig(
        output_dir="unused", report_to="none", bf16=False, use_cpu=True, gradient_checkpointing=None
    ).to_dict()
    assert unsupported(settings) == {}
    refuse_unsupported(settings)


END, LONGEST, TEMPERATURE = 4, 6, 0.7
PROMPTS = ["a", "b c d"]
COMPLETIONS = [  # ended, cut at the greatest length, ended at once
    [*([1, 2, END], [0, 0, 3, 1, 2, 1], [END], [3, END])],
    [*([2, 2, 2, 2, 2, END], [1, 0, 1, 0, 1, 0], [3, 1, 0, END], [2, END])],
]
REWARDS = [1.0, 0.0, 0.25, 0.5, 3.0, 2.0, 2.0, -1.0]
GROUP = torch.arange(2).repeat_interleave(4)


@pytest.fixture(scope="module")
def trainer(
    tiny_model: Callable[..., PreTrainedModel],
    word_tokenizer: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Any]:
    """TRL's trainer of a tiny Llama, in the middle of an optimiser step of two passes of four rollouts."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    def rollouts(prompts: list[str], _: Any) -> dict[str, list[Any]]:
        tokenizer = made.processing_class
        return {
            "prompt_ids": [tokenizer(prompt)["input_ids"] for prompt in prompts],
            "completion_ids": [tokens for group in COMPLETIONS for tokens in group],
            "logprobs": None,  # type: ignore[dict-item]
        }

    model = copy.deepcopy(tiny_model("llama")).requires_grad_(True)
    config = GRPOConfig(
        output_dir=str(tmp_path_factory.mktemp("trl")),
        **{"report_to": "none", "use_cpu": True, "bf16": False, "gradient_checkpointing": None},
        **{"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_generations": 4},
        **{"max_completion_length": LONGEST, "temperature": TEMPERATURE},
    )
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # rollout_func is experimental; trl uses names that transformers gives up
        made = GRPOTrainer(
            model=model,
            reward_funcs=[lambda **_: REWARDS],
            args=config,
            train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
            processing_class=word_tokenizer("a b c d end", end="end"),
            rollout_func=rollouts,
        )
        made.model.train()
        made.current_gradient_accumulation_steps = 2
        yield made


def scored(trainer: Any, scale: str, *, masked: bool = False) -> dict[str, Tensor]:
    """The generation batch as TRL makes it: tokens, masks and advantages."""
    trainer.scale_rewards, trainer.mask_truncated_completions = scale, masked
    inputs = [{"prompt": prompt} for prompt in PROMPTS for _ in range(4)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch: dict[str, Tensor] = trainer._generate_and_score_completions(inputs)
    return batch


def emptied(batch: dict[str, Tensor], row: int) -> dict[str, Tensor]:
    """With one completion that has no token."""
    mask = batch["completion_mask"].clone()
    mask[row] = 0
    return {**batch, "completion_mask": mask, "num_items_in_batch": mask.sum()}


def trl_losses(trainer: Any, batch: dict[str, Tensor], loss_type: LossType) -> Tensor:
    """What one optimiser step backpropagates: the losses of its passes, summed."""
    trainer.loss_type = loss_type
    passes = [
        {name: each if each.ndim == 0 else each[rows] for name, each in batch.items()}
        for rows in (slice(0, 4), slice(4, 8))
    ]
    losses: Tensor = sum(trainer._compute_loss(trainer.model, each) for each in passes)
    return losses


def log_probs(model: PreTrainedModel, batch: Sequences) -> Tensor:
    logits = model(batch.input_ids, attention_mask=batch.attention_mask).logits
    at_states = logits.gather(1, batch.states[..., None].expand(-1, -1, logits.shape[-1]))
    sampled = sampled_logits(at_states, Sampling(temperature=TEMPERATURE)).log_softmax(-1)
    return sampled.gather(-1, batch.completions[..., None])[..., 0]


def our_batch(trainer: Any, batch: dict[str, Tensor]) -> Sequences:
    tokens = [
        row[mask.bool()].tolist()
        for row, mask in zip(batch["completion_ids"], batch["completion_mask"], strict=True)
    ]
    prompts = [trainer.processing_class(prompt)["input_ids"] for prompt in PROMPTS for _ in range(4)]
    return sequences(prompts, tokens)


def gradient(model: PreTrainedModel, loss: Tensor) -> Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


@pytest.mark.parametrize("scale", ["none", "group", "batch"])
def test_advantages_are_trl_s(trainer: Any, scale: Literal["none", "group", "batch"]) -> None:
    found = rollout_advantages(torch.tensor(REWARDS), GROUP, scale=scale)
    torch.testing.assert_close(found, scored(trainer, scale)["advantages"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("content", ["all", "one empty", "cut ones left out"])
@pytest.mark.parametrize("scale", ["group", "batch"])
@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dapo", "dr_grpo"])
def test_loss_and_gradient_are_trl_s(
    trainer: Any, loss_type: LossType, scale: Literal["group", "batch"], content: str
) -> None:
    batch = scored(trainer, scale, masked=content == "cut ones left out")
    batch = emptied(batch, 2) if content == "one empty" else batch
    tokens = int(batch["completion_mask"].sum())
    assert tokens == {"all": 30, "one empty": 29, "cut ones left out": 18}[content]
    loss = trl_losses(trainer, batch, loss_type)

    ours = our_batch(trainer, batch)
    normaliser = Normaliser(loss_type=loss_type, micro_batch=4, accumulation=2, max_completion_length=LONGEST)
    advantages = rollout_advantages(torch.tensor(REWARDS), GROUP, scale=scale)
    weights = surrogate_weights(advantages, ours.valid, normaliser)
    log_prob = log_probs(trainer.model, ours)
    at_ratio_one = surrogate((log_prob - log_prob.detach()).exp(), weights)
    torch.testing.assert_close(loss, -at_ratio_one, rtol=0, atol=1e-6)

    expected = gradient(trainer.model, loss)
    found = -gradient(trainer.model, surrogate(log_prob, weights))
    assert float(expected.norm()) > 0.01
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))
