"""Samples against the distribution they are drawn from, and against whatever must not change them."""

import copy
from collections import Counter
from collections.abc import Callable

import pytest
import scipy.stats
import torch
from transformers import PreTrainedModel

from valuelens.models import InputError
from valuelens.models.lm._generate_config import GenerateConfig
from valuelens.models.lm._sampler import sampled_completions
from valuelens.probe import Sampling, sampled_logits, sequences

Tiny = Callable[..., PreTrainedModel]
PROMPTS = [(1, 2, 3, 4, 0, 1), (2,), (3, 3, 0), (1, 2, 3, 4, 0, 1), (4, 1, 1, 2, 0, 3, 1, 2, 4, 0, 2)]
SAMPLINGS = [Sampling(temperature=0.7), Sampling(temperature=1.3, top_k=3), Sampling(top_p=0.8)]


def uniforms(rollouts: int, length: int) -> torch.Tensor:
    return torch.rand(rollouts, length, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def config_of(sampling: Sampling, batch_size: int = 1000) -> GenerateConfig:
    return GenerateConfig(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        batch_size=batch_size,
    )


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_tokens_come_as_often_as_the_distribution_says(tiny_model: Tiny, sampling: Sampling) -> None:
    model, count = tiny_model("llama", vocab_size=7), 4000
    prompt = (3, 1, 4)
    sampled = sampled_completions(model, [prompt] * count, uniforms(count, 2), (), config_of(sampling))
    logits = sampled_logits(model(torch.tensor([prompt])).logits[0, -1], sampling)
    first = Counter(tokens[0] for tokens in sampled.tokens)
    assert all(first[token] == 0 for token in range(7) if logits[token] == -torch.inf)
    possible = [token for token in range(7) if logits[token] > -torch.inf]
    assert 1 < len(possible) < 7 or (sampling.top_k == 0 and sampling.top_p == 1)
    expected = (count * logits.softmax(-1)[possible].double()).tolist()
    assert (
        scipy.stats.chisquare([first[token] for token in possible], expected, sum_check=False).pvalue > 0.01
    )
    after = max(possible, key=lambda token: first[token])  # the second token given the first
    second = Counter(tokens[1] for tokens in sampled.tokens if tokens[0] == after)
    later = sampled_logits(model(torch.tensor([[*prompt, after]])).logits[0, -1], sampling)
    expected = (first[after] * later.softmax(-1).double()).tolist()
    held = [token for token in range(7) if expected[token] > 0]
    assert set(second) <= set(held)
    observed = [second[token] for token in held]
    assert scipy.stats.chisquare(observed, [expected[t] for t in held], sum_check=False).pvalue > 0.01


def test_batch_and_neighbours_change_nothing_in_any_family(tiny_model: Tiny, family: str) -> None:
    model = tiny_model(family)
    stops, noise = (0,), uniforms(5, 12)
    sampling = Sampling(temperature=0.9, top_p=0.95)
    alone = sampled_completions(model, PROMPTS, noise, stops, config_of(sampling, batch_size=1))
    for batch_size in (2, 5):
        beside = sampled_completions(model, PROMPTS, noise, stops, config_of(sampling, batch_size))
        assert beside.tokens == alone.tokens
        for found, expected in zip(beside.log_probs, alone.log_probs, strict=True):
            torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=0, atol=1e-5)
    lengths = {len(tokens) for tokens in alone.tokens}
    assert len(lengths) > 1  # somebody ends before the others


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_log_probs_are_those_of_one_teacher_forced_pass(
    tiny_model: Tiny, family: str, sampling: Sampling
) -> None:
    model = tiny_model(family)
    sampled = sampled_completions(model, PROMPTS, uniforms(5, 10), (0,), config_of(sampling))
    batch = sequences(PROMPTS, sampled.tokens)
    logits = model(batch.input_ids, attention_mask=batch.attention_mask).logits
    at_states = logits.gather(1, batch.states[..., None].expand(-1, -1, logits.shape[-1]))
    log_prob = (
        sampled_logits(at_states, sampling).log_softmax(-1).gather(-1, batch.completions[..., None])[..., 0]
    )
    for i, logged in enumerate(sampled.log_probs):
        torch.testing.assert_close(log_prob[i, : len(logged)], torch.tensor(logged), rtol=0, atol=1e-5)


def test_the_end_is_the_last_token_and_nothing_follows(tiny_model: Tiny) -> None:
    sampled = sampled_completions(
        tiny_model("llama"), [(1, 2)] * 50, uniforms(50, 8), (4, 3), config_of(Sampling(temperature=1.5))
    )
    for tokens, log_probs in zip(sampled.tokens, sampled.log_probs, strict=True):
        assert len(tokens) == len(log_probs)
        assert len(tokens) == 8 or tokens[-1] in (4, 3)
        assert not set(tokens[:-1]) & {4, 3}
    assert {len(tokens) for tokens in sampled.tokens} >= {1, 2, 3}


def test_the_global_random_state_stays(tiny_model: Tiny) -> None:
    before = torch.get_rng_state()
    sampled_completions(tiny_model("llama"), [(1, 2)], uniforms(1, 4), (), config_of(Sampling()))
    assert torch.equal(torch.get_rng_state(), before)


def test_uniform_numbers_at_their_edges_draw_tokens_that_can_be(tiny_model: Tiny) -> None:
    edges = torch.tensor([[0.0], [1 - 2**-53]], dtype=torch.float64)
    sampled = sampled_completions(tiny_model("llama"), [(1, 2)] * 2, edges, (), config_of(Sampling(top_k=2)))
    assert all(log_probs[0] > -torch.inf for log_probs in sampled.log_probs)
    assert sampled.tokens[0] != sampled.tokens[1]


def test_tied_tokens_are_cut_as_whoever_recomputes_cuts_them(tiny_model: Tiny) -> None:
    from valuelens.models.lm._sampler import _candidates

    logits = torch.randint(3, (500, 9), generator=torch.Generator().manual_seed(0)).float()
    for top_k, top_p in ((0, 0.6), (4, 0.7), (2, 1.0)):
        sampling = Sampling(top_k=top_k, top_p=top_p)
        expected = sampled_logits(logits, sampling) > -torch.inf
        assert torch.equal(_candidates(logits, config_of(sampling)), expected)


def test_logits_that_are_no_numbers_are_refused(tiny_model: Tiny) -> None:
    model = copy.deepcopy(tiny_model("llama"))
    model.lm_head.weight.data[2] = torch.nan
    with pytest.raises(InputError, match="logits must be finite; found NaN or infinity while sampling"):
        sampled_completions(model, [(1, 2)], uniforms(1, 1), (), config_of(Sampling()))
