"""Texts of tasks of one's own: a series learns them, and one line for everything that foreign code gets wrong."""

import pandas as pd
import pytest
from transformers import AutoTokenizer

from valuelens.models import InputError
from valuelens.models.lm import LMCorpusConfig, LMModelConfig, LMRunConfig, LMTrainConfig, pretrain_lm


def config(task, **train):
    return LMRunConfig(
        corpus=LMCorpusConfig(task=task),
        model=LMModelConfig(num_layers=1, d_model=8, num_heads=2),
        train=LMTrainConfig(steps=36, batch_size=4, num_checkpoints=4).model_copy(update=train),
    )


CODE = """
from valuelens.models.lm import Prompt

class Count:
    reward_range, completion_length, ends = (0.0, 1.0), 1, False
    vocabulary = ("one", "two")

    def __init__(self, texts="one two"):
        self.texts = texts
        print("made")

    def prompts(self, count, generator):
        return [Prompt(text="one")] * count

    def reward(self, prompt, completion):
        return float(completion == "two")

    def corpus(self, count, shuffled, generator):
        return [self.texts] * count

class Few(Count):
    def corpus(self, count, shuffled, generator):
        return ["one"]

class Numbers(Count):
    def corpus(self, count, shuffled, generator):
        return [1] * count

class Strange(Count):
    def corpus(self, count, shuffled, generator):
        return ["one three"] * count

class Empty(Count):
    def corpus(self, count, shuffled, generator):
        return [""] * count

class Long(Count):
    def corpus(self, count, shuffled, generator):
        return ["one " * 513] * count

class Dies(Count):
    def corpus(self, count, shuffled, generator):
        raise RuntimeError("no text")

class Twice(Count):
    vocabulary = ("one", "one")

class Wordless(Count):
    vocabulary = None
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module of tasks on the path, under a name of its own for each test."""
    name = f"corpora_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_a_task_of_ones_own_is_learnt(mine, tmp_path, capsys):
    (last,) = pretrain_lm(config(f"{mine}:Count", learning_rate=0.01), tmp_path / "out")
    losses = pd.read_parquet(tmp_path / "out" / "metrics.parquet").loss
    assert losses.iloc[-1] < 0.5 * losses.iloc[0]
    assert AutoTokenizer.from_pretrained(last)("two one").input_ids == [3, 2]
    captured = capsys.readouterr()
    assert captured.out.count("made") == captured.out.count("\n")  # while training it prints to stderr
    assert "made" in captured.err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Few", "a task must draw as many texts as it is asked for, 4; found 1 of str; task"),
        ("Numbers", "a task must draw as many texts as it is asked for, 4; found 4 of int; task"),
        ("Strange", "every word of a text must stand in the vocabulary; found 'three'; task"),
        ("Empty", "a text must have a word; found ''; task"),
        ("Long", "a text must have at most 512 words; found 513; task"),
        ("Dies", "a task must draw a corpus; found RuntimeError: no text"),
        ("Twice", "a vocabulary must hold words without spaces, each once"),
        ("Wordless", "a task must have a vocabulary of words; found TypeError"),
    ],
)
def test_a_task_that_cannot_be_pretrained_on_is_told_before_anything_is_written(mine, tmp_path, name, text):
    with pytest.raises(InputError) as caught:
        pretrain_lm(config(f"{mine}:{name}"), tmp_path / "out")
    assert str(caught.value).startswith(text)
    assert f"task {mine}:{name}" in str(caught.value)
    assert not (tmp_path / "out").exists()
