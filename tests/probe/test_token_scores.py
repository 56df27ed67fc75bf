"""Scores of tokens against a loop over single rollouts, one distribution at a time."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from valuelens.probe import Sampling, TokenScores, _token_scores, sequences, state_logits, token_scores
from valuelens.probe._sequences import Sequences

TinyModel = Callable[..., Any]
PROMPTS, COMPLETIONS = [[1, 2, 3], [4, 0], [1], [2, 2]], [[1, 2, 3], [0, 1, 2, 4], [], [3]]


@pytest.fixture
def batch() -> Sequences:
    return sequences(PROMPTS, COMPLETIONS)


def slow_distribution(model: Any, prefix: list[int], sampling: Sampling) -> torch.distributions.Categorical:
    """Token by token: sorted, cut, normalised again."""
    logits = (model(torch.tensor([prefix])).logits[0, -1] / sampling.temperature).double()
    order = logits.argsort(descending=True).tolist()
    order = order[: sampling.top_k] if sampling.top_k else order
    probabilities = torch.zeros_like(logits)
    probabilities[order] = logits[order].softmax(-1)
    kept, mass = [], 0.0
    for token in order:
        if mass < sampling.top_p:
            kept.append(token)
        mass += float(probabilities[token])
    logits[[token for token in range(len(logits)) if token not in kept]] = -torch.inf
    return torch.distributions.Categorical(logits=logits)


def test_scores_are_those_of_single_rollouts_without_padding(
    tiny_model: TinyModel, family: str, batch: Sequences
) -> None:
    model, sampling = tiny_model(family), Sampling(temperature=0.7)
    found: TokenScores = token_scores(model, batch, sampling, micro_batch=3)
    assert found.log_prob.shape == (4, 4)
    for row, (prompt, completion) in enumerate(zip(PROMPTS, COMPLETIONS, strict=True)):
        for k in range(4):
            if k >= len(completion):
                assert found.log_prob[row, k] == found.entropy[row, k] == 0
                continue
            drawn = slow_distribution(model, prompt + completion[:k], sampling)
            expected = drawn.log_prob(torch.tensor(completion[k]))
            torch.testing.assert_close(found.log_prob[row, k].double(), expected, rtol=0, atol=2e-5)
            torch.testing.assert_close(found.entropy[row, k].double(), drawn.entropy(), rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    "sampling", [Sampling(top_k=3), Sampling(top_p=0.8), Sampling(top_k=4, top_p=0.9, temperature=1.5)]
)
def test_tokens_that_were_never_drawn_leave_numbers(float64_net: TinyModel, sampling: Sampling) -> None:
    net, prompt, completion = float64_net(), [1, 3], []
    for _ in range(4):
        completion.append(int(slow_distribution(net, prompt + completion, sampling).probs.argmax()))
    found = token_scores(net, sequences([prompt], [completion]), sampling)
    for k, token in enumerate(completion):
        drawn = slow_distribution(net, prompt + completion[:k], sampling)
        entropy = torch.special.entr(drawn.probs).sum()
        torch.testing.assert_close(found.log_prob[0, k], drawn.log_prob(torch.tensor(token)))
        torch.testing.assert_close(found.entropy[0, k], entropy)


def test_pieces_change_nothing(
    float64_net: TinyModel, batch: Sequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = token_scores(float64_net(), batch)
    monkeypatch.setattr(_token_scores, "_CHUNK", 11)
    pieces = token_scores(float64_net(), batch, micro_batch=1)
    torch.testing.assert_close(pieces.log_prob, whole.log_prob)
    torch.testing.assert_close(pieces.entropy, whole.entropy)


def test_embeddings_stand_in_for_tokens(tiny_model: TinyModel, family: str, batch: Sequences) -> None:
    model = tiny_model(family)
    fed = model.get_input_embeddings()(batch.input_ids)
    expected = state_logits(model, batch)
    torch.testing.assert_close(state_logits(model, batch, fed), expected)
    assert bool((state_logits(model, batch, 1.5 * fed) != expected).any())


def test_small_floats_are_scored_in_float32(tiny_model: TinyModel, batch: Sequences) -> None:
    found = state_logits(tiny_model("llama", dtype=torch.bfloat16), batch)
    assert found.dtype == torch.float32
    expected = state_logits(tiny_model("llama"), batch)
    assert float((found - expected)[batch.valid].norm() / expected[batch.valid].norm()) < 0.1


def test_a_token_that_could_not_be_drawn_is_refused(float64_net: TinyModel, batch: Sequences) -> None:
    with pytest.raises(
        ValueError, match=r"could have drawn; found \d, outside top_k = 1, top_p = 1.0; token"
    ):
        token_scores(float64_net(), batch, Sampling(top_k=1))


def test_a_token_outside_by_rounding_is_counted_as_inside(float64_net: TinyModel, batch: Sequences) -> None:
    """The second likeliest of two that are as good as tied, under top-k 1."""
    net = copy.deepcopy(float64_net())
    net.head[2] = net.head[1] * (1 - 1e-9)
    likeliest = net(torch.arange(5)[:, None]).logits[:, 0].argmax(-1).tolist()
    prompt, first = next((prompt, token) for prompt, token in enumerate(likeliest) if token in (1, 2))
    other = 3 - first
    found = token_scores(net, sequences([[prompt]] * 2, [[first], [other]]), Sampling(top_k=1))
    assert found.rounded.tolist() == [[False], [True]]
    torch.testing.assert_close(found.log_prob[:, 0].exp(), torch.tensor([1, 0.5]).double())
    net.head[other] -= net.head[first]
    with pytest.raises(ValueError, match="could have drawn"):
        token_scores(net, sequences([[prompt]], [[other]]), Sampling(top_k=1))


def test_what_is_no_number_is_refused(float64_net: TinyModel, batch: Sequences) -> None:
    net = copy.deepcopy(float64_net())
    net.head[4] = torch.nan
    with pytest.raises(ValueError, match="logits must be numbers; found NaN; token 0 of completion 0"):
        token_scores(net, batch)


def test_a_model_in_training_is_refused(tiny_model: TinyModel, batch: Sequences) -> None:
    with pytest.raises(ValueError, match="must be in evaluation mode; found training mode"):
        token_scores(copy.deepcopy(tiny_model("llama")).train(), batch)
