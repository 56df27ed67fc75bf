"""Capture by hook name, from any module whose blocks have hooks: here one of a few lines."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from valuelens.probe import (
    attention_patterns,
    block_hooks,
    captured,
    residual_stream,
    stacked,
    value_slots,
)

LAYERS = (
    12  # more than ten, and registered backwards: neither text nor registration gives the order of layers
)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hook_pattern = HookPoint()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = Attention()
        self.hook_resid_pre, self.hook_resid_post, self.hook_value = HookPoint(), HookPoint(), HookPoint()

    def forward(self, resid: Tensor, factor: int) -> Tensor:
        resid = self.hook_resid_pre(resid)
        pattern = self.attn.hook_pattern(torch.softmax(resid @ resid.mT, dim=-1))
        resid = resid + factor * pattern @ resid
        self.hook_value(resid[..., 0])
        return self.hook_resid_post(resid)


class Toy(HookedRootModule):
    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.blocks = nn.ModuleDict({str(layer): Block() for layer in reversed(range(layers))})
        self.setup()

    def forward(self, prompt: Tensor, num_queries: int = 1) -> Tensor:
        for factor in range(len(self.blocks)):
            prompt = self.blocks[str(factor)](prompt, factor * num_queries)
        return prompt


def prompt() -> Tensor:
    return 0.1 * torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def by_hand(num_queries: int = 1) -> tuple[list[Tensor], list[Tensor]]:
    stream, patterns = [prompt()], []
    for factor in range(LAYERS):
        patterns.append(torch.softmax(stream[-1] @ stream[-1].mT, dim=-1))
        stream.append(stream[-1] + factor * num_queries * patterns[-1] @ stream[-1])
    return stream, patterns


@pytest.mark.parametrize("num_queries", [1, 2])
def test_streams_values_and_patterns_are_in_the_order_of_layers(num_queries: int) -> None:
    stream, patterns = by_hand(num_queries)
    model = Toy()
    assert_close(residual_stream(model, prompt(), num_queries=num_queries), torch.stack(stream))
    assert_close(value_slots(model, prompt(), num_queries=num_queries), torch.stack(stream)[1:, ..., 0])
    assert_close(attention_patterns(model, prompt(), num_queries=num_queries), torch.stack(patterns))


def test_block_hooks_match_whole_names() -> None:
    model = Toy()
    assert block_hooks(model, "hook_value") == tuple(f"blocks.{layer}.hook_value" for layer in range(LAYERS))
    assert block_hooks(model, "hook_val") == ()
    assert block_hooks(model, "hook_pattern") == ()


def test_captures_are_detached_and_leave_no_hook() -> None:
    model, leaf = Toy(), prompt().requires_grad_()
    found = captured(model, leaf, ("blocks.3.hook_value",))
    assert list(found) == ["blocks.3.hook_value"]
    assert not found["blocks.3.hook_value"].requires_grad
    assert not any(point.fwd_hooks for point in model.hook_dict.values())


def test_a_missing_hook_is_an_error_not_a_zero() -> None:
    with pytest.raises(ValueError, match=r"must have hook blocks\.99\.hook_value; found \d+ others"):
        captured(Toy(), prompt(), ("blocks.0.hook_value", "blocks.99.hook_value"))
    with pytest.raises(ValueError, match=r"must have hooks blocks\.0\.hook_mlp_out, \.\.\.; found none"):
        stacked(Toy(), prompt(), "hook_mlp_out")
    with pytest.raises(ValueError, match=r"must have hooks blocks\.0\.hook_resid_pre and _post; found none"):
        residual_stream(Toy(layers=0), prompt())
