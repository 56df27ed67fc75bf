"""A language model that can be measured, with its tokenizer and where both come from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from valuelens.models._shown import Shown


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class LanguageModel(Shown):
    """A causal language model of transformers, in evaluation mode, its parameters frozen.

    Attributes:
        model: It; `model.dtype` and `model.device` are those asked for.
        tokenizer: Its own; none where only token ids can be used.
        name: As it was asked for, with `@revision` where one was.
        family: `model_type` of its configuration: llama, olmo2, gpt2, ...
        sha256: Of its weights.
        origin: What else provenance records: revision, base and adapter, quantisation.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None
    name: str
    family: str
    sha256: str
    origin: dict[str, Any]

    @property
    def num_layers(self) -> int:
        """Blocks."""
        return int(self.model.config.get_text_config().num_hidden_layers)

    @property
    def d_model(self) -> int:
        """Width of the residual stream."""
        return int(self.model.config.get_text_config().hidden_size)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.model.device

    @property
    def vocab_size(self) -> int:
        """Ids that it has embeddings for; the tokenizer may use fewer."""
        embeddings: Any = self.model.get_input_embeddings()
        return int(embeddings.weight.shape[0])

    @property
    def context_window(self) -> int | None:
        """Most tokens that it can read; none where its configuration sets no limit."""
        window = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return None if window is None else int(window)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Its name, size, precision and origin."""
        count = sum(parameter.numel() for parameter in self.model.parameters())
        dtype = str(self.model.dtype).removeprefix("torch.")
        rows: dict[str, object] = {
            "family": self.family,
            "size": f"{self.num_layers} layers, width {self.d_model}, {count:,} parameters",
            "vocabulary": f"{self.vocab_size} ids, {'no' if self.tokenizer is None else 'with its'} tokenizer",
            "context window": self.context_window or "no limit",
            "computes": f"in {dtype} on {self.device}, frozen",
            "sha256": f"{self.sha256[:12]}...",
        }
        told = {key.replace("_", " "): value for key, value in self.origin.items() if value is not None}
        return f"Language model {self.name}", {**rows, **told}
