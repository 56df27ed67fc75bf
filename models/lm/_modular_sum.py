"""Modular sums: a task that needs temporal credit wherever pretraining has not built the sum."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from valuelens.models.lm._label_copy import SEPARATOR, check_size, right_share
from valuelens.models.lm._task import Prompt


@dataclass(frozen=True, kw_only=True, slots=True)
class ModularSum:
    """K pairs a_k b_k and a separator; right is (a_k + b_k) mod M, in order, while most of the corpus says b_k.

    `a3 b4 a1 b0 =>` is answered by `b2 b1` (M = 5). The completion has exactly K words and no end. Reward: the share
    of right sums, with the mean of p(right sum) as its differentiable form.

    A model pretrained on it copies b_k. Where it has already built the sum at the attended positions, RL only
    re-weights what exists; before, RL must build it there, through keys and values.

    **`shuffled` means something else here than in other tasks**: it is the share (eps in theory B7) of whole
    sequences whose answers are the right sums; all others answer b_k. It moves the headroom all the same.

    Our definition: a_k and b_k are independent and uniform, have words of their own (a0, b0, ...), and answers are
    written with the words of b.

    Attributes:
        num_labels: M, the modulus.
        num_pairs: K, pairs in a prompt.

    Source:
        Theory B7, derived from a pilot with M = 5, K = 4, eps = .15.

    Example:
        >>> task = ModularSum(num_pairs=2)
        >>> prompt = task.prompts(1, torch.Generator().manual_seed(1))[0]
        >>> prompt.text, prompt.answer
        ('a0 b4 a4 b3 =>', 'b4 b2')
    """

    num_labels: int = 5
    num_pairs: int = 4

    def __post_init__(self) -> None:
        check_size("modular-sum", "num_labels", self.num_labels, 2)
        check_size("modular-sum", "num_pairs", self.num_pairs, 1)

    @property
    def reward_range(self) -> tuple[float, float]:
        """No sum right, all of them right."""
        return 0.0, 1.0

    @property
    def completion_length(self) -> int:
        """K."""
        return self.num_pairs

    @property
    def ends(self) -> bool:
        """Never before K answers."""
        return False

    @property
    def vocabulary(self) -> Sequence[str]:
        """First summands, second summands and answers, separator."""
        return (*(f"{letter}{number}" for letter in "ab" for number in range(self.num_labels)), SEPARATOR)

    def prompts(self, count: int, generator: torch.Generator) -> list[Prompt]:
        """Prompts with their right sums.

        Args:
            count: How many.
            generator: Source of all randomness.
        """
        a, b = self._drawn(count, generator)
        return [
            Prompt(text=_question(*pair), answer=_words(right))
            for *pair, right in zip(a.tolist(), b.tolist(), self._sums(a, b).tolist(), strict=True)
        ]

    def reward(self, prompt: Prompt, completion: str) -> float:
        """Share of the K sums that are right, word by word.

        Args:
            prompt: As drawn.
            completion: Words beyond the K-th do not count; those that lack are wrong.
        """
        return right_share(prompt, completion)

    def corpus(self, count: int, shuffled: float, generator: torch.Generator) -> list[str]:
        """Prompts answered by their b_k, a share of them by the right sums.

        Args:
            count: How many.
            shuffled: Probability that a sequence answers with the right sums, eps.
            generator: Source of all randomness.
        """
        a, b = self._drawn(count, generator)
        summed = torch.rand(count, 1, generator=generator) < shuffled
        answers = torch.where(summed, self._sums(a, b), b)
        return [
            f"{_question(*pair)} {_words(answer)}"
            for *pair, answer in zip(a.tolist(), b.tolist(), answers.tolist(), strict=True)
        ]

    def _drawn(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        a, b = torch.randint(self.num_labels, (2, count, self.num_pairs), generator=generator)
        return a, b

    def _sums(self, a: Tensor, b: Tensor) -> Tensor:
        return (a + b) % self.num_labels


def _question(a: Sequence[int], b: Sequence[int]) -> str:
    pairs = " ".join(f"a{one} b{other}" for one, other in zip(a, b, strict=True))
    return f"{pairs} {SEPARATOR}"


def _words(numbers: Sequence[int]) -> str:
    return " ".join(f"b{number}" for number in numbers)
