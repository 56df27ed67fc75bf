"""The doctor finds what is missing or broken, and says so without falling over."""

import json
import sys

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Qwen2MoeConfig, Qwen2MoeForCausalLM

from valuelens import _doctor, cli
from valuelens.models.icrl import ModelConfig, RunConfig, TaskConfig, build, save_checkpoint
from valuelens.models.lm import Soundness


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


def found(model):
    return {check.what: check for check in _doctor.checks(model)[-4:]}


def test_a_language_model_is_tried(tiny_model, family, tmp_path):
    tiny_model(family).save_pretrained(tmp_path)
    checks = found(str(tmp_path))
    first, *others = checks.values()
    assert {check.state for check in checks.values()} == {"ok"}
    assert first.what == f"checkpoint {tmp_path}"
    assert first.found.startswith(f"{family}, 4 layers, width 16, ")
    assert " parameters, context window 64, loads in float32 and is finite; sha256 " in first.found
    assert [check.what for check in others] == ["tokenizer", "gradients", "attention"]
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
