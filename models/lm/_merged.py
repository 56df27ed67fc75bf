"""PEFT adapters, merged into the model that they were trained on."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from valuelens.models._errors import InputError, told
from valuelens.models.lm._sources import ADAPTER, read_config
from valuelens.models.lm._weights import check_keys

_NAME = "default"


def base_of(folder: Path) -> str:
    """The model that an adapter's configuration names as its base, with its revision.

    Args:
        folder: Of the adapter.

    Raises:
        InputError: It names none.
    """
    config = read_config(folder / ADAPTER)
    base, revision = config.get("base_model_name_or_path"), config.get("revision")
    if not base:
        must = "an adapter must name its base in adapter_config.json, or --base must"
        raise InputError(must, "found neither", str(folder))
    return str(base) if not revision or Path(base).exists() else f"{base}@{revision}"


def merged(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """The model with an adapter's changes added to its weights: plain transformers again.

    Args:
        model: The base; it is changed.
        folder: Of the adapter.

    Raises:
        InputError: peft is not installed, the adapter is not of this model, or of a kind that weights cannot hold.
    """
    if find_spec("peft") is None:
        found = "found that peft is not installed: pip install 'valuelens[peft]'"
        raise InputError("a PEFT adapter needs peft", found, str(folder))
    from peft import PeftConfig, PeftModel, load_peft_weights, set_peft_model_state_dict

    with told("the adapter must load onto its base", str(folder)):
        config = PeftConfig.from_pretrained(str(folder))
        if config.is_prompt_learning:
            found = f"found {config.peft_type.value}, which is no change of weights"
            raise InputError("the adapter must be mergeable, as LoRA is", found, str(folder))
        adapted = PeftModel(model, config, adapter_name=_NAME)
        result: Any = set_peft_model_state_dict(adapted, load_peft_weights(str(folder), device="cpu"), _NAME)
        missing = [name for name in result.missing_keys if f".{_NAME}." in name]
        check_keys({"missing_keys": missing, "unexpected_keys": result.unexpected_keys}, str(folder))
        answer: PreTrainedModel = adapted.merge_and_unload(safe_merge=True)
    return answer
