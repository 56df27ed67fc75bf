"""One row of a file of rollouts as tokens and numbers, every value checked where it stands."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from valuelens.models._errors import InputError
from valuelens.models.lm._rollouts import Tokens
from valuelens.models.lm._task import Message
from valuelens.models.lm._tokenisation import completion_tokens, prompt_tokens

Numbers = tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """A row of a file, and how its values are read.

    Attributes:
        row: Its values by column.
        path: Of the file.
        number: Of the row, from 0.
        vocabulary: Tokens of the model.
        tokenizer: For text.
    """

    row: Mapping[str, Any]
    path: str
    number: int
    vocabulary: int
    tokenizer: PreTrainedTokenizerBase | None

    def where(self, column: str) -> str:
        """File, column and row, for errors."""
        return f"{self.path}, column {column}, row {self.number}"

    def has(self, column: str) -> bool:
        """Whether there is a value."""
        return self.row.get(column) is not None

    def prompt(self) -> Tokens:
        """Tokens of the prompt, from `prompt_ids`, or from `prompt`: a text or a chat.

        Raises:
            InputError: They are missing, of another type, empty or outside the vocabulary.
        """
        if self.has("prompt_ids"):
            tokens = self.tokens("prompt_ids")
            if not tokens:
                raise InputError("a prompt must have a token", "found none", self.where("prompt_ids"))
            return tokens
        where, value = self.where("prompt"), self.row.get("prompt")
        text = value if isinstance(value, str) else _chat(value, where)
        return self._known(prompt_tokens(self.tokenizer, text, where), "prompt")

    def completion(self) -> Tokens:
        """Tokens of the completion, from `completion_ids`, or from `completion`: a text or one message.

        Raises:
            InputError: They are missing, of another type or outside the vocabulary.
        """
        if self.has("completion_ids"):
            return self.tokens("completion_ids")
        where, value = self.where("completion"), self.row.get("completion")
        if not isinstance(value, str):
            turns = _chat(value, where)
            if len(turns) != 1:
                raise InputError("a completion must be one message", f"found {len(turns)}", where)
            value = turns[0]["content"]
        return self._known(completion_tokens(self.tokenizer, value, where), "completion")

    def targets(self, column: str) -> Tokens:
        """Right tokens: token ids, or text.

        Args:
            column: Where they stand.

        Raises:
            InputError: They are of another type or outside the vocabulary.
        """
        value = self.row.get(column)
        if isinstance(value, str):
            return self._known(completion_tokens(self.tokenizer, value, self.where(column)), column)
        return self.tokens(column)

    def tokens(self, column: str) -> Tokens:
        """A list of token ids.

        Args:
            column: Where they stand.

        Raises:
            InputError: They are no list of whole numbers, or outside the vocabulary.
        """
        value = self.row.get(column)
        if not isinstance(value, list) or not all(type(each) is int for each in value):
            raise InputError("token ids must be a list of whole numbers", _found(value), self.where(column))
        return self._known(tuple(value), column)

    def number_at(self, column: str) -> float:
        """A number; NaN where there is none.

        Args:
            column: Where it stands.

        Raises:
            InputError: It is infinite, or of another type.
        """
        value = self.row.get(column)
        if value is None:
            return math.nan
        if not isinstance(value, (int, float)) or math.isinf(value):
            raise InputError("a number must be finite", _found(value), self.where(column))
        return float(value)

    def numbers(self, column: str, *, missing: bool = False) -> Numbers:
        """A list of numbers.

        Args:
            column: Where they stand.
            missing: Whether one may be missing, and so NaN.

        Raises:
            InputError: They are no list of finite numbers.
        """
        value = self.row.get(column)
        kinds = (int, float, type(None)) if missing else (int, float)
        if not isinstance(value, list) or not all(isinstance(each, kinds) for each in value):
            raise InputError("there must be a list of numbers", _found(value), self.where(column))
        numbers = tuple(math.nan if each is None else float(each) for each in value)
        if any(math.isinf(each) or (math.isnan(each) and not missing) for each in numbers):
            raise InputError("numbers must be finite", _found(value), self.where(column))
        return numbers

    def _known(self, tokens: Tokens, column: str) -> Tokens:
        for token in tokens:
            if not 0 <= token < self.vocabulary:
                must = f"token ids must lie in the model's vocabulary of {self.vocabulary}"
                raise InputError(must, f"found {token}", self.where(column))
        return tokens


def _chat(value: Any, where: str) -> list[Message]:
    if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
        raise InputError("there must be a text or a list of messages", _found(value), where)
    turns = [{key: part for key, part in turn.items() if part is not None} for turn in value]
    for turn in turns:
        if set(turn) != {"role", "content"} or not all(isinstance(part, str) for part in turn.values()):
            raise InputError("a message must be a role and a text", _found(turn), where)
    return turns


def _found(value: Any) -> str:
    text = repr(value)
    return f"found {text if len(text) <= 60 else text[:57] + '...'}"
