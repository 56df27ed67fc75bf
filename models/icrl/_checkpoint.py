"""Checkpoints on disk: `config.json`, `model.safetensors` and, from a run, `state.safetensors`.

A run folder holds `config.json`, `metrics.parquet` and `checkpoints/step-XXXXXXXX/`; with several seeds
`seed-K/checkpoints/...`. Folders appear whole or not at all. Runs of InContextTD are read too, and only read: what
asks for a checkpoint need not know where it came from.
"""

import hashlib
import json
import pickle
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from valuelens.models._errors import InputError
from valuelens.models._files import atomic_path, nearest
from valuelens.models.icrl._build import build
from valuelens.models.icrl._config import RunConfig, TaskConfig, load_config
from valuelens.models.icrl._incontexttd import entry_of, series_of
from valuelens.models.icrl._learner import ValueLearner

_STEP = re.compile(r"step-(\d{8})")
_WEIGHTS = ("model.safetensors", "model.pt", "model.bin")

# What weights-only loading raises on code and on damaged or foreign files (found by flipping bytes of good ones).
_NO_WEIGHTS = (
    pickle.UnpicklingError,
    RuntimeError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    struct.error,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointPath:
    """Where a checkpoint of a run lies.

    Attributes:
        path: Its folder.
        seed: Seed of its run.
        step: Optimiser steps behind it.
    """

    path: Path
    seed: int
    step: int

    @property
    def name(self) -> str:
        """`step-XXXXXXXX`."""
        return self.path.name


def save_checkpoint(
    folder: Path, model: ValueLearner, config: RunConfig, *, step: int, state: dict[str, Tensor] | None = None
) -> None:
    """Write a checkpoint folder, whole or not at all.

    Args:
        folder: Its path; the last part is its name.
        model: What to save, in the model's own dtype.
        config: Stored beside it.
        step: Optimiser steps behind it.
        state: Optimiser, generator and log, for an exact resume.
    """
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        described = {"step": step, **config.model_dump()}
        (temporary / "config.json").write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
        weights = {name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}
        (temporary / "model.safetensors").write_bytes(save(weights))
        if state is not None:
            (temporary / "state.safetensors").write_bytes(save(state))


def load(path: str | Path) -> ValueLearner:
    """The model of a checkpoint folder (or of the weight file in it), in the dtype that was saved.

    Args:
        path: A folder with `config.json` and `model.safetensors`; `model.pt` and `model.bin` are read through
            weights-only loading. Or an entry of a run of InContextTD, as `checkpoint_paths` names it.

    Raises:
        InputError: Something is missing, foreign, truncated, of the wrong shape or dtype, or not finite.
    """
    if (entry := entry_of(Path(path))) is not None:
        series, step = entry
        return series.learner(step)
    folder = _folder(Path(path))
    if not Path(path).exists():
        raise InputError("a checkpoint must exist", f"found nothing{nearest(Path(path))}", str(path))
    config = load_config(folder / "config.json")
    weights = (
        Path(path) if Path(path).is_file() and Path(path).name != "config.json" else _weight_file(folder)
    )
    model = build(config.model, config.task, torch.Generator())
    tensors = read_tensors(weights)
    _check(tensors, model, weights)
    model.to(next(iter(tensors.values())).dtype)
    model.load_state_dict(tensors)
    return model


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors, `.pt` or `.bin` file; never unpickles anything but weights.

    Raises:
        InputError: The file is missing, not readable as weights, or truncated.
    """
    if not path.is_file():
        raise InputError("a weight file must exist", "found none", str(path))
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError) as error:
        raise InputError("a weight file must be readable and whole", f"found {error}", str(path)) from None
    except _NO_WEIGHTS as error:
        code = re.search(r"GLOBAL (\S+)", str(error))
        found = f"found a call of {code[1]}" if code else "found a damaged or foreign file"
        raise InputError("the file must hold weights only (no code)", found, str(path)) from None
    if not isinstance(loaded, dict):
        raise InputError("the file must hold a state dict", f"found {type(loaded).__name__}", str(path))
    for name, tensor in loaded.items():
        if not (isinstance(name, str) and isinstance(tensor, Tensor)):
            found = f"found {name!r}: {type(tensor).__name__}"
            raise InputError("the file must hold a state dict (names and tensors)", found, str(path))
    return loaded


def checkpoint_paths(run: Path) -> list[CheckpointPath]:
    """Every checkpoint of a run, sorted by seed and step; empty if the folder is no run.

    Args:
        run: A run folder, with one seed or with `seed-K` folders; or a run of InContextTD (`seed_K` folders), whose
            entries are named `RUN/data.npz/step-XXXXXXXX`.

    Raises:
        InputError: A run of InContextTD is damaged or of a kind that we lack.
    """
    found = [
        CheckpointPath(path=series.path(step), seed=series.seed, step=step)
        for series in series_of(run)
        for step in series.steps
    ]
    for folder in (run, *run.glob("seed-*")):
        for path in (folder / "checkpoints").glob("step-*"):
            match = _STEP.fullmatch(path.name)
            if match and path.is_dir():
                found.append(CheckpointPath(path=path, seed=_seed(path), step=int(match[1])))
    return sorted(found, key=lambda each: (each.seed, each.step))


def checkpoint_folder(run: Path, step: int) -> Path:
    """`RUN/checkpoints/step-XXXXXXXX`."""
    return run / "checkpoints" / f"step-{step:08d}"


def checkpoint_hash(path: Path) -> str:
    """sha256 of a checkpoint's weights, for provenance."""
    if (entry := entry_of(path)) is not None:
        series, step = entry
        return series.sha256(step)
    return hashlib.sha256(_weight_file(_folder(path)).read_bytes()).hexdigest()


def checkpoint_task(path: Path) -> TaskConfig:
    """The distribution of tasks that a checkpoint was trained on."""
    if (entry := entry_of(path)) is not None:
        return entry[0].task
    return load_config(_folder(path) / "config.json").task


def checkpoint_record(path: Path) -> dict[str, Any]:
    """The configuration of a checkpoint as plain data, for provenance.

    Returns:
        `task` and `model`, and how it was trained: `train` if by us, the whole settings of `incontexttd` if by it.
    """
    if (entry := entry_of(path)) is not None:
        series, _ = entry
        parts = {"task": series.task.model_dump(), "model": series.model.model_dump()}
        return {**parts, "incontexttd": series.settings}
    return load_config(_folder(path) / "config.json").model_dump()


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _seed(checkpoint: Path) -> int:
    try:
        return int(json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))["train"]["seed"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        match = re.fullmatch(r"seed-(\d+)", checkpoint.parent.parent.name)
        return int(match[1]) if match else 0


def _weight_file(folder: Path) -> Path:
    for name in _WEIGHTS:
        if (folder / name).is_file():
            return folder / name
    raise InputError("a checkpoint has a model.safetensors", "found none", str(folder))


def _check(tensors: dict[str, Tensor], model: ValueLearner, where: Path) -> None:
    expected: dict[str, Any] = model.state_dict()
    if set(tensors) != set(expected):
        odd = sorted(set(tensors) ^ set(expected))[0]
        state = "unexpected" if odd in tensors else "missing"
        raise InputError(
            f"the tensors must be those of the config ({', '.join(expected)})",
            f"found {odd} {state}",
            str(where),
        )
    for name, tensor in tensors.items():
        place = f"{where}, tensor {name}"
        if tensor.shape != expected[name].shape:
            raise InputError(
                f"its shape must be {tuple(expected[name].shape)}", f"found {tuple(tensor.shape)}", place
            )
        if not tensor.is_floating_point():
            raise InputError("weights must be floating point", f"found {tensor.dtype}", place)
        if not bool(torch.isfinite(tensor).all()):
            raise InputError("weights must be finite", "found NaN or infinity", place)
    if len({tensor.dtype for tensor in tensors.values()}) > 1:
        raise InputError(
            "all weights must share one dtype",
            f"found {sorted({str(t.dtype) for t in tensors.values()})}",
            str(where),
        )
