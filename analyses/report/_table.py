"""Tables of a report: findings by quantity and layer, each cell with its interval and control."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from valuelens.analyses._result import Finding, Result
from valuelens.analyses.report._checkpoints import at_checkpoint, last_checkpoints, spoken
from valuelens.analyses.report._sentences import shown, shown_control, shown_interval
from valuelens.analyses.report._style import few_layers

_PLACES = ("layer", "head", "seed", "checkpoint")
_CHOSEN = ("iterate", "from", "to", "asks")
_DETAILS = ("quantity", "where", "estimate", "95 % interval", "control", "n", "standing")
_WHOLE = ("whole model", "all layers")
_Compared = tuple[tuple[str, str, dict[str, str]], ...]
_TASKS: _Compared = (
    ("error / constant's, contexts", "context_msve_vs_constant", {}),
    ("error / constant's, query", "msve_vs_constant", {}),
    ("within-chain R2", "within_chain_r2", {}),
    ("signs of w", "sign_pattern", {}),
    ("cosine with (1, 1, -1)", "weight_cosine", {}),
    ("effective discount", "effective_discount", {}),
    ("updates explained by TD", "reparameterisation_r2", {"fit": "weights"}),
    ("kernel diagonal", "kernel_diagonal_mean", {}),
    ("margin of Assumption 5.1", "assumption_margin", {}),
)
_LANGUAGE: _Compared = (
    ("mean reward", "reward", {}),
    ("groups without variance", "frac_reward_zero_std", {}),
    ("entropy, nats", "entropy", {}),
    ("objective", "objective", {}),
    ("signal-to-noise", "signal_to_noise", {}),
    ("rollouts for cosine 0.9", "rollouts_needed", {}),
    ("locality", "locality", {}),
    ("cosine with dV/dh", "cosine", {}),
    ("gap to dV/dh", "gap_discrete", {}),
)
_RANKINGS: _Compared = (
    ("start for most gain", "recommended", {"predictor": "impact", "target": "gain"}),
    ("its regret", "regret", {"predictor": "impact", "target": "gain", "series": "pooled"}),
    ("start for most reward", "recommended", {"predictor": "reward + impact", "target": "final_reward"}),
    (
        "its regret in reward",
        "regret",
        {"predictor": "reward + impact", "target": "final_reward", "series": "pooled"},
    ),
    ("correlation with gain", "spearman", {"predictor": "impact", "target": "gain", "series": "pooled"}),
    (
        "minus that of the best rival",
        "spearman_difference",
        {"predictor": "impact", "target": "gain", "chosen": "once"},
    ),
)
_BARS = "several layers are separated by bars, from the first to the last"
_COMPARED: dict[str, tuple[_Compared, str]] = {
    "in-context-rl": (
        _TASKS,
        f"The last checkpoint of every seed. Every cell has its 95 % interval over tasks and its control; {_BARS}.",
    ),
    "costates": (
        _LANGUAGE,
        f"Every cell has its 95 % interval over prompts and its control; {_BARS} (of many layers: first, middle and "
        "last).",
    ),
    "impact": (
        _RANKINGS,
        "Every cell has its 95 % interval and its control; several series are separated by bars.",
    ),
}
_MANY = 12
"""More layers than that stand down a table, not across, and a comparison shows first, middle and last."""


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
    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    wrapped: bool = False


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


def comparisons(results: Mapping[str, Result]) -> list[tuple[str, Table]]:
    """A table for every kind of result that has two rows or more, each with how to read it.

    Args:
        results: By title.
    """
    tables = []
    for kind, (_, words) in _COMPARED.items():
        alike = [(title, result) for title, result in results.items() if result.kind == kind]
        table = comparison_table(alike)
        if len(table.rows) > 1:
            tables.append((words, table))
    return tables


def comparison_table(results: Iterable[tuple[str, Result]]) -> Table:
    """One row a result, or a row for the last checkpoint of every seed of a run.

    Args:
        results: Title and result, of one kind.
    """
    listed = list(results)
    if not listed:
        return Table(columns=("model",), rows=())
    compared = _COMPARED[listed[0][1].kind][0]
    rows = [row for title, result in listed for row in _compared(title, result, compared)]
    return without_empty(Table(columns=("model", *(head for head, _, _ in compared)), rows=tuple(rows)))


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


def _compared(title: str, result: Result, compared: _Compared) -> list[Row]:
    labels = last_checkpoints(result)
    if not labels:
        return [Row(name=title, cells=_summary(result, compared))]
    return [
        Row(name=title, small=(spoken(label),), cells=_summary(at_checkpoint(result, label), compared))
        for label in labels
    ]


def _summary(result: Result, compared: _Compared) -> tuple[Cell, ...]:
    return tuple(_range(result.find(name, **index)) for _, name, index in compared)


def _range(findings: list[Finding]) -> Cell:
    """One finding as it is; several layers from the first to the last, their control as far as it is the same."""
    if not findings:
        return Cell()
    if len(findings) == 1:
        return _cell(findings[0], _control_name(findings[0]))
    if len(findings) > _MANY:
        findings = [findings[k] for k in few_layers(len(findings))]
    words = list(dict.fromkeys(shown(finding) for finding in findings))
    controls = list(dict.fromkeys(shown_control(finding) for finding in findings if finding.control))
    ends = controls if len(controls) < 3 else [controls[0], "...", controls[-1]]
    return Cell(
        main=" | ".join(words),
        small=(f"{_control_name(findings[0])}: {' | '.join(ends)}",) if controls else (),
    )


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
