"""Credit by hop: the relaxed value gradient of a differentiable reward, split by how many sampled tokens it crossed.

Relaxed: each sampled token is fed as the straight-through vector onehot + (p - sg(p)), p being the distribution that it
was drawn from, so that a gradient can go back through the draw. One teacher-forced pass gives it without unrolling:

    lambda_m^(0) = gradient of the reward with tokens fixed, for m = embeddings and every layer
    u_t = E lambda_emb,t^(k)    (E: what the embedding module makes of every token)
    lambda_m^(k+1) = gradient of sum_{t sampled} <p_{t-1}, sg(u_t)> at m

lambda^(k) is the credit that crosses exactly k sampled tokens. The recursion always runs through the embeddings. As
the reward reads logits alone, the last token of a completion carries none, and T-1 hops are all.

Shape legend: `batch` rollouts, `hop` k = 0, 1, ..., `layer` those asked for, `state` k = 0..T-1, `pos` positions,
`d_model` width of the residual stream, `vocabulary` tokens, `row` any vectors.

Source: theory B3 (derived).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import Embedding, Module

from valuelens.probe._language_costates import costates_at, known_layers, stream_gradients
from valuelens.probe._language_objectives import Objective, Surrogate
from valuelens.probe._residual_stream import Edit, edited_stream, frozen, residual_blocks
from valuelens.probe._sequences import Sampling, Sequences, sampled_logits
from valuelens.probe._shown import Measured
from valuelens.probe._token_scores import micro_batches, state_pass

_CHUNK = 2**23
"""Numbers of an embedding table that are looked at in one go."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Relaxation:
    """How tokens were drawn, and how far credit is followed across them.

    Attributes:
        sampling: Of the distribution really sampled from: it is p that carries the gradient.
        max_hops: At most so many crossings.
        tolerance: Stop once what is missing is, by `Hops.remainder`, at most this share at every layer; 0 for all hops.
    """

    sampling: Sampling = field(default_factory=Sampling)
    max_hops: int = 5
    tolerance: float = 0.01


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Hops(Measured):
    """Credit by hop of some rollouts.

    Attributes:
        values: lambda^(k) at the states, 0 where not valid; float32 of models of less.
        embeddings: lambda^(k) at what the embedding module gives, at all positions; 0 at padding.
        remainder: Estimated norm of the hops left out over that of the sum of those here, a layer each, over the states
            of these rollouts. Exactly 0 only where nothing is left out; infinite where no estimate is possible.
        layers: As asked for.
        positions: Of the states, in their sequences.
        valid: Whether a rollout has the state.
    """

    values: Float[Tensor, "batch hop layer state d_model"]
    embeddings: Float[Tensor, "batch hop pos d_model"]
    remainder: Float[Tensor, " layer"]
    layers: tuple[int, ...]
    positions: Int[Tensor, "batch state"]
    valid: Bool[Tensor, "batch state"]

    @property
    def relaxed(self) -> Float[Tensor, "batch layer state d_model"]:
        """Sum over hops: the relaxed value gradient, but for the remainder."""
        return self.values.sum(1)


def hop_batches(
    model: Module,
    sequences: Sequences,
    objective: Objective,
    *,
    layers: Sequence[int],
    relaxation: Relaxation | None = None,
    micro_batch: int = 8,
) -> Iterator[Hops]:
    """Credit by hop, one micro-batch after another, in order: one forward pass, then one backward pass for each hop.

    Args:
        model: A causal language model as those of transformers, in evaluation mode.
        sequences: Prompts and completions.
        objective: A differentiable reward.
        layers: 0..L, or `BEFORE_NORM`.
        relaxation: By default the model's own distribution, at most 5 hops, 1 %.
        micro_batch: Rollouts in one pass.

    Raises:
        ValueError: The objective is the surrogate; what `costate_batches` refuses; a token could not have been drawn; a
            hop is not finite.
    """
    relaxation = relaxation or Relaxation()
    wanted, sequences = refuse_unrelaxable(model, sequences, objective, layers)
    reached = torch.zeros(len(wanted), dtype=torch.bool, device=sequences.input_ids.device)
    for start, rows in micro_batches(sequences, micro_batch):
        some = objective.rows(start, start + len(rows.input_ids))
        hops = _hops(_Pass(model, rows, wanted, relaxation.sampling, start), some, relaxation)
        reached |= hops.values[:, 0].movedim(1, 0).flatten(1).any(1)
        yield hops
    refuse_zero(reached, wanted)


def refuse_unrelaxable(
    model: Module, sequences: Sequences, objective: Objective, layers: Sequence[int]
) -> tuple[tuple[int, ...], Sequences]:
    """The layers, and the rollouts on the model's device, if sampling can be relaxed for this objective.

    Args:
        model: A causal language model.
        sequences: Prompts and completions.
        objective: What is maximised.
        layers: As asked for.

    Raises:
        ValueError: The objective is the surrogate or idle, or a layer does not exist.
    """
    if isinstance(objective, Surrogate):
        raise ValueError(
            "hops must be asked of a differentiable reward; found the surrogate; its costates already estimate the "
            "discrete value gradient without bias, so that adding hops would count the sampling path twice"
        )
    wanted = known_layers(model, layers)
    sequences = sequences.to(next(model.parameters()).device)
    if reason := objective.idle(sequences):
        raise ValueError(f"an objective must have a gradient; found none; {reason}")
    return wanted, sequences


def refuse_zero(reached: Bool[Tensor, " layer"], layers: Sequence[int]) -> None:
    """Zero everywhere at a layer is no answer.

    Args:
        reached: Whether any gradient at a layer was not zero.
        layers: Those.

    Raises:
        ValueError: One was zero everywhere.
    """
    if not bool(reached.all()):
        layer = layers[int((~reached).nonzero()[0])]
        raise ValueError(
            f"the gradient at layer {layer} must not vanish; found exactly zero at every state of every rollout; "
            "the policy gives its tokens probability 1 (entropy 0), so nothing can change them"
        )


def vocabulary_products(
    embedding: Module, vectors: Float[Tensor, "*row d_model"], vocabulary: int
) -> Float[Tensor, "*row vocabulary"]:
    """E v: products with what the embedding module makes of every token, in pieces, so that no second table is made.

    A module may scale what it looks up, as Gemma's does by sqrt(d): its weight alone would be wrong.

    Args:
        embedding: Of the model.
        vectors: Of embedding space.
        vocabulary: Tokens 0..vocabulary-1.

    Example:
        >>> table = Embedding.from_pretrained(torch.eye(3))
        >>> vocabulary_products(table, torch.tensor([1.0, 2.0, 3.0]), 3)
        tensor([1., 2., 3.])
    """
    found = vectors.new_empty(*vectors.shape[:-1], vocabulary)
    step, weight = max(1, _CHUNK // vectors.shape[-1]), _plain_weight(embedding)
    with torch.no_grad():
        for start in range(0, vocabulary, step):
            stop = min(start + step, vocabulary)
            if weight is None:
                table = embedding(torch.arange(start, stop, device=vectors.device))
            else:
                table = weight[start:stop]
            found[..., start : start + step] = vectors @ table.to(vectors.dtype).mT
    return found


def drawn_from(
    logits: Float[Tensor, "*batch vocabulary"], sampling: Sampling
) -> Float[Tensor, "*batch vocabulary"]:
    """Probabilities of the distribution really sampled from, differentiable.

    Args:
        logits: Of the model.
        sampling: Of its tokens.
    """
    return sampled_logits(logits, sampling).softmax(-1)


def left_out(
    at_states: Sequence[Float[Tensor, "batch layer state d_model"]], *, certain: bool
) -> Float[Tensor, " layer"]:
    """|| lambda^(k+1) || / (1 - ratio) over the norm of the sum, the next norm being taken as ratio x the last one.

    The ratio is that of the last two hops. No estimate is certain before the last hop: a small term does not bound the
    rest.

    Args:
        at_states: Hops 0..k.
        certain: Nothing is left out.
    """
    size = torch.stack([_norm(each) for each in at_states])
    if certain:
        return torch.zeros_like(size[0])
    if len(size) == 1:
        return torch.full_like(size[0], torch.inf)
    ratio = torch.nan_to_num(size[1:] / size[:-1], nan=0.0)[-1]
    left = torch.where(ratio < 1, size[-1] * ratio / (1 - ratio), torch.inf)
    return torch.where(left == 0, 0.0, left / _norm(torch.stack(list(at_states)).sum(0)))


def _plain_weight(embedding: Module) -> Tensor | None:
    """The table of a module that does nothing but look up; it saves a copy."""
    hooks = embedding._forward_hooks or embedding._forward_pre_hooks
    plain = type(embedding) is Embedding and embedding.max_norm is None and not hooks
    return embedding.weight if plain else None  # type: ignore[return-value]


class _Pass:
    """One forward pass of a micro-batch, and gradients of functions of its logits."""

    def __init__(
        self, model: Module, rows: Sequences, layers: tuple[int, ...], sampling: Sampling, first_row: int
    ) -> None:
        self.model, self.rows, self.layers, self.first_row = model, rows, layers, first_row
        self.embedding: Any = model.get_input_embeddings()  # type: ignore[operator]
        depth, streams = len(residual_blocks(model)), dict[int, Tensor]()
        with frozen(model), torch.enable_grad():
            fed = self.embedding(rows.input_ids).detach().requires_grad_()
            edits = {layer: _kept(streams, layer) for layer in layers if layer < depth}
            with edited_stream(model, edits):
                self.logits, hidden = state_pass(model, rows, fed, output_hidden_states=True)
        streams[depth] = hidden[depth]
        self.asked = [fed, *(streams[layer] for layer in layers)]
        self.sampling = sampling

    def probabilities(self) -> Float[Tensor, "batch state vocabulary"]:
        """Of each sampled token; 0 behind the last one of a rollout."""
        parts = [drawn_from(row, self.sampling) for row in self.logits.detach()]
        p = torch.stack(parts).masked_fill_(~self.rows.valid[..., None], 0.0)
        chosen = p.gather(-1, self.rows.completions[..., None])[..., 0]
        if bool((impossible := self.rows.valid & (chosen == 0)).any()):
            row, state = map(int, impossible.nonzero()[0])
            found = f"found token {state} of rollout {self.first_row + row}, of probability 0"
            raise ValueError(
                f"a token must be one that its sampling could have drawn; {found}; {self.sampling}"
            )
        return p

    def direct(self, objective: Objective) -> list[Float[Tensor, "batch pos d_model"]]:
        """Hop 0; where it is missing or not a number, `stream_gradients` knows why."""
        leaf = self.logits.detach().requires_grad_()
        with torch.enable_grad():
            value = objective.values(leaf, self.rows)
        at_logits = (
            torch.autograd.grad(value.sum(), leaf)[0] if value.requires_grad else torch.zeros_like(leaf)
        )
        found = self.pulled_back(at_logits)
        if not all(g is not None and bool(g.isfinite().all()) and bool(g.any()) for g in found):
            stream_gradients(self.model, self.rows, objective, (0, *self.layers), first_row=self.first_row)
        return _numbers(found)

    def crossed(
        self, p: Float[Tensor, "batch state vocabulary"], at_embeddings: Float[Tensor, "batch pos d_model"]
    ) -> list[Float[Tensor, "batch pos d_model"]]:
        """The gradient of sum_{t sampled} <p_{t-1}, sg(E lambda_emb,t)>: lambda_emb, one crossing later."""
        tokens = (self.rows.states + 1).clamp(max=at_embeddings.shape[1] - 1)
        credit = at_embeddings.gather(1, tokens[..., None].expand(-1, -1, at_embeddings.shape[-1]))
        at_logits = vocabulary_products(self.embedding, credit, p.shape[-1])
        # the Jacobian of a softmax, (diag p - pp') u / temperature, in place
        at_logits -= einsum(p, at_logits, "b s v, b s v -> b s")[..., None]
        at_logits *= p
        at_logits /= self.sampling.temperature
        return _numbers(self.pulled_back(at_logits))

    def pulled_back(self, at_logits: Float[Tensor, "batch state vocabulary"]) -> list[Tensor | None]:
        """Gradients at embeddings and layers."""
        if not self.logits.requires_grad:
            return [None] * len(self.asked)
        return list(
            torch.autograd.grad(self.logits, self.asked, at_logits, retain_graph=True, allow_unused=True)
        )


def _hops(one: _Pass, objective: Objective, relaxation: Relaxation) -> Hops:
    found, p = [one.direct(objective)], one.probabilities()
    width = int(one.rows.completion_length.max())
    at_states = [_at_states(found[0], one)]
    while True:
        going = len(found) < width and bool(found[-1][0].any())
        remainder = left_out(at_states, certain=not going)
        if not going or len(found) > relaxation.max_hops or bool((remainder <= relaxation.tolerance).all()):
            break
        found.append(one.crossed(p, found[-1][0]))
        at_states.append(_at_states(found[-1], one))
        if not bool(at_states[-1].isfinite().all()):
            where = f"hop {len(found) - 1}, rollouts from {one.first_row}"
            raise ValueError(
                f"a hop must be finite; found NaN or infinity; {where}; the embeddings of tokens that were not drawn "
                "count too"
            )
    return Hops(
        values=torch.stack(at_states, 1),
        embeddings=torch.stack([hop[0] for hop in found], 1),
        remainder=remainder,
        layers=one.layers,
        positions=one.rows.states,
        valid=one.rows.valid,
    )


def _norm(values: Float[Tensor, "batch layer state d_model"]) -> Float[Tensor, " layer"]:
    size: Tensor = torch.linalg.vector_norm(values, dim=(0, 2, 3))
    return size


def _at_states(hop: Sequence[Tensor], one: _Pass) -> Float[Tensor, "batch layer state d_model"]:
    return costates_at(hop[1:], one.rows, one.layers, "completion").values


def _numbers(gradients: Sequence[Tensor | None]) -> list[Tensor]:
    found = [gradient for gradient in gradients if gradient is not None]
    return [g if g.dtype == torch.float64 else g.float() for g in found]


def _kept(streams: dict[int, Tensor], layer: int) -> Edit:
    def edit(stream: Tensor) -> Tensor:
        # behind a cut it asks for itself, so that a message can say where the cut is
        streams[layer] = stream if stream.requires_grad else stream.requires_grad_()
        return streams[layer]

    return edit
