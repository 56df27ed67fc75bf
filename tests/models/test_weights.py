"""Weight files: found, whole, hashed."""

import json

import pytest
from torch import nn

from valuelens.models import InputError
from valuelens.models.lm._weights import check_finite, check_keys, weight_files, weights_hash


@pytest.fixture
def sharded(tiny_model, tmp_path):
    tiny_model("gpt2").save_pretrained(tmp_path, max_shard_size="10KB")
    return tmp_path


def refusal(folder, kind="folder"):
    with pytest.raises(InputError) as error:
        weight_files(folder, kind)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_shards_are_those_of_the_index(sharded):
    (sharded / "stray.safetensors").touch()
    (sharded / "optimizer.bin").touch()
    files = weight_files(sharded, "folder")
    assert len(files) > 2
    assert files == sorted(sharded.glob("model-*.safetensors"))
    assert weights_hash(files) == weights_hash(files[::-1]) != weights_hash(files[:-1])


def test_a_missing_shard_is_named(sharded):
    (sharded / "model-00002-of-00003.safetensors").unlink(missing_ok=True)
    name = next(f"model-00002-of-{file.name[-17:]}" for file in sharded.glob("model-00001-*"))
    (sharded / name).unlink(missing_ok=True)
    assert refusal(sharded).startswith(f"every shard of the index must be there; found no {name}; ")


@pytest.mark.parametrize("text", ["{}", "[", '{"weight_map": 3}', "[1]"])
def test_an_index_that_is_none_is_told(sharded, text):
    (sharded / "model.safetensors.index.json").write_text(text)
    assert refusal(sharded).startswith("an index of shards must have a weight_map; found none; ")


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-7], lambda b: b[:4], lambda b: b"", lambda b: b"\xff" * 9 + b[9:]]
)
def test_a_cut_or_damaged_file_is_told(sharded, damage):
    file = sorted(sharded.glob("model-*"))[1]
    file.write_bytes(damage(file.read_bytes()))
    told = refusal(sharded)
    assert told.startswith("a weight file must be readable and whole; found ")
    assert told.endswith(str(file))


def test_safetensors_go_before_pickles(tmp_path, tiny_model):
    assert refusal(tmp_path) == f"a model must have model.safetensors; found nothing; {tmp_path}"
    (tmp_path / "pytorch_model.bin").touch()
    assert weight_files(tmp_path, "folder") == [tmp_path / "pytorch_model.bin"]
    assert refusal(tmp_path, "adapter").startswith(
        "a model must have adapter_model.safetensors; found pytorch_model"
    )
    tiny_model("gpt2").save_pretrained(tmp_path)
    assert weight_files(tmp_path, "folder") == [tmp_path / "model.safetensors"]
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {}}))
    assert weight_files(tmp_path, "folder") == [tmp_path / "model.safetensors"]


def test_keys_must_be_exactly_those_of_the_model():
    check_keys(
        {"missing_keys": set(), "unexpected_keys": {"h.0.attn.bias", "layers.0.rotary_emb.inv_freq"}}, "here"
    )
    with pytest.raises(InputError, match=r"found missing: a and 1 more; here"):
        check_keys({"missing_keys": {"b", "a"}}, "here")
    with pytest.raises(InputError, match=r"found mismatched: a \(3,\), not \(4, 5\); here"):
        check_keys({"mismatched_keys": {("a", (3,), (4, 5))}}, "here")
    with pytest.raises(InputError, match=r"found unexpected: attention\.bias_v; here"):
        check_keys({"unexpected_keys": ["attention.bias_v"]}, "here")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_must_be_numbers(value):
    model = nn.Linear(2, 3)
    check_finite(model, "here")
    nn.init.constant_(model.bias, value)
    with pytest.raises(InputError, match="weights must be finite; found NaN or infinity; here, tensor bias"):
        check_finite(model, "here")
