"""Texts of a task as token ids, checked before and while a language model reads them.

Shape legend: `batch` texts, `pos` words.
"""

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from valuelens.models._errors import InputError, told
from valuelens.models.lm._pretraining_config import LMRunConfig
from valuelens.models.lm._task import PretrainingTask
from valuelens.models.lm._word_tokenizer import encoded, word_tokenizer

CONTEXT = 512
"""Most words of a text, and context window of the models that read it."""


def task_tokenizer(task: PretrainingTask, config: LMRunConfig) -> PreTrainedTokenizerFast:
    """A token for each word of a task.

    Args:
        task: With its vocabulary.
        config: Names it in errors.

    Raises:
        InputError: The vocabulary is none.
    """
    where = f"task {config.corpus.task}"
    with told("a task must have a vocabulary of words", where):
        vocabulary = [str(word) for word in task.vocabulary]
    return word_tokenizer(vocabulary, longest=CONTEXT, where=where)


def drawn_texts(
    task: PretrainingTask,
    config: LMRunConfig,
    tokenizer: PreTrainedTokenizerFast,
    generator: torch.Generator,
) -> Int[Tensor, "batch pos"]:
    """Fresh texts, padded on the right; where completions may end, an end-of-sequence token stands behind each.

    Args:
        task: With its corpus.
        config: How many, and the share that is shuffled.
        tokenizer: Of the task.
        generator: Source of all randomness.

    Raises:
        InputError: The task raises, draws something else than so many texts, or words that its vocabulary lacks, or
            too many of them.
    """
    where, count = f"task {config.corpus.task}", config.train.batch_size
    with told("a task must draw a corpus", where):
        texts = task.corpus(count, config.corpus.shuffled, generator)
    if len(texts) != count or not all(isinstance(text, str) for text in texts):
        found = f"found {len(texts)} of {type(texts[0]).__name__ if texts else 'nothing'}"
        raise InputError(f"a task must draw as many texts as it is asked for, {count}", found, where)
    end = [tokenizer.eos_token_id] if task.ends else []
    rows = [[*ids, *end] for ids in encoded(tokenizer, texts, where=where)]
    width = max(map(len, rows))
    if width > CONTEXT:
        raise InputError(f"a text must have at most {CONTEXT} words", f"found {width}", where)
    return torch.tensor([row + [tokenizer.pad_token_id] * (width - len(row)) for row in rows])
