"""The tokenizer of words: there and back through plain transformers, and no word passes unknown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from valuelens.models import InputError
from valuelens.models.lm import LabelCopy, word_tokenizer

VOCABULARY = LabelCopy().vocabulary
TOKENIZER = word_tokenizer(VOCABULARY, longest=64)


@given(st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=12))
def test_there_and_back(words):
    ids = TOKENIZER(" ".join(words)).input_ids
    assert ids == [2 + VOCABULARY.index(word) for word in words]
    assert TOKENIZER.decode(ids) == " ".join(words)
    assert TOKENIZER.decode([*ids, TOKENIZER.eos_token_id], skip_special_tokens=True) == " ".join(words)


def test_padding_and_end_are_the_first_two_tokens():
    assert (TOKENIZER.pad_token, TOKENIZER.pad_token_id) == ("<pad>", 0)
    assert (TOKENIZER.eos_token, TOKENIZER.eos_token_id) == ("<eos>", 1)
    assert len(TOKENIZER) == 2 + len(VOCABULARY)


def test_plain_transformers_reads_what_it_wrote(tmp_path):
    TOKENIZER.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.get_vocab() == TOKENIZER.get_vocab()
    assert (loaded.pad_token_id, loaded.eos_token_id, loaded.model_max_length) == (0, 1, 64)
    batch = loaded(["i3 L0 =>", "i1"], padding=True)
    assert batch.input_ids == [[5, 14, 20], [0, 0, 3]]  # on the left, as generation needs it
    assert batch.attention_mask == [[1, 1, 1], [0, 0, 1]]


def test_an_unknown_word_never_becomes_a_token():
    with pytest.raises(Exception, match="UNK"):
        TOKENIZER("i3 i99")


@pytest.mark.parametrize("words", [["a", "a"], ["a b"], [""], ["<eos>"], [" a"]])
def test_what_is_no_vocabulary_is_refused(words):
    with pytest.raises(InputError) as caught:
        word_tokenizer(words, longest=8, where="task mine")
    must = "a vocabulary must hold words without spaces, each once, other than <pad> and <eos>"
    assert str(caught.value) == f"{must}; found {words[0]!r}; task mine"
