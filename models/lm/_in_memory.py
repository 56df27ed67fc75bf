"""A model that is already here, of transformers or behind a TransformerLens bridge, as a `LanguageModel`."""

import hashlib

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from valuelens.models._errors import InputError
from valuelens.models.lm._bridge import plain_model
from valuelens.models.lm._language_model import LanguageModel
from valuelens.models.lm._tokenizer import check_tokenizer
from valuelens.models.lm._weights import check_finite


def language_model_of(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase | None = None, *, name: str = "model in memory"
) -> LanguageModel:
    """A language model of a notebook or a trainer, as it is: nothing is copied, frozen or moved.

    Args:
        model: A causal language model of transformers in evaluation mode, or an unprocessed bridge around one.
        tokenizer: Its own; none where only token ids are used.
        name: For reports.

    Raises:
        InputError: The model is of another kind, still trains, is not finite or was processed by TransformerLens; or
            the tokenizer is another model's.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> sizes = {"vocab_size": 5, "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
        >>> model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=3))
        >>> language_model_of(model.eval()).num_layers
        3
    """
    plain = plain_model(model)
    if not (isinstance(plain, PreTrainedModel) and plain.get_output_embeddings() is not None):
        found = f"found {type(plain).__name__}"
        raise InputError("the model must be a causal language model of transformers", found, name)
    if plain.config.is_encoder_decoder:
        raise InputError("MODEL must be a decoder-only language model", "found an encoder-decoder", name)
    if plain.training:
        raise InputError("the model must be in evaluation mode (`model.eval()`)", "found training mode", name)
    check_finite(plain, name)
    if tokenizer is not None:
        check_tokenizer(tokenizer, plain, name)
    return LanguageModel(
        model=plain,
        tokenizer=tokenizer,
        name=name,
        family=str(plain.config.model_type),
        sha256=_tensors_hash(plain),
        origin={"kind": "memory"},
    )


def _tensors_hash(model: nn.Module) -> str:
    """sha256 of the parameters with their names, shapes and types."""
    found = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        found.update(f"{name} {tuple(parameter.shape)} {parameter.dtype}\n".encode())
        found.update(parameter.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()
