"""PEFT adapters: merged, they compute what peft computes; on another base they are refused."""

import copy
import json

import pytest
import torch
from torch.testing import assert_close

from valuelens.models import InputError
from valuelens.models.lm import load_language_model
from valuelens.models.lm._merged import base_of, merged

# peft asks transformers for a property by its old name
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")


@pytest.fixture
def adapter(tiny_model, tmp_path):
    """Folder of a LoRA adapter with random weights beside that of its base, and the adapted model."""
    from peft import LoraConfig, get_peft_model

    tiny_model("llama", num_layers=2).save_pretrained(tmp_path / "base")
    model = copy.deepcopy(tiny_model("llama", num_layers=2))
    model.name_or_path = str(tmp_path / "base")
    torch.manual_seed(0)
    config = LoraConfig(r=2, target_modules=["q_proj", "up_proj"], init_lora_weights=False)
    adapted = get_peft_model(model, config).eval()
    adapted.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter", adapted


def refusal(source, **options):
    with pytest.raises(InputError) as error:
        load_language_model(source, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def edit(folder, **keys):
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | keys))


def test_a_merged_adapter_computes_what_peft_computes(adapter, tiny_model, generator):
    folder, adapted = adapter
    language_model = load_language_model(folder)
    ids = torch.randint(5, (3, 9), generator=generator)
    logits = language_model.model(ids).logits
    assert_close(logits, adapted(ids).logits, rtol=0, atol=1e-5)
    assert (logits - tiny_model("llama", num_layers=2)(ids).logits).abs().max() > 0.5
    assert type(language_model.model) is type(tiny_model("llama"))
    assert not any(parameter.requires_grad for parameter in language_model.model.parameters())


def test_its_origin_names_adapter_and_base(adapter):
    folder, _ = adapter
    language_model, base = load_language_model(folder), load_language_model(folder.parent / "base")
    assert language_model.origin["kind"] == "adapter"
    assert language_model.origin["base"] == {"name": base.name, "sha256": base.sha256, **base.origin}
    assert language_model.name == str(folder)
    assert len({language_model.sha256, base.sha256}) == 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_it_is_merged_in_full_precision_and_rounded_once(adapter, dtype):
    folder, adapted = adapter
    wanted = adapted.merge_and_unload().state_dict()
    model = load_language_model(folder, dtype=dtype).model
    for name, weight in model.state_dict().items():
        assert weight.dtype == getattr(torch, dtype)
        assert_close(
            weight, wanted[name].to(weight.dtype), rtol=1e-2 if dtype == "bfloat16" else 1e-5, atol=1e-6
        )


def test_the_base_may_be_named(adapter, tmp_path):
    folder, adapted = adapter
    edit(folder, base_model_name_or_path="/nowhere")
    assert refusal(folder).startswith("a model must exist")
    found = load_language_model(folder, base=tmp_path / "base").model
    assert_close(
        found(torch.tensor([[1, 2]])).logits, adapted(torch.tensor([[1, 2]])).logits, rtol=0, atol=1e-5
    )
    edit(folder, base_model_name_or_path=None)
    assert refusal(folder).startswith(
        "an adapter must name its base in adapter_config.json, or --base must; found"
    )
    assert refusal(folder, base=folder).startswith(
        "the base of an adapter must be a whole model; found an adapter"
    )


def test_a_base_on_the_hub_comes_with_its_revision(adapter):
    folder, _ = adapter
    edit(folder, base_model_name_or_path="org/name", revision="step3")
    assert base_of(folder) == "org/name@step3"
    edit(folder, revision=None)
    assert base_of(folder) == "org/name"


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            {"num_layers": 1},
            "those of this kind of model; found unexpected: base_model.model.model.layers.1.",
        ),
        ({"num_layers": 3}, "the weights must be complete; found missing: base_model.model.model.layers.2."),
        (
            {"num_layers": 2, "d_model": 32},
            "the adapter must load onto its base; found RuntimeError: Error(s) in",
        ),
        ({"family": "gpt2"}, "the adapter must load onto its base; found "),
    ],
)
def test_an_adapter_of_another_model_is_refused(adapter, tiny_model, tmp_path, sizes, message):
    tiny_model(**{"family": "llama", **sizes}).save_pretrained(tmp_path / "other")
    assert message in refusal(adapter[0], base=tmp_path / "other")


def test_what_cannot_be_merged_is_refused(tiny_model, tmp_path):
    from peft import PromptTuningConfig, get_peft_model

    config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    get_peft_model(copy.deepcopy(tiny_model("llama")), config).save_pretrained(tmp_path)
    with pytest.raises(
        InputError, match="the adapter must be mergeable, as LoRA is; found PROMPT_TUNING, which is no"
    ):
        merged(copy.deepcopy(tiny_model("llama")), tmp_path)


def test_without_peft_its_extra_is_named(adapter, monkeypatch):
    monkeypatch.setattr("valuelens.models.lm._merged.find_spec", lambda name: None)
    assert (
        "a PEFT adapter needs peft; found that peft is not installed: pip install 'valuelens[peft]'"
        in refusal(adapter[0])
    )
