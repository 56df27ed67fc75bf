"""The doctor finds what is missing or broken, and says so without falling over."""

import json
import re
import shutil
import sys
import warnings
from functools import partial
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Qwen2MoeConfig, Qwen2MoeForCausalLM

from valuelens import _doctor, cli
from valuelens import _doctor_machine as machine
from valuelens._check import Check, Dubious
from valuelens.models.icrl import ModelConfig, RunConfig, TaskConfig, build, save_checkpoint
from valuelens.models.lm import Soundness


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """The slowdown of threads by a glance."""
    monkeypatch.setattr(machine, "_BUDGET", 0.01)


@pytest.fixture
def checkpoint(tmp_path):
    config = RunConfig(model=ModelConfig(num_layers=2))
    model = build(config.model, TaskConfig(), torch.Generator())
    save_checkpoint(tmp_path / "checkpoint", model, config, step=0)
    return tmp_path / "checkpoint"


def states(model=None):
    return {check.what: check.state for check in _doctor.checks(model)}


def test_this_environment_is_sound():
    found = states()
    del found["pdf"]  # pango need not be here
    assert set(found.values()) <= {"ok", "warning"}


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


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("transformer-lens", "3.0.1", "3.9.0"),
        ("transformers", "4.40.0", "5.1"),
        ("torch", "2.5.1", "2.6.0+cpu"),
    ],
)
def test_a_needed_package_of_another_version_than_the_metadata_asks_for_is_broken(
    monkeypatch, name, old, new
):
    monkeypatch.setattr(_doctor, "version", lambda _: old)
    check = _doctor._package(name)
    assert check.state == "broken"
    assert check.found.startswith(
        f"{old}; needs >=" if name != "transformer-lens" else f"{old}; needs <5,>=3.9:"
    )
    monkeypatch.setattr(_doctor, "version", lambda _: new)
    assert _doctor._package(name) == Check(name, "ok", new)


def test_an_optional_package_that_is_too_old_is_a_warning(monkeypatch):
    monkeypatch.setattr(_doctor, "version", lambda _: "0.16.0")
    check = _doctor._optional("gguf", "GGUF files")
    assert check == Check("gguf", "warning", "0.16.0; needs >=0.17: pip install 'gguf>=0.17'")
    assert _doctor._optional("nothing-of-ours", "x").state == "ok"


def test_a_folder_of_the_same_name_is_no_package(monkeypatch, tmp_path):
    (tmp_path / "no_such_module").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert find_spec("no_such_module") is not None
    assert _doctor._optional("no_such_module", "lost") == Check("no_such_module", "missing", "lost")


def test_a_broken_check_exits_with_2(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["valuelens", "doctor", str(tmp_path / "nowhere"), "--json"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert checks[-1]["state"] == "broken"
    assert "must exist" in checks[-1]["found"]


def found(model):
    return {check.what: check for check in _doctor.checks(model)[-6:]}


def test_a_language_model_is_tried(tiny_model, family, tmp_path):
    tiny_model(family).save_pretrained(tmp_path)
    checks = found(str(tmp_path))
    first, *others = checks.values()
    assert {check.state for check in checks.values()} == {"ok"}
    assert re.fullmatch(r"about 0.0 GiB beside the weights .*, [0-9.]+ GiB available", others[3].found)
    assert re.match(r"at most about [0-9]+ (s|min) for 512 completions of 64 tokens on cpu", others[4].found)
    assert first.what == f"checkpoint {tmp_path}"
    assert first.found.startswith(f"{family}, 4 layers, width 16, ")
    assert " parameters, context window 64, loads in float32 and is finite; sha256 " in first.found
    names = ["tokenizer", "gradients", "attention", "memory of costates", "time of costates"]
    assert [check.what for check in others] == names
    assert checks["tokenizer"].found == "none: only token ids below 5 can be used, no text"
    assert checks["gradients"].found.startswith("reach layer 0 (norm ")


def test_a_family_that_is_not_tested_and_a_tokenizer_are_told(tmp_path):
    config = Qwen2MoeConfig(
        **{"vocab_size": 6, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2},
        **{"num_attention_heads": 2, "num_key_value_heads": 2, "num_experts": 2, "num_experts_per_tok": 1},
        **{"moe_intermediate_size": 8, "shared_expert_intermediate_size": 8, "max_position_embeddings": 64},
        **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),
    )
    Qwen2MoeForCausalLM(config).save_pretrained(tmp_path)
    words = Tokenizer(models.WordLevel({str(i): i for i in range(5)}, unk_token="0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="4")
    tokenizer.chat_template = "{{ messages }}"
    tokenizer.save_pretrained(tmp_path)
    checks = found(tmp_path)
    assert checks[f"checkpoint {tmp_path}"].found.startswith(
        "qwen2_moe, a family that is not tested, 2 layers"
    )
    assert checks["tokenizer"].found == "5 tokens for 6 embeddings, ends with '4', has chat template"


def test_a_language_model_that_cannot_be_used_is_broken(tiny_language_model):
    norms, parts = (0.0, float("nan"), 1.0), {"padding": 0.0, "tolerance": 1e-3}
    language_model = tiny_language_model("llama")
    with pytest.raises(ValueError, match="none, or none that is finite, reach layers 0, 1"):
        _doctor._gradients(language_model, Soundness(gradients=norms, future=0.0, **parts))
    for future in (0.5, float("nan")):
        with pytest.raises(ValueError, match="positions see what they must not"):
            _doctor._attention(language_model, Soundness(gradients=norms, future=future, **parts))


def test_a_broken_language_model_is_one_line(tiny_model, tmp_path):
    tiny_model("gpt2").save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    check = _doctor.checks(tmp_path)[-1]
    assert check.state == "broken"
    assert check.found.startswith("a weight file must be readable and whole; found ")
    assert "\n" not in str(check)


def looked(look):
    return _doctor.guarded("it", look)


def test_the_slowdown_of_threads_is_measured_and_says_what_to_set(monkeypatch):
    times = {4: 3e-3, 1: 2e-3}
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    used = []
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    monkeypatch.setattr(machine, "_step_seconds", lambda: times[used[-1]])
    check = looked(machine.threads)
    assert check.state == "warning"
    assert (
        "on torch's 4 threads small models take 1.5 times as long as on one, in one process; " in check.found
    )
    assert "OMP_NUM_THREADS=1" in check.found
    assert used == [4, 1, 4, 1, 4]  # and as it was
    times[4] = 2e-3
    assert looked(machine.threads).state == "ok"
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert "torch uses one thread" in looked(machine.threads).found


@pytest.mark.parametrize("budget", [0, 0.01])
def test_a_small_step_takes_some_time(monkeypatch, budget):
    monkeypatch.setattr(machine, "_BUDGET", budget)  # on a busy machine it may be over before the first step
    assert 0 < machine._step_seconds() < 1


def test_offline_and_a_cache_that_cannot_be_written_are_told(monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    check = looked(machine.hub)
    assert (check.state, check.found.split()[0]) == ("ok", str(tmp_path / "hub"))
    assert not (tmp_path / "hub").exists()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    check = looked(machine.hub)
    assert (check.state, check.found.split(":")[0]) == ("warning", "HF_HUB_OFFLINE is set")
    (tmp_path / "file").touch()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "file"))
    check = looked(machine.hub)
    assert check.state == "warning"
    assert (
        check.found
        == f"{tmp_path / 'file'} cannot be written (Not a directory); set HF_HOME to another folder"
    )


@pytest.mark.parametrize(("free", "state"), [(5 << 20, "broken"), (500 << 20, "warning"), (5 << 30, "ok")])
def test_a_full_disk_is_told_before_it_is_met(monkeypatch, free, state):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    check = looked(machine.temporary)
    assert check.state == state
    assert ("TMPDIR" in check.found) == (state != "ok")
    assert looked(machine.here).state == ("ok" if state == "ok" else "warning")


def test_a_cuda_build_without_a_gpu_says_why(monkeypatch):
    def none():
        warnings.warn("The NVIDIA driver on your system is too old\nmore", UserWarning, stacklevel=1)
        return False

    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", none)
    check = looked(machine.devices)
    assert check.state == "warning"
    assert (
        "built for CUDA 12.8 and sees no GPU: The NVIDIA driver on your system is too old; all" in check.found
    )
    monkeypatch.setattr(torch.version, "cuda", None)
    assert looked(machine.devices).found.startswith("cpu")


def test_little_memory_is_told(monkeypatch):
    assert 0 < machine.available_memory() < 1 << 60
    monkeypatch.setattr(machine, "available_memory", lambda: 1 << 30)
    check = looked(machine.memory)
    assert (check.state, check.found[:7]) == ("warning", "1.0 of ")


def test_a_container_may_have_less_memory_than_the_machine(monkeypatch):
    said = {
        "meminfo": ["MemAvailable: 8388608 kB"],
        "memory.max": ["4294967296"],
        "memory.current": ["1073741824"],
        "memory.stat": [],
    }
    monkeypatch.setattr(machine, "_lines", lambda path: said[path.name])
    assert machine.available_memory() == 3 << 30
    said["memory.stat"] = ["anon 5", "inactive_file 536870912", "active_file 7"]  # of files that were read
    assert machine.available_memory() == 3 << 30 | 1 << 29
    said["memory.max"] = ["max"]
    assert machine.available_memory() == 8 << 30


def test_a_model_that_does_not_fit_is_not_loaded(monkeypatch, tiny_model, tmp_path):
    tiny_model("llama").save_pretrained(tmp_path)
    monkeypatch.setattr(machine, "available_memory", lambda: 10)
    check = _doctor._room(tmp_path)
    assert check.state == "broken"
    assert "use a machine with more memory" in check.found
    assert _doctor.checks(tmp_path)[-1] == check
    with pytest.raises(Dubious, match="use --micro-batch 1"):
        _doctor._needed(
            SimpleNamespace(d_model=8, num_layers=1, vocab_size=9, model=tiny_model("llama")), None
        )


def test_pango_and_weasyprint_are_told_apart(monkeypatch):
    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(machine, "version", absent)
    assert looked(machine.pdf) == Check("it", "missing", "report --pdf: pip install 'valuelens[pdf]'")
    monkeypatch.setattr(machine, "version", lambda _: "70.0")
    for error, todo in (
        (OSError("cannot load library 'libgobject-2.0-0'"), "apt-get install libpango"),
        (
            ImportError("cannot import name 'x' from 'tinycss2'\nmore"),
            "--force-reinstall weasyprint; found cannot",
        ),
        (ImportError(), "--force-reinstall weasyprint; found"),
    ):
        monkeypatch.setattr(machine, "import_module", partial(_raised, error))
        check = looked(machine.pdf)
        assert check.state == "missing"
        assert todo in check.found
    monkeypatch.setattr(machine, "import_module", lambda _: None)
    assert looked(machine.pdf) == Check("it", "ok", "weasyprint 70.0 and pango")


def _raised(error, _):
    raise error


def test_quiet_shows_only_what_is_not_well(monkeypatch, capsys):
    found = [Check("one", "ok", "well"), Check("two", "warning", "not so")]
    monkeypatch.setattr(_doctor, "checks", lambda *_, **__: found)
    for options, lines in (
        ([], ["ok      one: well", "warning two: not so"]),
        (["--quiet"], ["warning two: not so"]),
    ):
        monkeypatch.setattr(sys, "argv", ["valuelens", "doctor", *options])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert not stop.value.code
        assert capsys.readouterr().out.splitlines() == lines
