"""Jacobians between states against plain autograd, and their leading singular values against dense SVD."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from valuelens.probe import (
    Path,
    PowerIteration,
    Sampling,
    Sequences,
    Spectrum,
    StatePairs,
    dense_jacobians,
    direction_cosines,
    edited_stream,
    leading_singular_values,
    sampled_logits,
    sequences,
    state_logits,
    state_pairs,
)

TinyModel = Callable[..., Any]
LONG = PowerIteration(rank=3, iterations=200, tolerance=1e-14)


@pytest.fixture
def batch() -> Sequences:
    """Prompts and completions of different lengths, one of them empty."""
    return sequences([[1, 2, 3], [4], [2], [0, 1]], [[1, 2, 3], [0, 1, 2, 4], [], [3]])


def jacobian(of: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """Plain autograd, one output after another."""
    found: Tensor = torch.autograd.functional.jacobian(of, at)  # type: ignore[no-untyped-call]
    return found


def by_autograd(model: Any, tokens: list[int], layer: int) -> Tensor:
    """dz_s / dh_{l,t} of a whole rollout [pos vocabulary pos d_model]."""
    ids = torch.tensor([tokens])
    stream = model(ids, output_hidden_states=True).hidden_states[layer][0]

    def logits(given: Tensor) -> Tensor:
        with edited_stream(model, {layer: lambda _: given[None]}):
            out: Tensor = model(ids).logits[0]
        return out

    return jacobian(logits, stream)


def of_pairs(found: Tensor, pairs: StatePairs, batch: Sequences) -> list[Tensor]:
    """The matrices of one rollout's pairs."""
    start = int(batch.prompt_length[int(pairs.row[0])]) - 1
    places = zip(pairs.source.tolist(), pairs.target.tolist(), strict=True)
    return [found[start + s, :, start + t] for t, s in places]


def of_row(pairs: StatePairs, row: int) -> StatePairs:
    mine = pairs.row == row
    return StatePairs(row=pairs.row[mine], source=pairs.source[mine], target=pairs.target[mine])


def through_one_token(model: Any, batch: Sequences, row: int, layer: int, sampling: Sampling) -> Tensor:
    """sum over sampled tokens of dz_s/de, E', S/temp and B, each from autograd alone [pos vocabulary pos d_model]."""
    length = int(batch.prompt_length[row] + batch.completion_length[row])
    tokens, first = batch.input_ids[row, :length].tolist(), int(batch.prompt_length[row])
    embedding = model.get_input_embeddings()
    fed = embedding(torch.tensor([tokens]))[0]
    to_embedding = jacobian(lambda given: model(inputs_embeds=given[None]).logits[0], fed)
    to_stream = by_autograd(model, tokens, layer)
    z = model(torch.tensor([tokens])).logits[0]
    table = embedding(torch.arange(z.shape[-1]))
    total = torch.zeros_like(to_stream)
    for u in range(first - 1, length - 1):
        softmax = jacobian(lambda given: sampled_logits(given, sampling).softmax(-1), z[u])
        total += torch.einsum("svd,wd,wx,xtk->svtk", to_embedding[:, :, u + 1], table, softmax, to_stream[u])
    return total


@pytest.mark.parametrize("layer", [0, 2])
def test_dense_jacobians_are_those_of_plain_autograd(
    float64_net: TinyModel, batch: Sequences, layer: int
) -> None:
    model = float64_net()
    found = dense_jacobians(model, batch, layers=[layer, 1])[:, 0]
    pairs = state_pairs(batch)
    for row in (0, 1, 3):
        mine, length = of_row(pairs, row), int(batch.prompt_length[row] + batch.completion_length[row])
        expected = of_pairs(by_autograd(model, batch.input_ids[row, :length].tolist(), layer), mine, batch)
        got = found[row, mine.target, mine.source]
        torch.testing.assert_close(got, torch.stack(expected), rtol=0, atol=1e-12)
    kept = torch.zeros(found.shape[:3], dtype=torch.bool)
    kept[pairs.row, pairs.target, pairs.source] = True
    assert not bool(found[~kept].any())
    assert bool(found[kept].any())


@pytest.mark.parametrize("through", ["attention", "sampling"])
def test_singular_values_and_directions_are_those_of_a_dense_svd(
    float64_net: TinyModel, batch: Sequences, generator: torch.Generator, through: Any
) -> None:
    model, sampling = float64_net(), Sampling(temperature=0.7, top_k=4)
    pairs = of_row(state_pairs(batch), 1)
    found = leading_singular_values(
        model, batch, pairs, Path(layer=1, through=through, sampling=sampling), generator, LONG
    )
    tokens = batch.input_ids[1, :5].tolist()
    dense = (
        by_autograd(model, tokens, 1)
        if through == "attention"
        else through_one_token(model, batch, 1, 1, sampling)
    )
    left, values, right = torch.linalg.svd(torch.stack(of_pairs(dense, pairs, batch)), full_matrices=False)
    torch.testing.assert_close(found.values[:, 0], values[:, 0], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.values, values[:, :3], rtol=1e-5, atol=1e-12)
    joined = values[:, 0] > 1e-9
    assert bool(joined.any())
    for got, expected in ((found.right, right[:, :3]), (found.left, left.mT[:, :3])):
        cosine = (got * expected).sum(-1).abs()[joined, 0]
        torch.testing.assert_close(cosine, torch.ones_like(cosine), rtol=0, atol=1e-6)
    if through == "sampling":  # nothing is sampled between a state and itself
        assert bool((found.values[pairs.source == pairs.target] == 0).all())
        assert bool(joined[pairs.source < pairs.target].all())


def test_every_family_gives_its_norms(
    tiny_model: TinyModel, family: str, batch: Sequences, generator: torch.Generator
) -> None:
    model, pairs = tiny_model(family), of_row(state_pairs(batch), 0)
    before, expected = model.config._attn_implementation, state_logits(model, batch)
    options = PowerIteration(iterations=200, tolerance=1e-7, micro_batch=4)
    found = leading_singular_values(model, batch, pairs, Path(layer=2), generator, options)
    dense = dense_jacobians(model, batch, layers=[2])[0, 0, pairs.target, pairs.source]
    norms = torch.linalg.matrix_norm(dense.double(), ord=2)
    torch.testing.assert_close(found.values[:, 0], norms, rtol=1e-3, atol=1e-5)
    assert bool((found.values[:, 0] <= norms * (1 + 1e-5)).all())
    assert model.config._attn_implementation == before
    torch.testing.assert_close(state_logits(model, batch), expected, rtol=0, atol=0)


def test_it_is_a_lower_bound_that_says_how_far_it_went(
    float64_net: TinyModel, batch: Sequences, generator: torch.Generator
) -> None:
    model, pairs = float64_net(), state_pairs(batch)
    dense = dense_jacobians(model, batch, layers=[0])[pairs.row, 0, pairs.target, pairs.source]
    norms = torch.linalg.matrix_norm(dense, ord=2)
    before = torch.zeros_like(norms)
    for iterations in (1, 2, 4):
        start = torch.Generator().manual_seed(3)
        options = PowerIteration(iterations=iterations, tolerance=0.0)
        found = leading_singular_values(model, batch, pairs, Path(layer=0), start, options)
        assert bool((found.values[:, 0] <= norms * (1 + 1e-12)).all())
        assert bool((found.values[:, 0] >= before * (1 - 1e-12)).all())
        assert found.iterations.tolist() == [iterations] * len(pairs)
        assert bool(found.change.isinf().all()) == (iterations == 1)
        before = found.values[:, 0]
    assert float((before / norms).min()) > 0.8
    loose = leading_singular_values(
        model, batch, pairs, Path(layer=0), generator, PowerIteration(tolerance=0.05)
    )
    assert bool((loose.change < 0.05).all())
    assert int(loose.iterations.max()) < 30


def test_cosines_say_whether_two_paths_carry_the_same(
    float64_net: TinyModel, batch: Sequences, generator: torch.Generator
) -> None:
    model, pairs = float64_net(), of_row(state_pairs(batch), 1)
    pairs = StatePairs(row=pairs.row[1:4], source=pairs.source[1:4], target=pairs.target[1:4])
    attention, sampling = (
        leading_singular_values(model, batch, pairs, Path(layer=1, through=through), generator, LONG)
        for through in ("attention", "sampling")
    )
    torch.testing.assert_close(direction_cosines(attention, attention)["left"], torch.ones(3).double())
    found: dict[str, Tensor] = direction_cosines(attention, sampling)
    for name, each in found.items():
        assert bool(((each > 0) & (each < 0.999)).all()), name
    assert isinstance(attention, Spectrum)


def test_what_cannot_be_asked_is_refused(
    float64_net: TinyModel, batch: Sequences, generator: torch.Generator
) -> None:
    model, pairs = float64_net(), state_pairs(batch)

    def asked(pairs: StatePairs = pairs, layer: int = 0, rank: int = 1) -> object:
        options = PowerIteration(rank=rank)
        return leading_singular_values(model, batch, pairs, Path(layer=layer), generator, options)

    with pytest.raises(ValueError, match=r"layers must lie in 0\.\.2; found 3; leading_singular_values"):
        asked(layer=3)
    with pytest.raises(ValueError, match=r"layers must lie in 0\.\.2; found none; dense_jacobians"):
        dense_jacobians(model, batch, layers=[])
    with pytest.raises(ValueError, match=r"rank must lie in 1\.\.5; found 6; leading_singular_values"):
        asked(rank=6)
    one = torch.tensor([1])
    with pytest.raises(ValueError, match="two states of a rollout in order; found 1 and 0 of 4"):
        asked(StatePairs(row=one, source=one, target=one - 1))
    with pytest.raises(ValueError, match="two states of a rollout in order; found 1 and 4 of 4"):
        asked(StatePairs(row=one, source=one, target=one + 3))
    with pytest.raises(ValueError, match="two states of a rollout in order; found none"):
        asked(of_row(pairs, 2))
    with pytest.raises(ValueError, match="d_model <= 64 and vocabulary <= 512; found 72 and 5"):
        dense_jacobians(float64_net(d_model=72), batch, layers=[0])
