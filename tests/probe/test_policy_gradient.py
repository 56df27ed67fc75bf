"""The gradient by the parameters, scores and costates at the start against plain passes of single rollouts."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from valuelens.probe import (
    PolicyGradient,
    Sampling,
    Surrogate,
    language_costates,
    policy_gradient,
    sequences,
    token_scores,
)
from valuelens.probe._sequences import Sequences

TinyModel = Callable[..., Any]
SAMPLING = Sampling(temperature=0.7)
PLAIN = Surrogate(weights=torch.ones(4, 4), sampling=SAMPLING)


@pytest.fixture
def batch() -> Sequences:
    return sequences([[1, 2, 3], [4, 0], [1], [2, 2]], [[1, 2, 3], [0, 1, 2, 4], [], [3]])


@pytest.fixture
def surrogate(generator: torch.Generator) -> Surrogate:
    return Surrogate(weights=torch.randn(4, 4, generator=generator, dtype=torch.float64), sampling=SAMPLING)


def found_of(model: Any, batch: Sequences, surrogate: Surrogate, micro_batch: int = 3) -> PolicyGradient:
    return policy_gradient(model, batch, surrogate, layer=2, start=PLAIN, micro_batch=micro_batch)


def test_it_is_what_single_passes_give(
    tiny_model: TinyModel, family: str, batch: Sequences, surrogate: Surrogate
) -> None:
    """Scores, stream, costate of the log-probability and gradient: of every family, with tied weights or not."""
    model = tiny_model(family)
    found = found_of(model, batch, surrogate)
    scores = token_scores(model, batch, SAMPLING)
    torch.testing.assert_close(found.scores[0], scores.log_prob)
    torch.testing.assert_close(found.scores[1], scores.entropy)

    costates = language_costates(model, batch, PLAIN, layers=[2]).values[:, 0, 0]
    torch.testing.assert_close(found.at_start, costates, rtol=1e-4, atol=1e-6)

    other = copy.deepcopy(model).requires_grad_(True)
    value = torch.zeros(())
    for row, length in enumerate(batch.completion_length.tolist()):
        start = int(batch.prompt_length[row])
        ids = batch.input_ids[row : row + 1, : start + length]
        output = other(ids, output_hidden_states=True)
        log_probs = (output.logits[0] / 0.7).log_softmax(-1)
        for k in range(length):
            value = value + surrogate.weights[row, k].float() * log_probs[start - 1 + k, ids[0, start + k]]
            size = output.hidden_states[2][0, start - 1 + k].detach().norm() / 16**0.5
            assert float(found.stream[row, k]) == pytest.approx(float(size), rel=1e-5)
    assert not bool(found.stream[~batch.valid].any())
    value.backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in other.parameters()])
    torch.testing.assert_close(found.gradient, expected, rtol=1e-3, atol=1e-5)
    assert found.passes == 5


def test_the_model_is_left_as_it_was(tiny_model: TinyModel, batch: Sequences, surrogate: Surrogate) -> None:
    model = copy.deepcopy(tiny_model("llama"))
    next(model.parameters()).requires_grad_(True)
    before = [parameter.requires_grad for parameter in model.parameters()]
    found_of(model, batch, surrogate)
    assert [parameter.requires_grad for parameter in model.parameters()] == before
    assert all(parameter.grad is None for parameter in model.parameters())


def test_without_weights_nothing_is_pulled_back(tiny_model: TinyModel, batch: Sequences) -> None:
    found = found_of(tiny_model("llama"), batch, Surrogate(weights=torch.zeros(4, 4), sampling=SAMPLING))
    assert found.gradient is None
    assert found.at_start is None
    assert found.passes == 1


def test_pieces_add_up(tiny_model: TinyModel, batch: Sequences, surrogate: Surrogate) -> None:
    one, whole = (found_of(tiny_model("gpt2"), batch, surrogate, size) for size in (1, 4))
    torch.testing.assert_close(one.gradient, whole.gradient, rtol=1e-4, atol=1e-5)


def test_what_is_not_finite_is_refused(tiny_model: TinyModel, batch: Sequences, surrogate: Surrogate) -> None:
    model = copy.deepcopy(tiny_model("llama"))
    model.lm_head.weight[0, 0] = torch.nan
    with pytest.raises(
        ValueError, match="a gradient must be finite; found NaN or infinity in the backward pass; the"
    ):
        found_of(model, batch, surrogate)
    with pytest.raises(ValueError, match=r"must be finite; .*; parameter model\.embed_tokens"):
        policy_gradient(model, batch, surrogate, layer=2, start=None, micro_batch=4)
