"""Where rollouts lie: a parquet file, a pattern of such files, or the output folder of a trainer."""

import glob
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from valuelens.models._errors import InputError, did_you_mean
from valuelens.models._files import nearest

_OURS = ("prompt", "completion", "prompt_ids", "completion_ids", "step", "group", "completion_mask")
_SIGNALS = ("advantage", "values", "log_probs", "logprobs")
_TOOL_MASKS = ("tool_mask", "env_mask")


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutTable:
    """One file of rollouts.

    Attributes:
        path: Of the file, named in errors.
        table: Its rows.
    """

    path: str
    table: pa.Table

    @property
    def columns(self) -> list[str]:
        """Names of its columns."""
        return list(self.table.column_names)


def rollout_tables(source: str) -> list[RolloutTable]:
    """Every file of rollouts, in the order of names, without those that only repeat the file before.

    A trainer that goes several steps with the same rollouts writes them again under the next step's number.

    Args:
        source: A parquet file, a glob, or a folder that holds such files or a `completions` folder with them. Nothing
            but `.parquet` is ever opened in a folder or by a glob.

    Raises:
        InputError: Nothing is there, a file is no parquet, or there is no row.
    """
    tables: list[RolloutTable] = []
    before = None
    for path in rollout_files(source):
        table = _read(path)
        rows = table.drop_columns([name for name in ("step",) if name in table.column_names]).to_pylist()
        if table.num_rows and repr(rows) != before:  # repr: NaN is equal to itself there
            tables.append(RolloutTable(path=str(path), table=table))
        before = repr(rows)
    if not tables:
        raise InputError("rollouts must have a row", "found none", source)
    return tables


def reward_columns(
    tables: list[RolloutTable], named: tuple[str, ...] | None, targets: str | None
) -> list[str]:
    """Names of the columns that hold rewards, the same in every file.

    They are those named, else `reward` and every other column of floats that has no meaning of its own (our
    definition: a trainer writes one column of floats for each reward function, under the function's name).

    Args:
        tables: The files.
        named: Names asked for, or none.
        targets: Name of the column of right tokens, which is no reward.

    Raises:
        InputError: Columns that must be there are missing, files differ, or a mask of tools is there.
    """
    found = []
    for each in tables:
        _check_columns(each, targets)
        found.append(_numbers_named(each, named) if named else _floats(each, targets))
        if found[-1] != found[0]:
            raise InputError(
                "files must have the same rewards", f"found {found[0]} and {found[-1]}", each.path
            )
        if not found[-1] and "advantage" not in each.columns and targets is None:
            raise InputError(
                "rollouts must have a column of rewards or advantage", f"found {each.columns}", each.path
            )
    return found[0]


def rollout_files(source: str) -> list[Path]:
    """The files that a source names, in the order of names.

    Args:
        source: As `rollout_tables`.

    Raises:
        InputError: There is none.
    """
    path = Path(source)
    if path.is_file():
        return [path]
    if path.is_dir():
        folder = path / "completions" if (path / "completions").is_dir() else path
        found = sorted(folder.glob("*.parquet"))
        must, where = "a folder of rollouts must hold parquet files", str(folder)
    else:
        matches = sorted(Path(match) for match in glob.glob(source, recursive=True))
        found = [match for match in matches if match.suffix == ".parquet" and match.is_file()]
        must, where = "rollouts must be a parquet file, a folder or a pattern that matches some", source
    if not found:
        raise InputError(must, f"found none{nearest(path)}" if not path.exists() else "found none", where)
    return found


def _read(path: Path) -> pa.Table:
    try:
        return pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as error:
        found = f"found {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        raise InputError("rollouts must be readable as parquet", found, str(path)) from error


def _check_columns(each: RolloutTable, targets: str | None) -> None:
    for wanted in (("prompt", "prompt_ids"), ("completion", "completion_ids")):
        if not set(wanted) & set(each.columns):
            must = f"rollouts must have a column {wanted[0]} or {wanted[1]}"
            raise InputError(must, f"found {each.columns}", each.path)
    if targets is not None and targets not in each.columns:
        found = f"found {each.columns}{did_you_mean(targets, each.columns)}"
        raise InputError(f"--reward-targets must name a column: {targets}", found, each.path)
    for name in _TOOL_MASKS:
        if name in each.columns:
            raise InputError("tool masks are not supported", f"found column {name}", each.path)


def _floats(each: RolloutTable, targets: str | None) -> list[str]:
    schema, taken = each.table.schema, (*_OURS, *_SIGNALS, targets)
    return [
        field.name
        for field in schema
        if field.name not in taken
        and (pa.types.is_floating(field.type) or (field.name == "reward" and _is_number(field.type)))
    ]


def _numbers_named(each: RolloutTable, named: tuple[str, ...]) -> list[str]:
    for name in named:
        if name not in each.columns or not _is_number(each.table.schema.field(name).type):
            kind = each.table.schema.field(name).type if name in each.columns else "no such column"
            raise InputError(
                "a reward must be a column of numbers", f"found {kind}", f"{each.path}, column {name}"
            )
    return list(named)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind))
