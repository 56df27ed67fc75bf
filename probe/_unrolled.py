"""The relaxed value gradient by sequential unrolling: tokens fed one by one as straight-through vectors.

Each sampled token enters as what the embedding module makes of onehot + (p - sg(p)), p being the distribution that it
was drawn from, through a key-value cache that keeps its gradients; then one backward pass through everything. It is
what `hop_batches` must sum up to, and cheaper than hops where a step is no longer starved of work.

Shape legend: `batch` rollouts, `layer` those asked for, `state` k = 0..T-1, `pos` positions, `d_model` width of the
residual stream, `vocabulary` tokens.

Source: theory B3.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import Module

from valuelens.probe._hops import (
    Relaxation,
    drawn_from,
    hop_batches,
    refuse_unrelaxable,
    refuse_zero,
    vocabulary_products,
)
from valuelens.probe._language_costates import costates_at, stream_gradients
from valuelens.probe._language_objectives import Objective
from valuelens.probe._residual_stream import Edit, edited_stream, frozen, residual_blocks
from valuelens.probe._sequences import Sampling, Sequences
from valuelens.probe._shown import Measured
from valuelens.probe._token_scores import micro_batches

_UNROLLED_FROM = 64
"""Rollouts in one pass from which unrolling costs no more than 3 hops (benchmarks/hops.md); 1 % takes 2 to 4."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class RelaxedCostates(Measured):
    """Relaxed value gradients of some rollouts, whatever way they were found.

    Attributes:
        values: At the states, 0 where not valid; float32 of models of less.
        embeddings: At what the embedding module gives, at all positions; 0 at padding.
        layers: As asked for.
        positions: Of the states, in their sequences.
        valid: Whether a rollout has the state.
    """

    values: Float[Tensor, "batch layer state d_model"]
    embeddings: Float[Tensor, "batch pos d_model"]
    layers: tuple[int, ...]
    positions: Int[Tensor, "batch state"]
    valid: Bool[Tensor, "batch state"]


def unrolled_batches(
    model: Module,
    sequences: Sequences,
    objective: Objective,
    *,
    layers: Sequence[int],
    sampling: Sampling | None = None,
    micro_batch: int = 8,
) -> Iterator[RelaxedCostates]:
    """Relaxed value gradients by unrolling, one micro-batch after another, in order.

    Args:
        model: A causal language model of transformers with a key-value cache, in evaluation mode.
        sequences: Prompts and completions: the trajectory is theirs, nothing is drawn.
        objective: A differentiable reward.
        layers: 0..L, or `BEFORE_NORM`.
        sampling: How the tokens were drawn; by default from the model itself.
        micro_batch: Rollouts in one pass.

    Raises:
        ValueError: The objective is the surrogate or idle; a layer does not exist; the model is in training mode or has
            no cache; a number is not finite; the gradient does not reach a layer, or is zero everywhere at one.
    """
    wanted, sequences = refuse_unrelaxable(model, sequences, objective, layers)
    reached = torch.zeros(len(wanted), dtype=torch.bool, device=sequences.input_ids.device)
    for start, rows in micro_batches(sequences, micro_batch):
        some = objective.rows(start, start + len(rows.input_ids))
        found = _unrolled(_Trajectory(model, rows, wanted, sampling or Sampling()), some, first_row=start)
        reached |= found.values.movedim(1, 0).flatten(1).any(1)
        yield found
    refuse_zero(reached, wanted)


def relaxed_batches(
    model: Module,
    sequences: Sequences,
    objective: Objective,
    *,
    layers: Sequence[int],
    relaxation: Relaxation | None = None,
    micro_batch: int = 8,
) -> Iterator[RelaxedCostates]:
    """Relaxed value gradients by the cheaper of the two ways; where shares of hops are wanted, use `hop_batches`.

    Micro-batches of 64 rollouts and more are unrolled, and so is one whose hops leave out more than the tolerance.

    Args:
        model: A causal language model of transformers, in evaluation mode.
        sequences: Prompts and completions.
        objective: A differentiable reward.
        layers: 0..L, or `BEFORE_NORM`.
        relaxation: By default the model's own distribution, at most 5 hops, 1 %; unrolling leaves nothing out.
        micro_batch: Rollouts in one pass.

    Raises:
        ValueError: As `hop_batches` or `unrolled_batches`.
    """
    relaxation, size = relaxation or Relaxation(), len(sequences.input_ids)
    unroll: dict[str, Any] = {"layers": layers, "sampling": relaxation.sampling, "micro_batch": micro_batch}
    if min(micro_batch, size) >= _UNROLLED_FROM:
        yield from unrolled_batches(model, sequences, objective, **unroll)
        return
    options: dict[str, Any] = {"layers": layers, "relaxation": relaxation, "micro_batch": micro_batch}
    starts = range(0, size, micro_batch)
    for start, hops in zip(starts, hop_batches(model, sequences, objective, **options), strict=True):
        if bool((hops.remainder > relaxation.tolerance).any()):
            stop = start + micro_batch
            rows, some = sequences.rows(start, stop), objective.rows(start, stop)
            yield from unrolled_batches(model, rows, some, **unroll)
            continue
        yield RelaxedCostates(
            values=hops.relaxed,
            embeddings=hops.embeddings.sum(1),
            layers=hops.layers,
            positions=hops.positions,
            valid=hops.valid,
        )


class _Trajectory:
    """What was fed, what passed and what came out, a piece of columns after another: the prompt, then single ones.

    All padding stands right, so that column t is position t of every rollout; where prompts are longer than the
    shortest one, their tokens are fed as they are while other rollouts feed what they drew.
    """

    def __init__(self, model: Module, rows: Sequences, layers: tuple[int, ...], sampling: Sampling) -> None:
        if model.training:
            found = "found training mode, whose dropout and checkpointing change what is measured"
            raise ValueError(f"the model must be in evaluation mode; {found}; call model.eval()")
        self.model, self.rows, self.layers, self.sampling = model, rows, layers, sampling
        self.embedding: Any = model.get_input_embeddings()  # type: ignore[operator]
        self.depth, self.cache = len(residual_blocks(model)), None
        takes_cache = "cache" in signature(type(model).forward).parameters
        self.cache_name = "cache" if takes_cache else "past_key_values"
        self.fed: list[Tensor] = []
        self.streams: dict[int, list[Tensor]] = {layer: [] for layer in layers}
        self.logits: list[Tensor] = []

    def unroll(self) -> None:
        """Feed all but the last column, whose logits no state reads."""
        ids, first = self.rows.input_ids, int(self.rows.prompt_length.min())
        width = max(first, int((self.rows.prompt_length + self.rows.completion_length).max()) - 1)
        plain = self.embedding(ids).detach()
        edits = {layer: _appended(self.streams[layer]) for layer in self.layers if layer < self.depth}
        with frozen(self.model), edited_stream(self.model, edits), torch.enable_grad():
            self._feed(plain[:, :first].requires_grad_(), 0)
            for column in range(first, width):
                p = drawn_from(self.logits[-1], self.sampling)
                drawn = (self.rows.prompt_length <= column)[:, None]
                fed = _StraightThrough.apply(p * drawn, plain[:, column], self.embedding)  # type: ignore[no-untyped-call]
                self._feed(fed[:, None], column)

    def _feed(self, vectors: Float[Tensor, "batch some d_model"], column: int) -> None:
        stop = column + vectors.shape[1]
        device = vectors.device
        output: Any = self.model(
            inputs_embeds=vectors,
            attention_mask=torch.ones(len(vectors), stop, dtype=torch.long, device=device),
            position_ids=torch.arange(column, stop, device=device)[None],
            use_cache=True,
            output_hidden_states=True,
            logits_to_keep=1,
            **{self.cache_name: self.cache},
        )
        self.cache = getattr(output, self.cache_name, None)
        if self.cache is None:
            name = type(self.model).__name__
            raise ValueError(f"the model must have a key-value cache; found none; {name}")
        self.fed.append(vectors)
        if self.depth in self.streams:
            self.streams[self.depth].append(output.hidden_states[-1])
        logits = output.logits[:, -1]
        self.logits.append(logits if logits.dtype == torch.float64 else logits.float())

    def at_states(self) -> Float[Tensor, "batch state vocabulary"]:
        """Logits at the states."""
        index = self.rows.states - int(self.rows.prompt_length.min()) + 1
        logits = torch.stack(self.logits, 1)
        return logits.gather(1, index[..., None].expand(-1, -1, logits.shape[-1]))

    def gradients(self, value: Float[Tensor, ""]) -> list[Float[Tensor, "batch pos d_model"]]:
        """At what was fed, then at the layers, zero at columns that were not fed."""
        parts = [self.fed, *(self.streams[layer] for layer in self.layers)]
        asked = [part for each in parts for part in each]
        inside = [part for part in asked if part.requires_grad]
        found = torch.autograd.grad(value, inside, allow_unused=True) if value.requires_grad else ()
        known = {id(part): g for part, g in zip(inside, found, strict=False) if g is not None}
        filled = iter([known.get(id(part), torch.zeros_like(part)) for part in asked])
        pieces = [torch.cat([next(filled) for _ in each], 1) for each in parts]
        more = self.rows.input_ids.shape[1] - pieces[0].shape[1]
        padded = [torch.nn.functional.pad(piece, (0, 0, 0, more)) for piece in pieces]
        return [piece if piece.dtype == torch.float64 else piece.float() for piece in padded]


class _StraightThrough(torch.autograd.Function):
    """What the embedding module makes of onehot + (p - sg(p)): the token's own vector, with the gradient E' of p.

    p - sg(p) is 0 to the last bit, so that its product with the table need not be taken.
    """

    @staticmethod
    def forward(ctx: Any, p: Tensor, plain: Tensor, embedding: Module) -> Tensor:
        ctx.embedding, ctx.shape, ctx.dtype = embedding, p.shape, p.dtype
        return plain.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return vocabulary_products(ctx.embedding, gradients[0].to(ctx.dtype), ctx.shape[-1]), None, None


def _unrolled(trajectory: _Trajectory, objective: Objective, *, first_row: int) -> RelaxedCostates:
    rows = trajectory.rows
    trajectory.unroll()
    with torch.enable_grad():
        value = objective.values(trajectory.at_states(), rows)
    at_fed, *streams = trajectory.gradients(value.sum())
    if not all(bool(g.isfinite().all()) and bool(g.any()) for g in (at_fed, *streams)):
        # it knows why
        stream_gradients(trajectory.model, rows, objective, (0, *trajectory.layers), first_row=first_row)
    if not bool(torch.stack([at_fed, *streams]).isfinite().all()):
        rule = "an unrolled gradient must be finite; found NaN or infinity"
        where = f"rollouts from {first_row}"
        raise ValueError(f"{rule}; {where}; the embeddings of tokens that were not drawn count too")
    return RelaxedCostates(
        values=costates_at(streams, rows, trajectory.layers, "completion").values,
        embeddings=at_fed,
        layers=trajectory.layers,
        positions=rows.states,
        valid=rows.valid,
    )


def _appended(streams: list[Tensor]) -> Edit:
    def edit(stream: Tensor) -> Tensor:
        streams.append(stream)
        return stream

    return edit
