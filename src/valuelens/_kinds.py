"""What a path is, and the command that takes it: a verb that is given another kind says so before any work."""

import json
import shlex
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Literal

from valuelens.models import InputError, icrl, lm

Kind = Literal["result", "run", "checkpoint", "checkpoints", "series", "model"]
"""`checkpoints` is the folder of that name in a run; `model` is a single language model."""

_TAKES: dict[str, tuple[str, tuple[Kind, ...]]] = {
    "analyze": ("a run or a checkpoint of in-context value learners", ("run", "checkpoint")),
    "costates": ("one language model", ("model",)),
    "impact": ("a series of language models, or several models", ("series", "model")),
    "report": ("folders of results", ("result",)),
    "doctor": ("one checkpoint or one language model", ("checkpoint", "model")),
}
_WRITES: dict[str, tuple[str, Kind]] = {"pretrain": ("a run", "run"), "pretrain-lm": ("a series", "series")}
_WORDS: dict[Kind, str] = {
    "result": "a result",
    "run": "a run of in-context value learners",
    "checkpoint": "an in-context value learner",
    "checkpoints": "the checkpoints of a run",
    "series": "a series of language models",
    "model": "a language model",
}
_CLEARABLE: tuple[Kind, ...] = ("result", "run", "series")
_WEIGHTS = ("*.safetensors", "*.pt", "*.bin", "*.gguf")
_INSIDE = 200
"""Folders that are looked into for what a verb takes."""


def refuse_other(verb: str, *sources: str | Path) -> None:
    """Refuse what a verb does not take, with a command that takes it; a fault of the right kind is left to the library.

    Args:
        verb: As it is typed.
        sources: What it was given; what does not exist, such as names on the hub, passes.

    Raises:
        InputError: One of them is of another kind, or of none.
    """
    takes, taken = _TAKES[verb]
    for source in sources:
        path = Path(source).expanduser()
        found = _kinds(path) if path.exists() else []
        fits = bool(set(taken) & set(found)) and not (verb == "report" and path.is_file())
        if fits or not path.exists():
            continue
        if hint := _told(verb, path, found):
            raise InputError(f"{verb} takes {takes}", f"found {hint}", str(source))


def refuse_occupied(verb: str, out: Path) -> None:
    """Refuse an output folder that is something else than what a verb writes.

    Args:
        verb: `pretrain` or `pretrain-lm`.
        out: As it is typed.

    Raises:
        InputError: It is.
    """
    writes, kind = _WRITES[verb]
    found = _kinds(out) if out.is_dir() else []
    if found and kind not in found:
        afresh = "; --overwrite removes it" if found[0] in _CLEARABLE else ""
        where = f"option --out {out} (name another folder{afresh})"
        raise InputError(f"the output must be a new folder or {writes}", f"found {_WORDS[found[0]]}", where)


def _kinds(path: Path) -> list[Kind]:
    """All that a path is: a run may hold its result, and a trainer's folder is a model beside its checkpoints."""
    if path.is_file():
        return _kinds_of_file(path)
    found: list[Kind] = ["result"] if (path / "result.json").is_file() else []
    members = lm.series(path)
    learners = bool(members) and lm.is_in_context(members[0])
    if lm.is_in_context(path):
        found.append("checkpoint" if _any(path, _WEIGHTS) and not _is_run(path) else "run")
    elif learners or _is_run(path):
        found.append("checkpoints" if learners else "run")
    if (members and not learners) or any(lm.series(each) for each in path.glob("seed-*")):
        found.append("series")
    if _is_model(path):
        found.append("model")
    return found


def _kinds_of_file(path: Path) -> list[Kind]:
    if path.suffix == ".gguf":
        return ["model"]
    if (path.parent / "result.json").is_file():
        return ["result"]
    return ["checkpoint"] if lm.is_in_context(path) else []


def _is_model(folder: Path) -> bool:
    if (folder / "adapter_config.json").is_file():
        return True
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return _any(folder, ("*.gguf",))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(config, dict) and isinstance(config.get("model_type"), str)


def _is_run(folder: Path) -> bool:
    try:
        return bool(icrl.checkpoint_paths(folder))
    except InputError:  # damaged: the library says how
        return True


def _any(folder: Path, patterns: Iterable[str]) -> bool:
    return any(True for pattern in patterns for _ in folder.glob(pattern))


def _told(verb: str, path: Path, found: list[Kind]) -> str:
    """What was found, with the command for it; empty where the library knows better what is amiss."""
    if found:
        return f"{_WORDS[found[0]]}: `{_command(verb, path, found[0])}`"
    if path.is_file():
        return f"the file {path.name}" if verb in ("impact", "report") else ""
    if _any(path, (*_WEIGHTS, "config.json")):
        return "" if verb != "report" else "none"
    if inside := _inside(verb, path):
        return f"none here; inside there is `{inside}`"
    return "an empty folder" if not _any(path, ("*",)) else "none"


def _inside(verb: str, folder: Path) -> str:
    """A command for what a folder holds, of the verb itself where it can be; empty if it holds nothing of ours."""
    children = [each for each in islice(sorted(folder.iterdir()), _INSIDE) if each.is_dir()]
    known = [(each, found) for each in children if (found := _kinds(each))]
    taken = [each for each, found in known if set(_TAKES[verb][1]) & set(found)]
    if taken:
        return _typed(verb, *(taken if verb == "report" else taken[:1]))
    commands = [_command(verb, each, found[0]) for each, found in known]
    own = [each for each in commands if each.startswith(f"valuelens {verb} ")]
    return next(iter(own + commands), "")


def _command(verb: str, path: Path, kind: Kind) -> str:
    """What to type for a path of a kind that a verb does not take, as near to the verb as it goes."""
    out = ("--out", f"results/{path.resolve().name}") if verb == "report" else ()
    match kind:
        case "result":
            return _typed("report", path.parent if path.is_file() else path)
        case "checkpoints" if path.name == "checkpoints" and _is_run(path.parent):
            return _command(verb, path.parent, "run")
        case "run" | "checkpoints" if verb == "doctor" or kind == "checkpoints":
            return _typed("doctor" if verb == "doctor" else "analyze", _last(path), *out)
        case "run" | "checkpoint":
            return _typed("analyze", path, *out)
        case "series" if verb in ("costates", "doctor"):
            last = _last(path)
            return _typed(verb, last, *(_task(last) if verb == "costates" else ()))
        case "series":
            return _typed("impact", path, *_task(_last(path)), *out)
        case _:
            return _typed("costates", path, *_task(path), *out)


def _last(path: Path) -> Path:
    """The last checkpoint of a run, or the last member of a series."""
    if members := lm.series(path):
        return members[-1]
    seeds = [each for each in sorted(path.glob("seed-*")) if lm.series(each)]
    return lm.series(seeds[0])[-1] if seeds else icrl.checkpoint_paths(path)[-1].path


def _task(model: Path) -> tuple[str, ...]:
    """A task for a model whose own is not known: without any, its rollouts could come from nowhere."""
    return () if lm.corpus_of(model) is not None else ("--task", "addition")


def _typed(*words: str | Path) -> str:
    return shlex.join(["valuelens", *map(str, words)])
