"""Completions drawn token by token from a key-value cache.

Every completion draws its tokens with uniform numbers of its own, by inverse distribution function in float64. So what
is sampled depends neither on the batch it is sampled in nor on the prompts beside it (up to rounding of logits), the
global random state stays as it is, and the log-probability recorded is that of the distribution really sampled from.

Shape legend: `rollout` completions, `batch` those sampled side by side, `state` k: after k tokens of the completion.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from valuelens.models._errors import InputError
from valuelens.models.lm._generate_config import GenerateConfig
from valuelens.models.lm._rollouts import Tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Completions:
    """Tokens drawn, and their log-probabilities under the distribution they were drawn from."""

    tokens: list[Tokens]
    log_probs: list[tuple[float, ...]]


def sampled_completions(
    model: PreTrainedModel,
    prompts: Sequence[Tokens],
    uniforms: Float[Tensor, "rollout state"],
    stops: Tokens,
    config: GenerateConfig,
    progress: Callable[[int, int], None] | None = None,
) -> Completions:
    """One completion for each prompt.

    Args:
        model: A causal language model.
        prompts: Tokens; the same ones again where several completions are wanted.
        uniforms: A number in [0, 1) for each token that may be drawn; as many as a completion has at most.
        stops: Tokens that end a completion.
        config: Temperature, top-k, top-p and batch size.
        progress: Called as progress(tokens done, most there can be); those behind an early end count as done.

    Raises:
        InputError: Logits are not finite.
    """
    sampled = Completions(tokens=[], log_probs=[])
    longest = uniforms.shape[1]
    for start in range(0, len(prompts), config.batch_size):
        part = slice(start, start + config.batch_size)
        rows = uniforms[part].to(model.device)

        def drawn(states: int, before: int = start * longest, many: int = len(rows)) -> None:
            if progress:
                progress(before + many * states, uniforms.numel())

        batch = _sample(model, prompts[part], rows, stops, config, drawn)
        drawn(longest)
        sampled.tokens.extend(batch.tokens)
        sampled.log_probs.extend(batch.log_probs)
    return sampled


@torch.no_grad()
def _sample(
    model: PreTrainedModel,
    prompts: Sequence[Tokens],
    uniforms: Float[Tensor, "batch state"],
    stops: Tokens,
    config: GenerateConfig,
    told: Callable[[int], None],
) -> Completions:
    """A batch: prompts that several rollouts share are read once, padded on the left; who has ended is dropped."""
    distinct = list(dict.fromkeys(prompts))
    ids, mask = _left_padded(distinct, model.device)
    cache = DynamicCache(config=model.config)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    logits = _next_logits(model, ids, mask, positions, cache)
    alive = torch.tensor([distinct.index(prompt) for prompt in prompts], device=model.device)
    cache.batch_select_indices(alive)
    logits, mask, place = logits[alive], mask[alive], positions[alive, -1]
    rows = torch.arange(len(prompts), device=model.device)
    tokens: list[list[int]] = [[] for _ in prompts]
    log_probs: list[list[float]] = [[] for _ in prompts]
    for k in range(uniforms.shape[1]):
        drawn, log_prob = _drawn(logits, uniforms[rows, k], config)
        for row, token, value in zip(rows.tolist(), drawn.tolist(), log_prob.tolist(), strict=True):
            tokens[row].append(token)
            log_probs[row].append(value)
        going = ~torch.isin(drawn, torch.tensor(stops, device=model.device, dtype=drawn.dtype))
        if k + 1 == uniforms.shape[1] or not bool(going.any()):
            break
        if not bool(going.all()):
            kept = going.nonzero()[:, 0]
            cache.batch_select_indices(kept)
            rows, drawn, mask, place = rows[kept], drawn[kept], mask[kept], place[kept]
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
        place = place + 1
        told(k + 1)
        logits = _next_logits(model, drawn[:, None], mask, place[:, None], cache)
    return Completions(tokens=[tuple(each) for each in tokens], log_probs=[tuple(each) for each in log_probs])


def _left_padded(
    prompts: list[Tokens], device: torch.device
) -> tuple[Int[Tensor, "batch pos"], Int[Tensor, "batch pos"]]:
    width = max(map(len, prompts))
    ids = [[*[0] * (width - len(prompt)), *prompt] for prompt in prompts]
    mask = [[*[0] * (width - len(prompt)), *[1] * len(prompt)] for prompt in prompts]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def _next_logits(
    model: PreTrainedModel,
    ids: Int[Tensor, "batch pos"],
    mask: Int[Tensor, "batch past"],
    positions: Int[Tensor, "batch pos"],
    cache: Any,
) -> Float[Tensor, "batch vocabulary"]:
    known = signature(type(model).forward).parameters
    options = {
        "cache" if "cache" in known else "past_key_values": cache
    }  # so called before transformers 5.24
    if "logits_to_keep" in known:
        options["logits_to_keep"] = 1
    output = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, **options)
    logits: Tensor = output.logits[:, -1].float()
    if not bool(logits.isfinite().all()):
        raise InputError(
            "logits must be finite", "found NaN or infinity while sampling", f"model {model.name_or_path}"
        )
    return logits


def _drawn(
    logits: Float[Tensor, "batch vocabulary"], uniforms: Float[Tensor, " batch"], config: GenerateConfig
) -> tuple[Int[Tensor, " batch"], Float[Tensor, " batch"]]:
    """Tokens by inverse distribution function, and their log-probabilities."""
    scaled = logits / config.temperature
    log_prob = scaled.masked_fill(~_candidates(scaled, config), -torch.inf).double().log_softmax(-1)
    cumulative = log_prob.exp().cumsum(-1)
    threshold = uniforms * (1 - 2**-40) * cumulative[:, -1]  # below the end, whatever the rounding
    drawn = (cumulative <= threshold[:, None]).sum(-1)
    return drawn, log_prob.gather(-1, drawn[:, None])[:, 0]


def _candidates(
    scaled: Float[Tensor, "batch vocabulary"], config: GenerateConfig
) -> Bool[Tensor, "batch vocabulary"]:
    """Tokens within top-k, and of these within top-p; the same operations as whoever recomputes log-probabilities."""
    kept = torch.ones_like(scaled, dtype=torch.bool)
    if config.top_k:
        kept = scaled >= scaled.topk(min(config.top_k, scaled.shape[-1])).values[..., -1:]
    if config.top_p < 1:
        ordered, order = scaled.masked_fill(~kept, -torch.inf).sort(descending=True, stable=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        kept = kept & torch.zeros_like(kept).scatter(-1, order, before < config.top_p)
    return kept
