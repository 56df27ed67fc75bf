"""Hops against a slow sequential unrolling, one rollout and one growing prefix at a time; every refusal by its text."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from valuelens.probe import (
    BEFORE_NORM,
    Hops,
    Relaxation,
    Sampling,
    Surrogate,
    TargetProbability,
    edited_stream,
    hop_batches,
    language_costates,
    residual_blocks,
    sampled_logits,
    sequences,
)
from valuelens.probe import _hops as module
from valuelens.probe._sequences import Sequences

TinyModel = Callable[..., Any]
PROMPTS, LENGTHS, END = [[1, 2, 3], [4, 3], [1], [2, 2]], [5, 6, 0, 2], 0
LAYERS = (0, 1, 2, BEFORE_NORM)
SAMPLINGS = (
    Sampling(temperature=0.7),
    Sampling(temperature=1.4),
    Sampling(temperature=1.2, top_k=4),
    Sampling(temperature=1.5, top_p=0.9),
)


def drawn(net: Any, sampling: Sampling, generator: torch.Generator) -> Sequences:
    """Completions of the net, the first two ended by the end-of-sequence token."""
    completions = []
    for prompt, length in zip(PROMPTS, LENGTHS, strict=True):
        ids = list(prompt)
        for _ in range(length):
            p = sampled_logits(net(torch.tensor([ids])).logits[0, -1], sampling).softmax(-1)
            ids.append(int(torch.multinomial(p, 1, generator=generator)))
        completions.append(ids[len(prompt) :])
    for row in (0, 1):
        ids = PROMPTS[row] + completions[row][:-1]
        p = sampled_logits(net(torch.tensor([ids])).logits[0, -1], sampling).softmax(-1)
        completions[row][-1] = END if p[END] > 0 else int(p.argmax())
    return sequences(PROMPTS, completions, pad_id=4)


def targets(batch: Sequences, sampling: Sampling, generator: torch.Generator) -> TargetProbability:
    return TargetProbability(
        targets=torch.randint(5, batch.valid.shape, generator=generator), sampling=sampling
    )


def unrolled(
    net: Any, batch: Sequences, objective: TargetProbability, sampling: Sampling, eps: float = 1.0
) -> list[Tensor]:
    """Gradients at embeddings and LAYERS; a shift of h_{l,t} is shared by all forward passes that see position t."""
    table, pieces = net.get_input_embeddings()(torch.arange(5)), []
    for row in range(len(batch.input_ids)):
        one = batch.rows(row, row + 1)
        ids, length = one.input_ids[0].tolist(), int(one.prompt_length)
        shifts = [torch.zeros(1, len(ids), 8, dtype=torch.float64, requires_grad=True) for _ in range(5)]
        fed, logits = [table[token] for token in ids[:length]], []
        for token in ids[length:] or [0]:
            edits = {
                layer: lambda stream, shift=shift: stream + shift[:, : stream.shape[1]]
                for layer, shift in zip(LAYERS, shifts[1:], strict=True)
            }
            with edited_stream(net, edits):
                z = net(inputs_embeds=torch.stack(fed)[None] + shifts[0][:, : len(fed)]).logits[0, -1]
            p = sampled_logits(z, sampling).softmax(-1)
            vector = torch.nn.functional.one_hot(torch.tensor(token), 5) + eps * (p - p.detach())
            fed.append(vector @ table)
            logits.append(z)
        value = objective.rows(row, row + 1).values(torch.stack(logits)[None], one).sum()
        found = torch.cat(torch.autograd.grad(value, shifts))
        pieces.append(torch.nn.functional.pad(found, (0, 0, 0, batch.input_ids.shape[1] - len(ids))))
    return list(torch.stack(pieces, 1))


def at_states(gradients: list[Tensor], batch: Sequences) -> Tensor:
    index = batch.states[..., None].expand(-1, -1, 8)
    return torch.stack([g.gather(1, index) * batch.valid[..., None] for g in gradients], 1)


def all_hops(net: Any, batch: Sequences, objective: TargetProbability, sampling: Sampling) -> Hops:
    relaxation = Relaxation(sampling=sampling, max_hops=9, tolerance=0.0)
    (found,) = hop_batches(net, batch, objective, layers=LAYERS, relaxation=relaxation)
    return found


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_hops_sum_to_sequential_unrolling(
    float64_net: TinyModel, generator: torch.Generator, sampling: Sampling
) -> None:
    net = float64_net(seed=1)
    batch = drawn(net, sampling, generator)
    objective = targets(batch, sampling, generator)
    expected = unrolled(net, batch, objective, sampling)
    found = all_hops(net, batch, objective, sampling)
    layers = at_states(expected[1:], batch)
    assert relative(found.embeddings.sum(1), expected[0]) < 1e-9
    for at in range(len(LAYERS)):
        assert relative(found.relaxed[:, at], layers[:, at]) < 1e-9
    assert relative(found.values[:, 0, :3], layers[:, :3]) > 0.1, "without hops this test could not fail"
    assert found.values.shape[1] == 6
    assert found.remainder.tolist() == [0.0] * 4


def test_hop_k_crosses_exactly_k_tokens(float64_net: TinyModel, generator: torch.Generator) -> None:
    """The unrolled gradient is a polynomial in a factor at every crossing; its coefficients are the hops."""
    net, sampling = float64_net(seed=1), Sampling(temperature=0.7)
    batch = drawn(net, sampling, generator).rows(1, 2)
    objective = targets(batch, sampling, generator)
    found = all_hops(net, batch, objective, sampling)
    factors = torch.linspace(-1, 1, 6, dtype=torch.float64)
    sums = [unrolled(net, batch, objective, sampling, float(factor)) for factor in factors]
    for got, expected in (
        (found.values, torch.stack([at_states(each[1:], batch) for each in sums])),
        (found.embeddings, torch.stack([each[0] for each in sums])),
    ):
        coefficients = torch.linalg.solve(torch.vander(factors, increasing=True), expected.flatten(1))
        for k, coefficient in enumerate(coefficients):
            assert float((got[:, k].flatten() - coefficient).abs().max()) < 1e-9
        assert float(coefficients[5].abs().max()) > 1e-8


def test_hop_0_is_the_costate(float64_net: TinyModel, generator: torch.Generator) -> None:
    net, sampling = float64_net(seed=1), Sampling()
    batch = drawn(net, sampling, generator)
    objective = targets(batch, sampling, generator)
    relaxation = Relaxation(max_hops=0)
    (found,) = hop_batches(net, batch, objective, layers=[0, 2, 3], relaxation=relaxation)
    costates = language_costates(net, batch, objective, layers=[0, 2, 3])
    torch.testing.assert_close(found.values[:, 0], costates.values)
    assert found.remainder.tolist() == [torch.inf] * 3
    assert (found.layers, found.valid.tolist()) == (costates.layers, costates.valid.tolist())
    torch.testing.assert_close(found.positions, costates.positions)


def test_prompts_are_not_sampled(float64_net: TinyModel, generator: torch.Generator) -> None:
    """A completion of one token crosses nothing."""
    batch = sequences([[1, 2, 3, 4], [2]], [[3], [1]])
    (found,) = hop_batches(float64_net(), batch, targets(batch, Sampling(), generator), layers=[0, 2])
    assert (found.values.shape[1], found.remainder.tolist()) == (1, [0.0, 0.0])


def test_what_is_left_out_is_estimated(float64_net: TinyModel, generator: torch.Generator) -> None:
    net, sampling = float64_net(seed=1), Sampling()
    batch = drawn(net, sampling, generator)
    objective = targets(batch, sampling, generator)
    whole = all_hops(net, batch, objective, sampling).relaxed
    for hops in (1, 2, 3, 4):
        relaxation = Relaxation(max_hops=hops, tolerance=0.0)
        (found,) = hop_batches(net, batch, objective, layers=LAYERS, relaxation=relaxation)
        assert found.values.shape[1] == hops + 1
        for at in range(3):
            true = float((found.relaxed[:, at] - whole[:, at]).norm() / found.relaxed[:, at].norm())
            assert 0.3 * true < float(found.remainder[at]) < 30 * true


def test_it_stops_by_tolerance(float64_net: TinyModel, generator: torch.Generator) -> None:
    net, sampling = float64_net(seed=1), Sampling()
    batch = drawn(net, sampling, generator)
    objective = targets(batch, sampling, generator)
    counts = []
    for tolerance in (0.5, 0.01, 0.0):
        relaxation = Relaxation(tolerance=tolerance, max_hops=9)
        (found,) = hop_batches(net, batch, objective, layers=LAYERS, relaxation=relaxation)
        assert bool((found.remainder <= tolerance).all())
        counts.append(found.values.shape[1])
    assert counts == sorted(counts)
    assert 2 <= counts[0] < counts[2] == 6


def test_micro_batches_and_what_stands_behind_the_end(
    float64_net: TinyModel, generator: torch.Generator
) -> None:
    net, sampling = float64_net(seed=1), Sampling()
    batch = drawn(net, sampling, generator)
    objective = targets(batch, sampling, generator)
    whole = all_hops(net, batch, objective, sampling)
    changed = Sequences(
        input_ids=torch.nn.functional.pad(batch.input_ids.masked_fill(batch.attention_mask == 0, 3), (0, 2)),
        prompt_length=batch.prompt_length,
        completion_length=batch.completion_length,
    )
    relaxation = Relaxation(max_hops=9, tolerance=0.0)
    options: dict[str, Any] = {"layers": LAYERS, "relaxation": relaxation, "micro_batch": 1}
    for row, found in enumerate(hop_batches(net, changed, objective, **options)):
        hops, states = found.values.shape[1], found.values.shape[3]
        assert hops == max(1, LENGTHS[row])
        torch.testing.assert_close(found.values[0], whole.values[row, :hops, :, :states])
        total = whole.embeddings[row].sum(0)[: found.embeddings.shape[2]]
        torch.testing.assert_close(found.embeddings[0].sum(0), total)
    assert not bool(whole.values.movedim(1, 3)[~whole.valid[:, None].expand(-1, 4, -1)].any())
    padding = (batch.attention_mask == 0)[:, None].expand(-1, 6, -1)
    assert not bool(whole.embeddings[padding].any())


def test_a_vocabulary_goes_through_the_module_in_pieces(
    tiny_model: TinyModel, family: str, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedding = copy.deepcopy(tiny_model(family).get_input_embeddings())
    table, vectors = embedding(torch.arange(5)), torch.randn(2, 3, 16, generator=generator)
    expected, asked = torch.einsum("abd, vd -> abv", vectors, table), []
    torch.testing.assert_close(module.vocabulary_products(embedding, vectors, 5), expected)
    monkeypatch.setattr(module, "_CHUNK", 2 * 16)
    torch.testing.assert_close(module.vocabulary_products(embedding, vectors, 5), expected)
    embedding.register_forward_hook(lambda m, args, output: asked.append(len(args[0])) or 2 * output)
    torch.testing.assert_close(module.vocabulary_products(embedding, vectors, 5), 2 * expected)
    assert asked == [2, 2, 1]


def test_bfloat16_gives_float32_hops_nearby(tiny_model: TinyModel, generator: torch.Generator) -> None:
    batch = sequences([[1, 2, 3], [4]], [[1, 2, 3, 0], [2, 1]])
    objective = targets(batch, Sampling(), generator)
    small, exact = (
        next(hop_batches(tiny_model("gpt2", dtype=dtype), batch, objective, layers=[0, 2])).relaxed
        for dtype in (torch.bfloat16, torch.float32)
    )
    assert small.dtype == torch.float32
    assert float(torch.cosine_similarity(small.flatten(), exact.flatten(), dim=0)) > 0.97


def asked_of(net: Any, objective: Any = None, **options: Any) -> list[Hops]:
    batch = sequences([[1, 2, 3], [4, 3]], [[1, 2, 3], [4]], pad_id=4)
    objective = objective or TargetProbability(targets=torch.tensor([[3, 1, 4]]))
    return list(hop_batches(net, batch, objective, **{"layers": [1, 2], **options}))


def test_the_surrogate_is_refused(float64_net: TinyModel) -> None:
    with pytest.raises(ValueError, match=r"differentiable reward; found the surrogate; .* path twice"):
        asked_of(float64_net(), Surrogate(weights=torch.ones(2, 3)))


def test_a_token_that_could_not_be_drawn_is_refused(float64_net: TinyModel) -> None:
    relaxation = Relaxation(sampling=Sampling(top_k=1))
    with pytest.raises(ValueError, match=r"could have drawn; found token \d of rollout \d, of probability 0"):
        asked_of(float64_net(), relaxation=relaxation)


def test_layers_that_do_not_exist_and_idle_objectives_are_refused(float64_net: TinyModel) -> None:
    with pytest.raises(ValueError, match=r"layers must lie in 0\.\.3, .* found 7"):
        asked_of(float64_net(), layers=[7])
    empty = sequences([[1]], [[]])
    with pytest.raises(ValueError, match="found none; all completions are empty"):
        next(
            hop_batches(float64_net(), empty, TargetProbability(targets=torch.ones(1, 1).long()), layers=[0])
        )


def test_an_embedding_that_is_no_number_is_told(float64_net: TinyModel) -> None:
    net = copy.deepcopy(float64_net())
    net.embedding.weight[0] = torch.nan
    with pytest.raises(
        ValueError, match="a hop must be finite; found NaN or infinity; hop 1, rollouts from 0"
    ):
        asked_of(net)


def test_a_cut_below_the_layers_is_told(float64_net: TinyModel) -> None:
    net = copy.deepcopy(float64_net())
    residual_blocks(net)[0].register_forward_hook(lambda block, args, output: output.detach())
    with pytest.raises(ValueError, match=r"must reach layer 0; found none there \(it reaches layer 1\)"):
        asked_of(net)


def test_logits_that_are_no_numbers_are_traced(float64_net: TinyModel) -> None:
    net = copy.deepcopy(float64_net())
    net.layers[1].down[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"the first hidden state .* is that of layer 2"):
        asked_of(net)


class _Constant:
    def values(self, logits: Tensor, sequences: Sequences) -> Tensor:
        return torch.ones(len(logits), dtype=logits.dtype)

    def rows(self, start: int, stop: int) -> "_Constant":
        return self

    def idle(self, sequences: Sequences) -> str | None:
        return None


def test_an_objective_without_gradient_is_told(float64_net: TinyModel) -> None:
    with pytest.raises(ValueError, match="it reaches none"):
        asked_of(float64_net(), _Constant())


def test_a_policy_without_choice_is_told(float64_net: TinyModel) -> None:
    net = copy.deepcopy(float64_net())
    net.head.mul_(1e6)
    ids = [1]
    for _ in range(3):
        ids.append(int(net(torch.tensor([ids])).logits[0, -1].argmax()))
    batch = sequences([ids[:1]], [ids[1:]])
    objective = TargetProbability(targets=torch.ones(1, 3).long())
    with pytest.raises(ValueError, match=r"layer 0 must not vanish; .* probability 1 \(entropy 0\)"):
        list(hop_batches(net, batch, objective, layers=[0]))
