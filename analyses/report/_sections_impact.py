"""The sections of a ranking of checkpoints: choice, diagnosis, arc, judgement, RL runs."""

from collections.abc import Mapping
from dataclasses import replace

from markupsafe import Markup

from valuelens.analyses._result import Finding, Result
from valuelens.analyses.report._choice_words import choice_words
from valuelens.analyses.report._impact_tables import (
    checkpoints_table,
    choices_table,
    numbers_table,
    predictors_table,
)
from valuelens.analyses.report._impact_words import (
    arc_words,
    credit_words,
    flat_words,
    remark_words,
    rival_words,
)
from valuelens.analyses.report._notes import INTRODUCTIONS, TITLES, notes
from valuelens.analyses.report._phrases import PHRASES
from valuelens.analyses.report._prediction_figures import forest_rows, variant_rows
from valuelens.analyses.report._predictors import isolated
from valuelens.analyses.report._ranking import series_names
from valuelens.analyses.report._section import Fold, Section
from valuelens.analyses.report._sentences import sentence, told_once
from valuelens.analyses.report._table import Table, findings_table

_NOTHING = Table(columns=(), rows=())
_CHOICES = ("recommended", "probability_best", "regret")
_JUDGED = ("spearman_difference", "spearman", "spearman_partial", "loo_error")
Drawn = Mapping[str, list[tuple[Markup, str]]]


def ranking_sections(result: Result, drawn: Drawn) -> list[Section]:
    """All sections that have something to show; every finding stands in one of them.

    Args:
        result: Of kind `impact`.
        drawn: Pictures with captions, by section.
    """
    if not len(result.tables.get("scores", ())):
        return _rest(result, {*()})
    known = {*_CHOICES, *_JUDGED, "diagnosis", "scoring_cost"} | _per_checkpoint(result)
    sections = [_choice(result), _flat(result, drawn), _arc(result, drawn), _judgement(result, drawn)]
    sections += [_runs(result, drawn)] if drawn.get("runs") else []
    return [*sections, *_rest(result, known)]


def _choice(result: Result) -> Section:
    findings = [f for name in _CHOICES for f in result.find(name)]
    costs = [sentence(f) for f in result.find("scoring_cost")]
    return _section(
        "choice",
        result,
        sentences=[*choice_words(result), *costs],
        table=choices_table(result),
        folds=_folded("Every choice in sentences", findings),
    )


def _flat(result: Result, drawn: Drawn) -> Section:
    told = [flat_words(result, series) for series in series_names(result)]
    remarks = remark_words(result)
    fold = Fold(title=f"Remarks, checkpoint by checkpoint, {len(remarks)}", sentences=remarks)
    folds = [fold] if remarks else []
    return _section("flat", result, pictures=drawn.get("flat"), sentences=told, folds=folds)


def _arc(result: Result, drawn: Drawn) -> Section:
    names = series_names(result)
    tables = {name: checkpoints_table(result, name) for name in names}
    folds = [
        Fold(title=f"{isolated(name)}: {len(table.rows)} checkpoints", sentences=[], table=table)
        for name, table in tables.items()
        if len(names) > 1
    ]
    section = _section(
        "arc",
        result,
        pictures=drawn.get("arc"),
        sentences=[arc_words(result, name) for name in names],
        table=tables[names[0]] if len(names) == 1 else _NOTHING,
        folds=[*folds, *_checkpoint_folds(result)],
    )
    return replace(section, table_open=True)


def _judgement(result: Result, drawn: Drawn) -> Section:
    findings = [f for name in _JUDGED for f in result.find(name)]
    said = [f for f in findings if f.index.get("role") == "primary"]
    others = [f for f in findings if f not in said]
    variants = predictors_table(result, variant_rows(result))
    fold = Fold(title=f"Other variants, {len(variants.rows)}", sentences=[], table=variants)
    return _section(
        "judgement",
        result,
        pictures=drawn.get("judgement"),
        sentences=[*rival_words(result), *(sentence(f) for f in said or findings[:1])],
        table=predictors_table(result, forest_rows(result)),
        folds=[*([fold] if variants.rows else []), *_folded("Every comparison in sentences", others)],
    )


def _runs(result: Result, drawn: Drawn) -> Section:
    told = [words for name in series_names(result) if (words := credit_words(result, name))]
    return _section("runs", result, pictures=drawn.get("runs"), sentences=told)


def _rest(result: Result, known: set[str]) -> list[Section]:
    others = [f for f in result.findings if f.name not in known]
    if not others:
        return []
    return [_section("other", result, sentences=[sentence(f) for f in others], table=findings_table(others))]


def _section(
    key: str,
    result: Result,
    *,
    pictures: list[tuple[Markup, str]] | None = None,
    sentences: list[str],
    table: Table = _NOTHING,
    folds: list[Fold] | None = None,
) -> Section:
    return Section(
        title=TITLES[key],
        introduction=INTRODUCTIONS[key],
        pictures=pictures or [],
        sentences=sentences,
        notes=notes(key, result.findings, result.provenance),
        table=table,
        folds=folds or [],
    )


def _folded(title: str, findings: list[Finding]) -> list[Fold]:
    return [Fold(title=f"{title}, {len(findings)}", sentences=told_once(findings))] if findings else []


def _checkpoint_folds(result: Result) -> list[Fold]:
    """Every number of every checkpoint."""
    names = series_names(result)
    tables = {name: numbers_table(result, name) for name in names}
    return [
        Fold(
            title=f"Every number of every checkpoint{f' of {isolated(name)}' if len(names) > 1 else ''}",
            sentences=[],
            table=table,
        )
        for name, table in tables.items()
        if table.rows
    ]


def _per_checkpoint(result: Result) -> set[str]:
    return {f.name for f in result.findings if "checkpoint" in f.index and f.name in PHRASES}
