"""The doctor finds what is missing or broken, and says so without falling over."""

import json
import sys

import pytest
import torch

from valuelens import _doctor, cli
from valuelens.models.icrl import ModelConfig, RunConfig, TaskConfig, build, save_checkpoint


@pytest.fixture
def checkpoint(tmp_path):
    config = RunConfig(model=ModelConfig(num_layers=2))
    model = build(config.model, TaskConfig(), torch.Generator())
    save_checkpoint(tmp_path / "checkpoint", model, config, step=0)
    return tmp_path / "checkpoint"


def states(model=None):
    return {check.what: check.state for check in _doctor.checks(model)}


def test_this_environment_is_sound():
    assert set(states().values()) == {"ok"}


def test_a_checkpoint_that_loads_is_described(checkpoint):
    check = _doctor.checks(checkpoint)[-1]
    assert check.state == "ok"
    assert "tsm, 2 layers, 19 parameters" in check.found


def test_a_broken_checkpoint_is_broken(checkpoint):
    (checkpoint / "model.safetensors").write_bytes(b"")
    check = _doctor.checks(checkpoint)[-1]
    assert check.state == "broken"
    assert "\n" not in str(check)


def test_a_missing_needed_package_is_broken_and_an_optional_one_is_missing(monkeypatch):
    monkeypatch.setattr(_doctor, "_NEEDED", ("no-such-package",))
    monkeypatch.setattr(_doctor, "_OPTIONAL", {"no_such_module": "nothing lost"})
    found = states()
    assert found["no-such-package"] == "broken"
    assert found["no_such_module"] == "missing"


def test_an_old_transformer_lens_is_broken(monkeypatch):
    monkeypatch.setattr(_doctor, "version", lambda name: "2.15.0")
    assert states()["transformer-lens"] == "broken"


def test_a_broken_check_exits_with_2(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["valuelens", "doctor", str(tmp_path / "nowhere"), "--json"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert checks[-1]["state"] == "broken"
    assert "must exist" in checks[-1]["found"]
