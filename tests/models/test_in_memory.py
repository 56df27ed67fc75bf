"""Models that are already in memory: taken as they are, or refused in one line."""

import copy

import pytest
import torch
from tokenizers import Tokenizer, models
from torch import nn
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from valuelens.models import InputError
from valuelens.models.lm import bridge, language_model_of, soundness


def refusal(model, tokenizer=None):
    with pytest.raises(InputError) as error:
        language_model_of(model, tokenizer, name="mine")
    assert str(error.value).endswith(" mine")
    return str(error.value)


def test_a_model_is_taken_as_it_is(tiny_model, family):
    model = tiny_model(family)
    language_model = language_model_of(model)
    assert language_model.model is model
    assert (language_model.family, language_model.num_layers, language_model.tokenizer) == (family, 4, None)
    trained = copy.deepcopy(model).requires_grad_(True)
    assert soundness(language_model_of(trained)).gradients == soundness(language_model).gradients
    assert all(parameter.requires_grad for parameter in trained.parameters())


def test_its_hash_is_of_its_weights(tiny_model):
    one, other = (language_model_of(tiny_model("gpt2", seed=seed)).sha256 for seed in (0, 1))
    again = language_model_of(copy.deepcopy(tiny_model("gpt2"))).sha256
    half = language_model_of(tiny_model("gpt2", dtype=torch.bfloat16)).sha256
    assert one == again
    assert len({one, other, half}) == 3


def test_a_bridge_is_taken_unless_it_was_processed(tiny_language_model):
    lens = bridge(tiny_language_model("qwen2")).eval()
    assert language_model_of(lens).family == "qwen2"
    lens.enable_compatibility_mode(disable_warnings=True)
    with pytest.raises(InputError, match=r"a bridge must be unprocessed .*; found folded or centred weights"):
        language_model_of(lens)


def test_other_models_are_refused(tiny_model):
    model = copy.deepcopy(tiny_model("llama"))
    assert refusal(nn.Linear(2, 2)).startswith(
        "the model must be a causal language model of transformers; found Lin"
    )
    assert "found LlamaModel" in refusal(model.model)
    assert "evaluation mode (`model.eval()`); found training mode" in refusal(model.train())
    nn.init.constant_(model.eval().lm_head.weight, torch.nan)
    with pytest.raises(
        InputError, match=r"weights must be finite; found NaN or infinity; model in memory, tensor lm"
    ):
        language_model_of(model)
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 5}
    assert "found an encoder-decoder" in refusal(T5ForConditionalGeneration(T5Config(**sizes)).eval())


def test_a_tokenizer_of_another_model_is_refused(tiny_model):
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(6)}, unk_token="w0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words)
    assert "the tokenizer must match the model; found 6 tokens" in refusal(tiny_model("llama"), tokenizer)
    assert language_model_of(tiny_model("llama", vocab_size=6), tokenizer).tokenizer is tokenizer
