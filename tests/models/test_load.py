"""Language models of every family load as they were saved, and nothing else does."""

import copy
import hashlib
import json
import sys
from logging import Handler
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.testing import assert_close
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

from valuelens.models import InputError
from valuelens.models.lm import TESTED_FAMILIES, LanguageModel, _load, bridge, load_language_model, soundness
from valuelens.models.lm._load import _quiet

KEY = "model.layers.0.mlp.up_proj.weight"


@pytest.fixture
def saved(tiny_model, tmp_path):
    """A Llama's folder."""
    tiny_model("llama", num_layers=2).save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def refusal(source, **options):
    with pytest.raises(InputError) as error:
        load_language_model(source, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def edit(folder, **keys):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | keys))


def rewrite(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def word_tokenizer(size, **special):
    words = Tokenizer(models.WordLevel({str(i): i for i in range(size)}, unk_token="0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, **special)


@pytest.mark.parametrize("shards", [False, True])
def test_a_family_loads_as_it_was_saved(tiny_model, family, shards, tmp_path, generator):
    model = tiny_model(family, vocab_size=20, num_layers=3)
    model.save_pretrained(tmp_path, max_shard_size="10KB" if shards else "1GB")
    assert (tmp_path / "model.safetensors.index.json").exists() == shards
    language_model = load_language_model(tmp_path)
    assert (language_model.family, language_model.num_layers, language_model.d_model) == (family, 3, 16)
    assert (language_model.vocab_size, language_model.context_window) == (20, 64)
    assert family in TESTED_FAMILIES
    ids = torch.randint(20, (2, 12), generator=generator)
    assert_close(language_model.model(ids).logits, model(ids).logits, rtol=0, atol=0)


def test_tied_weights_stay_tied(tiny_model, family, tmp_path):
    model = copy.deepcopy(tiny_model(family))
    model.config.tie_word_embeddings = True
    model.tie_weights()
    model.save_pretrained(tmp_path)
    loaded = load_language_model(tmp_path).model
    assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight
    assert_close(loaded.get_input_embeddings().weight, model.get_input_embeddings().weight, rtol=0, atol=0)


def test_a_padded_batch_is_its_rows(tiny_model, family, tmp_path, generator):
    tiny_model(family, vocab_size=20).save_pretrained(tmp_path)
    model = load_language_model(tmp_path, dtype="float64").model
    rows = [torch.randint(20, (length,), generator=generator) for length in (12, 5, 9)]
    mask = torch.arange(14) < torch.tensor([len(row) for row in rows])[:, None]
    ids = torch.nn.utils.rnn.pad_sequence([*rows, torch.zeros(14).long()], batch_first=True)[:3]
    logits = model(input_ids=ids, attention_mask=mask.long()).logits
    for i, row in enumerate(rows):
        assert_close(logits[i, : len(row)], model(row[None]).logits[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_precision_is_as_asked_whatever_was_saved(tiny_model, dtype, tmp_path):
    tiny_model("qwen3").save_pretrained(tmp_path)
    edit(tmp_path, dtype="bfloat16")
    model = load_language_model(str(tmp_path), dtype=dtype).model
    assert {parameter.dtype for parameter in model.parameters()} == {getattr(torch, dtype)}
    assert model.dtype == getattr(torch, dtype)


def test_it_is_frozen_and_evaluates(saved):
    edit(saved, attention_dropout=0.5)
    language_model = load_language_model(saved)
    assert isinstance(language_model, LanguageModel)
    assert not language_model.model.training
    assert not any(parameter.requires_grad for parameter in language_model.model.parameters())
    assert language_model.device == torch.device("cpu")
    assert language_model.origin == {"kind": "folder", "revision": None, "commit": None}


def test_what_transformers_would_show_in_a_bar_is_told(saved):
    seen = []
    plain = load_language_model(saved)
    told = load_language_model(saved, progress=lambda done, whole: seen.append((done, whole)))
    tensors = len(load_file(saved / "model.safetensors"))
    assert [done for done, whole in seen if whole == tensors] == list(range(tensors))
    assert told.sha256 == plain.sha256
    assert logging.set_tqdm_hook(None) is None  # as it was


def test_tensors_of_a_gguf_file_are_told_in_percent():
    from transformers import modeling_gguf_pytorch_utils as reader

    seen, bar = [], reader.tqdm
    with _load._dequantised(lambda done, whole: seen.append((done, whole))):
        assert list(reader.tqdm(range(11), desc="tensors")) == list(range(11))
        assert list(logging.tqdm(range(3))) == [0, 1, 2]  # those that are set afterwards count no second time
    assert seen == [(percent, 100) for percent in range(68, 79)]
    assert reader.tqdm is bar
    assert logging.set_tqdm_hook(None) is None


def test_the_hash_is_of_the_weights(saved, tiny_model, tmp_path):
    one = load_language_model(saved).sha256
    assert one == hashlib.sha256((saved / "model.safetensors").read_bytes()).hexdigest()
    edit(saved, note="x")
    assert load_language_model(saved).sha256 == one
    hashes = []
    for seed in (0, 1):
        tiny_model("llama", seed=seed).save_pretrained(tmp_path / str(seed), max_shard_size="5KB")
        hashes.append(load_language_model(tmp_path / str(seed)).sha256)
    assert len({one, *hashes}) == 3


def test_pickled_weights_load_and_code_does_not(saved, tmp_path, generator):
    safe = load_language_model(saved).model
    tensors = load_file(saved / "model.safetensors")
    (saved / "model.safetensors").unlink()
    torch.save(tensors, saved / "pytorch_model.bin")
    ids = torch.randint(5, (2, 7), generator=generator)
    assert_close(load_language_model(saved).model(ids).logits, safe(ids).logits, rtol=0, atol=0)
    (saved / "pytorch_model.bin").write_bytes(b"cbuiltins\neval\n(S'1'\ntR.")
    assert refusal(saved).startswith("the model must load; found UnpicklingError: ")


def test_its_tokenizer_comes_with_it(saved):
    assert load_language_model(saved).tokenizer is None
    word_tokenizer(5, eos_token="4").save_pretrained(saved)
    tokenizer = load_language_model(saved).tokenizer
    assert tokenizer("3 1 2").input_ids == [3, 1, 2]
    assert tokenizer.eos_token_id == 4


def drop(tensors):
    del tensors[KEY]


def add(tensors):
    tensors["v_head.weight"] = torch.ones(2)


def reshape(tensors):
    tensors[KEY] = torch.ones(3, 3)


def spoil(tensors):
    tensors[KEY][1, 2] = torch.nan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop, f"the weights must be complete; found missing: {KEY}; "),
        (add, "the weights must be those of this kind of model; found unexpected: v_head.weight; "),
        (
            reshape,
            f"the weights must have the shapes of the configuration; found mismatched: {KEY} (3, 3), not (32, ",
        ),
        (spoil, "weights must be finite; found NaN or infinity; "),
    ],
)
def test_weights_that_are_not_the_models_are_refused(saved, change, message):
    rewrite(saved, change)
    assert refusal(saved).startswith(message)


def test_buffers_of_older_versions_are_no_weights(tiny_model, tmp_path):
    for family, name in (("gpt_neox", "gpt_neox.layers.0.attention"), ("gpt2", "transformer.h.0.attn")):
        tiny_model(family).save_pretrained(tmp_path / family)
        rewrite(tmp_path / family, lambda t, name=name: t.update({f"{name}.masked_bias": torch.tensor(-1e9)}))
        assert load_language_model(tmp_path / family).family == family


def test_a_deeper_configuration_than_the_weights_is_refused(saved):
    edit(saved, num_hidden_layers=3)
    assert refusal(saved).startswith("the weights must be complete; found missing: model.layers.2.")
    assert " and 8 more; " in refusal(saved)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"model_type": "t5", "architectures": None},
            "a decoder-only language model; found an encoder-decoder (t5)",
        ),
        ({"model_type": "vit", "architectures": None}, "language model; found vit, which has no such head"),
        (
            {"architectures": ["LlamaForSequenceClassification"]},
            "model; found LlamaForSequenceClassification",
        ),
        ({"model_type": "bert", "architectures": None}, "found bert, whose attention looks ahead"),
        (
            {"model_type": "mamba", "architectures": None},
            "every layer of MODEL must attend to the tokens before; found mamba, which keeps a running state",
        ),
        ({"model_type": "none-such"}, "transformers must know this kind of model; found "),
        (
            {"model_type": "mine", "auto_map": {"AutoConfig": "code.Mine"}},
            "code is never taken from a checkpoint; found a model of its own code (mine)",
        ),
        (
            {"quantization_config": {"quant_method": "gptq", "bits": 4}},
            "weights must be floating point (GGUF files are dequantised); found gptq",
        ),
    ],
)
def test_models_of_another_kind_are_refused(saved, keys, message):
    edit(saved, **keys)
    assert message in refusal(saved)


def test_code_in_the_folder_of_a_known_family_is_left_alone(saved):
    (saved / "code.py").write_text("raise SystemExit")
    edit(saved, auto_map={"AutoConfig": "code.Mine", "AutoModelForCausalLM": "code.Mine"})
    assert type(load_language_model(saved).model).__module__ == "transformers.models.llama.modeling_llama"


def test_other_misuse_is_told(saved):
    assert refusal(saved, dtype="float16").startswith(
        "the dtype must be one of float32, bfloat16, float64; found"
    )
    assert refusal(saved, device="nowhere").startswith("the device must exist here; found 'nowhere'")
    assert refusal(saved, base="org/name").startswith(
        "only an adapter has a base; found org/name for a model"
    )


def test_nothing_is_printed_or_logged_and_settings_stay(saved, capfd):
    records = []
    handler = Handler()
    handler.emit = records.append
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.add_handler(handler)
    load_language_model(saved)
    rewrite(saved, drop)
    refusal(saved)  # transformers would log which weights it drew at random
    with _quiet():
        print("a bar of a library", file=sys.stderr)
    logging.remove_handler(handler)
    assert records == []
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


@pytest.mark.xdist_group("smollm2")
@pytest.mark.slow
def test_a_gguf_file_loads_dequantised(smollm2):
    """SmolLM2-135M-Instruct; the whole file of tests shares one loading."""
    assert (smollm2.family, smollm2.num_layers, smollm2.d_model, smollm2.vocab_size) == (
        "llama",
        30,
        576,
        49152,
    )
    assert smollm2.origin["kind"] == "gguf"
    assert smollm2.sha256 == hashlib.sha256(Path(smollm2.name).read_bytes()).hexdigest()
    assert {parameter.dtype for parameter in smollm2.model.parameters()} == {torch.float32}
    assert not any(parameter.requires_grad for parameter in smollm2.model.parameters())
    ids = smollm2.tokenizer("The capital of France is", return_tensors="pt").input_ids
    logits = smollm2.model(ids).logits
    assert logits.isfinite().all()
    assert smollm2.tokenizer.decode(logits[0, -1].argmax()) == " Paris"
    found = soundness(smollm2)
    assert len(found.gradients) == 30
    assert all(0 < norm < 1e4 for norm in found.gradients)
    assert max(found.padding, found.future) < found.tolerance
    half = copy.deepcopy(smollm2.model).to(torch.bfloat16)
    assert half.dtype == torch.bfloat16
    assert half(ids).logits[0, -1].argmax() == logits[0, -1].argmax()
    assert_close(bridge(smollm2)(ids), logits, rtol=0, atol=1e-3)


def test_a_gguf_file_that_is_none_is_told(tmp_path, monkeypatch):
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF but not really")
    assert refusal(tmp_path).startswith("the model must load; found ")
    monkeypatch.setattr("valuelens.models.lm._load.find_spec", lambda name: None)
    told = "a GGUF file needs gguf and accelerate; found that gguf is not installed: pip install 'valuelens[gguf]'"
    assert refusal(tmp_path / "tiny.gguf").startswith(told)
