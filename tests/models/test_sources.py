"""What MODEL may name, and one line for everything else."""

import json

import pytest
import torch

from valuelens.models import InputError
from valuelens.models.icrl import ModelConfig, RunConfig, TaskConfig, build, save_checkpoint
from valuelens.models.lm import is_in_context, is_language_model, series
from valuelens.models.lm._sources import located, read_config


def model_folder(folder, **config):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config or {"model_type": "llama"}))
    return folder


def refusal(source, revision=None):
    with pytest.raises(InputError) as error:
        located(source, revision)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_kinds_are_told_apart(tmp_path):
    assert located(model_folder(tmp_path / "full")).kind == "folder"
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (adapter / name).touch()
    assert located(str(adapter)).kind == "adapter"
    quantised = tmp_path / "quantised"
    quantised.mkdir()
    (quantised / "tiny.gguf").touch()
    for source in (quantised, quantised / "tiny.gguf"):
        found = located(source)
        assert (found.kind, found.folder, found.file) == ("gguf", quantised, "tiny.gguf")


def test_a_series_is_sorted_by_number(tmp_path):
    for name in ("step-00000100", "step-20", "checkpoint-3", "other-1", "step-x"):
        model_folder(tmp_path / name)
    (tmp_path / "step-7").mkdir()  # no model
    (tmp_path / "step-9").touch()
    assert [member.name for member in series(tmp_path)] == ["checkpoint-3", "step-20", "step-00000100"]
    assert series(tmp_path / "step-20") == series(tmp_path / "nowhere") == []


def test_a_series_where_one_model_is_needed_names_its_members(tmp_path):
    for name in ("checkpoint-10", "checkpoint-9"):
        model_folder(tmp_path / name)
    (tmp_path / "config.json").write_text('{"task": "label-copy"}')
    told = refusal(tmp_path)
    assert "name one of the series" in told
    assert "found a series of 2: checkpoint-9 ... checkpoint-10" in told
    (tmp_path / "config.json").write_text(
        '{"model_type": "llama"}'
    )  # a trainer's folder: itself the last model
    assert located(tmp_path).kind == "folder"


@pytest.fixture
def learner(tmp_path):
    config = RunConfig(model=ModelConfig(num_layers=2))
    model = build(config.model, TaskConfig(), torch.Generator())
    save_checkpoint(tmp_path / "checkpoints" / "step-00000000", model, config, step=0)
    return tmp_path / "checkpoints" / "step-00000000"


def test_in_context_learners_are_sent_to_analyze(learner, tmp_path):
    entry = tmp_path / "run" / "data.npz"
    entry.parent.mkdir()
    entry.touch()
    for path in (learner, learner / "model.safetensors", entry.parent):
        assert is_in_context(path)
        assert "found an in-context value learner: `valuelens analyze` is meant" in refusal(path)
    assert is_in_context(entry / "step-00000000")
    assert not is_in_context(model_folder(tmp_path / "full"))
    assert not is_in_context(tmp_path / "nowhere")


def test_language_models_are_told_from_in_context_learners(learner, tmp_path):
    model_folder(tmp_path / "series" / "step-00000020")
    (tmp_path / "series" / "config.json").write_text('{"corpus": {}, "model": {}, "train": {}}')
    for path in (tmp_path / "series" / "step-00000020", tmp_path / "series", tmp_path / "model.gguf"):
        assert is_language_model(path)
    for path in (learner, learner.parent.parent, tmp_path / "nowhere", tmp_path):
        assert not is_language_model(path)


@pytest.mark.parametrize("source", ["a/b/c", "/nowhere", "./nowhere", "org/name@", "@main", "", "a b"])
def test_what_can_be_no_name_is_not_looked_for(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refusal(source or "?").startswith("a model must exist (a Hugging Face folder, a hub name, ")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {},
            "a model folder must have a config.json, or one GGUF file; found 0 GGUF files and no config.json",
        ),
        (
            {"a.gguf": "", "b.gguf": ""},
            "a model folder must have a config.json, or one GGUF file; found 2 GGUF",
        ),
        ({"config.json": "{}"}, "a model's config.json must name its model_type; found none"),
        ({"config.json": "{"}, "a configuration must be readable JSON; found Expecting"),
        ({"config.json": "[]"}, "a configuration must be a JSON object; found list"),
        (
            {"adapter_config.json": "{}", "config.json": '{"model_type": "llama"}'},
            "a PEFT adapter must have adapter_model.safetensors; found none",
        ),
    ],
)
def test_a_folder_that_is_no_model_is_told(files, message, tmp_path):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert refusal(tmp_path).startswith(message)


def test_other_misuse_is_told(tmp_path):
    folder = model_folder(tmp_path / "full")
    assert refusal(folder, "main").startswith(
        "a revision belongs to a model of the hub; found 'main' for a path"
    )
    assert refusal(folder / "config.json").startswith(
        "a model is a folder, or a GGUF file; found the file config"
    )
    assert refusal("org/name@a", "b").startswith("there must be one revision; found 'a' and 'b'; org/name@a")
    with pytest.raises(InputError, match=r"a configuration must be readable JSON; found .*No such file"):
        read_config(tmp_path / "config.json")
