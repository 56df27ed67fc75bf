"""Empirical costates of a language model: the gradient of an RL objective in the residual stream, tokens held fixed.

lambda_{l,t} = dJ_i / dh_{l,t} of what is *maximised*, at the states t = P-1+k of rollout i, or at the prompt before
them. Behind a rollout's last state it is 0.

Shape legend: `batch` rollouts, `layer` those asked for, `state` k = 0..T-1 (or, of prompts, positions 0..P-2),
`d_model` width of the residual stream, `vocabulary` tokens.

Source: theory B2.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import Module

from valuelens.probe._language_objectives import Objective
from valuelens.probe._residual_stream import BEFORE_NORM, Edit, edited_stream, frozen, residual_blocks
from valuelens.probe._sequences import Sequences
from valuelens.probe._shown import Measured
from valuelens.probe._token_scores import micro_batches, state_pass

Positions = Literal["completion", "prompt"]
"""Where costates are wanted: at the states of completions, or at what a prompt holds before its last token."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Costates(Measured):
    """Costates of some rollouts.

    Attributes:
        values: dJ_i/dh, 0 where not valid; float32 of models of less.
        layers: As asked for.
        positions: Of the states, in their sequences.
        valid: Whether a rollout has the state.
        notes: What a reader must know of these layers.
    """

    values: Float[Tensor, "batch layer state d_model"]
    layers: tuple[int, ...]
    positions: Int[Tensor, "batch state"]
    valid: Bool[Tensor, "batch state"]
    notes: tuple[str, ...] = ()


def language_costates(
    model: Module,
    sequences: Sequences,
    objective: Objective,
    *,
    layers: Sequence[int],
    micro_batch: int = 8,
    positions: Positions = "completion",
) -> Costates:
    """Costates of all rollouts, at once in memory: rollouts x layers x states x d_model numbers.

    Args:
        model: A causal language model as those of transformers, in evaluation mode.
        sequences: Prompts and completions.
        objective: What is maximised.
        layers: 0..L, or `BEFORE_NORM`; the gradient is followed down to the lowest only.
        micro_batch: Rollouts in one pass, which bounds the memory of the passes.
        positions: Where they are wanted.

    Raises:
        ValueError: As `costate_batches`.
    """
    options = {"layers": layers, "micro_batch": micro_batch, "positions": positions}
    batches = list(costate_batches(model, sequences, objective, **options))  # type: ignore[arg-type]
    width = max(batch.values.shape[2] for batch in batches)
    padded = [(batch, width - batch.values.shape[2]) for batch in batches]
    pad = torch.nn.functional.pad
    return Costates(
        values=torch.cat([pad(batch.values, (0, 0, 0, more)) for batch, more in padded]),
        layers=batches[0].layers,
        positions=torch.cat([_repeat_last(batch.positions, more) for batch, more in padded]),
        valid=torch.cat([pad(batch.valid, (0, more)) for batch, more in padded]),
        notes=batches[0].notes,
    )


def costate_batches(
    model: Module,
    sequences: Sequences,
    objective: Objective,
    *,
    layers: Sequence[int],
    micro_batch: int = 8,
    positions: Positions = "completion",
) -> Iterator[Costates]:
    """Costates of one micro-batch after another, in order: memory does not grow with the number of rollouts.

    Args:
        model: A causal language model as those of transformers, in evaluation mode.
        sequences: Prompts and completions.
        objective: What is maximised.
        layers: 0..L, or `BEFORE_NORM`; the gradient is followed down to the lowest only.
        micro_batch: Rollouts in one pass.
        positions: Where they are wanted.

    Raises:
        ValueError: A layer does not exist; the model is in training mode; the objective has no gradient to give; a
            number is not finite; the gradient does not reach a layer, or is exactly zero everywhere at one.
    """
    wanted = known_layers(model, layers)
    sequences = sequences.to(next(model.parameters()).device)
    if reason := objective.idle(sequences):
        raise ValueError(f"an objective must have a gradient; found none; {reason}")
    reached = torch.zeros(len(wanted), dtype=torch.bool, device=sequences.input_ids.device)
    for start, rows in micro_batches(sequences, micro_batch):
        some = objective.rows(start, start + len(rows.input_ids))
        streams = stream_gradients(model, rows, some, wanted, first_row=start)
        reached |= torch.stack([gradient.any() for gradient in streams])
        yield costates_at(streams, rows, wanted, positions, notes=_notes(model, wanted))
    if not bool(reached.all()):
        layer = wanted[int((~reached).nonzero()[0])]
        raise ValueError(
            f"the gradient at layer {layer} must not vanish; found exactly zero at every state of every rollout; "
            "the policy gives its tokens probability 1 (entropy 0), so nothing can change them"
        )


def stream_gradients(
    model: Module, sequences: Sequences, objective: Objective, layers: Sequence[int], *, first_row: int = 0
) -> list[Float[Tensor, "batch pos d_model"]]:
    """Gradient of the objective at every position of the stream at some layers, in one forward and backward pass.

    Args:
        model: A causal language model as those of transformers, in evaluation mode.
        sequences: Prompts and completions, on its device.
        objective: What is maximised.
        layers: As `costate_batches`.
        first_row: Number of the first rollout, for messages.

    Raises:
        ValueError: A number is not finite, or the gradient does not reach a layer.
    """
    streams: dict[int, Tensor] = {}
    depth = len(residual_blocks(model))
    lowest = min(depth - 1 if layer in (depth, BEFORE_NORM) else layer for layer in layers)
    edits = {layer: _kept(streams, layer) for layer in layers if layer < depth} | {
        lowest: _leaf(streams, lowest)
    }
    with frozen(model), edited_stream(model, edits), torch.enable_grad():
        logits, hidden = state_pass(model, sequences, output_hidden_states=True)
        streams[depth] = hidden[depth]
        value = objective.values(logits, sequences)
    _check_stream(model, streams[lowest], hidden[lowest])
    if not bool(value.isfinite().all()):
        raise ValueError(_why_not_finite(value.detach(), logits, hidden, sequences, first_row))
    asked = [streams[layer] for layer in layers]
    gradients = (
        torch.autograd.grad(value.sum(), asked, allow_unused=True)
        if value.requires_grad
        else (None,) * len(asked)
    )
    _check_reached(gradients, layers, depth)
    found = [gradient for gradient in gradients if gradient is not None]
    _check_gradients(found, layers, first_row)
    if objective.idle(sequences) is None and not all(bool(gradient.any()) for gradient in found):
        _check_not_cut(found, layers, objective, logits, sequences)
    return [g if g.dtype == torch.float64 else g.float() for g in found]


def costates_at(
    streams: Sequence[Float[Tensor, "batch pos d_model"]],
    sequences: Sequences,
    layers: tuple[int, ...],
    positions: Positions,
    *,
    notes: tuple[str, ...] = (),
) -> Costates:
    """Costates out of gradients at every position.

    Args:
        streams: Gradients, a layer each.
        sequences: Their rollouts.
        layers: Their layers.
        positions: Where they are wanted.
        notes: Of these layers.
    """
    where, valid = _places(sequences, positions)
    index = where[..., None].expand(-1, -1, streams[0].shape[-1])
    values = torch.stack([stream.gather(1, index) for stream in streams], dim=1)
    values = values.masked_fill(~valid[:, None, :, None], 0.0)
    return Costates(values=values, layers=layers, positions=where, valid=valid, notes=notes)


def known_layers(model: Module, layers: Sequence[int]) -> tuple[int, ...]:
    """The layers, if all of them exist.

    Args:
        model: A causal language model.
        layers: 0..L, or `BEFORE_NORM`.

    Raises:
        ValueError: One does not.
    """
    depth = len(residual_blocks(model))
    wrong = [layer for layer in layers if not (0 <= layer <= depth or layer == BEFORE_NORM)]
    if wrong or not layers:
        found = f"found {wrong[0]}" if wrong else "found none"
        rule = f"layers must lie in 0..{depth}, or be {BEFORE_NORM} for the last block's output"
        raise ValueError(f"{rule}; {found}; {type(model).__name__}")
    return tuple(layers)


def _notes(model: Module, layers: Sequence[int]) -> tuple[str, ...]:
    last = [layer for layer in layers if layer in (BEFORE_NORM, len(residual_blocks(model)))]
    where = {BEFORE_NORM: "the last block's output"}
    return tuple(
        f"{where.get(layer, f'layer {layer}')} has no temporal credit: no attention follows, so each costate is that "
        "of its own token alone"
        for layer in last
    )


def _kept(streams: dict[int, Tensor], layer: int) -> Edit:
    def edit(stream: Tensor) -> Tensor:
        # behind a cut it asks for itself, so that the message can say where the cut is
        streams[layer] = stream if stream.requires_grad else stream.requires_grad_()
        return streams[layer]

    return edit


def _leaf(streams: dict[int, Tensor], layer: int) -> Edit:
    def edit(stream: Tensor) -> Tensor:
        streams[layer] = stream.detach().requires_grad_()
        return streams[layer]

    return edit


def _places(
    sequences: Sequences, positions: Positions
) -> tuple[Int[Tensor, "batch state"], Bool[Tensor, "batch state"]]:
    if positions == "completion":
        return sequences.states, sequences.valid
    earlier = torch.arange(max(1, int(sequences.prompt_length.max()) - 1), device=sequences.input_ids.device)
    before = sequences.prompt_length[:, None] - 1
    return torch.minimum(earlier, (before - 1).clamp(min=0)), earlier < before


def _repeat_last(places: Int[Tensor, "batch state"], more: int) -> Int[Tensor, "batch longer"]:
    return torch.cat([places, places[:, -1:].expand(-1, more)], dim=1)


def _check_stream(model: Module, found: Tensor, expected: Tensor) -> None:
    if found.data_ptr() != expected.data_ptr():
        rule = "hidden states must be what enters the blocks"
        raise ValueError(f"{rule}; found another tensor; {type(model).__name__}")


def _check_reached(gradients: Sequence[Tensor | None], layers: Sequence[int], depth: int) -> None:
    missing = [layer for layer, gradient in zip(layers, gradients, strict=True) if gradient is None]
    if missing:
        above = [x for x, gradient in zip(layers, gradients, strict=True) if gradient is not None]
        reaches = (
            f"it reaches layer {min(above, key=lambda x: x % (depth + 1))}" if above else "it reaches none"
        )
        raise ValueError(
            f"the gradient must reach layer {missing[0]}; found none there ({reaches}); "
            "something in between is detached from the graph: a block under no_grad, a detach, a custom kernel"
        )


def _check_gradients(gradients: Sequence[Tensor], layers: Sequence[int], first_row: int) -> None:
    for layer, gradient in zip(layers, gradients, strict=True):
        if not bool(gradient.isfinite().all()):
            row, position = map(int, (~gradient.isfinite()).any(-1).nonzero()[0])
            where = f"layer {layer}, rollout {first_row + row}, position {position}"
            raise ValueError(f"a costate must be finite; found NaN or infinity in the backward pass; {where}")


def _check_not_cut(
    gradients: Sequence[Tensor],
    layers: Sequence[int],
    objective: Objective,
    logits: Float[Tensor, "batch state vocabulary"],
    sequences: Sequences,
) -> None:
    """Zero at a layer is an error where the objective does depend on the logits."""
    leaf = logits.detach().requires_grad_()
    (at_logits,) = torch.autograd.grad(objective.values(leaf, sequences).sum(), leaf)
    zero = [layer for layer, gradient in zip(layers, gradients, strict=True) if not bool(gradient.any())]
    if bool(at_logits.any()):
        raise ValueError(
            f"the gradient at layer {zero[0]} must not vanish; found exactly zero although the objective depends on "
            "the logits; the graph is cut on the way, or the weights in between are zero"
        )


def _why_not_finite(
    value: Float[Tensor, " batch"],
    logits: Float[Tensor, "batch state vocabulary"],
    hidden: Sequence[Float[Tensor, "batch pos d_model"]],
    sequences: Sequences,
    first_row: int,
) -> str:
    row = int((~value.isfinite()).nonzero()[0])
    bad = (~logits[row].isfinite() & ~logits[row].isneginf()).any(-1) & sequences.valid[row]
    where = f"rollout {first_row + row}"
    if not bool(bad.any()):
        rule = "the objective must be finite"
        return f"{rule}; found {value[row].item()}, every logit being a number; {where}"
    state = int(bad.nonzero()[0])
    length = int((sequences.prompt_length + sequences.completion_length)[row])
    broken = [layer for layer, stream in enumerate(hidden) if not bool(stream[row, :length].isfinite().all())]
    since = (
        f"the first hidden state that is not finite is that of layer {broken[0]}"
        if broken
        else (f"all hidden states are finite up to layer {len(hidden) - 1}: it is the output head")
    )
    return f"logits must be numbers; found NaN or infinity at state {state}; {where}; {since}"
