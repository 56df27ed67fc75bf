"""What a run is: task, model and training, each a frozen pydantic model that refuses unknown keys.

A configuration holds only what changes the answer. The defaults stand here and nowhere else; the command line
reads them from here.
"""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from valuelens.models._runs import read_json
from valuelens.models._settings import Frozen, validated

Arch = Literal["tsm", "dual", "linear", "transformer"]
Weights = Literal["restricted", "full", "factored"]
Features = Literal["sphere", "uniform", "one-hot"]
Loss = Literal["td", "neu", "monte-carlo", "true-value"]


class TaskConfig(Frozen):
    """The distribution of Markov reward processes and of contexts that a model learns in.

    Attributes:
        env: `boyan`, `loop`, `garnet`, `cartpole`, or the path of a safetensors file with P, r, p0, features.
        num_states: S, states of a chain (cart-pole always has 16 cells; a file brings its own).
        features: `sphere` (uniform on the unit sphere), `uniform` (U[-1,1]) or `one-hot`, redrawn for each task.
        feature_dim: d; equal to `num_states` for one-hot features, whatever was asked.
        representable: Make the true value a linear function of the features (rewards follow from it).
        context_length: n, transitions in a context.
        gamma: Discount in [0, 1).
    """

    env: str = "boyan"
    num_states: int = Field(default=10, ge=2)
    features: Features = "sphere"
    feature_dim: int = Field(default=4, ge=1)
    representable: bool = False
    context_length: int = Field(default=30, ge=1)
    gamma: float = Field(default=0.5, ge=0, lt=1)

    @model_validator(mode="before")
    @classmethod
    def _derived_sizes(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        data = dict(data)
        if data.get("env") == "cartpole":
            data["num_states"] = 16
        if data.get("features") == "one-hot":
            data["feature_dim"] = data.get("num_states", cls.model_fields["num_states"].default)
        return data

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.env == "garnet" and self.num_states < 3:
            raise ValueError(f"garnet chains need three successors; found num_states {self.num_states}")
        if self.env in ("boyan", "loop") and self.num_states < 3:
            raise ValueError(f"{self.env} chains need at least 3 states; found num_states {self.num_states}")
        return self


class ModelConfig(Frozen):
    """An in-context value learner.

    Attributes:
        arch: `tsm` (softmax TD, single head + temporal shift module), `dual` (its dual-head form), `linear`
            (linear attention of arXiv 2405.13861) or `transformer` (standard, opaque).
        weights: Parameterisation of `tsm`, `dual`, `linear`: `restricted`, `full` or `factored`.
        num_layers: L; 10, 3 for `linear` (deeper full ones diverge on some seeds), 4 for `transformer`.
        tied: Share the parameters over layers; `transformer` never does.
        num_heads, d_model, causal, positions, normalization: of `transformer` only. `positions=False` is the
            set-only control, which cannot see which state follows which.
    """

    arch: Arch = "tsm"
    weights: Weights = "restricted"
    num_layers: int = Field(default=10, ge=1)
    tied: bool = True
    num_heads: int = Field(default=4, ge=1)
    d_model: int = Field(default=64, ge=1)
    causal: bool = False
    positions: bool = True
    normalization: Literal["layer", "rms"] = "layer"

    @model_validator(mode="before")
    @classmethod
    def _default_depth(cls, data: Any) -> Any:
        depths = {"linear": {"num_layers": 3}, "transformer": {"num_layers": 4, "tied": False}}
        return {**depths.get(data.get("arch", ""), {}), **data} if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.arch == "linear" and self.weights == "factored":
            raise ValueError("linear attention has restricted or full weights; found weights factored")
        if self.arch == "transformer" and self.d_model % self.num_heads:
            raise ValueError(
                f"d_model must be a multiple of num_heads; found d_model {self.d_model}, num_heads {self.num_heads}"
            )
        return self


class TrainConfig(Frozen):
    """How it was trained.

    Attributes:
        loss: `td` (semi-gradient), `neu` (task form, full gradient), `monte-carlo` or `true-value`.
        steps: Optimiser steps.
        batch_size: Fresh tasks a step.
        learning_rate: Of Adam; 0.01, and 0.001 for a `transformer`.
        clip_norm: Largest gradient norm.
        num_checkpoints: Log-spaced checkpoints, step 0 and the last among them.
        seed: Decides everything random.
        dtype: Of weights and tasks.
    """

    loss: Loss = "td"
    steps: int = Field(default=2000, ge=1)
    batch_size: int = Field(default=64, ge=1)
    learning_rate: float = Field(default=0.01, gt=0)
    clip_norm: float = Field(default=1.0, gt=0)
    num_checkpoints: int = Field(default=20, ge=2)
    seed: int = Field(default=0, ge=0, lt=2**63)
    dtype: Literal["float32", "float64"] = "float32"


class RunConfig(Frozen):
    """Everything that decides a training run."""

    task: TaskConfig = TaskConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()

    @model_validator(mode="before")
    @classmethod
    def _default_rate(cls, data: Any) -> Any:
        model = data.get("model") if isinstance(data, dict) else None
        arch = model.get("arch") if isinstance(model, dict) else getattr(model, "arch", None)
        if arch == "transformer" and isinstance(train := data.get("train", {}), dict):
            return {**data, "train": {"learning_rate": 0.001, **train}}
        return data


def run_config(data: dict[str, Any], *, where: str) -> RunConfig:
    """A `RunConfig` from plain data.

    Args:
        data: Nested dictionary with the keys task, model, train.
        where: Named in the error (a file, or `command line`).

    Raises:
        InputError: A key is unknown or a value is out of range; the line names the key and the finding.
    """
    return validated(RunConfig, data, where)


def load_config(path: Path) -> RunConfig:
    """The configuration in a `config.json`; raises `InputError` if there is none or it is not one of ours."""
    data = read_json(path, ("task", "model"))
    extra = {"step", "num_seeds"}
    return run_config({key: value for key, value in data.items() if key not in extra}, where=str(path))
