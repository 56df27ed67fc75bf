"""Mean costates of the surrogate are the enumerated value gradient; that one is held to finite differences."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from valuelens.probe import (
    Sampling,
    Surrogate,
    TargetProbability,
    ValueGradient,
    continuations,
    edited_stream,
    enumerated_value_gradient,
    group_advantages,
    language_costates,
    token_scores,
)
from valuelens.probe._sequences import Sequences

TinyModel = Callable[..., Any]
PROMPT, VOCABULARY, HORIZON = [4, 1, 2], 5, 4
LABELS = torch.tensor([[3, 0, 4, 1]])
SAMPLING = Sampling(temperature=0.8)


def right(logits: Tensor, rows: Sequences) -> Tensor:
    """Share of right labels among those that are left to write."""
    labels = LABELS[:, -rows.valid.shape[1] :]
    return (rows.completions == labels).to(logits.dtype).mean(1)


def right_probability(logits: Tensor, rows: Sequences) -> Tensor:
    """Their mean probability, which has the same expectation."""
    labels = LABELS[:, -rows.valid.shape[1] :]
    return TargetProbability(targets=labels, sampling=SAMPLING).values(logits, rows)


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def advantages(rewards: Tensor, probability: Tensor, n: int) -> Tensor:
    """E[n/(n-1) (R_1 - group mean) | o_1] over all groups of n independent rollouts."""
    count = len(rewards)
    rows = torch.cartesian_prod(*[torch.arange(count)] * n)
    expected = group_advantages(rewards[rows])[:, 0] * n / (n - 1)
    weight = probability[rows[:, 1:]].prod(1)
    return (expected * weight).reshape(count, -1).sum(1)


def check(model: Any, layers: tuple[int, ...], tolerance: float) -> None:
    """States P-1 and P+1 of completions of four tokens, both rewards."""
    every = continuations(PROMPT, vocabulary=VOCABULARY, horizon=HORIZON)
    probability = token_scores(model, every, SAMPLING, micro_batch=625).log_prob.sum(1).double().exp()
    rewards = right(torch.zeros(1, dtype=torch.float64), every)
    weights = advantages(rewards, probability, 2)[:, None].expand(-1, HORIZON)
    surrogate = Surrogate(weights=weights, sampling=SAMPLING)
    found = language_costates(model, every, surrogate, layers=layers, micro_batch=625).values.double()
    for k, first in ((0, []), (2, [4, 1])):
        shared = (every.completions[:, :k] == torch.tensor(first).long()).all(1)
        given = probability * shared / (probability * shared).sum()
        mean = torch.einsum("b,bld->ld", given, found[:, :, k])
        rest = continuations(PROMPT + first, vocabulary=VOCABULARY, horizon=HORIZON - k)
        for reward in (right, right_probability):
            oracle = enumerated_value_gradient(model, rest, reward, layers=layers, sampling=SAMPLING)
            share = (HORIZON - k) / HORIZON  # of the reward that is still to come
            assert relative(mean, share * oracle.values.double()) < tolerance


def test_mean_costates_are_the_value_gradient(tiny_model: TinyModel, family: str) -> None:
    """Weights in float64, as single costates are up to 240 times as long as their mean."""
    check(tiny_model(family, dtype=torch.float64), (0, 2, 3), 1e-5)


def test_mean_costates_are_the_value_gradient_to_all_digits(float64_net: TinyModel) -> None:
    check(float64_net(), (0, 1, 2), 1e-9)


def test_groups_of_three_have_the_same_mean(float64_net: TinyModel) -> None:
    net, every = float64_net(), continuations(PROMPT, vocabulary=VOCABULARY, horizon=2)
    probability = token_scores(net, every).log_prob.sum(1).exp()
    weights = advantages(right(torch.zeros(1, dtype=torch.float64), every), probability, 3)
    surrogate = Surrogate(weights=weights[:, None].expand(-1, 2))
    costates = language_costates(net, every, surrogate, layers=[0, 1]).values[:, :, 0]
    oracle = enumerated_value_gradient(net, every, right, layers=[0, 1])
    assert relative(torch.einsum("b,bld->ld", probability, costates), oracle.values) < 1e-9


def test_the_reward_alone_lacks_the_sampling_path(float64_net: TinyModel) -> None:
    """Both parts are needed: without the second the two rewards would not agree."""
    net, every = float64_net(), continuations(PROMPT, vocabulary=VOCABULARY, horizon=HORIZON)
    reward = TargetProbability(targets=LABELS, sampling=SAMPLING)
    oracle = enumerated_value_gradient(net, every, right_probability, layers=[1], sampling=SAMPLING)
    costates = language_costates(net, every, reward, layers=[1], micro_batch=625).values[:, :, 0]
    assert relative(torch.einsum("b,bld->ld", oracle.log_prob.exp(), costates), oracle.values) > 0.05


def slow_value(net: Any, prefix: list[int], written: list[int], horizon: int, end: int | None) -> float:
    """E[Rew] by recursion, a token at a time: the share of right labels, or the length where there is an end."""
    if len(written) == horizon or (written and written[-1] == end):
        if end is not None:
            return float(len(written))
        return sum(a == b for a, b in zip(written, LABELS[0, -horizon:].tolist(), strict=True)) / horizon
    probabilities = (net(torch.tensor([prefix + written])).logits[0, -1] / SAMPLING.temperature).softmax(-1)
    return sum(
        float(p) * slow_value(net, prefix, [*written, token], horizon, end)
        for token, p in enumerate(probabilities)
    )


@pytest.mark.parametrize("end", [None, 1])
def test_the_value_gradient_is_a_slope(float64_net: TinyModel, generator: torch.Generator, end: int) -> None:
    net, every = float64_net(), continuations(PROMPT, vocabulary=VOCABULARY, horizon=3, end_id=end)
    reward = (
        right if end is None else (lambda logits, rows: rows.completion_length.to(logits))  # type: ignore[misc]
    )
    found: ValueGradient = enumerated_value_gradient(
        net, every, reward, layers=[0, 2], sampling=SAMPLING, micro_batch=50
    )
    assert found.value == pytest.approx(slow_value(net, PROMPT, [], 3, end), rel=1e-9)
    for at, layer in enumerate(found.layers):
        direction = torch.randn(8, generator=generator, dtype=torch.float64)

        def moved(step: float, layer: int = layer, direction: Tensor = direction) -> float:
            def shift(stream: Tensor) -> Tensor:
                stream = stream.clone()
                stream[:, len(PROMPT) - 1] += step * direction
                return stream

            with edited_stream(net, {layer: shift}):
                return slow_value(net, PROMPT, [], 3, end)

        slope = (moved(1e-5) - moved(-1e-5)) / 2e-5
        assert float(found.values[at] @ direction) == pytest.approx(slope, rel=1e-6, abs=1e-9)


def test_tokens_outside_top_k_have_no_part(float64_net: TinyModel) -> None:
    every = continuations(PROMPT, vocabulary=VOCABULARY, horizon=3)
    found = enumerated_value_gradient(float64_net(), every, right, layers=[1], sampling=Sampling(top_k=2))
    assert bool(found.values.isfinite().all())
    assert int((found.log_prob > -torch.inf).sum()) == 2**3
    torch.testing.assert_close(found.log_prob.exp().sum(), torch.ones(()).double())


def test_continuations_are_all_and_each_once() -> None:
    found = continuations([9, 8], vocabulary=3, horizon=3, end_id=2)
    assert len({tuple(row) for row in found.input_ids.tolist()}) == len(found.input_ids) == 15
    assert found.prompt_length.tolist() == [2] * 15
    assert sorted(found.completion_length.tolist()) == [1] + [2] * 2 + [3] * 12
    assert len(continuations([9], vocabulary=5, horizon=4).input_ids) == 625


def test_too_many_continuations_are_refused() -> None:
    with pytest.raises(
        ValueError, match="at most 20,000 continuations; found 59,049 of 9 tokens over 5 steps"
    ):
        continuations([1], vocabulary=9, horizon=5)
    with pytest.raises(ValueError, match="at most 14 continuations; found 15"):
        continuations([1], vocabulary=3, horizon=3, end_id=2, limit=14)


def test_what_is_no_enumeration_is_refused(float64_net: TinyModel) -> None:
    every = continuations(PROMPT, vocabulary=VOCABULARY, horizon=2)
    with pytest.raises(ValueError, match=r"add up to 1; found 0\."):
        enumerated_value_gradient(float64_net(), every.rows(0, 20), right, layers=[0])
    every.input_ids[3, 0] = 1
    with pytest.raises(ValueError, match="must share their prefix; found several"):
        enumerated_value_gradient(float64_net(), every, right, layers=[0])


@pytest.mark.parametrize(("layers", "found"), [([3], "found 3"), ([-1], "found -1"), ([], "found none")])
def test_layers_without_blocks_are_refused(float64_net: TinyModel, layers: list[int], found: str) -> None:
    every = continuations(PROMPT, vocabulary=VOCABULARY, horizon=1)
    with pytest.raises(ValueError, match=rf"layers must lie in 0\.\.2; {found}"):
        enumerated_value_gradient(float64_net(), every, right, layers=layers)
