"""What MODEL names: a Hugging Face folder, a PEFT adapter folder, a GGUF file, or a model of the hub."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from valuelens.models._errors import InputError
from valuelens.models._files import nearest
from valuelens.models.lm._hub import MODEL, snapshot

_MEMBER = re.compile(r"(?:checkpoint|step)-(\d+)")
_HUB_NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)?")
CONFIG, ADAPTER = "config.json", "adapter_config.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where the files of a model lie.

    Attributes:
        name: As it was asked for, with `@revision` where one was.
        folder: That of its files.
        kind: `folder` (with full weights), `adapter` (with those of a PEFT adapter) or `gguf`.
        file: Name of the GGUF file.
        revision: Asked of the hub; none for what lies here.
        commit: What the hub made of it.
    """

    name: str
    folder: Path
    kind: str
    file: str | None = None
    revision: str | None = None
    commit: str | None = None


def located(source: str | Path, revision: str | None = None) -> Source:
    """Find the files of a model; what lies here goes before what the hub has.

    Args:
        source: A path, or `name` or `name@revision` on the hub.
        revision: Branch, tag or commit on the hub.

    Raises:
        InputError: There is nothing of this name, or it is no single language model.
    """
    path, text = Path(source).expanduser(), str(source)
    if path.exists():
        if revision is not None:
            found = f"found {revision!r} for a path"
            raise InputError("a revision belongs to a model of the hub", found, text)
        return _here(path)
    name, at, named = text.partition("@")
    if not _HUB_NAME.fullmatch(name) or (at and not named):
        raise InputError(MODEL, f"found nothing{nearest(path)}", text)
    if named and revision not in (None, named):
        raise InputError("there must be one revision", f"found {named!r} and {revision!r}", text)
    revision = revision or named or None
    folder = snapshot(name, revision)
    full = name if revision is None else f"{name}@{revision}"
    return Source(name=full, folder=folder, kind=_kind(folder), revision=revision, commit=folder.name)


def series(path: str | Path) -> list[Path]:
    """The models of a directory of `checkpoint-N` or `step-N` folders, sorted by number; empty if it is none.

    Args:
        path: Of the directory, such as `pretrain-lm` and trainers write it.
    """
    found = [
        (int(match[1]), each)
        for each in Path(path).expanduser().glob("*")
        if (match := _MEMBER.fullmatch(each.name))
        and any((each / name).is_file() for name in (CONFIG, ADAPTER))
    ]
    return [each for _, each in sorted(found)]


def is_in_context(path: str | Path) -> bool:
    """Whether a path is a checkpoint or a run of in-context value learners, which are no language models.

    Args:
        path: A folder, a weight file in it, or an entry of a run of InContextTD.
    """
    path = Path(path)
    if path.parent.name == "data.npz" or (path / "data.npz").is_file():
        return True
    folder = path if path.is_dir() else path.parent
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(config, dict) and all(isinstance(config.get(part), dict) for part in ("model", "task"))


def is_language_model(path: Path) -> bool:
    """Whether a path is a language model, or a series of them, and no in-context value learner.

    Args:
        path: A folder or a file.
    """
    members = series(path)
    if path.suffix == ".gguf" or (path / ADAPTER).is_file() or members:
        return not any(is_in_context(each) for each in (path, *members[:1]))
    try:
        config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(config, dict) and isinstance(config.get("model_type"), str)


def read_config(file: Path) -> dict[str, Any]:
    """A configuration file as data.

    Args:
        file: JSON.

    Raises:
        InputError: It is not there or holds no JSON object.
    """
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("a configuration must be readable JSON", f"found {error}", str(file)) from None
    if not isinstance(config, dict):
        raise InputError("a configuration must be a JSON object", f"found {type(config).__name__}", str(file))
    return config


def _here(path: Path) -> Source:
    if path.suffix == ".gguf" and path.is_file():
        return Source(name=str(path), folder=path.parent, kind="gguf", file=path.name)
    if is_in_context(path):
        found = "found an in-context value learner: `valuelens analyze` is meant"
        raise InputError("MODEL must be a language model", found, str(path))
    if path.is_file():
        raise InputError("a model is a folder, or a GGUF file", f"found the file {path.name}", str(path))
    quantised = sorted(path.glob("*.gguf"))
    if len(quantised) == 1 and not (path / CONFIG).is_file():
        return Source(name=str(path), folder=path, kind="gguf", file=quantised[0].name)
    return Source(name=str(path), folder=path, kind=_kind(path))


def _kind(folder: Path) -> str:
    if (folder / ADAPTER).is_file():  # transformers, too, would read it and load what it names
        if any(folder.glob("adapter_model.*")):
            return "adapter"
        raise InputError("a PEFT adapter must have adapter_model.safetensors", "found none", str(folder))
    if (folder / CONFIG).is_file() and isinstance(read_config(folder / CONFIG).get("model_type"), str):
        return "folder"
    if members := series(folder):
        found = f"found a series of {len(members)}: {members[0].name} ... {members[-1].name}"
        must = "MODEL must be one model: name one of the series"
        raise InputError(must, found, str(folder))
    if (folder / CONFIG).is_file():
        raise InputError("a model's config.json must name its model_type", "found none", str(folder / CONFIG))
    found = f"found {len(list(folder.glob('*.gguf')))} GGUF files and no config.json"
    raise InputError("a model folder must have a config.json, or one GGUF file", found, str(folder))
