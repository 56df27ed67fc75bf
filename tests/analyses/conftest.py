"""A small language model that can be asked to copy labels, and what it sampled."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from valuelens.models.lm import LabelCopy, LanguageModel, Rollouts


class Copier(NamedTuple):
    """A random Llama with the words of label copying for its vocabulary."""

    model: "LanguageModel"
    task: "LabelCopy"
    sample: "Callable[..., Rollouts]"


@pytest.fixture(scope="session")
def copier(tiny_language_model: "Callable[..., LanguageModel]") -> Copier:
    """Two pairs of two labels: 49 continuations of each prompt."""
    from valuelens.models.lm import GenerateConfig, LabelCopy, generate, word_tokenizer

    task = LabelCopy(num_items=2, num_labels=2, num_pairs=2)
    tokenizer = word_tokenizer(task.vocabulary, longest=64)
    model = tiny_language_model("llama", vocab_size=len(tokenizer))
    model = dataclasses.replace(model, tokenizer=tokenizer, name="copier", sha256="0" * 64)

    def sample(**sizes: Any) -> "Rollouts":
        return generate(model, task, GenerateConfig(**{"num_prompts": 4, "num_generations": 8, **sizes}))

    return Copier(model, task, sample)
