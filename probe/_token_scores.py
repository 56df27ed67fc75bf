"""What a model says of each token of a completion: its log-probability, and the entropy of where it was drawn from.

Shape legend: `batch` rollouts, `pos` positions, `state` k: the state that predicts the completion's token k,
`vocabulary` tokens, `row` states of several rollouts in a line.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import Module

from valuelens.probe._sequences import Sampling, Sequences, sampled_logits
from valuelens.probe._shown import Measured

_CHUNK = 2**21
"""Logits looked at in one go."""

_ROUNDING = {torch.bfloat16: 1.0, torch.float16: 0.2, torch.float32: 1e-3, torch.float64: 1e-6}
"""Nats by which a logit may move between drawing and scoring (measured: .5 in bfloat16, 4e-5 in float32)."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class TokenScores(Measured):
    """Of each token of each completion; 0 behind its end.

    Attributes:
        log_prob: Of the token under the distribution that it was drawn from, in nats.
        entropy: Of that distribution, in nats.
        rounded: Whether the token lay outside top-k or top-p by no more than rounding explains; it counts as inside.
    """

    log_prob: Float[Tensor, "batch state"]
    entropy: Float[Tensor, "batch state"]
    rounded: Bool[Tensor, "batch state"]


def token_scores(
    model: Module, sequences: Sequences, sampling: Sampling | None = None, *, micro_batch: int = 8
) -> TokenScores:
    """Log-probability and entropy of completions, without gradients.

    Args:
        model: A causal language model as those of transformers, in evaluation mode.
        sequences: Prompts and completions.
        sampling: How the tokens were drawn; by default from the model itself.
        micro_batch: Rollouts in one pass.

    Raises:
        ValueError: The model is in training mode, a logit is not a number, or a token could not have been drawn.
    """
    sampling = sampling or Sampling()
    sequences, parts = sequences.to(_device(model)), []
    with torch.no_grad():
        for _, rows in micro_batches(sequences, micro_batch):
            parts.append(scores_of_logits(state_logits(model, rows), rows, sampling))
    return checked_scores(parts, sequences, sampling, next(model.parameters()).dtype)


@torch.no_grad()
def scores_of_logits(
    logits: Float[Tensor, "batch state vocabulary"], sequences: Sequences, sampling: Sampling
) -> tuple[Float[Tensor, "batch state"], Float[Tensor, "batch state"], Float[Tensor, "batch state"]]:
    """Log-probability, entropy, and by how many nats a token is outside of the set that it was drawn from; 0 off it.

    Args:
        logits: At the states of some rollouts.
        sequences: Those.
        sampling: How the tokens were drawn.
    """
    valid = sequences.valid
    scores = _scores(logits.detach()[valid], sequences.completions[valid], sampling)
    log_prob, entropy, outside = (
        score.new_zeros(valid.shape).masked_scatter(valid, score) for score in scores
    )
    return log_prob, entropy, outside


def checked_scores(
    parts: Sequence[tuple[Tensor, Tensor, Tensor]],
    sequences: Sequences,
    sampling: Sampling,
    dtype: torch.dtype,
) -> TokenScores:
    """The scores of all rollouts out of those of their pieces.

    Args:
        parts: Of `scores_of_logits`, in order.
        sequences: All rollouts.
        sampling: How the tokens were drawn.
        dtype: Of the model: how far a logit may move by rounding.

    Raises:
        ValueError: A logit is not a number, or a token could not have been drawn.
    """
    width, pad = sequences.valid.shape[1], torch.nn.functional.pad
    log_prob, entropy, outside = (
        torch.cat([pad(each, (0, width - each.shape[1])) for each in scores])
        for scores in zip(*parts, strict=True)
    )
    _check(log_prob, outside > _ROUNDING[dtype], sequences, sampling)
    return TokenScores(log_prob=log_prob, entropy=entropy, rounded=outside > 0)


def token_log_probs(
    logits: Float[Tensor, "*batch vocabulary"],
    tokens: Int[Tensor, "*batch"],
    sampling: Sampling,
    *,
    drawn: bool = False,
) -> Float[Tensor, "*batch"]:
    """Log-probability of tokens, differentiable; -inf outside top-k or top-p.

    Args:
        logits: Of the model.
        tokens: One for each distribution.
        sampling: How tokens are drawn.
        drawn: These were, and belong to the set whatever rounding says.

    Example:
        >>> token_log_probs(torch.zeros(1, 4), torch.tensor([2]), Sampling()).exp()
        tensor([0.2500])
    """
    drawn_from = sampled_logits(logits, sampling, tokens if drawn else None)
    chosen = drawn_from.gather(-1, tokens[..., None]).squeeze(-1)
    return chosen - drawn_from.logsumexp(-1)


def state_logits(
    model: Module, sequences: Sequences, inputs_embeds: Float[Tensor, "batch pos d_model"] | None = None
) -> Float[Tensor, "batch state vocabulary"]:
    """Logits at the states of completions in one pass, float32 for models of less.

    Positions count from 0, as all padding is on the right; the output head sees nothing before the shortest prompt's
    last token.

    Args:
        model: A causal language model as those of transformers, in evaluation mode.
        sequences: Prompts and completions, on the model's device.
        inputs_embeds: Stand in for what the embedding module makes of the tokens.

    Raises:
        ValueError: The model is in training mode.
    """
    return state_pass(model, sequences, inputs_embeds)[0]


def state_pass(
    model: Module,
    sequences: Sequences,
    inputs_embeds: Float[Tensor, "batch pos d_model"] | None = None,
    *,
    output_hidden_states: bool = False,
) -> tuple[Float[Tensor, "batch state vocabulary"], tuple[Tensor, ...]]:
    """`state_logits` with the hidden states of all layers, h_0 to h_L, each [batch pos d_model].

    Args:
        model: As there.
        sequences: As there.
        inputs_embeds: As there.
        output_hidden_states: Without it there are none.

    Raises:
        ValueError: The model is in training mode.
    """
    if model.training:
        found = "found training mode, whose dropout and checkpointing change what is measured"
        raise ValueError(f"the model must be in evaluation mode; {found}; call model.eval()")
    width, first = sequences.input_ids.shape[1], int(sequences.prompt_length.min()) - 1
    fed = {"input_ids": sequences.input_ids} if inputs_embeds is None else {"inputs_embeds": inputs_embeds}
    output: Any = model(
        **fed,
        attention_mask=sequences.attention_mask,
        position_ids=torch.arange(width, device=sequences.input_ids.device)[None],
        output_hidden_states=output_hidden_states,
        use_cache=False,
        logits_to_keep=width - first,
    )
    index = (sequences.states - first)[..., None].expand(-1, -1, output.logits.shape[-1])
    logits = output.logits.gather(1, index)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return logits, tuple(output.hidden_states) if output_hidden_states else ()


def micro_batches(sequences: Sequences, size: int) -> Iterator[tuple[int, Sequences]]:
    """Pieces of a batch with the row that each starts at.

    Args:
        sequences: All.
        size: Rollouts in a piece.
    """
    for start in range(0, len(sequences.input_ids), size):
        yield start, sequences.rows(start, start + size)


def _device(model: Module) -> torch.device:
    return next(model.parameters()).device


def _scores(
    logits: Float[Tensor, "row vocabulary"], tokens: Int[Tensor, "row"], sampling: Sampling
) -> tuple[Float[Tensor, "row"], Float[Tensor, "row"], Float[Tensor, "row"]]:
    """Log-probability, entropy, and by how many nats a token is outside of the set that it was drawn from.

    In pieces: the entropy of a large vocabulary at once is slow and doubles the memory.
    """
    step = max(1, _CHUNK // logits.shape[-1])
    parts = []
    for some, token in zip(logits.split(step), tokens.split(step), strict=True):
        kept, token = sampled_logits(some, sampling), token[:, None]
        least = kept.masked_fill(kept.isneginf(), torch.inf).amin(-1)
        outside = (least - some.gather(-1, token)[:, 0] / sampling.temperature).clamp(min=0)
        log_p = sampled_logits(some, sampling, token[:, 0]).log_softmax(-1)
        # entr(0) is 0, so tokens outside top-k and top-p add nothing, not 0 * inf
        parts.append((log_p.gather(-1, token)[:, 0], torch.special.entr(log_p.exp()).sum(-1), outside))
    log_prob, entropy, outside = (torch.cat(each) for each in zip(*parts, strict=True))
    return log_prob, entropy, outside


def _check(
    log_prob: Float[Tensor, "batch state"],
    outside: Bool[Tensor, "batch state"],
    sequences: Sequences,
    sampling: Sampling,
) -> None:
    wrong = (~log_prob.isfinite() | outside).nonzero()
    if not len(wrong):
        return
    row, state = map(int, wrong[0])
    where = f"token {state} of completion {row}"
    if bool(log_prob[row, state].isnan()):
        raise ValueError(f"logits must be numbers; found NaN; {where}")
    token = int(sequences.completions[row, state])
    raise ValueError(
        "a token must be one that its sampling could have drawn; "
        f"found {token}, outside top_k = {sampling.top_k}, top_p = {sampling.top_p}; {where}"
    )
