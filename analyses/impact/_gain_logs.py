"""Rewards that TRL logged while it trained, from its state or from its completions."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from valuelens.models import InputError, did_you_mean
from valuelens.models.lm import reward_columns, rollout_tables

STATE = "trainer_state.json"
_TENTH = 0.1


def logged_runs(folder: Path, checkpoints: Sequence[str]) -> list[dict[str, Any]]:
    """Checkpoint, seed (the number of the run, in the order of names) and rewards of every run in a folder.

    Args:
        folder: With a sub-folder, or a file `CHECKPOINT.json`, for each checkpoint.
        checkpoints: Names of those that are ranked.

    Raises:
        InputError: There is no run, one is of an unknown checkpoint, or a log cannot be used.
    """
    entries = [each for each in sorted(folder.iterdir()) if not each.name.startswith(".")]
    if any(each.name in (STATE, "completions") for each in entries):
        must = "a folder of gains must have a sub-folder for each checkpoint"
        raise InputError(must, "found a single run", str(folder))
    entries = [each for each in entries if each.is_dir() or each.suffix == ".json"]
    if not entries:
        raise InputError(
            "a folder of gains must have a sub-folder for each checkpoint", "found none", str(folder)
        )
    rows: list[dict[str, Any]] = []
    for entry in entries:
        name = entry.name if entry.is_dir() else entry.stem
        if any(row["checkpoint"] == name for row in rows):
            raise InputError(
                "a checkpoint must stand there once", f"found a folder and a file {name}", str(folder)
            )
        known_checkpoint(name, checkpoints, str(entry))
        for seed, rewards in enumerate(_runs(entry)):
            rows.append({"checkpoint": name, "rl_seed": seed, **rewards})
    return rows


def known_checkpoint(name: str, checkpoints: Sequence[str], where: str) -> str:
    """The name, if it is that of a checkpoint that is ranked.

    Args:
        name: As it stands in the gains.
        checkpoints: Names of those that are ranked.
        where: It stands.

    Raises:
        InputError: It is unknown; the closest name is told.
    """
    if name in checkpoints:
        return name
    hint = did_you_mean(name, checkpoints) or f" (there are {', '.join(checkpoints[:3])}, ...)"
    raise InputError("gains must be of checkpoints that are ranked", f"found {name!r}{hint}", where)


def before_and_after(rewards: Sequence[float], where: str) -> dict[str, float]:
    """The first logged reward, and the mean of the last tenth of them, rounded up (our definition).

    Args:
        rewards: In the order of training.
        where: They were logged.

    Raises:
        InputError: There are fewer than two.

    Example:
        >>> before_and_after([0.1, 0.2, 0.9], "a log")
        {'reward_before': 0.1, 'reward_after': 0.9}
    """
    if len(rewards) < 2:
        must = "a log must hold the rewards of at least two steps"
        raise InputError(must, f"found {len(rewards) or 'none'}", where)
    last = math.ceil(_TENTH * len(rewards))
    return {"reward_before": float(rewards[0]), "reward_after": float(np.mean(rewards[-last:]))}


def _runs(entry: Path) -> list[dict[str, float]]:
    """Of one checkpoint: its own file, its folder, or one run in each of its sub-folders."""
    if entry.is_file():
        return [before_and_after(_of_state(entry), str(entry))]
    own = _run(entry)
    if own is not None:
        return [own]
    found = [run for each in sorted(entry.iterdir()) if each.is_dir() and (run := _run(each)) is not None]
    if not found:
        must = f"a run must hold {STATE} or completions"
        raise InputError(must, "found neither", str(entry))
    return found


def _run(folder: Path) -> dict[str, float] | None:
    state = folder / STATE
    if not state.is_file():
        saved = [each for each in folder.glob(f"checkpoint-*/{STATE}") if _step(each) >= 0]
        state = max(saved, key=_step, default=state)
    if state.is_file():
        return before_and_after(_of_state(state), str(state))
    if (folder / "completions").is_dir():
        return before_and_after(_of_completions(folder), str(folder / "completions"))
    return None


def _step(state: Path) -> int:
    number = state.parent.name.removeprefix("checkpoint-")
    return int(number) if number.isdecimal() else -1


def _of_state(path: Path) -> list[float]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("a trainer's state must be readable JSON", f"found {error}", str(path)) from None
    history = data.get("log_history") if isinstance(data, dict) else None
    if not isinstance(history, list):
        raise InputError("a trainer's state must have a list log_history", "found none", str(path))
    rewards = []
    for place, entry in enumerate(history):
        if isinstance(entry, dict) and "reward" in entry:
            reward = entry["reward"]
            if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
                where = f"{path}, log_history, entry {place}"
                raise InputError("a logged reward must be a finite number", f"found {reward!r}", where)
            rewards.append(float(reward))
    return rewards


def _of_completions(folder: Path) -> list[float]:
    """Mean over rollouts of each logged step, the sum of the reward columns, as TRL sums them."""
    tables = rollout_tables(str(folder))
    columns = reward_columns(tables, None, None)
    if not columns:
        raise InputError("completions must have a column of rewards", "found none", str(folder))
    means = []
    for each in tables:
        values = each.table.select(columns).to_pandas().to_numpy(dtype=np.float64)
        known = values[~np.isnan(values).all(-1)]
        mean = float(np.nansum(known, axis=-1).mean()) if len(known) else math.nan
        if not math.isfinite(mean):
            raise InputError("a logged reward must be a finite number", f"found {mean}", each.path)
        means.append(mean)
    return means
