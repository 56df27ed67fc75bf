"""Does everything that valuelens needs work here?"""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from valuelens._terminal import painted

_NEEDED = (
    "torch",
    "transformer-lens",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "safetensors",
    "transformers",
    "matplotlib",
    "seaborn",
)
_OPTIONAL = {
    "gymnasium": "cart-pole tasks: pip install 'valuelens[cartpole]'",
    "peft": "adapter folders: pip install 'valuelens[peft]'",
    "gguf": "GGUF files: pip install 'valuelens[gguf]'",
}
_FREE = 1 << 30
_COLOURS = {"ok": "good", "missing": "faint", "warning": "note", "broken": "error"}


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

    def line(self) -> str:
        """For people, with a colour where stdout shows it."""
        return painted(f"{self.state:8}", _COLOURS[self.state], sys.stdout) + f"{self.what}: {self.found}"

    def plain(self) -> dict[str, str]:
        """As data."""
        return asdict(self)


def checks(model: str | Path | None, *, progress: bool = False) -> list[Check]:
    """Look at everything.

    Args:
        model: A checkpoint of either kind that should be usable, if any: a path, or a name on the hub.
        progress: Show how far it is.
    """
    found = [_python(), *(_package(name) for name in _NEEDED)]
    found += [_optional(name, use) for name, use in _OPTIONAL.items()]
    found += [_guarded("threads and devices", _threads), _guarded("temporary folder", _disk)]
    return found if model is None else found + _tried(model)


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


def _tried(model: str | Path) -> list[Check]:
    what, loaded = f"checkpoint {model}", list[Any]()
    first = _guarded(what, lambda: _described(model, loaded))
    looks = {"tokenizer": _tokenizer, "gradients": _gradients, "attention": _attention} if loaded else {}
    return [first, *(_guarded(name, partial(look, *loaded)) for name, look in looks.items())]


def _described(model: str | Path, loaded: list[Any]) -> str:
    """What it is; a language model is left in `loaded`, with what a forward and a backward pass of it showed."""
    from valuelens.models.lm import is_in_context, load_language_model, soundness

    if is_in_context(model):
        return _learner(Path(model))
    language_model = load_language_model(model)
    loaded += [language_model, soundness(language_model)]
    return _language_model(language_model)


def _learner(path: Path) -> str:
    from valuelens.models.icrl import checkpoint_record, load

    model: Any = load(path)
    config = checkpoint_record(path)["model"]
    count = sum(parameter.numel() for parameter in model.parameters())
    return f"{config['arch']}, {config['num_layers']} layers, {count} parameters, loads and is finite"


def _language_model(found: Any) -> str:
    from valuelens.models.lm import TESTED_FAMILIES

    family = found.family + ("" if found.family in TESTED_FAMILIES else ", a family that is not tested")
    count = sum(parameter.numel() for parameter in found.model.parameters())
    size = f"{found.num_layers} layers, width {found.d_model}, {count} parameters"
    window = f"context window {found.context_window or 'unlimited'}"
    dtype = str(found.model.dtype).removeprefix("torch.")
    return f"{family}, {size}, {window}, loads in {dtype} and is finite; sha256 {found.sha256[:12]}"


def _tokenizer(language_model: Any, _: Any) -> str:
    tokenizer, rows = language_model.tokenizer, language_model.vocab_size
    if tokenizer is None:
        return f"none: only token ids below {rows} can be used, no text"
    template = "has" if getattr(tokenizer, "chat_template", None) else "has no"
    return f"{len(tokenizer)} tokens for {rows} embeddings, ends with {tokenizer.eos_token!r}, {template} chat template"


def _gradients(_: Any, soundness: Any) -> str:
    dead = [layer for layer, norm in enumerate(soundness.gradients) if not 0 < norm < float("inf")]
    if dead:
        raise ValueError(f"none, or none that is finite, reach layers {', '.join(map(str, dead))}")
    return f"reach layer 0 (norm {soundness.gradients[0]:.3g}) and all layers above"


def _attention(_: Any, soundness: Any) -> str:
    changes = f"right padding changes log-probabilities by {soundness.padding:.1g}, a later token by"
    found = f"{changes} {soundness.future:.1g} (tolerance {soundness.tolerance:g})"
    if not (soundness.padding <= soundness.tolerance and soundness.future <= soundness.tolerance):
        raise ValueError(f"{found}: positions see what they must not")
    return found
