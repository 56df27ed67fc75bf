"""Completions of prompts with their rewards, however they were made: generated here, or read from files."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from valuelens.models.lm._task import Prompt

Tokens = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollouts:
    """Rollouts, one a row; rows of a group stand together and share their prompt.

    Attributes:
        prompt_ids: Tokens of the prompt.
        completion_ids: Tokens of the completion, the end-of-sequence token included; empty where nothing was sampled.
        group: Number of the row's group, 0, 1, ... in order.
        ended: Whether the completion ended by itself; else it was cut at its greatest length.
        rewards: One a row; none where only advantages are known.
        log_probs: Of the completion's tokens as whoever sampled them logged them.
        advantages: As logged, one for each token of the completion; `advantages_scaled` says what they lack.
        advantages_scaled: The logged advantages were divided by an unknown standard deviation: their scale is lost.
        values: A critic's estimates at the states, one for each token of the completion.
        targets: Right tokens, aligned with the completion, whose mean probability is the differentiable reward.
        mask: Tokens of the completion that the loss counts (1), if it left some out.
        reward_range: Least and largest reward possible, where the task says so.
        prompts: What was asked, for rewards of other completions, where it is known.
        skipped: Rows that could not be used, with `what` and `why`; an empty completion is kept and listed.
        source: Where they come from, in words.
    """

    prompt_ids: tuple[Tokens, ...]
    completion_ids: tuple[Tokens, ...]
    group: tuple[int, ...]
    ended: tuple[bool, ...]
    rewards: tuple[float, ...] | None = None
    log_probs: tuple[tuple[float, ...], ...] | None = None
    advantages: tuple[tuple[float, ...], ...] | None = None
    advantages_scaled: bool = False
    values: tuple[tuple[float, ...], ...] | None = None
    targets: tuple[Tokens, ...] | None = None
    mask: tuple[Tokens, ...] | None = None
    reward_range: tuple[float, float] | None = None
    prompts: tuple[Prompt, ...] | None = None
    skipped: tuple[Mapping[str, str], ...] = field(default_factory=tuple)
    source: str = ""

    def __len__(self) -> int:
        """Number of rollouts."""
        return len(self.completion_ids)
