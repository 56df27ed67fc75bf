"""Own-token parts against one backward pass per state, and where locality must be 1."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from valuelens.probe import (
    BEFORE_NORM,
    Locality,
    Sampling,
    Surrogate,
    TargetProbability,
    costate_batches,
    language_costates,
    locality,
    own_token_attention,
    own_token_batches,
    residual_blocks,
    sequences,
    state_logits,
)
from valuelens.probe._language_costates import Costates
from valuelens.probe._language_objectives import Objective
from valuelens.probe._locality import own_token_attend
from valuelens.probe._sequences import Sequences

TinyModel = Callable[..., Any]
PROMPTS = [[1, 2, 3, 0, 4, 2, 1], [4, 0], [1], [2, 2]]
COMPLETIONS = [[1, 2, 3], [0, 1, 2, 4], [], [3]]


@pytest.fixture
def batch() -> Sequences:
    return sequences(PROMPTS, COMPLETIONS)


@pytest.fixture
def surrogate(generator: torch.Generator) -> Surrogate:
    return Surrogate(weights=torch.randn(4, 4, generator=generator), sampling=Sampling(temperature=0.8))


def one_by_one(model: Any, batch: Sequences, objective: Objective, layers: tuple[int, ...]) -> Tensor:
    """The gradient of each state's term alone, at that state."""
    found = torch.zeros(4, len(layers), 4, 16)
    for row, k in batch.valid.nonzero().tolist():
        prefix = PROMPTS[row] + COMPLETIONS[row][:k]
        leaf = model.get_input_embeddings()(torch.tensor([prefix])).requires_grad_()
        output = model(inputs_embeds=leaf, output_hidden_states=True)
        if isinstance(objective, Surrogate):
            log_probs = (output.logits[0, -1] / objective.sampling.temperature).log_softmax(-1)
            term = objective.weights[row, k] * log_probs[COMPLETIONS[row][k]]
        else:
            probabilities = output.logits[0, -1].softmax(-1)
            term = probabilities[objective.targets[row, k]] / len(COMPLETIONS[row])  # type: ignore[attr-defined]
        gradients = torch.autograd.grad(term, [output.hidden_states[layer] for layer in layers])
        found[row, :, k] = torch.stack([gradient[0, -1] for gradient in gradients])
    return found


def own(model: Any, batch: Sequences, objective: Objective, layers: tuple[int, ...]) -> Costates:
    (found,) = own_token_batches(model, batch, objective, layers=layers)
    return found


@pytest.mark.parametrize("kind", ["surrogate", "reward"])
def test_one_pass_gives_what_a_pass_for_each_state_gives(
    tiny_model: TinyModel, family: str, batch: Sequences, surrogate: Surrogate, kind: str
) -> None:
    """Windows of 8 positions are shorter than the first rollout."""
    reward = TargetProbability(targets=torch.arange(16).reshape(4, 4) % 5)
    objective = surrogate if kind == "surrogate" else reward
    model, layers = tiny_model(family), (0, 1, 3, 4)
    expected = one_by_one(model, batch, objective, layers)
    found = own(model, batch, objective, layers).values
    for at in range(len(layers)):
        assert float((found[:, at] - expected[:, at]).norm() / expected[:, at].norm()) < 1e-5


def test_the_model_says_the_same_and_is_put_back(
    tiny_model: TinyModel, family: str, batch: Sequences
) -> None:
    model = tiny_model(family)
    expected, before = state_logits(model, batch), model.config._attn_implementation
    with own_token_attention(model):
        torch.testing.assert_close(state_logits(model, batch), expected, rtol=1e-5, atol=1e-5)
    assert model.config._attn_implementation == before
    with pytest.raises(RuntimeError, match="mine"), own_token_attention(model):
        raise RuntimeError("mine")
    assert model.config._attn_implementation == before


def test_locality_is_one_where_no_later_token_counts(
    tiny_model: TinyModel, family: str, batch: Sequences, surrogate: Surrogate
) -> None:
    model, layers = tiny_model(family), (0, 2, BEFORE_NORM, 4)
    whole = language_costates(model, batch, surrogate, layers=layers)
    found: Locality = locality(own(model, batch, surrogate, layers), whole)
    torch.testing.assert_close(found.share[2:], torch.ones(2).double(), rtol=0, atol=1e-6)
    last = [(0, 2), (1, 3), (3, 0)]
    shares = torch.stack([(found.own / found.whole)[row, :, k] for row, k in last])
    torch.testing.assert_close(shares, torch.ones_like(shares), rtol=0, atol=1e-5)
    torch.testing.assert_close(found.by_state[:, 3], torch.ones(4).double(), rtol=0, atol=1e-5)
    assert float((found.share[:2] - 1).abs().min()) > 0.01
    torch.testing.assert_close(found.whole, whole.values.double().square().sum(-1))
    assert not bool(found.own[2].any())


def test_micro_batches_may_be_taken_in_turns(
    tiny_model: TinyModel, batch: Sequences, surrogate: Surrogate
) -> None:
    model, options = tiny_model("qwen3"), {"layers": [1, 2], "micro_batch": 2}
    pairs = zip(
        own_token_batches(model, batch, surrogate, **options),
        costate_batches(model, batch, surrogate, **options),
        strict=True,
    )
    parts = [locality(*pair) for pair in pairs]
    whole = locality(
        own(model, batch, surrogate, (1, 2)), language_costates(model, batch, surrogate, layers=(1, 2))
    )
    found = sum(part.own.sum((0, 2)) for part in parts) / sum(part.whole.sum((0, 2)) for part in parts)
    torch.testing.assert_close(found, whole.share)


def test_soft_caps_are_obeyed(generator: torch.Generator) -> None:
    query, key, value = torch.randn(3, 2, 2, 5, 4, generator=generator)
    mask = torch.full((5, 5), -1e9).triu(1)[None, None]
    found, weights = own_token_attend(query, key, value, mask, scaling=0.3, softcap=0.5)
    expected = (torch.tanh(query @ key.mT * 0.3 / 0.5) * 0.5 + mask).softmax(-1)
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(found, (expected @ value).transpose(1, 2))


def test_what_is_not_known_is_refused(generator: torch.Generator) -> None:
    query, key, value = torch.randn(3, 2, 2, 5, 4, generator=generator)
    with pytest.raises(ValueError, match=r"attention must be plain .*; found s_aux; locality"):
        own_token_attend(query, key, value, torch.zeros(1, 1, 5, 5), s_aux=torch.ones(2), scaling=None)
    with pytest.raises(ValueError, match=r"attention must be plain .*; found no mask; locality"):
        own_token_attend(query, key, value, None)


def test_models_that_cannot_be_cut_are_refused(
    float64_net: TinyModel, tiny_model: TinyModel, batch: Sequences, surrogate: Surrogate
) -> None:
    with pytest.raises(
        ValueError, match="one of transformers, whose attention can be set; found _Float64Net"
    ):
        own(float64_net(), batch, surrogate, (0,))
    model = copy.deepcopy(tiny_model("llama"))
    block = residual_blocks(model)[2]
    block.self_attn.forward = lambda hidden_states, **options: (hidden_states, None)
    with pytest.raises(ValueError, match="attention interface; found 3 of 4 blocks; LlamaForCausalLM"):
        own(model, batch, surrogate, (0,))
    with pytest.raises(ValueError, match="layers must lie in"):
        own(tiny_model("llama"), batch, surrogate, (7,))
