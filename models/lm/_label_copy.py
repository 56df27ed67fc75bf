"""Label copying: repeat the labels that stand behind the items of the prompt, in their order."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from valuelens.models._errors import InputError
from valuelens.models.lm._task import Prompt

SEPARATOR = "=>"
"""The word between prompt and completion."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelCopy:
    """K (item, label) pairs and a separator; the completion is the K labels in order.

    `i4 L0 i7 L2 =>` is answered by `L0 L2`. The completion has exactly K words and no end. Reward: the share of right
    labels; its expectation given a prefix is that of the mean of p(right label), so the differentiable reward has the
    same value gradient.

    Our definition: the items of a prompt are distinct and say nothing about their labels, which are drawn
    independently and uniformly. A shuffled sequence holds its prompt's own labels in a uniformly drawn order, which
    by chance is sometimes the right one.

    Attributes:
        num_items: Items to draw from.
        num_labels: Labels to draw from.
        num_pairs: K, pairs in a prompt.

    Source:
        Paper B's testbed; sizes of our pilot (theory B7).

    Example:
        >>> task = LabelCopy(num_items=3, num_labels=2, num_pairs=3)
        >>> prompt = task.prompts(1, torch.Generator().manual_seed(0))[0]
        >>> prompt.text, prompt.answer
        ('i2 L0 i0 L1 i1 L1 =>', 'L0 L1 L1')
        >>> task.reward(prompt, "L0 L0 L1")
        0.6666666666666666
    """

    num_items: int = 12
    num_labels: int = 6
    num_pairs: int = 6

    def __post_init__(self) -> None:
        check_size("label-copy", "num_pairs", self.num_pairs, 1)
        check_size("label-copy", "num_labels", self.num_labels, 2)
        if self.num_items < self.num_pairs:
            must = (
                f"num_items must be at least num_pairs, {self.num_pairs} (the items of a prompt are distinct)"
            )
            raise InputError(must, f"found {self.num_items}", "task label-copy, option --num-items")

    @property
    def reward_range(self) -> tuple[float, float]:
        """No label right, all of them right."""
        return 0.0, 1.0

    @property
    def completion_length(self) -> int:
        """K."""
        return self.num_pairs

    @property
    def ends(self) -> bool:
        """Never before K labels."""
        return False

    @property
    def vocabulary(self) -> Sequence[str]:
        """Items, labels, separator."""
        items = [f"i{item}" for item in range(self.num_items)]
        return (*items, *(f"L{label}" for label in range(self.num_labels)), SEPARATOR)

    def prompts(self, count: int, generator: torch.Generator) -> list[Prompt]:
        """Prompts with their right labels.

        Args:
            count: How many.
            generator: Source of all randomness.
        """
        items, labels = self._drawn(count, generator)
        return [
            Prompt(text=_question(row, given), answer=_words("L", given))
            for row, given in zip(items, labels.tolist(), strict=True)
        ]

    def reward(self, prompt: Prompt, completion: str) -> float:
        """Share of the K labels that are right, word by word.

        Args:
            prompt: As drawn.
            completion: Words beyond the K-th do not count; those that lack are wrong.
        """
        return right_share(prompt, completion)

    def corpus(self, count: int, shuffled: float, generator: torch.Generator) -> list[str]:
        """Prompts with their labels, which in a share of them stand in a random order.

        Args:
            count: How many.
            shuffled: Probability that the labels of a sequence are shuffled.
            generator: Source of all randomness.
        """
        items, labels = self._drawn(count, generator)
        order = torch.rand(count, self.num_pairs, generator=generator).argsort(1)
        mixed = torch.rand(count, 1, generator=generator) < shuffled
        answers = torch.where(mixed, labels.gather(1, order), labels)
        return [
            f"{_question(row, given)} {_words('L', answer)}"
            for row, given, answer in zip(items, labels.tolist(), answers.tolist(), strict=True)
        ]

    def _drawn(self, count: int, generator: torch.Generator) -> tuple[list[list[int]], torch.Tensor]:
        items = torch.rand(count, self.num_items, generator=generator).argsort(1)[:, : self.num_pairs]
        return items.tolist(), torch.randint(self.num_labels, (count, self.num_pairs), generator=generator)


def check_size(task: str, name: str, found: int, least: int) -> None:
    """Refuse a size of a task that is too small; raises `InputError`.

    Args:
        task: Its name.
        name: Of the size.
        found: The size.
        least: The smallest possible.
    """
    if found < least:
        where = f"task {task}, option --{name.replace('_', '-')}"
        raise InputError(f"{name} must be at least {least}", f"found {found}", where)


def right_share(prompt: Prompt, completion: str) -> float:
    """Share of the right answer's words that a completion has in the right place.

    Args:
        prompt: With its answer.
        completion: Words beyond the answer's length do not count; those that lack are wrong.
    """
    right = (prompt.answer or "").split()
    return sum(a == b for a, b in zip(right, completion.split(), strict=False)) / max(1, len(right))


def _question(items: Sequence[int], labels: Sequence[int]) -> str:
    pairs = " ".join(f"i{item} L{label}" for item, label in zip(items, labels, strict=True))
    return f"{pairs} {SEPARATOR}"


def _words(letter: str, numbers: Sequence[int]) -> str:
    return " ".join(f"{letter}{number}" for number in numbers)
