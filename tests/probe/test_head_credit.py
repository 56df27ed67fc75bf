"""Credit by head: its sum, path patching as oracle, planted heads, and heads that are taken out."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from valuelens.models import ablated
from valuelens.probe import (
    PATHS,
    HeadCredit,
    Sampling,
    Surrogate,
    TargetProbability,
    ablated_heads,
    cut_heads,
    edited_stream,
    head_credit_batches,
    language_costates,
    own_token_batches,
    residual_blocks,
    sequences,
    state_logits,
)
from valuelens.probe._head_credit import _reader
from valuelens.probe._language_costates import stream_gradients
from valuelens.probe._locality import attend_apart, per_query_head, replaced_attention
from valuelens.probe._sequences import Sequences

TinyModel = Callable[..., Any]
PROMPTS = [[1, 2, 3, 0, 4, 2, 1], [4, 0], [1], [2, 2]]
COMPLETIONS = [[1, 2, 3], [0, 1, 2, 4], [], [3]]


@pytest.fixture
def batch() -> Sequences:
    return sequences(PROMPTS, COMPLETIONS)


@pytest.fixture
def surrogate(generator: torch.Generator) -> Surrogate:
    return Surrogate(weights=torch.randn(4, 4, generator=generator), sampling=Sampling(temperature=0.8))


def credit(
    model: Any, batch: Sequences, objective: Any, layers: tuple[int, ...], **options: Any
) -> HeadCredit:
    (found,) = head_credit_batches(model, batch, objective, layers=layers, **options)
    return found


@pytest.mark.parametrize("kind", ["surrogate", "reward"])
def test_own_token_and_heads_add_up_to_the_costate(
    tiny_model: TinyModel, family: str, batch: Sequences, surrogate: Surrogate, kind: str
) -> None:
    """To 1e-6 at every state; the other side is that of other functions, in two passes of their own."""
    reward = TargetProbability(targets=torch.arange(16).reshape(4, 4) % 5)
    objective = surrogate if kind == "surrogate" else reward
    model, layers = tiny_model(family, dtype=torch.float64), (0, 1, 3)
    whole = language_costates(model, batch, objective, layers=layers).values
    (own,) = own_token_batches(model, batch, objective, layers=layers)
    found = credit(model, batch, objective, layers)
    by_attention = ((whole - own.values) * whole).sum(-1)
    scale = float(whole.square().sum(-1).max())
    assert float((found.heads.sum((-3, -2, -1)) - by_attention).abs().max()) < 1e-6 * scale
    assert float((found.own - (own.values * whole).sum(-1)).abs().max()) < 1e-6 * scale
    assert float((found.whole - whole.square().sum(-1)).abs().max()) < 1e-6 * scale
    assert float(found.share.abs().sum((1, 2, 3)).min()) > 1e-3
    assert not bool(found.heads[:, 2, :, :3].any())


def test_parts_are_those_of_a_backward_pass_for_each(
    tiny_model: TinyModel, family: str, batch: Sequences, surrogate: Surrogate
) -> None:
    """A pass inside positions for every block, head and path gives vectors: they sum to the costate as vectors do."""
    model, layer = tiny_model(family, dtype=torch.float64), 1
    read: dict[tuple[int, int], Tensor] = {}
    with replaced_attention(model, _reader(read)):
        (whole,) = stream_gradients(model, batch, surrogate, [layer])
    stood: dict[tuple[int, int], Tensor] = {}

    def attend(block: int, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> Any:
        key, value = per_query_head(query, key, value)
        stood[block, 0], stood[block, 1] = value, key
        return attend_apart(query, (key, key.detach()), (value, value.detach()), *rest, **options)

    leaf: list[Tensor] = []

    def kept(stream: Tensor) -> Tensor:
        leaf.append(stream.detach().requires_grad_())
        return leaf[0]

    with replaced_attention(model, attend), edited_stream(model, {layer: kept}):
        state_logits(model, batch)
    found, (own,) = (
        credit(model, batch, surrogate, (layer,)),
        own_token_batches(model, batch, surrogate, layers=[layer]),
    )
    index, total = batch.states[..., None].expand(-1, -1, 16), own.values[:, 0].clone()
    for (block, path), given in read.items():
        for head in range(given.shape[1]):
            (part,) = torch.autograd.grad(
                stood[block, path][:, head], leaf[0], given[:, head], retain_graph=True
            )
            part = part.gather(1, index).masked_fill(~batch.valid[..., None], 0)
            total += part
            inner = (part * whole.gather(1, index)).sum(-1)
            torch.testing.assert_close(found.heads[:, 0, :, block, head, path], inner, rtol=1e-5, atol=1e-6)
    expected = whole.gather(1, index).masked_fill(~batch.valid[..., None], 0)
    assert float((total - expected).norm() / expected.norm()) < 1e-6


@pytest.mark.parametrize("path", PATHS)
def test_a_part_is_what_path_patching_measures(
    tiny_model: TinyModel, batch: Sequences, surrogate: Surrogate, path: str
) -> None:
    """Others read of one head what it would be if this position's stream had moved along its costate; nothing else."""
    model, layer, block, head, row, state = tiny_model("qwen3", dtype=torch.float64), 0, 2, 1, 1, 1
    whole = language_costates(model, batch, surrogate, layers=[layer]).values[row, 0, state]
    position = int(batch.states[row, state])

    def objective_at(step: float) -> float:
        moved: dict[int, tuple[Tensor, Tensor]] = {}

        def own_world(
            at: int, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, **options: Any
        ) -> Any:
            key, value = per_query_head(query, key, value)
            moved[at] = (key, value)
            others = (clean[at][0], clean[at][1]) if clean else (key, value)
            return attend_apart(query, (key, others[0]), (value, others[1]), mask, **options)

        def shifted(stream: Tensor) -> Tensor:
            stream = stream.clone()
            stream[row, position] += step * whole
            return stream

        clean: dict[int, tuple[Tensor, Tensor]] = {}
        with replaced_attention(model, own_world):
            state_logits(model, batch)
        clean, moved = moved, {}
        with replaced_attention(model, own_world), edited_stream(model, {layer: shifted}):
            state_logits(model, batch)
        patched = moved

        def patched_read(
            at: int, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, **options: Any
        ) -> Any:
            key, value = per_query_head(query, key, value)
            others = [key.clone(), value.clone()]
            if at == block:
                which = 1 if path == "value" else 0
                others[which][row, head, position] = patched[at][which][row, head, position]
            return attend_apart(query, (key, others[0]), (value, others[1]), mask, **options)

        with replaced_attention(model, patched_read):
            return float(surrogate.values(state_logits(model, batch), batch).double().sum())

    step = 1e-2
    slope = (objective_at(step) - objective_at(-step)) / (2 * step)
    found = credit(model, batch, surrogate, (layer,)).heads[row, 0, state, block, head, PATHS.index(path)]
    assert abs(slope) > 1e-3
    assert float(found) == pytest.approx(slope, rel=2e-2)


def test_a_prompt_is_reached_by_heads_alone(
    tiny_model: TinyModel, batch: Sequences, surrogate: Surrogate
) -> None:
    model = tiny_model("llama", dtype=torch.float64)
    found = credit(model, batch, surrogate, (1,), positions="prompt")
    whole = language_costates(model, batch, surrogate, layers=[1], positions="prompt").values
    torch.testing.assert_close(found.whole, whole.square().sum(-1))
    torch.testing.assert_close(found.heads.sum((-3, -2, -1)), found.whole, rtol=1e-5, atol=1e-6)
    assert not bool(found.own.any())
    torch.testing.assert_close(found.share.sum((1, 2, 3)), torch.ones(1).double(), rtol=1e-6, atol=1e-6)


def test_heads_of_a_group_share_keys_and_values(
    tiny_model: TinyModel, batch: Sequences, surrogate: Surrogate
) -> None:
    """What ungrouped copies of the shared projections carry apart is what the query heads are said to carry."""
    grouped = tiny_model("qwen2", dtype=torch.float64)
    assert grouped.config.num_key_value_heads == 1
    config = copy.deepcopy(grouped.config)
    config.num_key_value_heads = config.num_attention_heads
    plain = type(grouped)(config).double().eval().requires_grad_(False)
    weights = {
        name: weight.repeat(2, *(1,) * (weight.ndim - 1))
        if ".k_proj." in name or ".v_proj." in name
        else weight
        for name, weight in grouped.state_dict().items()
    }
    plain.load_state_dict(weights)
    found, expected = (credit(model, batch, surrogate, (0, 2)) for model in (grouped, plain))
    torch.testing.assert_close(found.heads, expected.heads, rtol=1e-6, atol=1e-8)


def planted(model: Any, block: int, head: int, path: str) -> Any:
    """A Llama all of whose heads but one are weak: that one copies what it attends to.

    For the path `pattern` its copies hang more on where it attends: by a salience of tokens (entry 1 of the stream;
    entry 0 is 1) of small spread and large gain, which is no part of what is copied.
    """
    model = copy.deepcopy(model)
    width = model.config.hidden_size // model.config.num_attention_heads
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.mul_(0.03)
        layer.mlp.down_proj.weight.mul_(0.1)
    attention, first = model.model.layers[block].self_attn, head * width
    attention.o_proj.weight[:, first : first + width].mul_(60)
    attention.q_proj.weight[first : first + width] = 0
    if path == "pattern":
        model.model.embed_tokens.weight.mul_(4)
        model.model.embed_tokens.weight[:, 0] = 1
        model.model.embed_tokens.weight[:, 1] = torch.tensor([0.1, -0.05, 0.0, 0.05, -0.1])
        attention.v_proj.weight[:, :2] = 0
        attention.k_proj.weight.zero_()
        # the pair of entries that rotary positions turn least
        attention.q_proj.weight[first + width // 2 - 1, 0] = 4
        attention.k_proj.weight[width // 2 - 1, 1] = 4
    return model


@pytest.mark.parametrize("where", [(0, 1), (2, 0), (3, 1)])
@pytest.mark.parametrize("path", PATHS)
def test_a_planted_head_is_found(
    tiny_model: TinyModel, surrogate: Surrogate, batch: Sequences, where: tuple[int, int], path: str
) -> None:
    model = planted(tiny_model("llama"), *where, path)
    share = credit(model, batch, surrogate, (0,), positions="prompt").share[0]
    block, head, found = map(int, torch.unravel_index(share.argmax(), share.shape))
    assert (block, head, PATHS[found]) == (*where, path)
    assert float(share[where][found]) > 0.7
    unplanted = credit(tiny_model("llama"), batch, surrogate, (0,), positions="prompt").share[0]
    assert float(unplanted[where][found]) < 0.6


def test_ablated_heads_are_those_of_the_interventions(tiny_model: TinyModel, batch: Sequences) -> None:
    """Without its values a head gives 0; names of projections are the family's, `ablated_heads` needs none."""
    grouped = tiny_model("llama")
    config = copy.deepcopy(grouped.config)
    config.num_key_value_heads = 2
    torch.manual_seed(0)
    model = type(grouped)(config).eval().requires_grad_(False)
    part = (..., slice(8, 16))
    with ablated(model, ["model.layers.1.self_attn.v_proj", "model.layers.3.self_attn.v_proj"], part=part):
        expected = state_logits(model, batch)
    with ablated_heads(model, [(1, 1), (3, 1)]):
        torch.testing.assert_close(state_logits(model, batch), expected, rtol=1e-5, atol=1e-6)
    with ablated_heads(model, []):
        torch.testing.assert_close(
            state_logits(model, batch), state_logits(model, batch), rtol=1e-5, atol=1e-6
        )
    assert float((state_logits(model, batch) - expected).abs().max()) > 1e-4


def test_what_cannot_be_told_apart_is_refused(
    tiny_model: TinyModel, batch: Sequences, surrogate: Surrogate
) -> None:
    model = tiny_model("llama")
    for layer in (4, -1):
        with pytest.raises(ValueError, match=rf"layers must lie in 0..3; found {layer}; head_credit_batches"):
            credit(model, batch, surrogate, (layer,))
    for without in (ablated_heads, cut_heads):
        with (
            pytest.raises(ValueError, match=r"a head must lie in 0..1; found 2; block 1"),
            without(model, [(1, 2)]),
        ):
            state_logits(model, batch)
        found = f"a block must lie in 0..3; found 4; {without.__name__}"
        with pytest.raises(ValueError, match=found), without(model, [(4, 0)]):
            state_logits(model, batch)
    mixing = copy.deepcopy(model)
    mlp = residual_blocks(mixing)[2].mlp
    mlp.register_forward_pre_hook(lambda module, given: (given[0] + given[0].cumsum(1),))
    with pytest.raises(
        ValueError, match=r"positions may mix by attention only; found .* of it missing; layer 0"
    ):
        credit(mixing, batch, surrogate, (0, 3))


def test_micro_batches_change_nothing(tiny_model: TinyModel, batch: Sequences, surrogate: Surrogate) -> None:
    model = tiny_model("gpt2")
    whole = credit(model, batch, surrogate, (1,))
    parts = list(head_credit_batches(model, batch, surrogate, layers=[1], micro_batch=1))
    for row, part in enumerate(parts):
        states = part.heads.shape[2]
        torch.testing.assert_close(part.heads[0], whole.heads[row, :, :states], rtol=1e-4, atol=1e-6)


def test_a_cut_takes_credit_and_leaves_what_is_said(
    tiny_model: TinyModel, family: str, batch: Sequences, surrogate: Surrogate
) -> None:
    """With all heads cut, own-token parts are left; with those below a layer cut, everything is left above."""
    model = tiny_model(family)
    every = [(block, head) for block in range(4) for head in range(2)]
    (own,) = own_token_batches(model, batch, surrogate, layers=[0, 2])
    whole = language_costates(model, batch, surrogate, layers=[0, 2]).values
    with cut_heads(model, every):
        found = language_costates(model, batch, surrogate, layers=[0, 2]).values
        torch.testing.assert_close(found, own.values, rtol=1e-4, atol=1e-5)
        said = state_logits(model, batch)
    torch.testing.assert_close(said, state_logits(model, batch), rtol=1e-5, atol=1e-5)
    with cut_heads(model, every[:4]):
        found = language_costates(model, batch, surrogate, layers=[0, 2]).values
    torch.testing.assert_close(found[:, 1], whole[:, 1], rtol=1e-4, atol=1e-5)
    assert float((found[:, 0] - whole[:, 0]).norm() / whole[:, 0].norm()) > 1e-3


@pytest.mark.parametrize("where", [(0, 1), (2, 0), (3, 1)])
def test_without_a_planted_head_early_costates_are_gone(
    tiny_model: TinyModel, batch: Sequences, surrogate: Surrogate, where: tuple[int, int]
) -> None:
    model = planted(tiny_model("llama"), *where, "value")

    def left(without: Any, head: tuple[int, int]) -> float:
        options: dict[str, Any] = {"layers": [0], "positions": "prompt"}
        whole = language_costates(model, batch, surrogate, **options).values
        with without(model, [head]):
            return float(language_costates(model, batch, surrogate, **options).values.norm() / whole.norm())

    for without in (cut_heads, ablated_heads):
        assert left(without, where) < 0.5
        others = [(block, head) for block in range(4) for head in range(2) if (block, head) != where]
        assert all(left(without, head) > 0.7 for head in others)
