"""Rollouts forward once and back: their token scores, the surrogate's gradient, and what costates need.

Shape legend: `batch` rollouts, `state` k: after k sampled tokens, `pos` positions, `vocabulary` tokens, `d_model` width
of the residual stream, `parameter` all floating numbers of a model in a line.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import Module, Parameter

from valuelens.probe._language_objectives import Surrogate
from valuelens.probe._residual_stream import edited_stream
from valuelens.probe._sequences import Sequences
from valuelens.probe._shown import Measured
from valuelens.probe._token_scores import micro_batches, scores_of_logits, state_pass

Scores = tuple[Float[Tensor, "batch state"], Float[Tensor, "batch state"], Float[Tensor, "batch state"]]


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class PolicyGradient(Measured):
    """What the passes of some rollouts give.

    Attributes:
        scores: Of `scores_of_logits`.
        stream: |h| / sqrt(d) at the states; 0 behind the last one.
        at_start: Costate of `start` at the start state; none if not asked for.
        gradient: Of the surrogate by the parameters; none if all its weights are 0.
    """

    scores: Scores
    stream: Float[Tensor, "batch state"]
    at_start: Float[Tensor, "batch d_model"] | None
    gradient: Float[Tensor, " parameter"] | None

    @property
    def passes(self) -> int:
        """A forward pass counts 1, one backward 2, were it to the activations only."""
        return 1 + 2 * (self.at_start is not None) + 2 * (self.gradient is not None)


def policy_gradient(
    model: Module,
    sequences: Sequences,
    surrogate: Surrogate,
    *,
    layer: int,
    start: Surrogate | None,
    micro_batch: int,
) -> PolicyGradient:
    """Gradient of the surrogate by the parameters, and that of another one at the start state of each rollout.

    Both of one forward pass. Where every weight of the first is 0 nothing is pulled back.

    Args:
        model: A causal language model as those of transformers, in evaluation mode.
        sequences: Rollouts on its device.
        surrogate: Weights of their tokens.
        layer: 0..L-1, of the stream.
        start: Whose costates at the start states are wanted: with weights of 1 they are d log pi(completion) / dh.
        micro_batch: Rollouts in one pass.

    Raises:
        ValueError: The model is in training mode, or a gradient is not finite.
    """
    valid = sequences.valid
    weights = torch.where(valid, surrogate.weights[:, : valid.shape[1]].to(valid.device), 0.0)
    parts, gradient = [], None
    with _asking(model, wanted=bool(weights.any())) as parameters:
        for first, rows in micro_batches(sequences, micro_batch):
            some = surrogate.rows(first, first + micro_batch)
            other = start and start.rows(first, first + micro_batch)
            part, more = _pass(model, parameters, rows, (some, other), layer)
            parts.append(part)
            gradient = more if gradient is None or more is None else gradient.add_(more)
    starts = [part.at_start for part in parts if part.at_start is not None]
    padded = [[_widened(each, valid.shape[1]) for each in (*part.scores, part.stream)] for part in parts]
    log_prob, entropy, outside, stream = (torch.cat(each) for each in zip(*padded, strict=True))
    return PolicyGradient(
        scores=(log_prob, entropy, outside),
        stream=stream,
        at_start=torch.cat(starts) if starts else None,
        gradient=gradient,
    )


def _pass(
    model: Module,
    parameters: Mapping[str, Parameter],
    rows: Sequences,
    surrogates: tuple[Surrogate, Surrogate | None],
    layer: int,
) -> tuple[PolicyGradient, Float[Tensor, " parameter"] | None]:
    """All but the gradient, which is not kept for each piece."""
    (surrogate, start), streams = surrogates, list[Tensor]()

    def kept(stream: Tensor) -> Tensor:
        streams.append(stream)
        return stream

    weighed = any(each.requires_grad for each in parameters.values())
    with edited_stream(model, {layer: kept}), torch.set_grad_enabled(weighed):
        logits, _ = state_pass(model, rows)
        at_start = _at_start(logits, streams[0], rows, start) if weighed and start else None
        gradient = _by_parameters(surrogate.values(logits, rows).sum(), parameters) if weighed else None
    stream = streams[0].detach()
    stream = stream if stream.dtype == torch.float64 else stream.float()
    size = stream.square().mean(-1).sqrt().gather(1, rows.states)
    part = PolicyGradient(
        scores=scores_of_logits(logits, rows, surrogate.sampling),
        stream=torch.where(rows.valid, size, 0.0),
        at_start=at_start,
        gradient=None,
    )
    return part, gradient


def _at_start(
    logits: Float[Tensor, "batch state vocabulary"],
    stream: Float[Tensor, "batch pos d_model"],
    rows: Sequences,
    start: Surrogate,
) -> Float[Tensor, "batch d_model"]:
    (found,) = torch.autograd.grad(start.values(logits, rows).sum(), stream, retain_graph=True)
    first = rows.states[:, :1, None].expand(-1, -1, found.shape[-1])
    found = found.gather(1, first)[:, 0]
    _check_finite(found, "the residual stream")
    return found if found.dtype == torch.float64 else found.float()


def _by_parameters(
    value: Float[Tensor, ""], parameters: Mapping[str, Parameter]
) -> Float[Tensor, " parameter"]:
    found = torch.autograd.grad(value, list(parameters.values()), allow_unused=True, materialize_grads=True)
    for name, gradient in zip(parameters, found, strict=True):
        _check_finite(gradient, f"parameter {name}")
    wide = torch.float64 if value.dtype == torch.float64 else torch.float32
    return torch.cat([gradient.flatten().to(wide) for gradient in found])


def _check_finite(gradient: Tensor, where: str) -> None:
    if not bool(gradient.isfinite().all()):
        raise ValueError(f"a gradient must be finite; found NaN or infinity in the backward pass; {where}")


@contextmanager
def _asking(model: Module, *, wanted: bool) -> Iterator[dict[str, Parameter]]:
    """All floating parameters ask for a gradient inside the block, or none does; behind it, those that did before."""
    parameters = {name: each for name, each in model.named_parameters() if each.is_floating_point()}
    before = {name: each.requires_grad for name, each in parameters.items()}
    try:
        for each in parameters.values():
            each.requires_grad_(wanted)
        yield parameters
    finally:
        for name, each in parameters.items():
            each.requires_grad_(before[name])


def _widened(values: Float[Tensor, "batch state"], width: int) -> Float[Tensor, "batch longer"]:
    return torch.nn.functional.pad(values, (0, width - values.shape[1]))
