"""Does everything that valuelens needs work here?"""

import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from valuelens import _doctor_machine as machine
from valuelens._check import Check, Dubious, State
from valuelens._interrupt import interruptible, nothing
from valuelens._terminal import Told, bar

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
    "dask": "impact on several machines: pip install 'valuelens[dask]'",
    "gymnasium": "cart-pole tasks: pip install 'valuelens[cartpole]'",
    "peft": "adapter folders: pip install 'valuelens[peft]'",
    "gguf": "GGUF files: pip install 'valuelens[gguf]'",
}

_ACTIVATIONS = 34
"""Numbers that a block keeps for the backward pass, for each token and unit of width (a common estimate)."""

_DEFAULT_ROLLOUTS, _LONGEST, _MICRO_BATCH = 512, 64, 8
"""Of `costates` as it is called without options."""

_FORWARDS = 6
"""Forward passes that its rollouts cost: sampling, scoring, and twice a forward and a backward pass."""


def checks(model: str | Path | None, *, progress: bool = False) -> list[Check]:
    """Look at everything.

    Args:
        model: A checkpoint of either kind that should be usable, if any: a path, or a name on the hub.
        progress: Show how far it is.
    """
    found = [_python(), *(_package(name) for name in _NEEDED)]
    found += [_optional(name, use) for name, use in _OPTIONAL.items()]
    with interruptible(nothing, "a look at the machine keeps nothing"):
        with bar("doctor", show=progress) as told:
            for k, (what, look) in enumerate(machine.LOOKS.items()):
                told(what, k, len(machine.LOOKS))
                found.append(guarded(what, look))
        return found if model is None else found + _tried(model, progress=progress)


def _python() -> Check:
    state: State = "ok" if sys.version_info >= (3, 11) else "broken"
    return Check("python", state, f"{platform.python_version()} (needs 3.11 or newer)")


def _package(name: str) -> Check:
    try:
        found = version(name)
    except PackageNotFoundError:
        return Check(name, "broken", "not installed")
    needed = _needs(name)
    if needed.specifier.contains(found, prereleases=True):
        return Check(name, "ok", found)
    return Check(name, "broken", f"{found}; needs {needed.specifier}: pip install '{needed}'")


def _optional(name: str, use: str) -> Check:
    check = _package(name)
    if check.found == "not installed":
        return Check(name, "missing", use)
    return Check(name, "warning" if check.state == "broken" else "ok", check.found)


def _needs(name: str) -> Requirement:
    """What the metadata of valuelens asks of a package, for whatever it is needed; any version if nothing."""
    for line in requires("valuelens") or []:
        asked = Requirement(line)
        if asked.name == name:
            return Requirement(f"{asked.name}{asked.specifier}")
    return Requirement(name)


def guarded(what: str, look: Callable[[], str]) -> Check:
    """What a look found, whatever it was.

    Args:
        what: The thing.
        look: Returns what it found where all is well.
    """
    state: State
    try:
        found, state = look(), "ok"
    except Dubious as doubt:
        found, state = str(doubt), "warning"
    except LookupError as lack:
        found, state = str(lack.args[0] if lack.args else lack), "missing"
    except Exception as error:  # noqa: BLE001 - a doctor reports whatever is wrong
        found, state = str(error), "broken"
    return Check(what, state, " ".join(found.split()))


def _tried(model: str | Path, *, progress: bool) -> list[Check]:
    what, loaded = f"checkpoint {model}", list[Any]()
    if (room := _room(model)) is not None and room.state == "broken":
        return [room]  # before the system ends this process for it
    with bar("doctor", show=progress) as told:
        if Path(model).exists():  # else a download shows its own bars
            told(f"loading {model}", 0, 0)
        first = guarded(what, lambda: _described(model, loaded, told))
    looks = {"tokenizer": _tokenizer, "gradients": _gradients, "attention": _attention} if loaded else {}
    looks |= {"memory of costates": _needed, "time of costates": _duration} if loaded else {}
    return [first, *(guarded(name, partial(look, *loaded)) for name, look in looks.items())]


def _room(model: str | Path) -> Check | None:
    """Whether the weights of a folder fit into memory at all, in float32; none where there are none to be seen."""
    from valuelens.models.lm import is_in_context

    folder = Path(model)
    if not folder.is_dir() or is_in_context(folder):
        return None
    size = sum(
        each.stat().st_size for each in folder.glob("*.safetensors") if each.name != "state.safetensors"
    )
    free = machine.available_memory()
    if size < free:
        return None
    found = f"its weights take {size / machine.GIB:.1f} GiB, {free / machine.GIB:.1f} GiB are available"
    return Check(f"checkpoint {model}", "broken", f"{found}; use a machine with more memory")


def _needed(language_model: Any, _: Any) -> str:
    """Memory of a micro-batch beside what is left now that the weights are there; an estimate."""
    tokens = _MICRO_BATCH * 2 * _LONGEST
    width, size = language_model.d_model, language_model.model.dtype.itemsize
    blocks = _ACTIVATIONS * language_model.num_layers * width * tokens * size
    logits = 4 * language_model.vocab_size * tokens * 8
    need, free = blocks + logits, machine.available_memory()
    beside = f"about {need / machine.GIB:.1f} GiB beside the weights (micro-batch {_MICRO_BATCH})"
    found = f"{beside}, {free / machine.GIB:.1f} GiB available"
    if need > free:
        raise Dubious(f"{found}; use --micro-batch 1, or --dtype bfloat16")
    return found


def _duration(language_model: Any, _: Any) -> str:
    """Time of the default call, from one forward pass; completions that end sooner take less."""
    import torch

    length = min(2 * _LONGEST, language_model.context_window or 2 * _LONGEST)
    ids = torch.arange(length, device=language_model.device)[None] % language_model.vocab_size
    with torch.no_grad():
        started = time.perf_counter()
        language_model.model(input_ids=ids)
    seconds = time.perf_counter() - started
    whole = seconds * _DEFAULT_ROLLOUTS * _FORWARDS
    told = (
        f"{whole:.0f} s"
        if whole < 100
        else f"{whole / 60:.0f} min"
        if whole < 6000
        else f"{whole / 3600:.0f} h"
    )
    return f"at most about {told} for {_DEFAULT_ROLLOUTS} completions of {_LONGEST} tokens on {language_model.device}"


def _described(model: str | Path, loaded: list[Any], told: Told) -> str:
    """What it is; a language model is left in `loaded`, with what a forward and a backward pass of it showed."""
    from valuelens._kinds import refuse_other
    from valuelens.models.lm import is_in_context, load_language_model, soundness

    refuse_other("doctor", model)
    if is_in_context(model):
        return _learner(Path(model))
    language_model = load_language_model(model, progress=partial(told, f"loading {model}"))
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
