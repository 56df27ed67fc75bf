"""Tables of a report: findings by quantity and layer, each cell with its interval and control."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from valuelens.analyses._result import Finding
from valuelens.analyses.report._sentences import shown, shown_control, shown_interval

_PLACES = ("layer", "head", "seed", "checkpoint")
_CHOSEN = ("iterate", "from", "to", "asks")
_DETAILS = ("quantity", "where", "estimate", "95 % interval", "control", "n", "standing")
_WHOLE = ("whole model", "all layers")
_MANY = 12
"""More layers than that stand down a table, not across."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """What stands in one place of a table.

    Attributes:
        main: The estimate.
        small: Lines below it: interval and control.
    """

    main: str = ""
    small: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A named row.

    Attributes:
        name: What is told.
        small: What holds for the whole row.
        cells: One a column.
        marked: Whether it stands out.
    """

    name: str
    small: tuple[str, ...] = ()
    cells: tuple[Cell, ...]
    marked: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table.

    Attributes:
        columns: Its head, that of the names included.
        rows: Below the head.
        wrapped: Whether the words of its head may stand on several lines.
        source: Files of the result that its numbers come from.
    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    wrapped: bool = False
    source: tuple[str, ...] = ("result.json",)


def findings_table(findings: Iterable[Finding]) -> Table:
    """Quantities down and layers across, or across and down where there are many layers.

    Where no quantity has two places, everything about it stands in its row.

    Args:
        findings: Of one checkpoint, or of a run.
    """
    by_quantity: dict[str, list[Finding]] = {}
    for finding in findings:
        by_quantity.setdefault(_quantity(finding), []).append(finding)
    if all(len(found) == 1 for found in by_quantity.values()):
        rows = tuple(_detailed(found[0]) for found in by_quantity.values())
        return without_empty(Table(columns=_DETAILS, rows=rows))
    places = tuple(dict.fromkeys(_where(finding) for found in by_quantity.values() for finding in found))
    if len(places) > _MANY:
        return _layers_down(by_quantity, places)
    rows = tuple(_across(name, found, places) for name, found in by_quantity.items())
    return Table(columns=("quantity", *places), rows=rows)


def without_empty(table: Table) -> Table:
    """The table without columns that have nothing in any row.

    Args:
        table: Any.
    """
    used = [k for k in range(len(table.columns) - 1) if any(row.cells[k] != Cell() for row in table.rows)]
    rows = tuple(replace(row, cells=tuple(row.cells[k] for k in used)) for row in table.rows)
    return replace(table, columns=(table.columns[0], *(table.columns[k + 1] for k in used)), rows=rows)


def _detailed(finding: Finding) -> Row:
    name, control = _control_name(finding), shown_control(finding)
    words = (
        "" if _where(finding) in _WHOLE else _where(finding),
        shown(finding),
        shown_interval(finding),
        f"{control} ({name})" if control else "",
        str(finding.n or ""),
        finding.definition,
    )
    return Row(name=_quantity(finding), cells=tuple(Cell(main=word) for word in words))


def _across(name: str, findings: list[Finding], places: tuple[str, ...]) -> Row:
    cells = {_where(finding): _cell(finding, "control") for finding in findings}
    first = findings[0]
    small = [f"control: {_control_name(first)}"] if first.control else []
    small.append(f"n {first.n}, {first.definition}" if first.n else first.definition)
    return Row(name=name, small=tuple(small), cells=tuple(cells.get(place, Cell()) for place in places))


def _layers_down(by_quantity: dict[str, list[Finding]], places: tuple[str, ...]) -> Table:
    """What holds for every layer first, then a row for each of many layers."""
    across = [_across(name, found, places) for name, found in by_quantity.items()]
    first = Row(name="in every row", cells=tuple(Cell(small=row.small) for row in across))
    rows = [Row(name=place, cells=tuple(row.cells[k] for row in across)) for k, place in enumerate(places)]
    return Table(columns=("layer", *(row.name for row in across)), rows=(first, *rows))


def _cell(finding: Finding, control: str) -> Cell:
    interval, beside = shown_interval(finding), shown_control(finding)
    small = [f"95 %: {interval}"] if interval else []
    return Cell(main=shown(finding), small=(*small, *([f"{control}: {beside}"] if beside else [])))


def _control_name(finding: Finding) -> str:
    return finding.control.name if finding.control else ""


def _quantity(finding: Finding) -> str:
    kept = {key: value for key, value in finding.index.items() if key not in (*_PLACES, *_CHOSEN)}
    more = [f"k = {value}" if key == "k" else str(value) for key, value in kept.items()]
    return ", ".join((finding.name.split(".")[-1].replace("_", " "), *more))


def _where(finding: Finding) -> str:
    index = finding.index
    named = {"all": _WHOLE[1], "embedding": "embedding"}
    parts = [named.get(str(index["layer"]), f"layer {index['layer']}")] if "layer" in index else []
    parts += [f"{key} {index[key]}" for key in ("head", "seed") if key in index]
    return ", ".join(parts) or _WHOLE[0]
