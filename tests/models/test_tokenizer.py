"""A tokenizer must write ids that its model has embeddings for."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AddedToken, PreTrainedTokenizerFast

from valuelens.models import InputError
from valuelens.models.lm._tokenizer import check_tokenizer, load_tokenizer


def tokenizer(size, **special):
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(size)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, **special)


def refusal(tokenizer, model):
    with pytest.raises(InputError) as error:
        check_tokenizer(tokenizer, model, "here")
    return str(error.value)


def test_a_tokenizer_comes_back(tmp_path):
    assert load_tokenizer(tmp_path) is None
    tokenizer(4, eos_token="w3").save_pretrained(tmp_path)
    assert load_tokenizer(tmp_path)("w2 w1").input_ids == [2, 1]


def test_a_damaged_tokenizer_is_told(tmp_path):
    tokenizer(4).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(InputError, match="the tokenizer must load; found "):
        load_tokenizer(tmp_path)
    tokenizer(0).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="a tokenizer must have tokens; found an empty vocabulary"):
        load_tokenizer(tmp_path)


def test_unused_embeddings_are_usual_and_missing_ones_are_not(tiny_model):
    model = tiny_model("llama", vocab_size=5)
    for size in (3, 5):
        check_tokenizer(tokenizer(size), model, "here")
    told = refusal(tokenizer(7), model)
    assert (
        told == "the tokenizer must match the model; found 7 tokens, 'w6' with id 6, for 5 embeddings; here"
    )


def test_a_special_token_beyond_the_embeddings_passes_unless_any_text_meets_it(tiny_model):
    model = tiny_model("llama", vocab_size=5)
    with_image = tokenizer(5)
    with_image.add_tokens(AddedToken("<image>", special=True), special_tokens=True)
    check_tokenizer(with_image, model, "here")
    assert "'<pad>' with id 5, for 5 embeddings" in refusal(tokenizer(5, pad_token="<pad>"), model)
    plain = tokenizer(5)
    plain.add_tokens("more")
    assert "'more' with id 5" in refusal(plain, model)
