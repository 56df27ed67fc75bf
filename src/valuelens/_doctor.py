"""Does everything that valuelens needs work here?"""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

_NEEDED = (
    "torch",
    "transformer-lens",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "safetensors",
    "matplotlib",
    "seaborn",
)
_OPTIONAL = {"gymnasium": "cart-pole tasks: pip install 'valuelens[cartpole]'"}
_FREE = 1 << 30


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        what: The thing.
        state: `ok`, `missing` (optional) or `broken` (needed).
        found: What was found, and what to do.
    """

    what: str
    state: Literal["ok", "missing", "broken"]
    found: str

    def __str__(self) -> str:
        return f"{self.state:8}{self.what}: {self.found}"

    def plain(self) -> dict[str, str]:
        """As data."""
        return asdict(self)


def checks(model: Path | None) -> list[Check]:
    """Look at everything.

    Args:
        model: A checkpoint folder that should be loadable, if any.
    """
    found = [_python(), *(_package(name) for name in _NEEDED)]
    found += [_optional(name, use) for name, use in _OPTIONAL.items()]
    found += [_guarded("threads and devices", _threads), _guarded("temporary folder", _disk)]
    if model is not None:
        found.append(_guarded(f"checkpoint {model}", lambda: _model(model)))
    return found


def _python() -> Check:
    state: Literal["ok", "broken"] = "ok" if sys.version_info >= (3, 11) else "broken"
    return Check("python", state, f"{platform.python_version()} (needs 3.11 or newer)")


def _package(name: str) -> Check:
    try:
        found = version(name)
    except PackageNotFoundError:
        return Check(name, "broken", "not installed")
    if name == "transformer-lens" and int(found.split(".")[0]) < 3:
        return Check(name, "broken", f"{found} is too old; needs 3.9 or newer")
    return Check(name, "ok", found)


def _optional(name: str, use: str) -> Check:
    if find_spec(name) is None:
        return Check(name, "missing", use)
    return Check(name, "ok", version(name))


def _guarded(what: str, look: Callable[[], str]) -> Check:
    try:
        return Check(what, "ok", look())
    except Exception as error:  # noqa: BLE001 - a doctor reports whatever is wrong
        return Check(what, "broken", " ".join(str(error).split()))


def _threads() -> str:
    import torch

    devices = ["cpu"] + [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    threads = f"torch would use {torch.get_num_threads()} threads, valuelens uses 1 per process"
    return f"{os.cpu_count()} cores; {threads}; {', '.join(devices)}"


def _disk() -> str:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "probe").write_bytes(b"x")
        free = shutil.disk_usage(folder).free
    if free < _FREE:
        raise OSError(f"only {free >> 20} MiB free in {tempfile.gettempdir()}; 1 GiB is advisable")
    return f"writable, {free >> 30} GiB free"


def _model(path: Path) -> str:
    from valuelens.models.icrl import checkpoint_record, load

    model: Any = load(path)
    config = checkpoint_record(path)["model"]
    count = sum(parameter.numel() for parameter in model.parameters())
    return f"{config['arch']}, {config['num_layers']} layers, {count} parameters, loads and is finite"
