"""What a series is: corpus, model and training, each a frozen pydantic model that refuses unknown keys."""

import json
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from valuelens.models._runs import read_json
from valuelens.models._settings import Frozen, validated
from valuelens.models.lm._named_tasks import find_task

FIRST_CHECKPOINT = 20
"""Step of the first checkpoint of a series."""


def series_steps(steps: int, num_checkpoints: int) -> list[int]:
    """Log-spaced checkpoint steps from 20 to the last: the grid depends on nothing that training finds.

    Args:
        steps: Optimiser steps of the series.
        num_checkpoints: How many; fewer come out where two would coincide.

    Example:
        >>> series_steps(2500, 14)
        [20, 29, 42, 61, 88, 128, 186, 269, 390, 566, 820, 1189, 1724, 2500]
    """
    return sorted({int(step) for step in np.geomspace(FIRST_CHECKPOINT, steps, num_checkpoints).round()})


class LMCorpusConfig(Frozen):
    """What texts a language model is pretrained on.

    Attributes:
        task: `label-copy`, `modular-sum`, `addition`, or `package.module:Name` of a `PretrainingTask`.
        shuffled: Handed to the task's corpus: the share of whole sequences with another answer than the right one,
            and of `modular-sum` the share with the right one.
        sizes: Keywords for the task; `resolved` adds the defaults.
    """

    task: str = "label-copy"
    shuffled: float = Field(default=0.2, ge=0, le=1)
    sizes: dict[str, int] = Field(default_factory=dict)

    def resolved(self) -> "LMCorpusConfig":
        """The same with every size; raises `InputError` if there is no such task or no such size."""
        return self.model_copy(update={"sizes": find_task(self.task, **self.sizes).sizes})


class LMModelConfig(Frozen):
    """A decoder-only language model of Llama's layout: RMS norms, rotary positions, gated MLP of width 4 d_model.

    Attributes:
        num_layers: L.
        d_model: Width.
        num_heads: Attention heads; of even width each, for the rotary positions.
    """

    num_layers: int = Field(default=2, ge=1)
    d_model: int = Field(default=64, ge=1)
    num_heads: int = Field(default=4, ge=1)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.d_model % (2 * self.num_heads):
            found = f"found d_model {self.d_model}, num_heads {self.num_heads}"
            raise ValueError(f"d_model must be a multiple of 2 num_heads; {found}")
        return self


class LMTrainConfig(Frozen):
    """How it was trained: AdamW with transformers' and torch's defaults on fresh texts, mean loss of all their tokens.

    Attributes:
        steps: Optimiser steps.
        batch_size: Fresh texts a step.
        learning_rate: Of AdamW; constant.
        num_checkpoints: Log-spaced checkpoints from step 20 to the last.
        seed: Decides everything random.
        dtype: Of the weights.
    """

    steps: int = Field(default=2500, gt=FIRST_CHECKPOINT)
    batch_size: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=0.001, gt=0)
    num_checkpoints: int = Field(default=14, ge=2)
    seed: int = Field(default=0, ge=0)
    dtype: Literal["float32", "float64"] = "float32"

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if len(series_steps(self.steps, self.num_checkpoints)) < self.num_checkpoints:
            must = f"num_checkpoints must be the number of different log-spaced steps from {FIRST_CHECKPOINT} to steps"
            raise ValueError(f"{must}; found num_checkpoints {self.num_checkpoints}, steps {self.steps}")
        return self


class LMRunConfig(Frozen):
    """Everything that decides a series.

    Attributes:
        corpus: What it reads.
        model: Its layout.
        train: How it is trained.
    """

    corpus: LMCorpusConfig = LMCorpusConfig()
    model: LMModelConfig = LMModelConfig()
    train: LMTrainConfig = LMTrainConfig()


def lm_run_config(data: dict[str, Any], *, where: str) -> LMRunConfig:
    """An `LMRunConfig` from plain data.

    Args:
        data: Nested dictionary with the keys corpus, model, train.
        where: Named in the error (a file, or `command line`).

    Raises:
        InputError: A key is unknown or a value is out of range; the line names the key and the finding.
    """
    return validated(LMRunConfig, data, where)


def load_lm_config(path: Path) -> LMRunConfig:
    """The configuration in the `config.json` of a series; raises `InputError` if it is not one."""
    data = read_json(path, ("corpus", "model", "train"))
    return lm_run_config({key: data[key] for key in data if key != "num_seeds"}, where=str(path))


def corpus_of(model: Path) -> LMCorpusConfig | None:
    """What the series that a folder of a model belongs to was pretrained on; none if it belongs to no series of ours.

    Args:
        model: `SERIES/step-N`, or `SERIES/seed-K/step-N` of several seeds.

    Raises:
        InputError: The `config.json` of the series is not as `pretrain-lm` writes it.
    """
    parent = model.expanduser().absolute().parent
    for folder in (parent, *([parent.parent] if parent.name.startswith("seed-") else [])):
        path = folder / "config.json"
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(data, dict) and "corpus" in data:
            return load_lm_config(path).corpus
    return None
