"""The discrete value gradient of small vocabularies and horizons, by enumerating every continuation of a prefix.

V = E[Rew | prefix], and dV/dh_{l,t} is its gradient by a shift of the residual stream before block l at the prefix's
last position t that stays there for all later tokens: what the surrogate's costates estimate, and what those of a
differentiable reward miss a part of (theory B4).

Shape legend: `batch` continuations, `state` k = 0..T-1 of them, `vocabulary` tokens, `layer` those asked for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import Module

from valuelens.probe._residual_stream import Edit, edited_stream, frozen, residual_blocks
from valuelens.probe._sequences import Sampling, Sequences, sequences
from valuelens.probe._shown import Measured
from valuelens.probe._token_scores import micro_batches, state_logits, token_log_probs

Reward = Callable[[Tensor, Sequences], Tensor]
"""Rewards [batch] from the logits at the states [batch state vocabulary] and the continuations; it may be
differentiable, as `TargetProbability.values` is, or look at the tokens alone."""

_EPSILONS = 64
"""By how many machine epsilons probabilities may miss 1 (measured: 3) before some of them must be missing."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ValueGradient(Measured):
    """V of a prefix and its gradients.

    Attributes:
        values: dV/dh at the prefix's last position.
        layers: As asked for.
        value: V, the expected reward.
        log_prob: Of each continuation, in the order of `continuations`.
    """

    values: Float[Tensor, "layer d_model"]
    layers: tuple[int, ...]
    value: float
    log_prob: Float[Tensor, " batch"]


def continuations(
    prefix: Sequence[int], *, vocabulary: int, horizon: int, end_id: int | None = None, limit: int = 20_000
) -> Sequences:
    """Every continuation of a prefix, in the order of its tokens.

    Args:
        prefix: At least one token.
        vocabulary: Tokens 0..vocabulary-1.
        horizon: Their greatest length, at least 1.
        end_id: The token that ends one earlier, if there is one.
        limit: How many are too many.

    Raises:
        ValueError: There are more than `limit`.

    Example:
        >>> found = continuations([7], vocabulary=2, horizon=2, end_id=0)
        >>> found.input_ids.tolist(), found.completion_length.tolist()
        ([[7, 0, 0], [7, 1, 0], [7, 1, 1]], [1, 2, 2])
    """
    going = vocabulary - (end_id is not None)
    count = going**horizon if end_id is None else sum(going**t for t in range(horizon)) + going**horizon
    if count > limit:
        found = f"found {count:,} of {vocabulary} tokens over {horizon} steps"
        raise ValueError(f"there must be at most {limit:,} continuations; {found}; continuations")
    grown: list[list[int]] = [[]]
    for _ in range(horizon):
        grown = [
            longer
            for each in grown
            for longer in (
                [each] if each and each[-1] == end_id else [[*each, token] for token in range(vocabulary)]
            )
        ]
    return sequences([list(prefix)] * len(grown), grown, pad_id=0 if end_id is None else end_id)


def enumerated_value_gradient(
    model: Module,
    every: Sequences,
    reward: Reward,
    *,
    layers: Sequence[int],
    sampling: Sampling | None = None,
    micro_batch: int = 1024,
) -> ValueGradient:
    """dV/dh at the last position of a prefix, by one shift shared by all continuations and kept for all their steps.

    Args:
        model: A causal language model as those of transformers, in evaluation mode.
        every: All continuations, of `continuations`.
        reward: Of a continuation; V's gradient has its own dependence on h too, if it has one.
        layers: 0..L-1.
        sampling: How tokens are drawn.
        micro_batch: Continuations in one pass.

    Raises:
        ValueError: They are not all continuations of one prefix, or a layer does not exist.
    """
    every, sampling = every.to(next(model.parameters()).device), sampling or Sampling()
    deltas = _shifts(model, every, layers)
    edits = {layer: _shifted(delta, int(every.prompt_length[0]) - 1) for layer, delta in deltas.items()}
    total, gradients, log_probs = 0.0, [torch.zeros_like(delta) for delta in deltas.values()], []
    with frozen(model), edited_stream(model, edits), torch.enable_grad():
        for _, rows in micro_batches(every, micro_batch):
            logits = state_logits(model, rows)
            log_prob = token_log_probs(logits, rows.completions, sampling)
            log_prob = torch.where(rows.valid, log_prob, 0.0).sum(-1)
            value = (log_prob.exp() * reward(logits, rows)).sum()
            found = torch.autograd.grad(value, list(deltas.values()))
            gradients = [gradient + more for gradient, more in zip(gradients, found, strict=True)]
            total += float(value.detach())
            log_probs.append(log_prob.detach())
    log_prob = torch.cat(log_probs)
    mass = float(log_prob.double().exp().sum())
    if not abs(mass - 1) < _EPSILONS * torch.finfo(log_prob.dtype).eps:
        rule = "probabilities of all continuations must add up to 1"
        raise ValueError(f"{rule}; found {mass:.6g}; enumerated_value_gradient")
    return ValueGradient(values=torch.stack(gradients), layers=tuple(deltas), value=total, log_prob=log_prob)


def _shifts(model: Module, every: Sequences, layers: Sequence[int]) -> dict[int, Tensor]:
    """One shift for each layer, all zero."""
    length = int(every.prompt_length[0])
    prefixes = every.input_ids[:, :length]
    if bool((every.prompt_length != length).any()) or bool((prefixes != prefixes[0]).any()):
        raise ValueError("continuations must share their prefix; found several; enumerated_value_gradient")
    depth = len(residual_blocks(model))
    wrong = [layer for layer in layers if not 0 <= layer < depth]
    if wrong or not layers:
        found = f"found {wrong[0]}" if wrong else "found none"
        raise ValueError(f"layers must lie in 0..{depth - 1}; {found}; enumerated_value_gradient")
    d_model = model.get_input_embeddings()(every.input_ids[:1, :1]).shape[-1]  # type: ignore[operator]
    weight = next(model.parameters())
    return {layer: weight.new_zeros(d_model).requires_grad_() for layer in layers}


def _shifted(delta: Tensor, position: int) -> Edit:
    def edit(stream: Tensor) -> Tensor:
        place = torch.zeros(stream.shape[1], 1, dtype=stream.dtype, device=stream.device)
        place[position] = 1
        return stream + place * delta.to(stream.dtype)

    return edit
