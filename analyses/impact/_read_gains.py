"""Gains of RL that somebody else ran: a table, or the logs of TRL, one run or several for each checkpoint."""

import math
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from valuelens.analyses.impact._gain_logs import known_checkpoint, logged_runs
from valuelens.analyses.impact._tables import GAINS
from valuelens.models import InputError, nearest

OWN = "given"
"""Recipe of gains that name none."""

_TRUTHS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
_NUMBERS = ("reward_before", "reward_after", "gain")
_TOLERANCE = 1e-6
"""Of the reward, by which a gain may differ from the rewards that stand beside it."""


def read_gains(path: Path, checkpoints: Sequence[str]) -> pd.DataFrame:
    """Realised gains, a row for each RL run.

    * A table (`.csv`, `.parquet`): columns `checkpoint`, and `gain` or `reward_before` and `reward_after`; if there,
      `rl_seed`, `recipe` (else `given`), `cut` (whether temporal credit was cut; else not) and `series`.
    * A folder of TRL runs: one sub-folder for each checkpoint, with a run or a sub-folder for each of several runs; or
      one file `CHECKPOINT.json` each. A run is a `trainer_state.json`, of which the latest `checkpoint-N` is read, or a
      `completions` folder.

    Logs say the reward of training rollouts, not of held-out prompts. Our definition: before is the first logged
    reward, after the mean of the last tenth of the logged ones, rounded up. What is logged last is as noisy as one
    batch, so several runs a checkpoint are worth having.

    Args:
        path: File or folder.
        checkpoints: Names of those that are ranked; a gain of another is an error, one without a gain is not.

    Raises:
        InputError: Something is missing, cannot be read, stands there twice or is no finite number.
    """
    if path.is_dir():
        table = pd.DataFrame(logged_runs(path, checkpoints))
        return table.assign(
            series="", recipe=OWN, cut=False, gain=table["reward_after"] - table["reward_before"]
        )[list(GAINS)]
    table = _table(path)
    wanted = "gain" if "gain" in table else "reward_after"
    missing = [name for name in ("checkpoint", wanted) if name not in table]
    if "gain" not in table and "reward_before" not in table:
        missing.append("reward_before")
    if missing:
        must = "gains must have the columns checkpoint and gain, or reward_before and reward_after"
        raise InputError(must, f"found {', '.join(map(str, table.columns)) or 'none'}", str(path))
    if table.empty:
        raise InputError("gains must have a run", "found no row", str(path))
    return _checked(table, path, checkpoints)


def _table(path: Path) -> pd.DataFrame:
    words = dict.fromkeys(("checkpoint", "series", "recipe", "cut"), str)
    try:
        if path.suffix == ".csv":
            return pd.read_csv(path, dtype=words, skipinitialspace=True)
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
    except FileNotFoundError:
        raise InputError(
            "gains must be a file or a folder", f"found none{nearest(path)}", str(path)
        ) from None
    except pd.errors.EmptyDataError:
        raise InputError("gains must have a run", "found an empty file", str(path)) from None
    except (pd.errors.ParserError, pa.ArrowException, OSError, UnicodeDecodeError) as error:
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"gains must be readable as {path.suffix[1:]}", f"found {told}", str(path)) from None
    found = f"found {path.name}" if path.exists() else f"found none{nearest(path)}"
    raise InputError("gains must be a .csv or .parquet file or a folder of TRL runs", found, str(path))


def _checked(table: pd.DataFrame, path: Path, checkpoints: Sequence[str]) -> pd.DataFrame:
    table = table.reset_index(drop=True)
    names = [_word(value, path, "checkpoint", row) for row, value in enumerate(table["checkpoint"])]
    found: dict[str, list[Any]] = {
        "checkpoint": [
            known_checkpoint(name, checkpoints, _where(path, "checkpoint", row))
            for row, name in enumerate(names)
        ]
    }
    for column, otherwise in (("series", ""), ("recipe", OWN)):
        given = table[column] if column in table else [otherwise] * len(table)
        found[column] = [
            _word(value, path, column, row) if column in table else value for row, value in enumerate(given)
        ]
    cut = table["cut"] if "cut" in table else ["false"] * len(table)
    found["cut"] = [_truth(value, path, row) for row, value in enumerate(cut)]
    for column in _NUMBERS:
        there = column in table
        found[column] = (
            [_number(value, path, column, row) for row, value in enumerate(table[column])] if there else []
        )
    _agree(found, path)
    found["gain"] = found["gain"] or [
        after - before for before, after in zip(found["reward_before"], found["reward_after"], strict=True)
    ]
    for column in _NUMBERS[:2]:
        found[column] = found[column] or [math.nan] * len(table)
    found["rl_seed"] = _seeds(table, found, path)
    return pd.DataFrame(found)[list(GAINS)]


def _seeds(table: pd.DataFrame, found: dict[str, list[Any]], path: Path) -> list[Any]:
    """Seeds as given; without a column, zeros, and then no run may stand there twice."""
    given = "rl_seed" in table
    seeds = (
        [_seed(value, path, row) for row, value in enumerate(table["rl_seed"])] if given else [0] * len(table)
    )
    seen: dict[Hashable, int] = {}
    for row, key in enumerate(
        zip(found["series"], found["checkpoint"], found["recipe"], found["cut"], seeds, strict=True)
    ):
        if seen.setdefault(key, row) != row:
            must = (
                "a run must stand there once"
                if given
                else "several runs of a checkpoint must differ in rl_seed"
            )
            where = _where(path, "rl_seed" if given else "checkpoint", row)
            raise InputError(must, f"found {key[1]} again, as in row {seen[key]}", where)
    return seeds


def _agree(found: dict[str, list[Any]], path: Path) -> None:
    if not all(found[name] for name in _NUMBERS):
        return
    for row, (before, after, gain) in enumerate(zip(*(found[name] for name in _NUMBERS), strict=True)):
        if abs(after - before - gain) > _TOLERANCE * max(1.0, abs(before), abs(after)):
            must = "gain must be reward_after - reward_before"
            raise InputError(must, f"found {gain}, not {after - before:g}", _where(path, "gain", row))


def _number(value: Any, path: Path, column: str, row: int) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError("a number must be finite", f"found {value!r}", _where(path, column, row))
    return number


def _seed(value: Any, path: Path, row: int) -> int:
    number = _number(value, path, "rl_seed", row)
    if number != int(number):
        raise InputError("a seed must be a whole number", f"found {number:g}", _where(path, "rl_seed", row))
    return int(number)


def _word(value: Any, path: Path, column: str, row: int) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)) or not str(value).strip():
        raise InputError("a name must not be empty", "found none", _where(path, column, row))
    return str(value).strip()


def _truth(value: Any, path: Path, row: int) -> bool:
    told = _TRUTHS.get(str(value).strip().lower())
    if told is None:
        raise InputError("cut must be true or false", f"found {value!r}", _where(path, "cut", row))
    return told


def _where(path: Path, column: str, row: int) -> str:
    return f"{path}, column {column}, row {row}"
