"""Tables of a ranking: its checkpoints, whose choice costs how much, and how well each predictor foretells."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from valuelens.analyses._result import Finding, Result
from valuelens.analyses.report._choice_words import chosen, judged_regret, of_predictor, pooled
from valuelens.analyses.report._numbers import interval_words, readable
from valuelens.analyses.report._predictors import (
    CHOOSERS,
    RECOMMENDS,
    TARGETS,
    checkpoint_words,
    predictor_name,
)
from valuelens.analyses.report._ranking import checkpoints, has_gains, is_number, largest, series_names
from valuelens.analyses.report._table import Cell, Row, Table, without_empty

_SCORES = {
    "impact": "score",
    "signal": "signal",
    "headroom": "headroom",
    "reward": "reward",
    "reward_std": "std",
    "frac_reward_zero_std": "flat groups",
}
_GAINS = {"gain": "gain", "gain_cut": "gain, credit cut", "final_reward": "reward after RL"}
_MARKS = {
    "best_for_gain": "▶ recommended for gain",
    "best_for_final_reward": "▶ recommended for reward after RL",
    "gain": "△ most gain",
    "final_reward": "★ most reward after RL",
}
_REPEATED = 3
"""Cells of a column from which on the reason why they are empty stands in its heading."""
_PRICES = ("regret in {}", "probability of most {}")
_JUDGED: dict[str, tuple[str, dict[str, str]]] = {
    "correlation with gain": ("spearman", {"target": "gain"}),
    "the same, given R_0": ("spearman_partial", {"target": "gain"}),
    "correlation with reward after RL": ("spearman", {"target": "final_reward"}),
    "leave-one-out error": ("loo_error", {}),
}


def checkpoints_table(result: Result, series: str) -> Table:
    """The checkpoints of a series in the order of pretraining; the recommended one is marked, and so is the best.

    Args:
        result: Of kind `impact`.
        series: One of `series_names`.
    """
    table = checkpoints(result, series)
    tops = {column: (largest(table, column) or {}).get("checkpoint") for column in TARGETS}
    rows = tuple(
        _checkpoint_row(row, [words for column, words in _MARKS.items() if _is_marked(row, column, tops)])
        for row in table.itertuples()
    )
    return without_empty(
        Table(
            columns=("checkpoint", *_SCORES.values(), *_GAINS.values()),
            rows=rows,
            wrapped=True,
            source=("tables/scores.parquet", "result.json"),
        )
    )


def choices_table(result: Result) -> Table:
    """Who would start RL where, what that costs, and how likely it is the best choice.

    Args:
        result: Of kind `impact`.
    """
    names = series_names(result)
    choosers = [
        name for name in CHOOSERS if of_predictor(result, "recommended", name) or _regrets(result, name)
    ]
    where = names if len(names) > 1 else ["starts RL at"]
    columns = [text.format(target) for target in TARGETS.values() for text in _PRICES]
    rows = tuple(_chooser_row(result, name) for name in choosers)
    table = Table(
        columns=("chosen by", *where, *columns),
        rows=rows,
        wrapped=True,
        source=("tables/judgement.parquet", "result.json"),
    )
    return _with_reasons(without_empty(table))


def predictors_table(result: Result, predictors: Sequence[str]) -> Table:
    """How well predictors foretell, over all series.

    Args:
        result: Of kind `impact`.
        predictors: Which, from the top.
    """
    rows = []
    for name in predictors:
        found = [pooled(of_predictor(result, what, name, **index)) for what, index in _JUDGED.values()]
        first = next((f for f in found if f), None)
        role = str(first.index.get("role", "")) if first else ""
        cells = tuple(_cell(f) for f in found)
        rows.append(
            Row(
                name=predictor_name(name),
                small=(role,) if role else (),
                cells=cells,
                marked=role == "primary",
            )
        )
    return _with_reasons(
        without_empty(Table(columns=("predictor", *_JUDGED), rows=tuple(rows), wrapped=True))
    )


def numbers_table(result: Result, series: str) -> Table:
    """Everything that was found at single checkpoints: a row a checkpoint, first what holds for all of them.

    Args:
        result: Of kind `impact`.
        series: One of `series_names`.
    """
    found: dict[str, dict[str, Finding]] = {}
    for finding in result.findings:
        if "checkpoint" in finding.index and finding.index.get("series", series) == series:
            recipe = f", {finding.index['recipe']}" if "recipe" in finding.index else ""
            column = f"{finding.name.replace('_', ' ')}{recipe}"
            found.setdefault(column, {})[str(finding.index["checkpoint"])] = finding
    if not found:
        return Table(columns=(), rows=())
    first = Row(name="in every row", cells=tuple(Cell(small=_common(column)) for column in found.values()))
    rows = [
        Row(
            name=_plain(label),
            cells=tuple(_cell(column.get(label), beside=True) for column in found.values()),
        )
        for label in checkpoints(result, series)["checkpoint"]
    ]
    return Table(columns=("checkpoint", *found), rows=(first, *rows))


def _with_reasons(table: Table) -> Table:
    """The table, where numbers of a column are missing for one reason, with this reason once: in its heading."""
    heads, rows = list(table.columns), list(table.rows)
    for k in range(len(heads) - 1):
        reasons = [row.cells[k].small for row in rows if row.cells[k].main == "none"]
        if len(reasons) < _REPEATED or len({*reasons}) > 1 or not any(reasons[0]):
            continue
        heads[k + 1] = f"{heads[k + 1]} (none: {reasons[0][0]})"
        rows = [
            replace(row, cells=(*row.cells[:k], Cell(main="none"), *row.cells[k + 1 :]))
            if row.cells[k].main == "none"
            else row
            for row in rows
        ]
    return replace(table, columns=tuple(heads), rows=tuple(rows))


def _common(column: dict[str, Finding]) -> tuple[str, ...]:
    """Control, count and standing, as far as they are the same down a column."""
    controls = {f.control.name for f in column.values() if f.control}
    counts, standings = {f.n for f in column.values()}, {f.definition for f in column.values()}
    told = [f"below: {predictor_name(name)}" for name in controls if len(controls) == 1]
    told += [f"n {n}" for n in counts if len(counts) == 1]
    return (*told, *(standing for standing in standings if len(standings) == 1))


def _is_marked(row: Any, column: str, tops: Mapping[str, Any]) -> bool:
    return bool(tops[column] == row.checkpoint if column in tops else getattr(row, column))


def _checkpoint_row(row: Any, marks: list[str]) -> Row:
    scores = [Cell(main=_digits(getattr(row, column))) for column in _SCORES]
    marked = bool(row.best_for_gain or row.best_for_final_reward)
    gains = [
        Cell(
            main=_digits(getattr(row, column)),
            small=_between(getattr(row, f"{column}_low"), getattr(row, f"{column}_high")),
        )
        for column in _GAINS
    ]
    return Row(name=_plain(row.checkpoint), small=tuple(marks), cells=(*scores, *gains), marked=marked)


def _chooser_row(result: Result, predictor: str) -> Row:
    names = series_names(result)
    cells: list[Cell] = []
    for target in TARGETS:
        regret = pooled(of_predictor(result, "regret", predictor, target=target))
        likely = _probability(result, predictor, target)
        cells += [_cell(regret), likely] if has_gains(result) else [Cell(), Cell()]
    where = [_choice_cell(result, predictor, series, told=len(names) > 1) for series in names]
    marked = predictor in RECOMMENDS.values()
    return Row(name=predictor_name(predictor), cells=(*where, *cells), marked=marked)


def _choice_cell(result: Result, predictor: str, series: str, *, told: bool) -> Cell:
    small: tuple[str, ...] = ()
    for target, words in TARGETS.items() if told else ():
        row = judged_regret(result, predictor, series, target)
        if row is not None and is_number(row["estimate"]):
            small += (f"regret in {words} {readable(row['estimate'])}",)
    return Cell(main=_plain(chosen(result, predictor, series)), small=small)


def _probability(result: Result, predictor: str, target: str) -> Cell:
    """That of a random checkpoint stands beside the others as their control."""
    found = pooled(of_predictor(result, "probability_best", predictor, target=target))
    if found or predictor != "random checkpoint":
        return _cell(found)
    ours = pooled(of_predictor(result, "probability_best", RECOMMENDS[target], target=target))
    return Cell(main=_digits(ours.control.estimate)) if ours and ours.control else Cell()


def _regrets(result: Result, predictor: str) -> bool:
    return bool(of_predictor(result, "regret", predictor))


def _cell(finding: Finding | None, *, beside: bool = False) -> Cell:
    if finding is None:
        return Cell()
    if isinstance(finding.estimate, str):
        return Cell(main=finding.estimate)
    if not is_number(finding.estimate):
        return Cell(main="none", small=(finding.reasons.get("estimate", ""),))
    small = _between(*finding.interval) if finding.interval else ()
    if beside and finding.control and is_number(finding.control.estimate):
        small += (f"{predictor_name(finding.control.name)}: {readable(finding.control.estimate)}",)
    return Cell(main=readable(finding.estimate), small=small)


def _between(low: float, high: float) -> tuple[str, ...]:
    return (f"95 %: {interval_words(low, high)}",) if low == low and high == high else ()


def _digits(x: object) -> str:
    return readable(x) if is_number(x) else ""


def _plain(label: str) -> str:
    """A step in words, a name as it is: a cell keeps its direction of writing by itself."""
    words = checkpoint_words(label) if label else ""
    return label if words.startswith("\u2068") else words
