"""Probes find what is linear in a stream, on contexts that they never saw; patches move one decoded value alone."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from valuelens.probe import decode, decoding_sums, overlap, patch_directions

BATCH, POS, D = 40, 12, 6


def r2(predicted: Tensor, target: Tensor) -> float:
    residual, total = decoding_sums(predicted, target)
    return float(1 - residual.sum() / total.sum())


@pytest.fixture
def stream(generator: torch.Generator) -> Tensor:
    mixed = torch.randn(D, D, generator=generator, dtype=torch.float64)
    return 3 + torch.randn(BATCH, POS, D, generator=generator, dtype=torch.float64) @ mixed


def test_a_linear_target_is_decoded_exactly_and_its_direction_found(
    stream: Tensor, generator: torch.Generator
) -> None:
    w = torch.randn(2, D, generator=generator, dtype=torch.float64)
    targets = stream @ w.mT + torch.tensor([5.0, -2.0])
    made = decode(stream, targets)
    assert_close(made.predicted, targets, atol=1e-5, rtol=1e-5)
    assert_close(made.weights, w, atol=1e-5, rtol=1e-5)
    assert_close(stream @ made.weights.mT + made.intercept, targets, atol=1e-5, rtol=1e-5)
    assert_close(made.inner_r2, torch.ones_like(made.inner_r2), atol=1e-6, rtol=0)


def test_half_noise_is_half_decoded(stream: Tensor, generator: torch.Generator) -> None:
    signal = stream[..., 0] - stream[..., 0].mean()
    noise = torch.randn(BATCH, POS, generator=generator, dtype=torch.float64) * signal.std()
    found = decode(stream, (signal + noise)[..., None])
    assert abs(r2(found.predicted[..., 0], signal + noise) - 0.5) < 0.1
    assert abs(float(found.inner_r2.mean()) - 0.5) < 0.1


def test_labels_of_no_meaning_are_at_chance(stream: Tensor, generator: torch.Generator) -> None:
    target = torch.randn(BATCH, POS, generator=generator, dtype=torch.float64)
    assert abs(r2(decode(stream, target[..., None]).predicted[..., 0], target)) < 0.1


def test_contexts_are_held_out_whole(generator: torch.Generator) -> None:
    """What only tells contexts apart says nothing of new ones, though every column of a context shares it."""
    identity = torch.eye(BATCH, dtype=torch.float64)[:, None].expand(BATCH, POS, BATCH)
    target = torch.randn(BATCH, 1, generator=generator, dtype=torch.float64).expand(BATCH, POS)
    found = decode(identity, target[..., None].contiguous())
    assert r2(found.predicted[..., 0], target) < 0.05
    assert found.fold.unique().tolist() == [0, 1, 2, 3, 4]
    assert sorted(found.fold.bincount().tolist()) == [8] * 5


def test_few_contexts_are_refused() -> None:
    with pytest.raises(ValueError, match="needs at least 5 contexts; found 4; decode"):
        decode(torch.zeros(4, 3, 2), torch.zeros(4, 3, 1))


def test_decoding_sums_in_a_loop(generator: torch.Generator) -> None:
    predicted, target = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64).unbind(0)
    mean = sum(float(x) for row in target for x in row) / 12
    for k, (residual, total) in enumerate(zip(*decoding_sums(predicted, target), strict=True)):
        pairs = list(zip(predicted[k].tolist(), target[k].tolist(), strict=True))
        assert float(residual) == pytest.approx(sum((p - t) ** 2 for p, t in pairs))
        assert float(total) == pytest.approx(sum((t - mean) ** 2 for _, t in pairs))


def test_a_patch_moves_its_own_value_by_one_and_no_other(stream: Tensor, generator: torch.Generator) -> None:
    w = torch.randn(3, D, generator=generator, dtype=torch.float64)
    moved = w @ patch_directions(stream, w).mT
    assert_close(moved, torch.eye(3, dtype=torch.float64), atol=1e-9, rtol=0)


def test_patches_do_not_depend_on_coordinates(stream: Tensor, generator: torch.Generator) -> None:
    """Mixing the stream by any invertible M turns weights to M^-T w and must turn directions to M d."""
    w = torch.randn(2, D, generator=generator, dtype=torch.float64)
    mixed = torch.randn(D, D, generator=generator, dtype=torch.float64)
    there = patch_directions(stream @ mixed.mT, w @ torch.linalg.inv(mixed))
    assert_close(there, patch_directions(stream, w) @ mixed.mT, atol=1e-8, rtol=1e-8)


def test_one_value_moves_along_the_regression_of_the_stream_on_it(stream: Tensor) -> None:
    w = torch.ones(1, D, dtype=torch.float64)
    value = (stream @ w.mT).flatten()
    rows = stream.flatten(0, 1)
    slopes = torch.stack([torch.cov(torch.stack([value, row]))[0, 1] / value.var() for row in rows.unbind(1)])
    assert_close(patch_directions(stream, w)[0], slopes)


def test_a_constant_value_has_no_direction(stream: Tensor) -> None:
    with pytest.raises(ValueError, match="decoded values must vary; found target 1 constant"):
        patch_directions(stream, torch.stack([torch.ones(D), torch.zeros(D)]).double())


def test_overlap_is_one_minus_total_variation(generator: torch.Generator) -> None:
    p, q = torch.randn(2, 3, 5, 7, generator=generator, dtype=torch.float64).softmax(-1).unbind(0)
    variation = (p - q).abs().sum(-1).mean(-1) / 2
    assert_close(overlap(p, q), 1 - variation)
    assert_close(overlap(p, p), torch.ones(3, dtype=torch.float64))
