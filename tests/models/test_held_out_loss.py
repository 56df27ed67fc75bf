"""The held-out loss against a loop over texts."""

import copy
import dataclasses
import math
from typing import Any

import pytest
import torch

from valuelens.models import InputError
from valuelens.models.lm import LanguageModel, held_out_loss

TEXTS = ["a b c d e", "b", "e d c", "a a"]


@pytest.fixture
def model(tiny_language_model: Any, word_tokenizer: Any, family: str) -> LanguageModel:
    return dataclasses.replace(tiny_language_model(family), tokenizer=word_tokenizer("a b c d e", end="e"))


@pytest.mark.parametrize("ends", [False, True])
def test_it_is_the_mean_over_tokens(model: LanguageModel, ends: bool) -> None:
    losses = []
    for text in TEXTS:
        ids = [*map("abcde".index, text.split()), *[4] * ends]
        log_probs = model.model(torch.tensor([ids])).logits[0].log_softmax(-1)
        losses += [-float(log_probs[i, ids[i + 1]]) for i in range(len(ids) - 1)]
    for batch_size in (1, 3, 64):
        found = held_out_loss(model, TEXTS, ends=ends, batch_size=batch_size)
        assert found == pytest.approx(sum(losses) / len(losses), rel=1e-5)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a", "b"], "some held-out text must have two tokens; found none in 2 texts"),
        ([], "found none in 0 texts"),
        (["a " * 65], "a held-out text must fit the context window of 64 tokens; found 65"),
    ],
)
def test_what_has_no_loss_is_refused(
    tiny_language_model: Any, word_tokenizer: Any, texts: list[str], message: str
) -> None:
    model = dataclasses.replace(tiny_language_model("llama"), tokenizer=word_tokenizer("a b c d e"))
    with pytest.raises(InputError, match=message):
        held_out_loss(model, texts)
    with pytest.raises(InputError, match="must have an end-of-sequence token; found none in the tokenizer"):
        held_out_loss(model, ["a b"], ends=True)
    with pytest.raises(InputError, match="text must have a tokenizer"):
        held_out_loss(tiny_language_model("llama"), ["a b"])


def test_a_loss_that_is_no_number_is_refused(tiny_language_model: Any, word_tokenizer: Any) -> None:
    model = dataclasses.replace(tiny_language_model("llama"), tokenizer=word_tokenizer("a b c d e"))
    broken = dataclasses.replace(model, model=copy.deepcopy(model.model))
    broken.model.lm_head.weight[0] = math.nan
    with pytest.raises(InputError, match="the held-out loss must be a number; found nan"):
        held_out_loss(broken, ["a b"])
