"""The residual stream read and changed on the way, and left alone behind the block."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from valuelens.probe import BEFORE_NORM, edited_stream, residual_blocks
from valuelens.probe._residual_stream import frozen

TinyModel = Callable[..., Any]
IDS = torch.tensor([[1, 2, 3, 4]])


def test_what_enters_the_blocks_are_the_hidden_states(tiny_model: TinyModel, family: str) -> None:
    model, seen = tiny_model(family), {}

    def keep(layer: int) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda stream: seen.setdefault(layer, stream)

    with edited_stream(model, {layer: keep(layer) for layer in (0, 1, 2, 3, BEFORE_NORM)}):
        output = model(IDS, output_hidden_states=True)
    for layer in range(4):
        torch.testing.assert_close(seen[layer], output.hidden_states[layer], rtol=0, atol=0)
    names = ("norm", "ln_f", "final_layer_norm")
    norm = next(module for name, module in model.named_modules() if name.split(".")[-1] in names)
    torch.testing.assert_close(norm(seen[BEFORE_NORM]), output.hidden_states[-1])


def test_an_edit_acts_inside_the_block_only(tiny_model: TinyModel, family: str) -> None:
    model = tiny_model(family)
    before = model(IDS).logits
    for layer in (1, BEFORE_NORM):
        with edited_stream(model, {layer: lambda stream: stream.flip(-1)}):
            assert bool((model(IDS).logits != before).any())
        torch.testing.assert_close(model(IDS).logits, before, rtol=0, atol=0)


def test_a_stream_given_by_name_is_edited_too() -> None:
    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.ModuleList([torch.nn.Identity()])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.blocks[0].forward = lambda hidden_states: hidden_states
            return torch.as_tensor(self.blocks[0](hidden_states=x))

    model = Named()
    with edited_stream(model, {0: lambda stream: 2 * stream}):
        assert float(model(torch.tensor(3.0))) == 6


def test_frozen_puts_back_what_it_found(tiny_model: TinyModel) -> None:
    model = copy.deepcopy(tiny_model("llama"))
    residual_blocks(model)[0].requires_grad_(True)
    asked = [parameter.requires_grad for parameter in model.parameters()]
    with frozen(model):
        assert not any(parameter.requires_grad for parameter in model.parameters())
    assert [parameter.requires_grad for parameter in model.parameters()] == asked


def test_a_model_without_blocks_is_refused(tiny_model: TinyModel) -> None:
    with pytest.raises(ValueError, match="one ModuleList; found no ModuleList; Linear"):
        residual_blocks(torch.nn.Linear(1, 1))
    model = copy.deepcopy(tiny_model("llama"))
    model.config.num_hidden_layers = 7
    with pytest.raises(ValueError, match="found 1 lists, none of 7 blocks; LlamaForCausalLM"):
        residual_blocks(model)
