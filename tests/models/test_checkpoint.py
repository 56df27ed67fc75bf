"""Checkpoints: round trips, and every way in which a folder can be wrong, told in one line."""

import hashlib
import json
import os
import random

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from valuelens.models import InputError
from valuelens.models.icrl import (
    CheckpointPath,
    ModelConfig,
    RunConfig,
    TaskConfig,
    build,
    checkpoint_folder,
    checkpoint_hash,
    checkpoint_paths,
    load,
    read_tensors,
    save_checkpoint,
)

TASK = TaskConfig(num_states=4, feature_dim=2, context_length=5, gamma=0.7)
MODELS = {
    "tsm": ModelConfig(num_layers=2),
    "tsm, full, untied": ModelConfig(weights="full", num_layers=2, tied=False),
    "dual, factored": ModelConfig(arch="dual", weights="factored", num_layers=2),
    "linear": ModelConfig(arch="linear", num_layers=2),
    "transformer": ModelConfig(arch="transformer", num_layers=1, num_heads=2, d_model=4),
    "set-only transformer": ModelConfig(
        arch="transformer", num_layers=1, num_heads=2, d_model=4, positions=False, normalization="rms"
    ),
}


def write(folder, *, model="tsm", dtype=torch.float32, state=None):
    config = RunConfig(task=TASK, model=MODELS[model])
    learner = build(config.model, config.task, torch.Generator().manual_seed(0)).to(dtype)
    save_checkpoint(folder, learner, config, step=3, state=state)
    return learner


@pytest.fixture
def checkpoint(tmp_path):
    write(tmp_path / "step-00000003")
    return tmp_path / "step-00000003"


def snapshot(folder):
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def refusal(path):
    """The one line with which a checkpoint is refused; nothing on disk may change."""
    folder = path.parent
    before = snapshot(folder)
    with pytest.raises(InputError) as caught:
        load(path)
    assert snapshot(folder) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_checkpoint_gives_back_the_model_bit_for_bit(tmp_path, model, dtype):
    learner = write(tmp_path / "step-00000003", model=model, dtype=dtype)
    for path in (tmp_path / "step-00000003", tmp_path / "step-00000003" / "model.safetensors"):
        again = load(path)
        assert_close(again.state_dict(), learner.state_dict(), atol=0, rtol=0)
        assert {parameter.dtype for parameter in again.parameters()} == {dtype}
        assert (type(again), again.gamma, again.num_layers) == (type(learner), 0.7, learner.num_layers)


def test_the_files_are_the_contracts(checkpoint):
    assert sorted(path.name for path in checkpoint.iterdir()) == ["config.json", "model.safetensors"]
    write(checkpoint.with_name("step-00000004"), state={"generator": torch.zeros(2)})
    files = sorted(path.name for path in checkpoint.with_name("step-00000004").iterdir())
    assert files == ["config.json", "model.safetensors", "state.safetensors"]
    assert json.loads((checkpoint / "config.json").read_text())["step"] == 3


@pytest.mark.parametrize("name", ["model.pt", "model.bin"])
def test_a_state_dict_of_torch_loads(checkpoint, name):
    expected = load(checkpoint).state_dict()
    (checkpoint / "model.safetensors").unlink()
    torch.save(expected, checkpoint / name)
    for path in (checkpoint, checkpoint / name, checkpoint / "config.json"):
        assert_close(load(path).state_dict(), expected, atol=0, rtol=0)


def test_a_folder_that_is_not_there(tmp_path):
    assert refusal(tmp_path / "none") == f"a checkpoint must exist; found nothing; {tmp_path / 'none'}"


def test_no_config(checkpoint):
    (checkpoint / "config.json").unlink()
    assert refusal(checkpoint).startswith("a checkpoint or run has a config.json; found none; ")


CONFIGS = {
    "no JSON": ("{", "config.json must be readable JSON; found Expecting property name"),
    "unknown key": ({"task": {"colour": 1}}, "config keys must be known ones; found unknown key task.colour"),
    "gamma of one": ({"task": {"gamma": 1}}, "task.gamma must be less than 1; found 1;"),
    "gamma below zero": ({"task": {"gamma": -1}}, "task.gamma must be greater than or equal to 0; found -1;"),
    "no context": (
        {"task": {"context_length": 0}},
        "task.context_length must be greater than or equal to 1; found 0;",
    ),
    "another kind": ({"model": {"arch": "mamba"}}, "model.arch must be 'tsm', 'dual', 'linear' or"),
}


@pytest.mark.parametrize(("change", "message"), CONFIGS.values(), ids=CONFIGS)
def test_a_wrong_config(checkpoint, change, message):
    path = checkpoint / "config.json"
    if isinstance(change, dict):
        config = json.loads(path.read_text())
        change = json.dumps(
            {key: value | change.get(key, {}) if key in change else value for key, value in config.items()}
        )
    path.write_text(change)
    told = refusal(checkpoint)
    assert told.startswith(message)
    assert str(path) in told


def test_no_weights(checkpoint):
    (checkpoint / "model.safetensors").unlink()
    assert refusal(checkpoint) == f"a checkpoint has a model.safetensors; found none; {checkpoint}"
    with pytest.raises(InputError, match=r"a weight file must exist; found none; .*model\.safetensors"):
        read_tensors(checkpoint / "model.safetensors")


def test_weights_cut_at_any_length(checkpoint):
    path = checkpoint / "model.safetensors"
    whole = path.read_bytes()
    for length in (0, 1, 7, 8, 9, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert refusal(checkpoint).startswith("a weight file must be readable and whole; found ")
    path.write_bytes(whole + b"\0")
    assert refusal(checkpoint).startswith("a weight file must be readable and whole; found ")


def double(tensors):
    return {**tensors, "w": tensors["w"].double()}


TENSORS = {
    "foreign": (
        lambda t: {"lm_head.weight": torch.ones(2)},
        "the tensors must be those of the config (A_features, w); found A_features missing;",
    ),
    "none": (
        lambda t: {},
        "the tensors must be those of the config (A_features, w); found A_features missing;",
    ),
    "one more": (
        lambda t: {**t, "bias": torch.ones(2)},
        "the tensors must be those of the config (A_features, w); found bias unexpected;",
    ),
    "one less": (lambda t: {"w": t["w"]}, "the tensors must be those of the config (A_features, w)"),
    "shape": (lambda t: {**t, "w": torch.ones(1, 4)}, "its shape must be (1, 3); found (1, 4);"),
    "untied": (lambda t: {**t, "w": torch.ones(2, 3)}, "its shape must be (1, 3); found (2, 3);"),
    "integers": (lambda t: {**t, "w": t["w"].int()}, "weights must be floating point; found torch.int32;"),
    "mixed": (double, "all weights must share one dtype; found ['torch.float32', 'torch.float64'];"),
    "NaN": (lambda t: {**t, "w": t["w"] * torch.nan}, "weights must be finite; found NaN or infinity;"),
    "infinity": (lambda t: {**t, "w": t["w"] / 0}, "weights must be finite; found NaN or infinity;"),
}


@pytest.mark.parametrize(("change", "message"), TENSORS.values(), ids=TENSORS)
def test_wrong_tensors(checkpoint, change, message):
    path = checkpoint / "model.safetensors"
    save_file(change(load_file(path)), path)
    told = refusal(checkpoint)
    assert told.startswith(message)
    assert str(path) in told
    if "tensors" not in message and "share" not in message:
        assert told.endswith("tensor w")


class Code:
    """A pickle that runs a command when it is read."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("name", ["model.pt", "model.bin"])
@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_a_pickle_is_refused_and_not_run(checkpoint, tmp_path, name, zipped):
    (checkpoint / "model.safetensors").unlink()
    ran = tmp_path / "ran"
    for payload in (Code(ran), {"w": torch.ones(1), "more": Code(ran)}):
        torch.save(payload, checkpoint / name, _use_new_zipfile_serialization=zipped)
        told = refusal(checkpoint)
        assert told == (
            "the file must hold weights only (no code); "
            f"found a call of {os.system.__module__}.system; {checkpoint / name}"
        )
    assert not ran.exists()


OTHERS = {
    "a list": ([torch.ones(1)], "the file must hold a state dict; found list;"),
    "a tensor": (torch.ones(1), "the file must hold a state dict; found Tensor;"),
    "nested": (
        {"model": {"w": torch.ones(1)}},
        "the file must hold a state dict (names and tensors); found 'model': dict;",
    ),
    "numbered": ({0: torch.ones(1)}, "the file must hold a state dict (names and tensors); found 0: Tensor;"),
}


@pytest.mark.parametrize(("content", "message"), OTHERS.values(), ids=OTHERS)
def test_a_pickle_of_something_else(checkpoint, content, message):
    (checkpoint / "model.safetensors").unlink()
    torch.save(content, checkpoint / "model.pt")
    assert refusal(checkpoint).startswith(message)


@pytest.mark.parametrize("content", [b"", b"\x80", b"hello", b"PK\x03\x04", b"\x80\x02}q\x00."])
def test_a_pickle_that_is_none(checkpoint, content):
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / "model.pt").write_bytes(content)
    assert refusal(checkpoint).startswith("the file must hold ")


def refused(path):
    """The line with which a weight file is refused, or nothing."""
    try:
        read_tensors(path)
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.filterwarnings("ignore")  # torch remarks on what it finds in broken files
@pytest.mark.parametrize("zipped", [True, False])
def test_a_damaged_pickle_is_read_or_refused(tmp_path, zipped):
    path, rng = tmp_path / "model.pt", random.Random(0)
    torch.save({"w": torch.ones(3)}, path, _use_new_zipfile_serialization=zipped)
    whole, lines = path.read_bytes(), []
    for trial in range(600):
        damaged = bytearray(whole[: rng.randrange(1, len(whole))] if trial % 3 == 0 else whole)
        for _ in range(3):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        lines.append(refused(path))
    assert sum(map(bool, lines)) > 200
    assert not any("\n" in line for line in lines)


def test_paths_of_a_run_are_sorted_and_others_ignored(tmp_path):
    assert checkpoint_paths(tmp_path / "none") == []
    for step in (20, 3, 100):
        write(checkpoint_folder(tmp_path, step))
    for other in ("step-7", "step-00000007.old", ".valuelens-tmp-1-new-step-00000007", "best"):
        (tmp_path / "checkpoints" / other).mkdir()
    (tmp_path / "checkpoints" / "step-00000008").write_text("a file")
    found = checkpoint_paths(tmp_path)
    assert [each.step for each in found] == [3, 20, 100]
    assert found[0] == CheckpointPath(path=checkpoint_folder(tmp_path, 3), seed=0, step=3)
    assert found[0].name == "step-00000003"


def test_paths_of_several_seeds_come_by_seed(tmp_path):
    for seed in (10, 9):
        folder = checkpoint_folder(tmp_path / f"seed-{seed}", 3)
        write(folder)
        config = json.loads((folder / "config.json").read_text())
        config["train"]["seed"] = seed
        (folder / "config.json").write_text(json.dumps(config))
    assert [each.seed for each in checkpoint_paths(tmp_path)] == [9, 10]
    (folder / "config.json").unlink()
    assert [each.seed for each in checkpoint_paths(tmp_path)] == [9, 10]


def test_the_hash_is_that_of_the_weight_file(checkpoint):
    expected = hashlib.sha256((checkpoint / "model.safetensors").read_bytes()).hexdigest()
    assert checkpoint_hash(checkpoint) == checkpoint_hash(checkpoint / "model.safetensors") == expected


def test_an_unwritable_place_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"the output must be writable; found .+; .*step-00000003"):
        write(tmp_path / "file" / "step-00000003")
    assert [path.name for path in tmp_path.rglob("*")] == ["file"]
