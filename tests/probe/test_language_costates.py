"""Costates against closed forms, plain autograd and finite differences; what is missing or not finite is told."""

import copy
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from valuelens.models.lm import bridge
from valuelens.probe import (
    BEFORE_NORM,
    Sampling,
    Surrogate,
    TargetProbability,
    costate_batches,
    edited_stream,
    language_costates,
    residual_blocks,
    sequences,
    state_logits,
)
from valuelens.probe._sequences import Sequences

TinyModel = Callable[..., Any]
PROMPTS, COMPLETIONS = [[1, 2, 3], [4, 0], [1], [2, 2]], [[1, 2, 3], [0, 1, 2, 4], [], [3]]
NORMS = ("norm", "ln_f", "final_layer_norm")


@pytest.fixture
def batch() -> Sequences:
    return sequences(PROMPTS, COMPLETIONS)


@pytest.fixture
def surrogate(generator: torch.Generator) -> Surrogate:
    weights = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    return Surrogate(weights=weights, sampling=Sampling(temperature=0.7))


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def plain_gradients(model: Any, batch: Sequences, weights: Tensor, temperature: float) -> tuple[Tensor, ...]:
    """Autograd through a plain call of one rollout after another, padded by zeros."""
    rows = []
    for row, (prompt, completion) in enumerate(zip(PROMPTS, COMPLETIONS, strict=True)):
        ids = torch.tensor([prompt + completion])
        leaf = model.get_input_embeddings()(ids).requires_grad_()
        output = model(inputs_embeds=leaf, output_hidden_states=True)
        log_probs = (output.logits[0] / temperature).log_softmax(-1)
        value = 0 * leaf.sum()
        for k, token in enumerate(completion):
            value = value + weights[row, k] * log_probs[len(prompt) - 1 + k, token]
        found = torch.autograd.grad(value, output.hidden_states, allow_unused=True)
        filled = [torch.zeros_like(leaf) if g is None else g for g in found]
        rows.append(torch.cat(filled))
    width = batch.input_ids.shape[1]
    padded = [torch.nn.functional.pad(row, (0, 0, 0, width - row.shape[1])) for row in rows]
    return torch.stack(padded).unbind(1)


def test_costates_are_autograds_of_single_rollouts(
    tiny_model: TinyModel, family: str, batch: Sequences, surrogate: Surrogate
) -> None:
    """Padding, batch size and neighbours do not matter, and nothing but the layers asked for is needed."""
    model = tiny_model(family)
    expected = plain_gradients(model, batch, surrogate.weights, 0.7)
    for layers in ((0, 2, 4), (2, 1), (3,), (4,)):
        found = language_costates(model, batch, surrogate, layers=layers, micro_batch=3)
        index = found.positions[..., None].expand(-1, -1, 16)
        for at, layer in enumerate(layers):
            wanted = expected[layer].gather(1, index) * found.valid[..., None]
            assert relative(found.values[:, at], wanted) < 1e-6
    assert not bool(found.values[2].any())
    assert not bool(found.values.movedim(1, 2)[~found.valid].any())


def test_prompts_have_costates_of_their_own(
    tiny_model: TinyModel, batch: Sequences, surrogate: Surrogate
) -> None:
    model = tiny_model("llama")
    expected = plain_gradients(model, batch, surrogate.weights, 0.7)[1]
    found = language_costates(model, batch, surrogate, layers=[1], positions="prompt", micro_batch=2)
    assert found.valid.tolist() == [[True, True], [True, False], [False, False], [True, False]]
    assert relative(found.values[0, 0], expected[0, :2]) < 1e-6
    assert relative(found.values[1, 0, 0], expected[1, 0]) < 1e-6
    assert not bool(found.values.movedim(1, 2)[~found.valid].any())


def test_what_stands_behind_the_end_does_not_matter(
    tiny_model: TinyModel, family: str, batch: Sequences, surrogate: Surrogate
) -> None:
    model = tiny_model(family)
    expected = language_costates(model, batch, surrogate, layers=[0, 2]).values
    other = batch.input_ids.masked_fill(batch.attention_mask == 0, 3)
    changed = Sequences(
        input_ids=torch.nn.functional.pad(other, (0, 2), value=2),
        prompt_length=batch.prompt_length,
        completion_length=batch.completion_length,
    )
    for micro_batch in (1, 4):
        found = language_costates(model, changed, surrogate, layers=[0, 2], micro_batch=micro_batch)
        assert relative(found.values, expected) < 1e-6


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.6])
def test_the_closed_form_behind_and_before_the_final_norm(
    tiny_model: TinyModel, family: str, batch: Sequences, surrogate: Surrogate, temperature: float
) -> None:
    """(w / temp) W_U' (onehot - p), and that times the Jacobian of the norm."""
    model, kept = tiny_model(family), []
    surrogate = Surrogate(weights=surrogate.weights, sampling=Sampling(temperature=temperature))
    found = language_costates(model, batch, surrogate, layers=[BEFORE_NORM, 4])
    p = (state_logits(model, batch) / temperature).double().softmax(-1)
    off = torch.nn.functional.one_hot(batch.completions, 5) - p
    weight = (surrogate.weights / temperature * batch.valid)[..., None]
    expected = weight * off @ model.get_output_embeddings().weight.double()
    assert relative(found.values[:, 1].double(), expected) < 1e-6

    norm = next(module for name, module in model.named_modules() if name.split(".")[-1] in NORMS)
    with edited_stream(model, {BEFORE_NORM: lambda stream: kept.append(stream) or stream}):
        state_logits(model, batch)
    states = kept[0].gather(1, batch.states[..., None].expand(-1, -1, 16))
    _, back = torch.func.vjp(norm, states)
    assert relative(found.values[:, 0], back(expected.float())[0]) < 1e-6


@pytest.mark.parametrize("kind", ["surrogate", "reward"])
def test_finite_differences_in_float64(
    float64_net: TinyModel, batch: Sequences, surrogate: Surrogate, generator: torch.Generator, kind: str
) -> None:
    net, targets = float64_net(), torch.randint(5, (4, 4), generator=generator)
    objective = surrogate if kind == "surrogate" else TargetProbability(targets=targets)
    found = language_costates(net, batch, objective, layers=[0, 1, 2, BEFORE_NORM], micro_batch=2)
    for at, layer in enumerate((0, 1, 2, BEFORE_NORM)):
        for row, k in ((0, 1), (1, 0), (1, 3), (3, 0)):
            direction = torch.randn(8, generator=generator, dtype=torch.float64)

            def moved(
                step: float, layer: int = layer, row: int = row, k: int = k, direction: Tensor = direction
            ) -> float:
                shift = torch.zeros(4, batch.input_ids.shape[1], 8, dtype=torch.float64)
                shift[row, batch.states[row, k]] = step * direction
                with edited_stream(net, {layer: lambda stream: stream + shift}):
                    return float(objective.values(state_logits(net, batch), batch).sum())

            slope = (moved(1e-5) - moved(-1e-5)) / 2e-5
            assert float(found.values[row, at, k] @ direction) == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_a_row_of_targets_stands_for_all(float64_net: TinyModel, batch: Sequences) -> None:
    one = torch.tensor([[3, 1, 4, 0]])
    found, expected = (
        language_costates(float64_net(), batch, TargetProbability(targets=targets), layers=[1], micro_batch=2)
        for targets in (one, one.expand(4, -1).contiguous())
    )
    torch.testing.assert_close(found.values, expected.values)
    assert TargetProbability(targets=one).values(state_logits(float64_net(), batch), batch)[2] == 0


def test_micro_batches_come_one_by_one(
    float64_net: TinyModel, batch: Sequences, surrogate: Surrogate
) -> None:
    whole = language_costates(float64_net(), batch, surrogate, layers=[0, 2])
    parts = list(costate_batches(float64_net(), batch, surrogate, layers=[0, 2], micro_batch=3))
    assert [len(part.values) for part in parts] == [3, 1]
    torch.testing.assert_close(parts[0].values, whole.values[:3])
    torch.testing.assert_close(parts[1].values, whole.values[3:, :, :1])


def test_a_model_that_trains_is_measured_and_left_as_it_was(
    tiny_model: TinyModel, batch: Sequences, surrogate: Surrogate
) -> None:
    model = copy.deepcopy(tiny_model("gpt2")).requires_grad_(True)
    found = language_costates(model, batch, surrogate, layers=[1]).values
    expected = language_costates(tiny_model("gpt2"), batch, surrogate, layers=[1]).values
    torch.testing.assert_close(found, expected)
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())


def test_bfloat16_gives_float32_costates_nearby(
    tiny_model: TinyModel, family: str, batch: Sequences, surrogate: Surrogate
) -> None:
    small = language_costates(
        tiny_model(family, dtype=torch.bfloat16), batch, surrogate, layers=[0, 2]
    ).values
    expected = language_costates(tiny_model(family), batch, surrogate, layers=[0, 2]).values
    assert small.dtype == torch.float32
    assert float(torch.cosine_similarity(small.flatten(), expected.flatten(), dim=0)) > 0.97


def test_the_last_layer_is_noted(float64_net: TinyModel, batch: Sequences, surrogate: Surrogate) -> None:
    found = language_costates(float64_net(), batch, surrogate, layers=[2, 3, BEFORE_NORM])
    assert [note.split(":")[0] for note in found.notes] == [
        "layer 3 has no temporal credit",
        "the last block's output has no temporal credit",
    ]


@pytest.mark.parametrize(("layers", "found"), [([5], "found 5"), ([0, -2], "found -2"), ([], "found none")])
def test_layers_that_do_not_exist_are_refused(
    tiny_model: TinyModel, batch: Sequences, surrogate: Surrogate, layers: list[int], found: str
) -> None:
    with pytest.raises(ValueError, match=rf"layers must lie in 0\.\.4, or be -1 .*; {found}; Llama"):
        language_costates(tiny_model("llama"), batch, surrogate, layers=layers)


def detached(model: Any, at: int) -> Any:
    """A copy with one block whose output is cut from the graph."""
    model = copy.deepcopy(model)
    residual_blocks(model)[at].register_forward_hook(lambda module, args, output: output.detach())
    return model


def test_a_detached_block_is_told(tiny_model: TinyModel, batch: Sequences, surrogate: Surrogate) -> None:
    model = detached(tiny_model("llama"), 1)
    with pytest.raises(ValueError, match=r"must reach layer 0; found none there \(it reaches layer 2\)"):
        language_costates(model, batch, surrogate, layers=[0, 2, 3])
    language_costates(model, batch, surrogate, layers=[2, 3])
    with pytest.raises(ValueError, match=r"must reach layer 0; found none there \(it reaches none\)"):
        language_costates(detached(model, 3), batch, surrogate, layers=[0, 2])


def test_a_path_of_zeros_is_told(float64_net: TinyModel, batch: Sequences, surrogate: Surrogate) -> None:
    net = copy.deepcopy(float64_net())
    net.layers[1].register_forward_hook(lambda module, args, output: output.detach() + 0 * output)
    with pytest.raises(ValueError, match=r"layer 1 must not vanish; .* although the objective depends"):
        language_costates(net, batch, surrogate, layers=[2, 1])


def test_a_policy_without_choice_is_told(float64_net: TinyModel) -> None:
    net = copy.deepcopy(float64_net())
    net.head.mul_(1e6)
    ids = [1]
    for _ in range(3):
        ids.append(int(net(torch.tensor([ids])).logits[0, -1].argmax()))
    batch = sequences([ids[:1]], [ids[1:]])
    with pytest.raises(ValueError, match=r"layer 0 must not vanish; .* probability 1 \(entropy 0\)"):
        language_costates(net, batch, Surrogate(weights=torch.ones(1, 3)), layers=[0])


def test_numbers_that_are_none_are_traced_to_their_layer(
    float64_net: TinyModel, batch: Sequences, surrogate: Surrogate
) -> None:
    net = copy.deepcopy(float64_net())
    net.layers[1].down[0, 0] = torch.nan
    match = "found NaN or infinity at state 0; rollout 0; the first hidden state .* is that of layer 2"
    with pytest.raises(ValueError, match=match):
        language_costates(net, batch, surrogate, layers=[0])

    net = copy.deepcopy(float64_net())
    net.embedding.weight[4] = torch.nan
    with pytest.raises(
        ValueError, match=r"found NaN or infinity at state 0; rollout 1; .* is that of layer 0"
    ):
        language_costates(net, batch, surrogate, layers=[1], micro_batch=1)

    net = copy.deepcopy(float64_net())
    net.head[2] = torch.nan
    with pytest.raises(ValueError, match="finite up to layer 3: it is the output head"):
        language_costates(net, batch, surrogate, layers=[1])


def test_a_backward_pass_that_breaks_is_told(
    float64_net: TinyModel, batch: Sequences, surrogate: Surrogate
) -> None:
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            return gradients[0] * torch.tensor([1.0, torch.inf, 1, 1, 1, 1, 1, 1])

    net = copy.deepcopy(float64_net())
    net.layers[1].register_forward_hook(lambda module, args, output: Broken.apply(output))
    with pytest.raises(ValueError, match="in the backward pass; layer 1, rollout 0, position 0"):
        language_costates(net, batch, surrogate, layers=[2, 1])


def test_a_token_outside_by_rounding_has_a_costate(
    float64_net: TinyModel, batch: Sequences, surrogate: Surrogate
) -> None:
    narrow = Surrogate(weights=surrogate.weights, sampling=Sampling(top_k=1))
    found = language_costates(float64_net(), batch, narrow, layers=[0])
    assert bool(found.values.isfinite().all())


def test_an_objective_without_value_is_told(float64_net: TinyModel, batch: Sequences) -> None:
    infinite = Surrogate(weights=torch.full((4, 4), -torch.inf))
    with pytest.raises(
        ValueError, match="objective must be finite; found inf, every logit being a number; rollout 0"
    ):
        language_costates(float64_net(), batch, infinite, layers=[0])


def test_an_idle_objective_is_refused_in_words(float64_net: TinyModel, batch: Sequences) -> None:
    with pytest.raises(ValueError, match="all advantages are zero: no group has variance"):
        language_costates(float64_net(), batch, Surrogate(weights=torch.zeros(4, 4)), layers=[0])
    empty = sequences([[1], [2]], [[], []])
    for objective in (
        Surrogate(weights=torch.ones(2, 1)),
        TargetProbability(targets=torch.ones(1, 1).long()),
    ):
        with pytest.raises(ValueError, match="found none; all completions are empty"):
            language_costates(float64_net(), empty, objective, layers=[0])


def test_groups_without_variance_are_no_error_beside_others(float64_net: TinyModel, batch: Sequences) -> None:
    weights = torch.zeros(4, 4)
    weights[3] = 1
    found = language_costates(float64_net(), batch, Surrogate(weights=weights), layers=[0, 3], micro_batch=1)
    assert [bool(row.any()) for row in found.values] == [False, False, False, True]


def test_a_model_in_training_is_refused(
    tiny_model: TinyModel, batch: Sequences, surrogate: Surrogate
) -> None:
    with pytest.raises(ValueError, match="must be in evaluation mode"):
        language_costates(copy.deepcopy(tiny_model("llama")).train(), batch, surrogate, layers=[0])


@pytest.mark.xdist_group("smollm2")
@pytest.mark.slow
def test_smollm2_at_all_layers(smollm2: Any, generator: torch.Generator) -> None:
    """Cost against its own forward pass, the bridge's gradients and cost, and bfloat16, as issue 5 asks of them."""
    model, layers = smollm2.model, range(smollm2.num_layers + 1)
    ids = smollm2.tokenizer(language_costates.__doc__)["input_ids"]
    batch = sequences([ids[:32], ids[64:100]], [ids[32:64], ids[100:120]])
    surrogate = Surrogate(weights=torch.randn(2, 1, generator=generator).expand(-1, 32))
    lens, times = bridge(smollm2), []
    for _ in range(4):
        start = time.process_time()
        with torch.no_grad():
            model(batch.input_ids, attention_mask=batch.attention_mask)
        forward = time.process_time()
        found = language_costates(model, batch, surrogate, layers=layers).values
        ours = time.process_time()
        theirs = bridge_costates(lens, batch, surrogate)
        times.append((forward - start, ours - forward, time.process_time() - ours))
    own, cost, bridged = (min(column) for column in zip(*times, strict=True))
    assert cost < 2.5 * own
    assert bridged < 1.5 * cost

    lengths = found.norm(dim=-1)
    assert bool(found.isfinite().all())
    assert bool((lengths[batch.valid[:, None].expand_as(lengths)] > 0).all())
    for layer in range(smollm2.num_layers):
        assert relative(theirs[layer], found[:, layer]) < 1e-5

    small = copy.deepcopy(model).to(torch.bfloat16)
    rounded = language_costates(small, batch, surrogate, layers=layers).values
    exact, rounded = (each.movedim(1, 0).flatten(1) for each in (found, rounded))
    assert float(torch.cosine_similarity(rounded, exact).min()) >= 0.99
    assert float((rounded.norm(dim=1) / exact.norm(dim=1) - 1).abs().max()) <= 0.05


def bridge_costates(lens: Any, batch: Sequences, objective: Surrogate) -> list[Tensor]:
    """The gradients at the states by hooks of TransformerLens."""
    streams: list[Tensor] = []
    leaf = [("embed.hook_out", lambda x, hook: x.detach().requires_grad_())]
    keep = [
        (f"blocks.{layer}.hook_in", lambda x, hook: streams.append(x)) for layer in range(lens.cfg.n_layers)
    ]
    with lens.hooks(fwd_hooks=leaf + keep):
        logits = lens(batch.input_ids, attention_mask=batch.attention_mask)
    at_states = logits.gather(1, batch.states[..., None].expand(-1, -1, logits.shape[-1]))
    gradients = torch.autograd.grad(objective.values(at_states, batch).sum(), streams)
    index = batch.states[..., None].expand(-1, -1, gradients[0].shape[-1])
    return [gradient.gather(1, index) * batch.valid[..., None] for gradient in gradients]
