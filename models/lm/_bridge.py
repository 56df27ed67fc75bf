"""TransformerLens around a language model, for probing; and back to the plain model, where nothing was folded."""

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from valuelens.models._errors import InputError, told
from valuelens.models.lm._families import FULL_PRECISION_BRIDGES
from valuelens.models.lm._language_model import LanguageModel

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge


def bridge(language_model: LanguageModel) -> "TransformerBridge":
    """A TransformerLens bridge around a copy of the model: the same weights, numbers and tokens, with hooks.

    `blocks.{l}.hook_in` is the residual stream that enters block l. The parameters stay frozen, so that a backward
    hook is silent unless a forward hook makes the embeddings a leaf (`x.detach().requires_grad_()` at
    `embed.hook_out`), and the loss is built and sent backward by whoever holds it.

    Args:
        language_model: Its model is left as it is.

    Raises:
        InputError: TransformerLens lacks this family, or cannot run it in this precision.
    """
    model, name = language_model.model, language_model.name
    if language_model.family in FULL_PRECISION_BRIDGES and model.dtype not in (torch.float32, torch.float64):
        found = f"found {model.dtype} for {language_model.family}; load it with dtype float32"
        raise InputError("TransformerLens must be able to run the model", found, name)
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    clone = copy.deepcopy(model)
    with told("TransformerLens must know this family", f"{name} ({type(model).__name__})"):
        lens = build_bridge_from_module(clone, type(model).__name__, hf_config=clone.config, model_name=name)
    if language_model.tokenizer is not None:
        _give(lens, copy.deepcopy(language_model.tokenizer))
    return lens


def plain_model(model: nn.Module) -> nn.Module:
    """The model of transformers behind a bridge whose weights are still the model's own; a plain model as it is.

    Compatibility mode folds norms and centres what is written to the residual stream. Logits survive that; hidden
    states, and every gradient with respect to them, are then those of another basis.

    Args:
        model: Of transformers, or a TransformerLens bridge.

    Raises:
        InputError: The bridge's weights were processed, or it is in compatibility mode.
    """
    processed = getattr(model, "_weights_processed", False)
    if processed or getattr(model, "compatibility_mode", False):
        found = "found folded or centred weights" if processed else "found compatibility mode"
        must = "a bridge must be unprocessed (`enable_compatibility_mode` changes the residual stream)"
        raise InputError(must, found, type(model).__name__)
    original: Any = getattr(model, "original_model", model)
    return original if isinstance(original, nn.Module) else model


def _give(lens: "TransformerBridge", tokenizer: PreTrainedTokenizerBase) -> None:
    """The tokenizer itself: a bridge that is built with one loads another by its name and has it prepend a token."""
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    lens.tokenizer = tokenizer
    prepends, appends = _ends(tokenizer)
    lens.cfg.default_prepend_bos = lens.cfg.tokenizer_prepends_bos = prepends
    lens.cfg.tokenizer_appends_eos = appends


def _ends(tokenizer: PreTrainedTokenizerBase) -> tuple[bool, bool]:
    """Whether a tokenizer puts a token before every text, and one behind it."""
    from transformer_lens.model_bridge.sources._bridge_builder import detect_tokenizer_bos_eos

    try:
        prepends, appends = detect_tokenizer_bos_eos(tokenizer)
    except Exception:  # noqa: BLE001  # it tries "a", which a tokenizer of whole words may refuse; then nothing is tried
        empty = tokenizer.encode("")
        return tokenizer.bos_token_id in empty, tokenizer.eos_token_id in empty
    return bool(prepends), bool(appends)
