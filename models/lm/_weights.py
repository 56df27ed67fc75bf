"""The weight files of a model: that they are there and whole, and their hash."""

import hashlib
import json
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import nn

from valuelens.models._errors import InputError
from valuelens.models._files import content_hash

_FULL = ("model.safetensors", "pytorch_model.bin")
_ADAPTER = ("adapter_model.safetensors", "adapter_model.bin")
_HARMLESS = (".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", "inv_freq")
"""Buffers that older versions of transformers saved beside the weights."""


def weight_files(folder: Path, kind: str) -> list[Path]:
    """Files with weights, those of an index for sharded ones.

    Pickles (`.bin`) stand behind safetensors, and are only read through weights-only loading.

    Args:
        folder: Of the model.
        kind: `folder` or `adapter`.

    Raises:
        InputError: There are none, a shard is missing, or a safetensors file is cut or damaged.
    """
    for name in _ADAPTER if kind == "adapter" else _FULL:
        index = folder / f"{name}.index.json"
        files = [folder / name] if (folder / name).is_file() else _shards(index) if index.is_file() else []
        if files:
            for file in files:
                _check_whole(file)
            return files
    found = f"found {', '.join(sorted(file.name for file in folder.iterdir())) or 'nothing'}"
    must = f"a model must have {'adapter_' if kind == 'adapter' else ''}model.safetensors"
    raise InputError(must, found, str(folder))


def weights_hash(files: list[Path]) -> str:
    """sha256 of a weight file, or of the names and hashes of several.

    Args:
        files: At least one.
    """
    if len(files) == 1:
        return str(content_hash(files[0]))
    parts = [f"{file.name} {content_hash(file)}\n" for file in sorted(files)]
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def check_keys(report: dict[str, object], where: str) -> None:
    """Refuse weights that are not exactly those of the model: transformers draws what is missing at random.

    Args:
        report: `missing_keys`, `unexpected_keys` and `mismatched_keys` as transformers or peft found them.
        where: The folder.

    Raises:
        InputError: A weight is missing, of another shape, or unknown to the model.
    """
    for what, must in (
        ("missing", "the weights must be complete"),
        ("mismatched", "the weights must have the shapes of the configuration"),
        ("unexpected", "the weights must be those of this kind of model"),
    ):
        keys = sorted(_name(key) for key in report.get(f"{what}_keys") or ())  # type: ignore[attr-defined]
        keys = [key for key in keys if not (what == "unexpected" and key.endswith(_HARMLESS))]
        if keys:
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise InputError(must, f"found {what}: {keys[0]}{more}", where)


def check_finite(model: nn.Module, where: str) -> None:
    """Refuse weights that are not numbers.

    Args:
        model: All its parameters are looked at.
        where: The folder.

    Raises:
        InputError: One holds NaN or infinity.
    """
    for name, parameter in model.named_parameters():
        if not bool(parameter.isfinite().all()):
            raise InputError("weights must be finite", "found NaN or infinity", f"{where}, tensor {name}")


def _shards(index: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError("an index of shards must have a weight_map", "found none", str(index)) from None
    for name in names:
        if not (index.parent / name).is_file():
            raise InputError("every shard of the index must be there", f"found no {name}", str(index))
    return [index.parent / name for name in names]


def _check_whole(file: Path) -> None:
    if file.suffix == ".safetensors":
        try:
            with safe_open(file, framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            found = f"found {str(error).splitlines()[0]}"
            raise InputError("a weight file must be readable and whole", found, str(file)) from None


def _name(key: object) -> str:
    """A mismatched key comes with the two shapes."""
    if isinstance(key, tuple):
        name, found, wanted = key
        return f"{name} {tuple(found)}, not {tuple(wanted)}"
    return str(key)
