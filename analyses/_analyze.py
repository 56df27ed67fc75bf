"""Every question on a checkpoint or on a whole run, resumable for each checkpoint and question."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from joblib import Parallel, delayed

from valuelens.analyses._adapter import analyze_adapter
from valuelens.analyses._emergence import emergence, measurements
from valuelens.analyses._questions import (
    ANALYSES,
    RUN_ANALYSES,
    Installed,
    installed,
    installed_names,
    question,
    refuse_strange,
)
from valuelens.analyses._request import AnalysisConfig, Place, Progress, Unit, finished, measured, request
from valuelens.analyses._result import Result, merged, save_result
from valuelens.analyses._subject import Subject, subject
from valuelens.analyses._verdict import verdict
from valuelens.models import InputError, deaf, did_you_mean, nearest
from valuelens.models.icrl import (
    CheckpointPath,
    checkpoint_hash,
    checkpoint_paths,
    checkpoint_record,
    checkpoint_task,
    entry_of,
    load,
    one_thread,
)
from valuelens.models.lm import is_language_model, series


def analyze(
    path: str | Path,
    config: AnalysisConfig | None = None,
    *,
    out: str | Path | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
    ready: Callable[[], None] | None = None,
) -> Result:
    """Answer every question on a checkpoint, or on a run (then also emergence).

    On a run the light measurements are made on every checkpoint and the full ones on the first, middle and last of
    each seed (on all with `full`), identify, opaque and generalisation on the last alone; the provenance says which. A
    checkpoint of a run that cannot be used is skipped: its entry in `skipped` names the `input`.

    Args:
        path: Checkpoint or run folder; with an adapter, what it is given.
        config: What to ask and how to measure; with an adapter see `analyze_adapter`.
        out: Folder of the result, and of partial results from which an interrupted analysis goes on.
        jobs: Processes, one thread each.
        progress: Called as progress(what, done, total), in about tenths of seconds.
        ready: Called once the request is known to be sound, before `out` is looked at.

    Raises:
        InputError: There is nothing to analyse (or nothing usable), a name is unknown, or `out` holds another result.
    """
    started, config = time.monotonic(), config or AnalysisConfig()
    path, out = Path(path), None if out is None else Path(out)
    if config.adapter:
        return analyze_adapter(path, config, out=out, progress=progress, ready=ready)
    if not path.exists() and entry_of(path) is None:
        raise InputError("a checkpoint or run folder must exist", f"found nothing{nearest(path)}", str(path))
    if is_language_model(path):
        found = (
            "found a series of language models: `valuelens impact` is meant"
            if series(path)
            else "found a language model: `valuelens costates` is meant"
        )
        raise InputError("analyze takes in-context value learners", found, str(path))
    run = checkpoint_paths(path)
    places = [Place(each) for each in run] or [Place(CheckpointPath(path=path, seed=0, step=0), alone=True)]
    config = replace(config, only=_known(config.only, run=bool(run)))
    usable, unusable = _usable(places)
    places, hashes = list(usable), {place.label: sha256 for place, sha256 in usable.items()}
    brought = {name: installed(name) for name in config.only if name not in (*ANALYSES, *RUN_ANALYSES)}
    asked = request(places, hashes, config, brought)
    if ready:
        ready()
    if out is not None and (result := finished(out, asked)):
        return result
    everywhere = places[0].alone or config.full
    chosen = places if everywhere else _first_middle_last(places)
    last = places if everywhere else _last(places)
    units = [
        Unit(
            place=place,
            name=name,
            sha256=hashes[place.label],
            config=config,
            code=asked.get("installed", {}).get(name),
            cache=None if out is None else out / "cache",
        )
        for place in places
        for name in config.only
        if name in RUN_ANALYSES or place in (last if question(name).last_only else chosen)
    ]
    parts = list(_answers(units, jobs, progress))
    lost = [each["why"] for part in parts for each in part.skipped if "input" in each]
    if lost and len(lost) == len(parts):
        must = "a run must have a checkpoint that can be analysed"
        raise InputError(must, f"found none: {lost[0]}", str(path))
    whole = merged(
        [Result(kind="in-context-rl", skipped=tuple(unusable)), *_sections(units, parts)],
        provenance=_provenance(asked, chosen, last, started) | _origins(brought),
    )
    asked_of = [question(name) for name in config.only if name not in RUN_ANALYSES]
    whole = replace(whole, verdict=verdict(whole, asked_of))
    if out is not None:
        save_result(whole, out)
    return whole


def _answers(units: list[Unit], jobs: int, progress: Progress | None) -> Iterator[Result]:
    work = [delayed(_answer)(unit) for unit in units]
    costs = [3 if unit.name in RUN_ANALYSES else question(unit.name).tenths for unit in units]
    if progress:
        progress("loading", 0, sum(costs))
    with deaf():
        parts = Parallel(n_jobs=jobs, return_as="generator")(work)
    for k, (unit, part) in enumerate(zip(units, parts, strict=True), 1):
        if progress:
            progress(f"{unit.name} {unit.place.label}", sum(costs[:k]), sum(costs))
        yield part


def _answer(unit: Unit) -> Result:
    if (part := unit.cached()) is not None:
        return part
    with one_thread():
        try:
            studied = _subject(unit.place.checkpoint.path, unit.config, unit.sha256)
        except InputError as error:
            if unit.place.alone:
                raise
            return Result(kind="in-context-rl", skipped=(_unusable(unit.place, unit.name, error),))
        if unit.name not in RUN_ANALYSES:
            return unit.keep(_asked(unit.name, studied))
        row = {
            "seed": unit.place.checkpoint.seed,
            "step": unit.place.checkpoint.step,
            **measurements(studied),
        }
        return unit.keep(Result(kind="in-context-rl", tables={"row": pd.DataFrame([row])}))


def _asked(name: str, studied: Subject) -> Result:
    answer = question(name).ask(studied)
    if name not in ANALYSES:
        refuse_strange(name, [each.name for each in answer.findings], where=f"analysis {name}")
    return answer


def _usable(places: list[Place]) -> tuple[dict[Place, str], list[dict[str, str]]]:
    """Checkpoints that can be loaded with the hash of their weights, and why the others of a run cannot."""
    usable: dict[Place, str] = {}
    lost: list[dict[str, str]] = []
    for place in places:
        try:
            sha256 = checkpoint_hash(place.checkpoint.path)
            load(place.checkpoint.path)
            usable[place] = sha256
        except InputError as error:
            if place.alone or len(lost) == len(places) - 1:
                raise
            lost.append(_unusable(place, f"every question of {place.label}", error))
    return usable, lost


def _unusable(place: Place, what: str, error: InputError) -> dict[str, str]:
    return {"what": what, "why": str(error), "input": str(place.checkpoint.path)}


@lru_cache(maxsize=1)
def _subject(path: Path, config: AnalysisConfig, sha256: str) -> Subject:
    """The checkpoint under study, kept for the next question on it; the hash tells files apart that changed."""
    task, dtype = checkpoint_task(path), getattr(torch, config.dtype)
    return subject(load(path), task, num_tasks=config.num_tasks, seed=config.seed, dtype=dtype)


def _sections(units: list[Unit], parts: list[Result]) -> list[Result]:
    """Emergence first, then each checkpoint's answers under its label."""
    rows = [part.tables["row"] for part in parts if "row" in part.tables]
    answers = [
        _placed(part, unit.place) for unit, part in zip(units, parts, strict=True) if "row" not in part.tables
    ]
    return [*([emergence(pd.concat(rows, ignore_index=True))] if rows else []), *answers]


def _first_middle_last(places: list[Place]) -> list[Place]:
    chosen = []
    for seed in sorted({place.checkpoint.seed for place in places}):
        run = [place for place in places if place.checkpoint.seed == seed]
        chosen += [run[i] for i in sorted({0, len(run) // 2, len(run) - 1})]
    return chosen


def _last(places: list[Place]) -> list[Place]:
    """The last checkpoint of each seed."""
    return list({place.checkpoint.seed: place for place in places}.values())


def _placed(part: Result, place: Place) -> Result:
    if place.alone:
        return part
    return replace(
        part,
        findings=tuple(replace(finding, index={**place.index, **finding.index}) for finding in part.findings),
        arrays={f"{place.label}/{name}": array for name, array in part.arrays.items()},
        skipped=tuple({**each, "what": f"{each['what']} of {place.label}"} for each in part.skipped),
    )


def _known(only: Sequence[str], *, run: bool) -> tuple[str, ...]:
    ours = (*ANALYSES, *(RUN_ANALYSES if run else ()))
    if not only:
        return ours
    possible = (*ours, *installed_names())
    for name in only:
        if name not in possible:
            scope = "" if run else " on a single checkpoint"
            found = f"found {name!r}{did_you_mean(name, possible)}"
            raise InputError(f"--only takes {', '.join(possible)}{scope}", found, "option --only")
    return tuple(name for name in possible if name in only)


def _origins(brought: Mapping[str, Installed]) -> dict[str, Any]:
    """Which code of other packages was asked; nothing where there was none."""
    said = {
        name: {"code": each.code, "package": each.package, "file": each.file and str(each.file)}
        for name, each in brought.items()
    }
    return {"installed": said} if said else {}


def _provenance(
    asked: Mapping[str, Any], chosen: list[Place], last: list[Place], started: float
) -> dict[str, Any]:
    return {
        "config": checkpoint_record(last[-1].checkpoint.path),
        "full_analyses_on": [place.label for place in chosen],
        "on_the_last_only": {
            name: [place.label for place in last]
            for name in asked["only"]
            if name not in RUN_ANALYSES and question(name).last_only
        },
        **measured(asked, started),
    }
