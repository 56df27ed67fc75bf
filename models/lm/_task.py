"""What a task for a language model is: prompts, a reward, and, where there is one, the right completion.

A task speaks text and knows no tokenizer, so that the same task can be asked of any language model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

Message = dict[str, str]
"""One turn of a chat: `role` and `content`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """What a language model is asked.

    Attributes:
        text: The text before the completion, or a chat, to which the tokenizer's template is applied.
        answer: The right completion, whose probability is the differentiable reward; none where there is no such.
    """

    text: str | tuple[Message, ...]
    answer: str | None = None


@runtime_checkable
class Task(Protocol):
    """A task, yours or ours: implement these and name it as `--task package.module:Name`.

    What is read here as a property may be a plain attribute, or a field of a frozen dataclass.
    """

    @property
    def reward_range(self) -> tuple[float, float]:
        """Least and largest reward possible."""
        ...

    @property
    def completion_length(self) -> int:
        """Tokens of a completion; the most where completions may end earlier."""
        ...

    @property
    def ends(self) -> bool:
        """Whether a completion may end with the tokenizer's end-of-sequence token before that."""
        ...

    def prompts(self, count: int, generator: torch.Generator) -> list[Prompt]:
        """Draw prompts.

        Args:
            count: How many.
            generator: Source of all randomness.
        """
        ...

    def reward(self, prompt: Prompt, completion: str) -> float:
        """How good a completion is, in `reward_range`.

        Args:
            prompt: As drawn.
            completion: Decoded without special tokens.
        """
        ...


@runtime_checkable
class PretrainingTask(Task, Protocol):
    """A task that a language model can be pretrained on from nothing."""

    @property
    def vocabulary(self) -> Sequence[str]:
        """Every word of its texts, which are words with spaces between them."""
        ...

    def corpus(self, count: int, shuffled: float, generator: torch.Generator) -> list[str]:
        """Draw texts to pretrain on: prompts with answers.

        Args:
            count: How many.
            shuffled: Share of whole sequences whose answer is not the right one.
            generator: Source of all randomness.
        """
        ...
