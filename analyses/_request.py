"""What is asked of an analysis, the units of work that it falls into, and where their answers are kept."""

import hashlib
import json
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

from valuelens.analyses._questions import Installed
from valuelens.analyses._result import Result, load_result, save_result
from valuelens.models import InputError, clear_temporaries, did_you_mean
from valuelens.models.icrl import Adapter, CheckpointPath, content_hash

Precision = Literal["float64", "float32"]

Progress = Callable[[str, int, int], None]
"""Called as progress(what was done, done, total)."""

CONTEXT_MASK = "the query S_n and extra query columns are no sources"
"""What in-context models do not attend to."""

_LIBRARIES = ("valuelens", "torch", "transformer-lens", "transformers", "numpy", "scipy")
_SEEDS = 2**63
_UNFINISHED = {"cache", "tables", "arrays.safetensors"}  # written before result.json


@dataclass(frozen=True, kw_only=True, slots=True)
class AnalysisConfig:
    """What decides the answer, besides the checkpoints.

    Attributes:
        only: Names of the questions; all if empty.
        full: On a run, ask every question of every checkpoint.
        num_tasks: Evaluation tasks, the same for every checkpoint.
        seed: Decides them.
        dtype: Precision of the measurements.
        adapter: `package.module:Name` of the adapter that the path is given to; empty for a checkpoint of ours.
    """

    only: tuple[str, ...] = ()
    full: bool = False
    num_tasks: int = 256
    seed: int = 0
    dtype: Precision = "float64"
    adapter: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if self.num_tasks < 2:
            raise InputError("num_tasks must be at least 2", f"found {self.num_tasks}", "option --num-tasks")
        if not 0 <= self.seed < _SEEDS:
            raise InputError(f"the seed must lie in 0..{_SEEDS - 1}", f"found {self.seed}", "option --seed")
        if self.dtype not in get_args(Precision):
            found = f"found {self.dtype!r}{did_you_mean(self.dtype, get_args(Precision))}"
            raise InputError("dtype must be float64 or float32", found, "option --dtype")


@dataclass(frozen=True, slots=True)
class Place:
    """A checkpoint, and how findings refer to it: not at all if it stands alone.

    Attributes:
        checkpoint: Where it lies.
        alone: It is not part of a run.
    """

    checkpoint: CheckpointPath
    alone: bool = False

    @property
    def label(self) -> str:
        """`seed-K/step-XXXXXXXX`, or the name of its folder."""
        if self.alone:
            return self.checkpoint.path.name
        return f"seed-{self.checkpoint.seed}/{self.checkpoint.name}"

    @property
    def index(self) -> dict[str, int | str]:
        """What findings carry in their index."""
        return {} if self.alone else {"seed": self.checkpoint.seed, "checkpoint": self.checkpoint.name}


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """One question on one checkpoint.

    Attributes:
        place: The checkpoint.
        name: The question.
        sha256: Of the checkpoint's weights.
        config: How to measure.
        cache: Folder of finished units, if any.
        code: Of the question, if an installed package brings it: the package, and sha256 of its files.
    """

    place: Place
    name: str
    sha256: str
    config: AnalysisConfig
    cache: Path | None
    code: Mapping[str, str | None] | None = None

    @property
    def folder(self) -> Path | None:
        """Its content-addressed place in the cache."""
        if self.cache is None:
            return None
        how = (self.config.num_tasks, self.config.seed, self.config.dtype, version("valuelens"))
        key = json.dumps([self.sha256, self.place.label, self.name, self.code, *how])
        return self.cache / hashlib.sha256(key.encode()).hexdigest()[:32]

    def cached(self) -> Result | None:
        """The finished answer; none if there is none or it cannot be read any more."""
        if self.folder is None or not (self.folder / "result.json").exists():
            return None
        try:
            return load_result(self.folder)
        except InputError:
            return None

    def keep(self, answer: Result) -> Result:
        """Put an answer into the cache and return it."""
        if self.folder is not None:
            save_result(answer, self.folder)
        return answer


def request(
    places: list[Place],
    hashes: Mapping[str, str],
    config: AnalysisConfig,
    brought: Mapping[str, Installed] | None = None,
) -> dict[str, Any]:
    """The request as it stands in the provenance: two that agree in everything have the same answer.

    Args:
        places: Checkpoints in their order.
        hashes: sha256 of their weights, by label.
        config: How to measure.
        brought: Questions of installed packages, whose code decides the answer too, by name.
    """
    code = {name: {"package": each.package, "sha256": each.sha256} for name, each in (brought or {}).items()}
    return {
        "checkpoints": {place.label: hashes[place.label] for place in places},
        **_settings(config),
        **({"installed": code} if code else {}),
    }


def request_through(adapter: Adapter, path: Path, config: AnalysisConfig) -> dict[str, object]:
    """The request of a network seen through an adapter, whose code decides the answer too.

    Args:
        adapter: Imported.
        path: Given to it; its content counts if it is a file or a folder, else its name.
        config: How to measure.
    """
    code = {"name": adapter.name, "sha256": adapter.file and content_hash(adapter.file)}
    content = content_hash(path)
    label = path.name if content else str(path)
    return {"checkpoints": {label: content}, "adapter": code, **_settings(config)}


def _settings(config: AnalysisConfig) -> dict[str, object]:
    return {key: value for key, value in asdict(config).items() if key != "adapter"}


def measured(asked: Mapping[str, object], started: float, *, mask: str = CONTEXT_MASK) -> dict[str, Any]:
    """What the provenance of every result says: the request, how and with what it was measured, and when.

    Args:
        asked: From `request` or `request_through`.
        started: Of the monotonic clock.
        mask: What attends to nothing, or is not measured.
    """
    return {
        "request": dict(asked),
        "dtype": f"measured in {asked['dtype']}",
        "mask": mask,
        "command": _command(),
        "versions": {name: version(name) for name in _LIBRARIES} | {"python": platform.python_version()},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - started, 1),
    }


def _command() -> str:
    """What this process was started as; notebooks are named as such, since their kernels tell nothing."""
    program, *rest = sys.argv or [""]
    return "a notebook" if "ipykernel" in program else shlex.join([Path(program).name, *rest])


def finished(out: Path, asked: Mapping[str, object]) -> Result | None:
    """The result that `out` already holds for this request; none if it holds none, or only what a killed run left.

    Args:
        out: Result folder; half-written files of ours are removed from it.
        asked: From `request`.

    Raises:
        InputError: It holds the result of another request, or other files.
    """
    for folder in (out, out / "tables", out / "figures"):
        clear_temporaries(folder)
    if not (out / "result.json").exists():
        if out.exists() and (not out.is_dir() or {each.name for each in out.iterdir()} - _UNFINISHED):
            raise InputError(
                "the output must be a new folder or a result",
                "found other files",
                f"{out} (name another folder)",
            )
        return None
    result = load_result(out)
    wanted, given = _flat(json.loads(json.dumps(asked))), _flat(result.provenance.get("request", {}))
    for key in (*wanted, *given):
        if key not in given or key not in wanted or wanted[key] != given[key]:
            raise InputError(
                f"a result of the same request is continued: {key} must be {wanted.get(key)!r}",
                f"found {given.get(key)!r}",
                f"{out / 'result.json'} (--overwrite starts afresh)",
            )
    return result


def _flat(nested: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Nested keys joined by dots, in their order."""
    flat: dict[str, object] = {}
    for key, value in nested.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


@contextmanager
def blamed(where: str) -> Iterator[None]:
    """What the measurements refuse (rule; finding; place) inside the block is a fault of the model or the rollouts.

    Args:
        where: Which.

    Raises:
        InputError: In place of such a `ValueError`.
    """
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        parts = str(error).split("; ", 2)
        if len(parts) < 3:
            raise
        raise InputError(parts[0], parts[1], f"{where}, {parts[2]}") from error
