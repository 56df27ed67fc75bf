"""Training runs that go on exactly where they stopped: the folder's claim, the optimiser's state, seeds, the log."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from joblib import Parallel, delayed
from torch import Tensor, nn

from valuelens.models._errors import InputError
from valuelens.models._files import atomic_path, clear_temporaries
from valuelens.models._processes import counters, deaf

Progress = Callable[[int, int], None]
"""Called as progress(steps done since the last call, seed)."""

_ADAM = ("step", "exp_avg", "exp_avg_sq")


def claim(out: Path, ours: dict[str, Any], read: Callable[[Path], dict[str, Any]]) -> None:
    """Write `config.json` into a new folder, or make sure that the one there says the same.

    Args:
        out: Folder of the run.
        ours: The configuration as plain data.
        read: Reads a `config.json` into the same shape, or raises `InputError`.

    Raises:
        InputError: The folder holds results of another configuration (the first key that differs is named), or other
            files, or cannot be written.
    """
    clear_temporaries(out)
    path = out / "config.json"
    if path.exists():
        key, found, wanted = _first_difference(read(path), ours)
        if key:
            raise InputError(
                f"results of the same configuration are continued: {key} must be {wanted!r}",
                f"found {found!r}",
                f"{path} (--overwrite starts afresh)",
            )
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(
            "the output must be a new folder or a run",
            "found other files",
            f"{out} (name another folder)",
        )
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(ours, indent=2) + "\n", encoding="utf-8")


def read_json(path: Path, keys: Sequence[str]) -> dict[str, Any]:
    """What a `config.json` holds.

    Args:
        path: The file.
        keys: That it must have.

    Raises:
        InputError: It is missing, is no JSON, or lacks a key.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("a checkpoint or run has a config.json", "found none", str(path)) from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("config.json must be readable JSON", f"found {error}", str(path)) from None
    if not isinstance(data, dict) or not set(keys) <= set(data):
        found = sorted(data)[:6] if isinstance(data, dict) else type(data).__name__
        raise InputError(f"config.json must hold {' and '.join(keys)}", f"found {found}", str(path))
    return data


def train_seeds(
    train: Callable[[Any, Path, str, Progress | None], int],
    runs: Mapping[Path, Any],
    *,
    device: str,
    jobs: int,
    progress: Progress | None,
) -> None:
    """Train a model for each seed, in processes where that is asked for.

    Args:
        train: Called with configuration, folder, device and progress; returns its seed.
        runs: Configuration of each folder.
        device: Where the models are.
        jobs: Processes.
        progress: With several processes called a few times a second.
    """
    if jobs == 1 or len(runs) == 1:
        for run, config in runs.items():
            train(config, run, device, progress)
        return
    seeds = [config.train.seed for config in runs.values()]
    before = [0] * len(runs)

    def told(counts: list[int]) -> None:
        for place, (count, seed) in enumerate(zip(counts, seeds, strict=True)):
            if progress and count > before[place]:
                progress(count - before[place], seed)
            before[place] = count

    with counters(len(runs), told) as counted:
        work = [
            delayed(train)(config, run, device, counter)
            for counter, (run, config) in zip(counted, runs.items(), strict=True)
        ]
        with deaf():
            outcomes = Parallel(n_jobs=jobs, return_as="generator_unordered")(work)
        for _ in outcomes:
            pass


def optimiser_tensors(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """State of Adam by parameter name, on the CPU.

    Args:
        model: Whose parameters it moves.
        optimiser: Adam or AdamW.
    """
    return {
        f"{name}.{key}": tensor.cpu()
        for name, parameter in model.named_parameters()
        for key, tensor in optimiser.state.get(parameter, {}).items()
    }


def restore_optimiser(
    model: nn.Module, optimiser: torch.optim.Optimizer, state: Mapping[str, Tensor]
) -> None:
    """The reverse of `optimiser_tensors`.

    Args:
        model: Whose parameters it moves.
        optimiser: Freshly made.
        state: May hold other tensors too.
    """
    for name, parameter in model.named_parameters():
        optimiser.state[parameter] = {
            key: state[f"{name}.{key}"].to(parameter.device) for key in _ADAM if f"{name}.{key}" in state
        }


def diverged(step: int, found: str) -> InputError:
    """The error of a run whose numbers are no longer finite.

    Args:
        step: Where it was seen.
        found: What was.
    """
    return InputError("training must stay finite", f"found {found} at step {step}", "option --learning-rate")


def write_metrics(out: Path, logs: Mapping[int, Tensor], columns: Sequence[str]) -> None:
    """`metrics.parquet` of a run: a row for each logged step and seed.

    Args:
        out: Folder of the run.
        logs: A row for each logged step, by seed.
        columns: What the numbers of a row are; `step` among them.
    """
    frames = [
        pd.DataFrame(log.numpy(), columns=list(columns)).astype({"step": int}).assign(seed=seed)
        for seed, log in logs.items()
    ]
    with atomic_path(out / "metrics.parquet") as temporary:
        pd.concat(frames).to_parquet(temporary, index=False)


def _first_difference(theirs: dict[str, Any], ours: dict[str, Any]) -> tuple[str, object, object]:
    for key in [*ours, *(key for key in theirs if key not in ours)]:
        found, wanted = theirs.get(key), ours.get(key)
        if isinstance(wanted, dict) and isinstance(found, dict):
            inner, there, here = _first_difference(found, wanted)
            if inner:
                return f"{key}.{inner}", there, here
        elif found != wanted:
            return key, found, wanted
    return "", None, None
