"""Training runs of InContextTD, the public code of arXiv 2405.13861, as series of checkpoints.

Its run folder holds `params.json` and `data.npz`: P and Q of linear attention at each logged step, in the same
orientation, with the same 1/n and the same negated read-out as `LinearAttention` (theory A11). An entry is addressed
as if `data.npz` were a folder: `RUN/data.npz/step-XXXXXXXX`. Nothing is unpickled.

Shape legend: `step` logged steps, `layer` sets of parameters (1 in mode `auto`), `D` = 2d+1.
"""

import hashlib
import json
import re
import zipfile
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float32
from numpy import ndarray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from valuelens.models._errors import InputError
from valuelens.models._settings import as_input_error
from valuelens.models.icrl._config import ModelConfig, TaskConfig
from valuelens.models.icrl._linear_attention import LinearAttention, linear_attention_from_matrices

_DATA, _SETTINGS = "data.npz", "params.json"
_ARRAYS = ("xs", "P", "Q")
_ENTRY = re.compile(r"step-(\d{8,})")

# What numpy raises on pickled, damaged and foreign files.
_UNREADABLE = (ValueError, OSError, EOFError, KeyError, MemoryError, zipfile.BadZipFile, zlib.error)


class _Settings(BaseModel):
    """What of its `params.json` decides model and tasks; an activation or a chain that we lack is refused."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    d: int = Field(ge=1)
    s: int = Field(ge=3)
    n: int = Field(ge=1)
    l: int = Field(ge=1)  # noqa: E741 - its name
    gamma: float = Field(ge=0, lt=1)
    activation: Literal["identity"]
    mode: Literal["auto", "sequential"]
    sample_weight: bool
    mrp_class: Literal["boyan"]
    n_batch_per_mrp: int = Field(ge=1)
    random_seed: int = Field(ge=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One run of InContextTD.

    Attributes:
        folder: Where it lies.
        settings: The whole of `params.json`.
        task, model: The same in our words. Its tasks are Boyan's chains with features U[-1, 1]; where it draws
            values linear in the features (`sample_weight`), its weights are N(0, 1) and ours U[-1, 1].
        seed: Of its training.
        steps: Optimiser steps behind each entry: processes (`xs`) times mini-batches a process.
        P, Q: At each entry.
    """

    folder: Path
    settings: dict[str, Any]
    task: TaskConfig
    model: ModelConfig
    seed: int
    steps: tuple[int, ...]
    P: Float32[ndarray, "step layer D D"]
    Q: Float32[ndarray, "step layer D D"]

    def path(self, step: int) -> Path:
        """`RUN/data.npz/step-XXXXXXXX`."""
        return self.folder / _DATA / f"step-{step:08d}"

    def learner(self, step: int) -> LinearAttention:
        """The model at a logged step.

        Raises:
            InputError: Nothing was logged there, or the weights are not finite.
        """
        P, Q = (torch.from_numpy(x[self._index(step)].copy()) for x in (self.P, self.Q))
        for name, x in (("P", P), ("Q", Q)):
            if not bool(x.isfinite().all()):
                where = f"{self.folder / _DATA}, array {name}, row {self._index(step)}"
                raise InputError("weights must be finite", "found NaN or infinity", where)
        return linear_attention_from_matrices(
            P, Q, gamma=self.task.gamma, num_layers=self.model.num_layers, tied=self.model.tied
        )

    def sha256(self, step: int) -> str:
        """Of the weights at a logged step."""
        index = self._index(step)
        return hashlib.sha256(self.P[index].tobytes() + self.Q[index].tobytes()).hexdigest()

    def _index(self, step: int) -> int:
        if step not in self.steps:
            found = f"found steps {self.steps[0]} to {self.steps[-1]}, none of them {step}"
            raise InputError("the step must have been logged", found, str(self.folder / _DATA))
        return self.steps.index(step)


def series_of(run: Path) -> list[Series]:
    """Every run of InContextTD in a folder: itself or its `seed_*` folders; none if it holds something else.

    Args:
        run: Folder, or the `data.npz` in it.

    Raises:
        InputError: It is such a run, but damaged or of a kind that we lack.
    """
    run = run.parent if run.name == _DATA else run
    folders = (run, *sorted(run.glob("seed_*")))
    return [read_series(folder) for folder in folders if _is_series(folder)]


def entry_of(path: Path) -> tuple[Series, int] | None:
    """Series and step of a path such as `RUN/data.npz/step-XXXXXXXX`; none for any other path.

    Args:
        path: Of a checkpoint.

    Raises:
        InputError: The run is damaged or of a kind that we lack.
    """
    match = _ENTRY.fullmatch(path.name)
    if match is None or path.parent.name != _DATA:
        return None
    return read_series(path.parent.parent), int(match[1])


def read_series(folder: Path) -> Series:
    """A run of InContextTD, read whole and checked.

    Args:
        folder: With `params.json` and `data.npz`.

    Raises:
        InputError: A file is missing, damaged, pickled, of the wrong shape, or of a model that we cannot represent.
    """
    stamps = []
    for name in (_SETTINGS, _DATA):
        if not (folder / name).is_file():
            raise InputError(f"a run of InContextTD has a {name}", "found none", str(folder))
        status = (folder / name).stat()
        stamps.append((status.st_mtime_ns, status.st_size))
    return _read(folder, *stamps)


@lru_cache(maxsize=4)
def _read(folder: Path, settings_stamp: tuple[int, int], data_stamp: tuple[int, int]) -> Series:
    """Kept until a file changes, since every checkpoint of a series asks for it again."""
    raw, settings = _read_settings(folder / _SETTINGS)
    arrays = _read_arrays(folder / _DATA)
    _check(arrays, settings, folder / _DATA)
    return Series(
        folder=folder,
        settings=raw,
        task=TaskConfig(
            env=settings.mrp_class,
            num_states=settings.s,
            features="uniform",
            feature_dim=settings.d,
            representable=settings.sample_weight,
            context_length=settings.n,
            gamma=settings.gamma,
        ),
        model=ModelConfig(arch="linear", weights="full", num_layers=settings.l, tied=settings.mode == "auto"),
        seed=settings.random_seed,
        steps=tuple(int(x) * settings.n_batch_per_mrp for x in arrays["xs"]),
        P=arrays["P"].astype(np.float32),
        Q=arrays["Q"].astype(np.float32),
    )


def _read_settings(path: Path) -> tuple[dict[str, Any], _Settings]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("params.json must be readable JSON", f"found {error}", str(path)) from None
    if not isinstance(raw, dict):
        raise InputError(
            "params.json must hold the settings of a run", f"found {type(raw).__name__}", str(path)
        )
    try:
        return raw, _Settings.model_validate(raw)
    except ValidationError as error:
        raise as_input_error(error, str(path)) from None


def _read_arrays(path: Path) -> dict[str, ndarray]:
    try:
        with path.open("rb") as file:  # numpy leaves it open where it finds no archive
            data = np.load(file, allow_pickle=False)
            if isinstance(data, ndarray):
                raise ValueError("a single array")
            missing = [name for name in _ARRAYS if name not in data]
            if not missing:
                return {name: data[name] for name in _ARRAYS}
    except _UNREADABLE as error:
        pickled = "Object arrays" in str(error)
        found = "found pickled objects" if pickled else "found a damaged or foreign file"
        must = "data.npz must be a whole npz file of plain numbers (nothing is ever unpickled)"
        raise InputError(must, found, str(path)) from None
    found = f"found no {', '.join(missing)}"
    raise InputError(f"data.npz must hold the arrays {', '.join(_ARRAYS)}", found, str(path))


def _check(arrays: dict[str, ndarray], settings: _Settings, path: Path) -> None:
    xs, D = arrays["xs"], 2 * settings.d + 1
    if xs.ndim != 1 or xs.dtype.kind not in "iu" or not len(xs) or xs[0] < 0 or (np.diff(xs) <= 0).any():
        found = f"found {xs.dtype} of shape {list(xs.shape)}"
        raise InputError("xs must be the logged steps, growing integers", found, f"{path}, array xs")
    layers = 1 if settings.mode == "auto" else settings.l
    expected = (len(xs), layers, D, D)
    for name in ("P", "Q"):
        array, where = arrays[name], f"{path}, array {name}"
        if array.dtype.kind != "f":
            raise InputError(f"{name} must be floating point", f"found {array.dtype}", where)
        if array.shape != expected:
            must = f"{name} must have the shape {list(expected)}: steps, layers, 2d+1, 2d+1"
            raise InputError(must, f"found {list(array.shape)}", where)


def _is_series(folder: Path) -> bool:
    """Whether it looks like a run of InContextTD, perhaps an incomplete one, and not like one of ours."""
    known = (folder / _DATA).is_file() or (folder / _SETTINGS).is_file()
    return known and not (folder / "config.json").exists()
