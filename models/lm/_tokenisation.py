"""Prompts and completions as token ids, the way trainers and samplers tokenise them."""

from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from valuelens.models._errors import InputError, told
from valuelens.models.lm._rollouts import Tokens
from valuelens.models.lm._task import Message, Task


def prompt_tokens(
    tokenizer: PreTrainedTokenizerBase | None, text: str | Sequence[Message], where: str
) -> Tokens:
    """A text with the special tokens that the tokenizer adds, or a chat by its template, ready to be answered.

    Args:
        tokenizer: Of the model; none where there is none, which is refused.
        text: A text, or the turns of a chat.
        where: File and row, or task, named in errors.

    Raises:
        InputError: There is no tokenizer, it does not know a word, it has no chat template or refuses the chat, or
            there is no token.
    """
    tokenizer = needed(tokenizer, where)
    if isinstance(text, str):
        tokens = _encoded(tokenizer, text, where)
    else:
        tokens = _chat_tokens(tokenizer, [dict(turn) for turn in text], where)
    if not tokens:
        raise InputError("a prompt must have a token", f"found none in {text!r}", where)
    return tuple(int(token) for token in tokens)


def completion_tokens(tokenizer: PreTrainedTokenizerBase | None, text: str, where: str) -> Tokens:
    """A completion without any token added: neither a start nor an end.

    Args:
        tokenizer: Of the model; none is refused.
        text: What was completed.
        where: File and row, or task, named in errors.

    Raises:
        InputError: There is no tokenizer, or it does not know a word.
    """
    return tuple(_encoded(needed(tokenizer, where), text, where, add_special_tokens=False))


def decoded(
    tokenizer: PreTrainedTokenizerBase, completions: Sequence[Sequence[int]], task: Task
) -> list[str]:
    """Completions as the texts that a task rewards.

    Special tokens are left out where completions may end with one. Where they do not, every token has its place, and a
    special one that was sampled is a wrong word like any other.

    Args:
        tokenizer: Of the model.
        completions: Tokens.
        task: That rewards them.
    """
    rows = [list(each) for each in completions]
    return list(tokenizer.batch_decode(rows, skip_special_tokens=task.ends))


def end_tokens(tokenizer: PreTrainedTokenizerBase | None, generation_config: Any = None) -> Tokens:
    """Tokens that end a completion, that which is to be appended first; none if there is no such token.

    Args:
        tokenizer: Its `eos_token_id` counts, if there is one.
        generation_config: Of the model, whose `eos_token_id` may be several.
    """
    configured = getattr(generation_config, "eos_token_id", None)
    others = [configured] if isinstance(configured, int) else list(configured or [])
    own = getattr(tokenizer, "eos_token_id", None)
    return tuple(dict.fromkeys([*([] if own is None else [own]), *others]))


def needed(tokenizer: PreTrainedTokenizerBase | None, where: str) -> PreTrainedTokenizerBase:
    """The tokenizer, where text cannot do without one.

    Args:
        tokenizer: Or none.
        where: Named in the error.

    Raises:
        InputError: There is none.
    """
    if tokenizer is None:
        raise InputError("text must have a tokenizer", "found a model without one (use token ids)", where)
    return tokenizer


def _encoded(tokenizer: PreTrainedTokenizerBase, text: str, where: str, **options: bool) -> list[int]:
    with told("the tokenizer must know every word", where):
        return list(tokenizer(text, **options)["input_ids"])


def _chat_tokens(tokenizer: PreTrainedTokenizerBase, turns: list[Message], where: str) -> list[int]:
    if not tokenizer.chat_template:
        raise InputError("a chat must have a template", "found a tokenizer without chat_template", where)
    try:
        text = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    except (TemplateError, TypeError, ValueError, LookupError) as error:  # as the template's author liked
        raise InputError("the chat template must take the chat", f"found {error}", where) from error
    return list(tokenizer(str(text), add_special_tokens=False)["input_ids"])
