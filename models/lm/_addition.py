"""Addition of numbers with several digits: one reward at the end, for the whole answer."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from valuelens.models._errors import InputError
from valuelens.models.lm._task import Prompt

_MOST_DIGITS = 9


@dataclass(frozen=True, kw_only=True, slots=True)
class Addition:
    """Two numbers, a digit a word, to be added; the completion is their sum and an end-of-sequence token.

    `3 8 + 5 =` is answered by `4 3`. Reward: 1 if the completion is the sum, digit by digit and nothing else, else 0.
    An early digit decides whether later ones can still be right. There is no differentiable form with the same
    expectation (that would be the product of the digits' probabilities, not their mean), so prompts have no answer.

    Our definition: summands are uniform in 0 .. 10^n - 1, written without leading zeros, most significant digit
    first, so prompts differ in length. A shuffled sequence ends in a wrong sum, uniform among all others in
    0 .. 2 (10^n - 1).

    Attributes:
        num_digits: n, the most digits of a summand; at most 9.

    Example:
        >>> task = Addition()
        >>> prompt = task.prompts(1, torch.Generator().manual_seed(0))[0]
        >>> prompt.text, task.reward(prompt, "8 3"), task.reward(prompt, "8 3 0")
        ('4 4 + 3 9 =', 1.0, 0.0)
    """

    num_digits: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.num_digits <= _MOST_DIGITS:
            where = "task addition, option --num-digits"
            raise InputError(f"num_digits must lie in 1 .. {_MOST_DIGITS}", f"found {self.num_digits}", where)

    @property
    def reward_range(self) -> tuple[float, float]:
        """Wrong, right."""
        return 0.0, 1.0

    @property
    def completion_length(self) -> int:
        """The digits of the largest sum, and the end."""
        return self.num_digits + 2

    @property
    def ends(self) -> bool:
        """Where the sum ends."""
        return True

    @property
    def vocabulary(self) -> Sequence[str]:
        """Digits, plus, equals."""
        return (*"0123456789", "+", "=")

    def prompts(self, count: int, generator: torch.Generator) -> list[Prompt]:
        """Prompts.

        Args:
            count: How many.
            generator: Source of all randomness.
        """
        return [Prompt(text=_question(a, b)) for a, b in self._drawn(count, generator).tolist()]

    def reward(self, prompt: Prompt, completion: str) -> float:
        """1 for the right sum, else 0.

        Args:
            prompt: As drawn.
            completion: Without the end-of-sequence token.
        """
        numbers = str(prompt.text).replace(" ", "").removesuffix("=").split("+")
        return float(completion.split() == list(str(sum(map(int, numbers)))))

    def corpus(self, count: int, shuffled: float, generator: torch.Generator) -> list[str]:
        """Prompts with sums, a share of which is wrong.

        Args:
            count: How many.
            shuffled: Probability that a sequence has a wrong sum.
            generator: Source of all randomness.
        """
        numbers, sums = self._drawn(count, generator), 2 * 10**self.num_digits - 1
        offset = torch.randint(1, sums, (count,), generator=generator)
        wrong = torch.rand(count, generator=generator) < shuffled
        answers = (numbers.sum(1) + offset * wrong) % sums
        return [
            f"{_question(a, b)} {_digits(answer)}"
            for (a, b), answer in zip(numbers.tolist(), answers.tolist(), strict=True)
        ]

    def _drawn(self, count: int, generator: torch.Generator) -> torch.Tensor:
        return torch.randint(10**self.num_digits, (count, 2), generator=generator)


def _question(a: int, b: int) -> str:
    return f"{_digits(a)} + {_digits(b)} ="


def _digits(number: int) -> str:
    return " ".join(str(number))
