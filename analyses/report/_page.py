"""One self-contained HTML report of any results: verdict, figures, sentences, tables, limits and provenance.

Drawn from results alone: nothing is recomputed and no model is needed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from valuelens.analyses._result import Finding, Result
from valuelens.analyses.report._answer import SURENESS, Answer
from valuelens.analyses.report._answers import answers, headline
from valuelens.analyses.report._checkpoints import at_checkpoint, checkpoint_labels, main_checkpoint, spoken
from valuelens.analyses.report._comparison import comparisons
from valuelens.analyses.report._figures import Picture, pictures
from valuelens.analyses.report._files import linked_files
from valuelens.analyses.report._glossary import marked_terms, used_terms
from valuelens.analyses.report._groups import groups_table, groups_title
from valuelens.analyses.report._inline import (
    figure_css,
    inline_svg,
    page_script,
    script_source,
    template_text,
)
from valuelens.analyses.report._notes import INTRODUCTIONS, TITLES, definitions, limitations, notes
from valuelens.analyses.report._origin import model_words, origin_words, sources
from valuelens.analyses.report._origin_costates import language_model_subject
from valuelens.analyses.report._origin_impact import ranking_subject
from valuelens.analyses.report._phrases import questions_of, sections_of
from valuelens.analyses.report._section import Fold, Section
from valuelens.analyses.report._sections_impact import ranking_sections
from valuelens.analyses.report._sentences import sentence
from valuelens.analyses.report._table import findings_table
from valuelens.models import atomic_path

_FOLDED = {
    "decodability": "Decoding, layer by layer",
    "selectivity": "Selectivity, layer by layer",
    "head_agreement": "Heads, one by one",
    "hop_share": "Hops, one by one",
    "rule_error": "Rules, one by one",
    "rule_response": "Responses, one by one",
}
_OPEN = 6
"""Sentences that a section shows; of more, those that answer its question first."""
_OTHERS = "The other findings"
_LEADING = (
    *("context_msve_vs_constant", "within_chain_r2", "msve_vs_constant"),
    *("sign_pattern", "weight_cosine", "effective_discount", "functional_distance"),
    *(
        "reparameterisation_r2",
        "kernel_diagonal_mean",
        "contraction_norm",
        "spectral_radius",
        "assumption_share",
    ),
    *("bottleneck", "depth_extrapolation", "depth_rate", "context_floor", "floor_slope"),
    *("neu_task", "neu_parameter", "algorithm", "algorithm_class", "algorithm_margin", "identified_discount"),
    *("opaque_reading", "credit_adjoint_gap", "generalises_to", "emergence_order", "emergence_over_seeds"),
    *("diagnosis", "frac_reward_zero_std", "reward", "best_of_k", "truncated_share", "log_prob_mismatch"),
    *("signal_to_noise", "rollouts_needed", "locality", "cosine", "gap_discrete"),
    *("gap_relaxed", "remainder", "bound_tightness", "entropy_correlation", "head_ablation"),
)
"""Findings that answer the question of their section."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Chapter:
    number: int
    title: str
    headline: str
    answers: list[Answer]
    verdict: str
    model: list[str]
    checkpoint: str
    sections: list[Section]
    skipped: list[Mapping[str, str]]
    left_out: dict[str, list[str]]
    limitations: list[str]
    ours: list[str]
    second_hand: list[str]
    sources: tuple[tuple[str, str], ...]
    origin: list[str]
    provenance: list[tuple[str, str]]
    files: dict[str, str]


def write_report(
    results: Mapping[str, Result],
    out: str | Path,
    *,
    folders: Mapping[str, str | Path] | None = None,
    drawn: Mapping[str, Sequence[Picture]] | None = None,
) -> Path:
    """Write one HTML file that needs nothing else: no network, no model.

    Args:
        results: By title, such as the folder they come from; several follow one another below a comparison.
        out: Replaced whole or not at all.
        folders: Where results were saved, by title; the report then links to their raw tables, arrays and figures.
        drawn: `pictures` of results, by title, where they were drawn before.

    Returns:
        The file.

    Raises:
        ValueError: There is no result.
        InputError: The file cannot be written.
    """
    if not results:
        raise ValueError("a report needs at least one result; found none; write_report")
    out, known, shown = Path(out), folders or {}, drawn or {}
    chapters = [
        _chapter(
            number,
            title,
            result,
            linked_files(known.get(title), out),
            pictures(result) if title not in shown else shown[title],
        )
        for number, (title, result) in enumerate(results.items())
    ]
    html = (
        _environment()
        .get_template("report.html.j2")
        .render(
            title="valuelens report" if len(chapters) > 1 else f"valuelens report: {chapters[0].title}",
            chapters=chapters,
            comparisons=comparisons(results),
            sureness=SURENESS,
        )
    )
    with atomic_path(out) as temporary:
        temporary.write_text(html, encoding="utf-8")
    return out


def _chapter(
    number: int, title: str, result: Result, linked: dict[str, str], shown: Sequence[Picture]
) -> _Chapter:
    label = main_checkpoint(result)[0]
    return _Chapter(
        number=number,
        title=title,
        headline=headline(result),
        answers=answers(result),
        verdict=result.verdict or "No verdict was recorded.",
        model=model_words(result),
        checkpoint=_checkpoint_words(result, label),
        sections=_sections(number, result, shown),
        skipped=list(result.skipped),
        left_out=_left_out(result.skipped),
        limitations=limitations(result),
        ours=definitions(result, "choice"),
        second_hand=definitions(result, "audit"),
        sources=sources(result),
        origin=origin_words(result, label),
        provenance=list(_flat(result.provenance)),
        files=linked,
    )


def _left_out(skipped: Iterable[Mapping[str, str]]) -> dict[str, list[str]]:
    """What gave no numbers, by the reason why."""
    reasons: dict[str, list[str]] = {}
    for each in skipped:
        reasons.setdefault(each["why"], []).append(each["what"])
    return reasons


def _sections(number: int, result: Result, shown: Sequence[Picture]) -> list[Section]:
    drawn: dict[str, list[tuple[Markup, str]]] = {}
    for picture in shown:
        inlined = (inline_svg(picture, f"r{number}-{picture.name}-"), picture.caption)
        drawn.setdefault(picture.section, []).append(inlined)
    if result.kind == "impact":
        return ranking_sections(result, drawn)
    main = main_checkpoint(result)[1]
    return [s for key in _keys(result) if (s := _section(key, result, main, drawn.get(key, []))) is not None]


def _keys(result: Result) -> list[str]:
    return [*sections_of(result.findings), *(["other"] if _of("other", result.findings) else [])]


def _section(key: str, result: Result, main: Result, drawn: list[tuple[Markup, str]]) -> Section | None:
    label, run_wide = main_checkpoint(result)[0], [f for f in result.findings if "checkpoint" not in f.index]
    shown = _of(key, (*main.findings, *run_wide) if label else main.findings)
    if not shown and not drawn:
        return None
    opened, folded = _unfolded(shown)
    middle = [
        Fold(
            title=f"{title}, {_counted(each)}",
            sentences=each,
            printed=title == _OTHERS,
            again=title not in (_OTHERS, _FOLDED["head_agreement"]),
        )
        for title, each in folded.items()
    ]
    if key == "diagnosis" and (groups := groups_table(main)) is not None:
        middle.append(Fold(title=groups_title(main), sentences=[], table=groups))
    others = [each for each in checkpoint_labels(result) if each != label]
    asked = questions_of(shown).get(key)
    return Section(
        title=asked.title if asked else TITLES[key],
        introduction=asked.introduction if asked else INTRODUCTIONS[key],
        pictures=drawn,
        sentences=opened,
        notes=[*notes(key, shown, result.provenance), *(asked.notes if asked else ())],
        table=findings_table(f for f in shown if f.name != "head_agreement" or len(shown) <= _OPEN),
        folds=middle + [fold for each in others if (fold := _checkpoint_fold(key, result, each)) is not None],
    )


def _of(key: str, findings: Sequence[Finding]) -> list[Finding]:
    sections = sections_of(findings)
    if key != "other":
        names = sections.get(key, ())
        return sorted((f for f in findings if f.name in names), key=lambda f: names.index(f.name))
    known = {name for names in sections.values() for name in names}
    return [finding for finding in findings if finding.name not in known]


def _unfolded(findings: list[Finding]) -> tuple[list[str], dict[str, list[str]]]:
    """Sentences that stand open, and the others behind the title of their fold."""
    folded: dict[str, list[str]] = {}
    layers = sorted({f.index["layer"] for f in findings if isinstance(f.index.get("layer"), int)})
    titles = [_fold_title(finding, set(layers[1:-1])) for finding in findings]
    leading = [k for k, f in enumerate(findings) if not titles[k] and f.name in _LEADING]
    plain = [k for k in range(len(findings)) if not titles[k] and k not in leading]
    chosen = leading if len(leading) > 2 else [*leading, *plain]
    opened = {*range(len(findings))} if len(findings) <= _OPEN else {*chosen[:_OPEN]}
    for k, finding in enumerate(findings):
        if k not in opened:
            folded.setdefault(titles[k] or _OTHERS, []).append(sentence(finding))
    return [sentence(finding) for k, finding in enumerate(findings) if k in opened], folded


def _fold_title(finding: Finding, between: set[int | str]) -> str:
    """Where a sentence of a long section is folded away; empty where it stands open."""
    if finding.name == "generalisation" and finding.index["of"] == "query":
        return "The same at the query"
    if finding.name in _FOLDED:
        return _FOLDED[finding.name]
    if finding.name == "emergence_step":
        return "Seed by seed"
    if finding.index.get("layer") in between:
        return "Layers between"
    return ""


def _checkpoint_fold(key: str, result: Result, label: str) -> Fold | None:
    found = _of(key, at_checkpoint(result, label).findings)
    if not found:
        return None
    title = f"Checkpoint at {spoken(label)}, {_counted(found)}"
    words = [sentence(finding) for finding in found]
    return Fold(title=title, sentences=words, table=findings_table(found), again=True)


def _counted(found: Sequence[object]) -> str:
    return f"{len(found)} finding{'s' if len(found) > 1 else ''}"


def _last_only(result: Result) -> str:
    """Which questions were not asked of the earlier checkpoints, in words."""
    asked = result.provenance.get("on_the_last_only", {})
    everywhere = result.provenance.get("full_analyses_on", [])
    names = [name for name, labels in asked.items() if labels != everywhere]
    return f" Of {', '.join(names)}, only the last checkpoint of each seed was asked." if names else ""


def _checkpoint_words(result: Result, label: str) -> str:
    if result.kind == "costates":
        return language_model_subject(result.provenance)
    if result.kind == "impact":
        return ranking_subject(result)
    others = [spoken(each) for each in checkpoint_labels(result) if each != label]
    if label:
        more = f" All analyses were also made at {', '.join(others)} (folded)." if others else ""
        return f"Shown is the checkpoint at {spoken(label)}.{more}{_last_only(result)}"
    named = result.provenance.get("full_analyses_on") or [""]
    return (
        f"Shown is the checkpoint at {spoken(str(named[0]))}."
        if named[0]
        else "Shown is a single checkpoint."
    )


def _flat(provenance: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in provenance.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            listed = isinstance(value, list | tuple)
            yield f"{prefix}{key}", ", ".join(str(each) for each in value) if listed else str(value)


def _environment() -> Environment:
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(template_text),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["terms"] = marked_terms
    environment.globals["used_terms"] = used_terms
    script = page_script()
    environment.globals["css"] = Markup("\n").join(
        (figure_css(), *(Markup(template_text(name)) for name in ("report.css", "figures.css")))
    )
    environment.globals["script"] = script
    environment.globals["script_source"] = Markup(script_source(script))
    return environment
