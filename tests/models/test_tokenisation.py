"""Prompts and completions as token ids."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from valuelens.models import InputError
from valuelens.models.lm import Addition, LabelCopy
from valuelens.models.lm import word_tokenizer as words_of
from valuelens.models.lm._tokenisation import completion_tokens, decoded, end_tokens, prompt_tokens

TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "{{ m['content'] + ' end ' }}{% endfor %}{% if add_generation_prompt %}c{% endif %}"
)


def test_a_chat_takes_its_template_and_asks_for_an_answer(word_tokenizer: Callable[..., Any]) -> None:
    tokenizer = word_tokenizer("a b c end", end="end")
    tokenizer.chat_template = TEMPLATE
    chat = ({"role": "system", "content": "b"}, {"role": "user", "content": "a a"})
    assert prompt_tokens(tokenizer, chat, "here") == (1, 3, 0, 0, 3, 2)
    with pytest.raises(InputError, match="the chat template must take the chat; found no tools; here"):
        prompt_tokens(tokenizer, ({"role": "tool", "content": "b"},), "here")


def test_a_chat_without_a_template_and_a_prompt_without_a_token_are_refused(
    word_tokenizer: Callable[..., Any],
) -> None:
    tokenizer = word_tokenizer("a b")
    with pytest.raises(
        InputError, match="must have a template; found a tokenizer without chat_template; here"
    ):
        prompt_tokens(tokenizer, ({"role": "user", "content": "a"},), "here")
    with pytest.raises(InputError, match="a prompt must have a token; found none in ''; here"):
        prompt_tokens(tokenizer, "", "here")


def test_only_prompts_get_the_tokens_that_a_tokenizer_adds(word_tokenizer: Callable[..., Any]) -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = word_tokenizer("a b start")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="start $A", special_tokens=[("start", 2)]
    )
    assert prompt_tokens(tokenizer, "a b", "here") == (2, 0, 1)
    assert completion_tokens(tokenizer, "a b", "here") == (0, 1)


def test_ends_are_the_tokenizer_s_and_then_the_model_s(word_tokenizer: Callable[..., Any]) -> None:
    tokenizer = word_tokenizer("a b end", end="end")
    assert end_tokens(tokenizer) == (2,)
    assert end_tokens(tokenizer, SimpleNamespace(eos_token_id=[1, 2])) == (2, 1)
    assert end_tokens(None, SimpleNamespace(eos_token_id=0)) == (0,)
    assert end_tokens(word_tokenizer("a b"), SimpleNamespace(eos_token_id=None)) == ()


def test_a_special_token_keeps_its_place_where_completions_do_not_end() -> None:
    """Left out, it would move every later label to the left, onto places where it may be right."""
    task = LabelCopy(num_items=2, num_labels=2, num_pairs=2)
    tokenizer = words_of(task.vocabulary, longest=16)
    label = tokenizer("L1").input_ids[0]
    assert decoded(tokenizer, [[1, label], [label, 0]], task) == ["<eos> L1", "L1 <pad>"]
    prompt = type(task.prompts(1, torch.Generator())[0])(text="i0 L1 i1 L0 =>", answer="L1 L0")
    assert task.reward(prompt, decoded(tokenizer, [[1, label]], task)[0]) == 0
    addition = Addition()
    tokenizer = words_of(addition.vocabulary, longest=16)
    assert decoded(tokenizer, [[tokenizer("7").input_ids[0], 1]], addition) == ["7"]


def test_a_word_that_the_tokenizer_does_not_know_is_told_in_one_line() -> None:
    tokenizer = words_of(["yes"], longest=4)
    with pytest.raises(InputError, match=r"the tokenizer must know every word; found .*UNK.*; here"):
        prompt_tokens(tokenizer, "no", "here")
