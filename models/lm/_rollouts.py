"""Completions of prompts with their rewards, however they were made: generated here, or read from files."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from valuelens.models._shown import Shown
from valuelens.models.lm._task import Prompt

Tokens = tuple[int, ...]


_COLUMNS = {
    "group": "group",
    "prompt_ids": "prompt_ids",
    "completion_ids": "completion_ids",
    "ended": "ended",
    "rewards": "reward",
    "advantages": "advantage",
    "values": "values",
    "log_probs": "log_probs",
    "mask": "completion_mask",
    "targets": "targets",
}
"""Columns of the table, by the fields that they hold."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Rollouts(Shown):
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

    def table(self) -> pd.DataFrame:
        """A line for each rollout, in the columns that `read_rollouts` reads again.

        Right tokens stand in the column `targets`, which is read as such where `reward_targets` names it.

        Example:
            >>> rollouts = Rollouts(
            ...     prompt_ids=((1, 2),), completion_ids=((3,),), group=(0,), ended=(True,), rewards=(0.5,)
            ... )
            >>> rollouts.table().T.to_dict()[0]
            {'group': 0, 'prompt_ids': [1, 2], 'completion_ids': [3], 'ended': True, 'reward': 0.5}
        """
        held = {column: getattr(self, name) for name, column in _COLUMNS.items()}
        return pd.DataFrame(
            {
                column: [list(each) if isinstance(each, tuple) else each for each in values]
                for column, values in held.items()
                if values is not None
            }
        )

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """How many there are, how long, how rewarded, and where they come from."""
        groups, length = Counter(self.group), [len(each) for each in self.completion_ids]
        rows: dict[str, object] = {}
        if length:
            mean, ended = sum(length) / len(length), sum(self.ended) / len(length)
            rows["tokens"] = f"{min(length)} to {max(length)} a completion, mean {mean:.3g}"
            rows["ended"] = f"{ended:.0%} by themselves, the others were cut"
        if self.rewards:
            mean, low, high = sum(self.rewards) / len(self.rewards), min(self.rewards), max(self.rewards)
            flat = len(groups) - len({g for g, _ in self._varied()})
            rows["reward"] = (
                f"mean {mean:.4g}, {low:g} to {high:g}; the same throughout {flat} of {len(groups)} groups"
            )
        also = [
            name for name in ("log_probs", "advantages", "values", "targets", "mask") if getattr(self, name)
        ]
        rows["also"] = ", ".join(also).replace("_", "-") or "nothing"
        if self.skipped:
            rows["skipped"] = f"{len(self.skipped)} rows, each with the reason"
        rows["source"] = self.source or "not said"
        return f"{len(self)} rollouts in {len(groups)} groups", rows

    def preview(self) -> pd.DataFrame | None:
        """The first of them."""
        return self.table() if len(self) else None

    def _varied(self) -> set[tuple[int, float]]:
        """Pairs of a group and a reward that is not the group's first."""
        first: dict[int, float] = {}
        pairs = list(zip(self.group, self.rewards or (), strict=False))
        return {(group, reward) for group, reward in pairs if first.setdefault(group, reward) != reward}
