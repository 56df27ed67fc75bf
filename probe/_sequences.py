"""Prompts with their completions as one batch of token ids, and the states that a costate can be asked of.

Shape legend: `batch` rollouts, `pos` positions of prompt and completion, `state` k = 0..T-1: the state after k sampled
tokens, at position P-1+k of a rollout whose prompt has P tokens; it predicts the completion's token k.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from valuelens.probe._shown import Measured


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Sequences(Measured):
    """Prompt, completion, padding, in this order, a rollout a row: what stands left is never padding.

    Attributes:
        input_ids: Tokens; padding is any valid id.
        prompt_length: P, at least 1.
        completion_length: T, the end-of-sequence token included; 0 for an empty completion.
    """

    input_ids: Int[Tensor, "batch pos"]
    prompt_length: Int[Tensor, " batch"]
    completion_length: Int[Tensor, " batch"]

    @property
    def attention_mask(self) -> Int[Tensor, "batch pos"]:
        """1 at tokens, 0 at padding."""
        pos = torch.arange(self.input_ids.shape[1], device=self.input_ids.device)
        return (pos < (self.prompt_length + self.completion_length)[:, None]).long()

    @property
    def states(self) -> Int[Tensor, "batch state"]:
        """Positions P-1+k of the states; those behind a rollout's last state repeat it."""
        k = torch.arange(max(1, int(self.completion_length.max())), device=self.input_ids.device)
        last = (self.completion_length - 1).clamp(min=0)
        return self.prompt_length[:, None] - 1 + torch.minimum(k, last[:, None])

    @property
    def valid(self) -> Bool[Tensor, "batch state"]:
        """Whether a rollout has this state: k < T."""
        k = torch.arange(max(1, int(self.completion_length.max())), device=self.input_ids.device)
        return k < self.completion_length[:, None]

    @property
    def completions(self) -> Int[Tensor, "batch state"]:
        """Token k of each completion, the one that state k predicts; the last one again where there is none."""
        following = (self.states + 1).clamp(max=self.input_ids.shape[1] - 1)
        return self.input_ids.gather(1, following)

    def rows(self, start: int, stop: int) -> "Sequences":
        """Some rollouts, without the columns that are padding in all of them."""
        prompt, completion = self.prompt_length[start:stop], self.completion_length[start:stop]
        width = int((prompt + completion).max())
        return Sequences(
            input_ids=self.input_ids[start:stop, :width], prompt_length=prompt, completion_length=completion
        )

    def to(self, device: torch.device) -> "Sequences":
        """The same on another device."""
        return Sequences(
            input_ids=self.input_ids.to(device),
            prompt_length=self.prompt_length.to(device),
            completion_length=self.completion_length.to(device),
        )


def sequences(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], *, pad_id: int = 0
) -> Sequences:
    """Token lists as a batch.

    Args:
        prompts: At least one token each.
        completions: Possibly empty, the end-of-sequence token included where there is one.
        pad_id: Stands behind shorter rollouts; never attended.

    Raises:
        ValueError: A prompt is empty, or there is not one completion for each prompt.

    Example:
        >>> batch = sequences([[5, 6], [7]], [[1], [2, 3, 4]])
        >>> batch.input_ids.tolist(), batch.states.tolist()
        ([[5, 6, 1, 0], [7, 2, 3, 4]], [[1, 1, 1], [0, 1, 2]])
    """
    if len(prompts) != len(completions) or not prompts:
        found = f"found {len(prompts)} and {len(completions)}"
        raise ValueError(f"there must be a completion for each prompt; {found}; sequences")
    if not all(prompts):
        found = f"found none at row {next(i for i, each in enumerate(prompts) if not each)}"
        raise ValueError(f"a prompt must have a token; {found}; sequences")
    tokens = [[*prompt, *completion] for prompt, completion in zip(prompts, completions, strict=True)]
    width = max(map(len, tokens))
    return Sequences(
        input_ids=torch.tensor([[*row, *[pad_id] * (width - len(row))] for row in tokens]),
        prompt_length=torch.tensor([len(prompt) for prompt in prompts]),
        completion_length=torch.tensor([len(completion) for completion in completions]),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How tokens were drawn from logits.

    Attributes:
        temperature: Divides the logits; above 0.
        top_k: Only the k likeliest tokens; 0 for all.
        top_p: Only the likeliest tokens that together hold this probability; 1 for all.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


def sampled_logits(
    logits: Float[Tensor, "*batch vocabulary"],
    sampling: Sampling,
    drawn: Int[Tensor, "*batch"] | None = None,
) -> Float[Tensor, "*batch vocabulary"]:
    """Logits of the distribution really sampled from: -inf outside top-k and top-p (in this order, as HF `generate`).

    The edge of the nucleus moves with rounding: a token drawn in bfloat16 may lie just outside of it when it is scored.

    Args:
        logits: Of the model.
        sampling: Temperature first, then top-k, then top-p.
        drawn: Tokens that were drawn, and so belong to the set wherever its edge comes to lie.
    """
    whole = scaled = logits / sampling.temperature
    if sampling.top_k:
        least = scaled.topk(min(sampling.top_k, scaled.shape[-1])).values[..., -1:]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    if sampling.top_p < 1:
        ordered, order = scaled.detach().sort(descending=True, stable=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        out = torch.zeros_like(before, dtype=torch.bool).scatter(-1, order, before >= sampling.top_p)
        scaled = scaled.masked_fill(out, -torch.inf)
    if drawn is None or scaled is whole:
        return scaled
    return scaled.scatter(-1, drawn[..., None], whole.gather(-1, drawn[..., None]))
