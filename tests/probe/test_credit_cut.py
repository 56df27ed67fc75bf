"""Nothing flows back in time, keys and values are trained all the same, and outputs do not move by a bit."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from valuelens.probe import credit_cut, edited_stream, residual_blocks, sequences, state_logits
from valuelens.probe._sequences import Sequences
from valuelens.probe._token_scores import state_pass

TinyModel = Callable[..., Any]
IDS = torch.tensor([[1, 2, 3, 0, 4, 2, 1, 3, 0, 2], [4, 0, 0, 1, 3, 2, 2, 1, 4, 0]])


@pytest.fixture
def batch() -> Sequences:
    """Windows of 8 positions are shorter than the first rollout."""
    return sequences([[1, 2, 3, 0, 4, 2, 1], [4, 0], [1], [2, 2]], [[1, 2, 3], [0, 1, 2, 4], [2], [3]])


def streams(model: Any, position: int) -> tuple[Tensor, ...]:
    """Gradients, at all layers, of a log-probability at one position."""
    leaf = model.get_input_embeddings()(IDS).detach().requires_grad_()
    output = model(inputs_embeds=leaf, output_hidden_states=True, use_cache=False)
    chosen = output.logits[:, position].log_softmax(-1)[:, 1].sum()
    return torch.autograd.grad(chosen, output.hidden_states[:-1])


def weights(model: Any, batch: Sequences) -> dict[str, Tensor]:
    """Gradients of some log-probabilities by the weights."""
    log_probs = state_logits(model, batch).log_softmax(-1)
    chosen = log_probs.gather(-1, batch.completions[..., None])[batch.valid]
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(chosen.sum(), parameters), strict=True))


def test_outputs_do_not_move_by_a_bit_and_the_model_is_put_back(
    tiny_model: TinyModel, family: str, batch: Sequences
) -> None:
    model = tiny_model(family)
    expected, before = state_pass(model, batch, output_hidden_states=True), model.config._attn_implementation
    with credit_cut(model):
        logits, hidden = state_pass(model, batch, output_hidden_states=True)
    assert torch.equal(logits, expected[0])
    assert all(torch.equal(*pair) for pair in zip(hidden, expected[1], strict=True))
    with pytest.raises(RuntimeError, match="mine"), credit_cut(model):
        raise RuntimeError("mine")
    assert model.config._attn_implementation == before
    assert not any("forward" in vars(block) for block in residual_blocks(model))
    assert torch.equal(state_logits(model, batch), expected[0])


def test_no_credit_goes_back_in_time(tiny_model: TinyModel, family: str) -> None:
    model = tiny_model(family)
    with credit_cut(model):
        found = streams(model, 6)
    for layer, (cut, whole) in enumerate(zip(found, streams(model, 6), strict=True)):
        elsewhere = torch.arange(IDS.shape[1]) != 6
        assert not bool(cut[:, elsewhere].any()), layer
        assert bool(whole[:, :6].any()), layer
        assert bool(cut[:, 6].any()), layer


def is_query(name: str, block: Any) -> Tensor | bool:
    """Which outputs of a projection are queries: of fused ones a third, in GPT-NeoX a third of each head."""
    width = block.attn.c_attn.nf if name == "c_attn" else 3 * 16
    match name:
        case "c_attn":
            return torch.arange(width) < width // 3
        case "query_key_value":
            return (torch.arange(width).view(2, 3, 8) % 24 < 8).flatten()
        case _:
            return False


def read_from(model: Any, streams: tuple[Tensor, ...]) -> None:
    """From now on keys and values are read from these streams, whatever flows through the model."""

    def read(out: Tensor, module: Any, queries: Any, norm: Any, stream: Tensor) -> Tensor:
        return torch.where(torch.as_tensor(queries), out, module.forward(norm(stream)))

    for stream, block in zip(streams, residual_blocks(model), strict=True):
        norm = getattr(block, "ln_1", getattr(block, "input_layernorm", lambda x: x))
        for path, module in block.named_modules():
            name = path.split(".")[-1]
            if name in ("k_proj", "v_proj", "query_key_value") or path == "attn.c_attn":
                fixed = partial(read, module=module, queries=is_query(name, block), norm=norm, stream=stream)
                module.register_forward_hook(lambda module, args, out, fixed=fixed: fixed(out))


def test_weights_of_keys_and_values_get_the_gradient_of_a_model_whose_reading_is_fixed(
    tiny_model: TinyModel, family: str, batch: Sequences
) -> None:
    model = copy.deepcopy(tiny_model(family)).requires_grad_(True)
    with credit_cut(model):
        found = weights(model, batch)
    whole = weights(model, batch)
    _, hidden = state_pass(model, batch, output_hidden_states=True)
    read_from(model, tuple(each.detach() for each in hidden[:-1]))
    expected = weights(model, batch)
    for name, gradient in expected.items():
        torch.testing.assert_close(
            found[name], gradient, rtol=1e-4, atol=1e-5 * float(gradient.abs().max()), msg=name
        )
    names = ("k_proj.weight", "v_proj.weight", "c_attn.weight", "query_key_value.weight")
    read = [name for name in found if name.endswith(names)]
    assert len(read) in (4, 8)
    assert all(bool(found[name].any()) for name in read)
    early = [name for name in read if any(f".{layer}." in name for layer in range(3))]
    assert min(float((found[name] - whole[name]).norm() / whole[name].norm()) for name in early) > 0.01


def test_edits_of_the_stream_are_read_too(tiny_model: TinyModel, batch: Sequences) -> None:
    model = tiny_model("qwen3")
    with edited_stream(model, {1: lambda stream: 2 * stream, 3: lambda stream: stream + 1}):
        expected = state_logits(model, batch)
        with credit_cut(model):
            assert torch.equal(state_logits(model, batch), expected)
    with (
        credit_cut(model),
        edited_stream(model, {1: lambda stream: 2 * stream, 3: lambda stream: stream + 1}),
    ):
        assert torch.equal(state_logits(model, batch), expected)


def test_eager_attention_is_cut_as_well(tiny_model: TinyModel, batch: Sequences) -> None:
    model = copy.deepcopy(tiny_model("olmo2", dtype=torch.float64))
    model.set_attn_implementation("eager")
    expected = state_logits(model, batch)
    with credit_cut(model):
        torch.testing.assert_close(state_logits(model, batch), expected, rtol=1e-6, atol=1e-6)
        assert not bool(streams(model, 6)[0][:, :6].any())
    assert model.config._attn_implementation == "eager"


def test_a_forward_of_ones_own_stays(tiny_model: TinyModel, batch: Sequences) -> None:
    model = copy.deepcopy(tiny_model("llama"))
    block = residual_blocks(model)[1]
    whole = block.forward
    block.forward = mine = lambda *args, **kwargs: whole(*args, **kwargs)
    with credit_cut(model):
        state_logits(model, batch)
    assert block.forward is mine


def test_a_cache_and_models_that_cannot_be_cut_are_refused(
    float64_net: TinyModel, tiny_model: TinyModel, batch: Sequences
) -> None:
    model = tiny_model("llama")
    with (
        pytest.raises(ValueError, match="whole sequences; found a key-value cache; credit_cut"),
        credit_cut(model),
    ):
        model(input_ids=IDS, use_cache=True)
    with (
        pytest.raises(ValueError, match="whose attention can be set; found _Float64Net"),
        credit_cut(float64_net()),
    ):
        state_logits(float64_net(), batch)
