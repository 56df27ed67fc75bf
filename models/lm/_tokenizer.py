"""The tokenizer of a model, and whether it is its own."""

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from valuelens.models._errors import InputError, told

_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
)


def load_tokenizer(folder: Path, file: str | None = None) -> PreTrainedTokenizerBase | None:
    """The tokenizer in a model's folder; none if it has none.

    Args:
        folder: Of the model.
        file: Its GGUF file, which holds the tokenizer too.

    Raises:
        InputError: There is one, but it is damaged or needs code of its own.
    """
    if file is None and not any((folder / name).is_file() for name in _FILES):
        return None
    parts: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with told("the tokenizer must load", str(folder)):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, **parts, **({} if file is None else {"gguf_file": file})
        )
    if not len(tokenizer):
        raise InputError("a tokenizer must have tokens", "found an empty vocabulary", str(folder))
    return tokenizer


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, where: str) -> None:
    """Refuse a tokenizer that writes ids for which the model has no embedding; unused rows of the model are usual.

    Special tokens beyond the embeddings are let pass (Gemma 3 has one, for images), except those that any text meets.

    Args:
        tokenizer: As loaded.
        model: It should belong to.
        where: Its folder.

    Raises:
        InputError: It does not match.
    """
    embeddings: Any = model.get_input_embeddings()
    rows = embeddings.weight.shape[0]
    special = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    met = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id} - {None}
    for token, index in sorted(tokenizer.get_vocab().items(), key=lambda item: -int(item[1])):
        if index >= rows and (index not in special or index in met):
            found = f"found {len(tokenizer)} tokens, {token!r} with id {index}, for {rows} embeddings"
            raise InputError("the tokenizer must match the model", found, where)
