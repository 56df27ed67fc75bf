"""Unrolling with a key-value cache against the sum of hops, on every family; which engine is chosen."""

import copy
import math
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from valuelens.probe import (
    BEFORE_NORM,
    Relaxation,
    RelaxedCostates,
    Sampling,
    Surrogate,
    TargetProbability,
    hop_batches,
    relaxed_batches,
    residual_blocks,
    sequences,
    unrolled_batches,
)
from valuelens.probe import _unrolled as module
from valuelens.probe._sequences import Sequences

TinyModel = Callable[..., Any]
PROMPTS, COMPLETIONS = [[1, 2, 3, 3, 1], [4, 0], [1], [2, 2]], [[1, 2, 3, 1, 0], [1, 2, 4, 0], [], [3]]
LAYERS = (0, 2, 3, 4, BEFORE_NORM)
ALL = Relaxation(sampling=Sampling(temperature=0.7), max_hops=9, tolerance=0.0)


@pytest.fixture
def batch() -> Sequences:
    return sequences(PROMPTS, COMPLETIONS)


@pytest.fixture
def reward() -> TargetProbability:
    return TargetProbability(targets=torch.tensor([[1, 0, 2, 4, 3]]), sampling=ALL.sampling)


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def test_hops_sum_to_unrolling_on_every_family(
    tiny_model: TinyModel, family: str, batch: Sequences, reward: TargetProbability
) -> None:
    """Prompts of several lengths, padding, ends; beyond the sliding windows of 8; float64 but for norms and softmax."""
    model = tiny_model(family, dtype=torch.float64, seed=2 if family == "gpt2" else 0)
    (hops,) = hop_batches(model, batch, reward, layers=LAYERS, relaxation=ALL)
    (expected,) = unrolled_batches(model, batch, reward, layers=LAYERS, sampling=ALL.sampling)
    assert relative(hops.embeddings.sum(1), expected.embeddings) < 1e-6
    for at in range(len(LAYERS)):
        assert relative(hops.relaxed[:, at], expected.values[:, at]) < 1e-6
    assert relative(hops.values[:, 0], expected.values) > 0.1, "without hops this test could not fail"
    assert expected.valid.tolist() == hops.valid.tolist()
    assert expected.positions.tolist() == hops.positions.tolist()


def test_what_is_fed_is_what_was_drawn(
    tiny_model: TinyModel, family: str, batch: Sequences, reward: TargetProbability
) -> None:
    """With the gradient of the draw cut, unrolling is teacher forcing: hop 0."""
    model = tiny_model(family, dtype=torch.float64)
    (hops,) = hop_batches(model, batch, reward, layers=LAYERS, relaxation=ALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("valuelens.probe._unrolled.vocabulary_products", lambda e, v, n: v.new_zeros(len(v), n))
        (found,) = unrolled_batches(model, batch, reward, layers=LAYERS, sampling=ALL.sampling)
    assert relative(found.values, hops.values[:, 0]) < 1e-6
    assert relative(found.embeddings, hops.embeddings[:, 0]) < 1e-6


def test_micro_batches(tiny_model: TinyModel, batch: Sequences, reward: TargetProbability) -> None:
    model = tiny_model("llama", dtype=torch.float64)
    (whole,) = unrolled_batches(model, batch, reward, layers=LAYERS, sampling=ALL.sampling)
    parts = list(unrolled_batches(model, batch, reward, layers=LAYERS, sampling=ALL.sampling, micro_batch=1))
    for row, part in enumerate(parts):
        states = part.values.shape[2]
        torch.testing.assert_close(part.values[0], whole.values[row, :, :states], rtol=1e-5, atol=1e-7)


def test_the_surrogate_is_refused(tiny_model: TinyModel, batch: Sequences) -> None:
    surrogate = Surrogate(weights=torch.ones(4, 5))
    for batches in (unrolled_batches, relaxed_batches):
        with pytest.raises(ValueError, match="found the surrogate"):
            list(batches(tiny_model("llama"), batch, surrogate, layers=[0]))


def test_a_model_without_cache_is_refused(float64_net: TinyModel, batch: Sequences, reward: Any) -> None:
    with pytest.raises(ValueError, match="must have a key-value cache; found none; _Float64Net"):
        next(unrolled_batches(float64_net(), batch, reward, layers=[0]))


def test_a_model_in_training_is_refused(tiny_model: TinyModel, batch: Sequences, reward: Any) -> None:
    model = copy.deepcopy(tiny_model("llama")).train()
    with pytest.raises(ValueError, match="must be in evaluation mode"):
        next(unrolled_batches(model, batch, reward, layers=[0]))


def test_numbers_that_are_none_are_told(tiny_model: TinyModel, reward: Any) -> None:
    batch = sequences([[1, 2]], [[1, 2, 3]])
    model = copy.deepcopy(tiny_model("llama"))
    model.get_input_embeddings().weight[0] = torch.nan
    with pytest.raises(ValueError, match=r"an unrolled gradient must be finite; .*; rollouts from 0"):
        next(unrolled_batches(model, batch, reward, layers=[0]))
    model.lm_head.weight[2] = torch.nan
    with pytest.raises(ValueError, match=r"logits must be numbers; .*: it is the output head"):
        next(unrolled_batches(model, batch, reward, layers=[0]))


def test_a_cut_is_told(tiny_model: TinyModel, batch: Sequences, reward: Any) -> None:
    model = copy.deepcopy(tiny_model("llama"))
    residual_blocks(model)[1].register_forward_hook(lambda block, args, output: output.detach())
    for layers in ([3], [1]):
        with pytest.raises(ValueError, match=r"must reach layer 0; found none there"):
            next(unrolled_batches(model, batch, reward, layers=layers))


def test_a_policy_without_choice_is_told(tiny_model: TinyModel) -> None:
    model, ids = tiny_model("llama"), [1]
    sampling = Sampling(temperature=1e-9)
    for _ in range(3):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    batch = sequences([ids[:1]], [ids[1:]])
    reward = TargetProbability(targets=torch.zeros(1, 3).long(), sampling=sampling)
    with pytest.raises(ValueError, match=r"layer 0 must not vanish; .* \(entropy 0\)"):
        list(unrolled_batches(model, batch, reward, layers=[0], sampling=sampling))


@pytest.mark.parametrize(
    ("rollouts", "hops", "engines"),
    [(4, 9, ["hop_batches"]), (4, 2, ["hop_batches", "unrolled_batches"]), (64, 9, ["unrolled_batches"])],
)
def test_the_cheaper_engine_is_chosen(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch, rollouts: int, hops: int, engines: list[str]
) -> None:
    """Always within the tolerance, and always the same answer."""
    model, sampling = tiny_model("llama", dtype=torch.float64), ALL.sampling
    batch = sequences([[1, 2]] * rollouts, [[2, 3, 1, 0]] * rollouts)
    reward = TargetProbability(targets=torch.tensor([[1, 0, 2, 4]]), sampling=sampling)
    (expected,) = hop_batches(model, batch, reward, layers=LAYERS, relaxation=ALL, micro_batch=64)
    used: list[str] = []
    for name in ("hop_batches", "unrolled_batches"):
        engine = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, e=engine, n=name, **o: used.append(n) or e(*a, **o))
    relaxation = Relaxation(sampling=sampling, max_hops=hops, tolerance=1e-9)
    (found,) = relaxed_batches(model, batch, reward, layers=LAYERS, relaxation=relaxation, micro_batch=64)
    assert used == engines
    assert relative(found.values, expected.relaxed) < 1e-6
    assert relative(found.embeddings, expected.embeddings.sum(1)) < 1e-6
    assert isinstance(found, RelaxedCostates)
    assert found.layers == LAYERS
    assert found.valid.tolist() == expected.valid.tolist()


@pytest.mark.slow
@pytest.mark.xdist_group("smollm2")
def test_smollm2_needs_few_hops(smollm2: Any) -> None:
    """Two rollouts of 32 + 32 tokens: less than 1 % is left out within 5 hops, at a fraction of unrolling's time."""
    model, layers, text = smollm2.model, (0, 15, 22), relaxed_batches.__doc__ or ""
    ids = torch.tensor([smollm2.tokenizer(text)["input_ids"][:32]] * 2)
    torch.manual_seed(0)
    draws: dict[str, Any] = {
        "do_sample": True,
        "top_k": 0,
        "top_p": 1.0,
        "temperature": 1.0,
        "pad_token_id": 0,
    }
    lengths = {"min_new_tokens": 32, "max_new_tokens": 32}
    drawn = model.generate(ids, attention_mask=torch.ones_like(ids), **draws, **lengths)[:, 32:]
    batch, reward = sequences(ids.tolist(), drawn.tolist()), TargetProbability(targets=drawn)
    forward, hops, unrolling = math.inf, math.inf, math.inf
    for _ in range(2):
        start = time.process_time()
        with torch.no_grad():
            model(batch.input_ids, attention_mask=batch.attention_mask)
        forward, start = min(forward, time.process_time() - start), time.process_time()
        (found,) = hop_batches(model, batch, reward, layers=layers)
        hops, start = min(hops, time.process_time() - start), time.process_time()
        (exact,) = unrolled_batches(model, batch, reward, layers=layers)
        unrolling = min(unrolling, time.process_time() - start)
    count = found.values.shape[1] - 1
    assert count <= 5
    assert bool((found.remainder < 0.01).all())
    assert relative(found.relaxed, exact.values) < 0.01
    assert relative(found.values[:, 0], exact.values) > 0.1
    assert hops < (2.5 + 1.5 * count) * forward
    assert unrolling > 1.5 * hops
