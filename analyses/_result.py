"""What an analysis returns and what lands on disk: findings with their control and interval, arrays, tables.

A result knows nothing of models; a report is drawn from it alone.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pandas as pd
from markupsafe import Markup
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from valuelens.models import InputError, atomic_path, nearest

Definition = Literal["source", "audit", "derived", "choice"]
Scalar = float | int | str | None
SCHEMA = {"name": "valuelens.result", "version": 1}
_WIDE, _CUT = 30, 60
"""Characters of words in a printed table: longer estimates stand below it, and other cells are cut."""

_UNFOLDED = 40
"""Findings that a notebook shows at once; more are folded under the verdict."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    """What an estimate stands beside: a predictor that sees no state, a kernel that attends evenly, ..."""

    name: str
    estimate: Scalar | list[Scalar]

    def __post_init__(self) -> None:
        """Turn non-finite numbers into None; the finding says why."""
        object.__setattr__(self, "estimate", _clean(self.estimate))


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One number (or word, or list over layers) that an analysis found.

    Attributes:
        name: One of the names in the result schema.
        estimate: Number, string or list; NaN and infinity become None and need a reason.
        unit: Of the estimate; "1" for ratios.
        n: Tasks behind it; 0 for a property of the weights alone.
        definition: Standing of the formula: source, audit, derived, or choice (our definition).
        index: Where: layer, checkpoint, seed, reference, ...
        interval: 95 % interval over tasks.
        control: The estimate of a control on the same tasks.
        reasons: Why estimate, interval or control is None, wholly or in a part.

    Raises:
        ValueError: Something is None without a reason.
    """

    name: str
    estimate: Scalar | list[Scalar]
    unit: str
    n: int
    definition: Definition
    index: Mapping[str, int | str] = field(default_factory=dict)
    interval: tuple[float, float] | None = None
    control: Control | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Turn non-finite numbers into None and insist on reasons."""
        object.__setattr__(self, "estimate", _clean(self.estimate))
        for key, absent in (
            ("estimate", _missing(self.estimate)),
            ("interval", self.interval is None),
            ("control", self.control is None or _missing(self.control.estimate)),
        ):
            if absent and key not in self.reasons:
                raise ValueError(f"a finding without {key} says why; found no reason; {self.name}")
            if key == "control" and not absent:  # a reason for what is there would be read as a fact
                object.__setattr__(self, "reasons", {k: v for k, v in self.reasons.items() if k != key})

    def __str__(self) -> str:
        """In one line: where, estimate, interval and control."""
        where = "".join(f" {key} {value}" for key, value in self.index.items())
        limits = "" if self.interval is None else f" {_short(list(self.interval))}"
        beside = f" ({self.control.name}: {_short(self.control.estimate)})" if self.control else ""
        return f"{self.name}{where}: {_short(self.estimate)}{limits}{beside}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Array:
    """A tensor with named axes."""

    axes: str
    values: Tensor


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Result:
    """Everything that an analysis found; printed, or last in a notebook's cell, it shows itself.

    Attributes:
        kind: `in-context-rl` for checkpoints and runs, `costates` for language models and their rollouts.
        verdict: One or two plain sentences.
        findings: In the order of their sections.
        skipped: What was left out, each with `what` and `why`.
        provenance: Checkpoint hash, configuration, seed, versions, dtype, mask, command, times.
        arrays, tables: What the figures are drawn from, by name.
    """

    kind: str
    verdict: str = ""
    findings: tuple[Finding, ...] = ()
    skipped: tuple[Mapping[str, str], ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    def find(self, name: str, **index: int | str) -> list[Finding]:
        """The findings of a name whose index agrees with what is given."""
        return [
            each
            for each in self.findings
            if each.name == name and all(each.index.get(key) == value for key, value in index.items())
        ]

    def table(self, name: str | None = None, **index: int | str) -> pd.DataFrame:
        """The findings, one a row, with `where` for their index and numbers as they are.

        Args:
            name: Of the findings that are wanted; all if none.
            **index: What their index must agree with, as `find` has it.

        Example:
            >>> from valuelens.analyses import Control, Finding, Result
            >>> error = Finding(name="msve_ratio", estimate=0.25, unit="1", n=8, definition="derived",
            ...     interval=(0.2, 0.3), control=Control(name="constant predictor", estimate=1.0), index={"layer": 2})
            >>> print(Result(kind="in-context-rl", findings=(error,)).table().T.to_string(header=False))
            finding                 msve_ratio
            where                      layer 2
            estimate                      0.25
            low                            0.2
            high                           0.3
            control                        1.0
            control_name    constant predictor
            unit                             1
            n                                8
        """
        wanted = self.findings if name is None else self.find(name, **index)
        rows = [_row(finding) for finding in wanted]
        # objects: one column of estimates holds numbers, words and lists, and whole numbers stay whole
        table = pd.DataFrame(rows, columns=list(_COLUMNS), dtype=object)
        return table.astype({"low": float, "high": float, "n": int})

    def readable(self) -> tuple[pd.DataFrame, list[str]]:
        """The findings in words and four digits, and the lines below: long words, what was skipped, the verdict."""
        table, wide = _readable(self.table()), {}
        for row, finding in enumerate(self.findings):
            if _in_words(finding.estimate) and len(text := _short(finding.estimate)) > _WIDE:
                wide[" ".join([finding.name, *_where(finding.index)])] = text
                table.loc[row, "estimate"] = "(below)"
        words = [f"{name}: {estimate}" for name, estimate in wide.items() if estimate not in self.verdict]
        return table, [*words, *self._left_out(), self.verdict]

    def __str__(self) -> str:
        """Table, what was skipped, and the verdict, for a notebook."""
        table, below = self.readable()
        text = "" if table.empty else table.to_string(index=False, justify="left", max_colwidth=_CUT)
        return "\n".join((text, "", *below))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        unfolded = " open" if len(self.findings) <= _UNFOLDED else ""
        with pd.option_context("display.max_colwidth", None):
            table = _readable(self.table()).to_html(index=False, justify="left", border=0)
        skipped = Markup("").join(Markup("<br>{}").format(line) for line in self._left_out())
        told = Markup("<p><strong>{}</strong>{}</p>").format(self.verdict, skipped)
        shown = Markup(
            '<details{}><summary>{} findings</summary><div style="overflow-x: auto">{}</div></details>'
        ).format(Markup(unfolded), len(self.findings), Markup(table))  # pandas escapes every cell
        return str(told + shown if self.findings else told)

    def _left_out(self) -> list[str]:
        return [f"skipped: {each['what']}: {each['why']}" for each in self.skipped]

    def summary(self) -> dict[str, Any]:
        """The content of `result.json`, checked against the schema."""
        data = {
            "schema": SCHEMA,
            "kind": self.kind,
            "verdict": self.verdict,
            "findings": [_plain(finding) for finding in self.findings],
            "skipped": [dict(each) for each in self.skipped],
            "provenance": dict(self.provenance),
        }
        jsonschema.validate(data, result_schema())
        return data


def merged(parts: list[Result], **changes: Any) -> Result:
    """One result from parts: findings, skipped, arrays and tables joined; `changes` set the rest.

    Args:
        parts: In the order of their sections.
        **changes: Fields of the whole, such as verdict and provenance.
    """
    whole = Result(
        kind=parts[0].kind,
        findings=tuple(finding for part in parts for finding in part.findings),
        skipped=tuple(each for part in parts for each in part.skipped),
        arrays={name: array for part in parts for name, array in part.arrays.items()},
        tables={name: table for part in parts for name, table in part.tables.items()},
    )
    return replace(whole, **changes)


@cache
def result_schema() -> dict[str, Any]:
    """The committed JSON schema of `result.json`."""
    text = files("valuelens.analyses").joinpath("result.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def save_result(result: Result, folder: str | Path) -> None:
    """Write `result.json`, `arrays.safetensors` and `tables/*.parquet`, each whole or not at all.

    Args:
        result: What to save.
        folder: Created if needed.
    """
    folder = Path(folder)
    text = json.dumps(result.summary(), indent=2, allow_nan=False, ensure_ascii=False)
    for name, table in result.tables.items():
        with atomic_path(folder / "tables" / f"{name}.parquet") as temporary:
            table.to_parquet(temporary, index=False)
    with atomic_path(folder / "arrays.safetensors") as temporary:
        # Copies: safetensors refuses views and tensors that share memory.
        tensors = {name: array.values.contiguous().clone() for name, array in result.arrays.items()}
        axes = {name: array.axes for name, array in result.arrays.items()}
        save_file(tensors, temporary, metadata=axes or None)  # it writes an empty dictionary wrongly
    with atomic_path(folder / "result.json") as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    for table_file in _table_files(folder):
        if table_file.stem not in result.tables:
            table_file.unlink()


def load_result(folder: Path | str) -> Result:
    """What `save_result` wrote, bit for bit.

    Args:
        folder: A result folder.

    Raises:
        InputError: There is no result, a file of it is missing or damaged, or it does not fit the schema.
    """
    folder = Path(folder)
    data = _read_summary(folder / "result.json")
    return Result(
        kind=data["kind"],
        verdict=data["verdict"],
        findings=data["findings"],
        skipped=tuple(data["skipped"]),
        provenance=data["provenance"],
        arrays=_read_arrays(folder / "arrays.safetensors"),
        tables={path.stem: _read_table(path) for path in _table_files(folder)},
    )


def _read_summary(path: Path) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        jsonschema.validate(data, result_schema())
        data["findings"] = tuple(_finding(each) for each in data["findings"])
    except FileNotFoundError:
        found = "found none" if path.parent.exists() else f"found nothing{nearest(path.parent)}"
        raise InputError("a result folder has a result.json", found, str(path.parent)) from None
    except (OSError, ValueError, RecursionError, jsonschema.ValidationError) as error:
        found = getattr(error, "message", str(error))
        raise InputError(
            "result.json must fit the result schema", f"found {found[:200]}", str(path)
        ) from None
    return data


def _read_arrays(path: Path) -> dict[str, Array]:
    try:
        with safe_open(path, "pt") as opened:
            axes = opened.metadata() or {}
            names = opened.keys()
            return {name: Array(axes=axes[name], values=opened.get_tensor(name)) for name in names}
    except FileNotFoundError:
        raise InputError(
            "a result folder has an arrays.safetensors", "found none", str(path.parent)
        ) from None
    except (OSError, KeyError, SafetensorError) as error:
        must = "arrays.safetensors must be whole safetensors with the axes of every array"
        raise InputError(must, f"found {error}", str(path)) from None


def _read_table(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise InputError("a table must be a whole parquet file", f"found {error}", str(path)) from None


def _table_files(folder: Path) -> list[Path]:
    return sorted((folder / "tables").glob("[!.]*.parquet"))


_COLUMNS = ("finding", "where", "estimate", "low", "high", "control", "control_name", "unit", "n")


def _where(index: Mapping[str, object]) -> list[str]:
    return [f"{key} {value}" for key, value in index.items()]


def _row(finding: Finding) -> tuple[object, ...]:
    where = " ".join(_where(finding.index))
    control = (None, None) if finding.control is None else (finding.control.estimate, finding.control.name)
    ends = finding.interval or (None, None)
    return (finding.name, where, finding.estimate, *ends, *control, finding.unit, finding.n)


def _readable(table: pd.DataFrame) -> pd.DataFrame:
    """The table of a result in few columns and four digits."""
    rows = [
        {
            "finding": row["finding"],
            "where": row["where"],
            "estimate": _short(row["estimate"]),
            "interval": "" if math.isnan(row["low"]) else _short([row["low"], row["high"]]),
            "control": f"{_short(row['control'])} ({row['control_name']})" if row["control_name"] else "",
        }
        for row in table.to_dict("records")
    ]
    return pd.DataFrame(rows)


def _in_words(estimate: object) -> bool:
    return isinstance(estimate, str) or (isinstance(estimate, list) and str in map(type, estimate))


def _short(estimate: object) -> str:
    if isinstance(estimate, list):
        return "[" + ", ".join(_short(x) for x in estimate) + "]"
    if isinstance(estimate, float):
        return f"{estimate:.4g}"
    return "-" if estimate is None else str(estimate)


def _plain(finding: Finding) -> dict[str, Any]:
    data = asdict(finding)
    data["interval"] = None if finding.interval is None else list(finding.interval)
    return data if finding.index else {key: value for key, value in data.items() if key != "index"}


def _finding(data: dict[str, Any]) -> Finding:
    control, interval = data["control"], data["interval"]
    fields = {**data, "control": control and Control(**control), "interval": interval and tuple(interval)}
    return Finding(**fields)


def _clean(estimate: Scalar | list[Scalar]) -> Scalar | list[Scalar]:
    return [_finite(x) for x in estimate] if isinstance(estimate, list) else _finite(estimate)


def _missing(estimate: Scalar | list[Scalar]) -> bool:
    return estimate is None or (isinstance(estimate, list) and None in estimate)


def _finite(x: Scalar) -> Scalar:
    return None if isinstance(x, float) and not math.isfinite(x) else x
