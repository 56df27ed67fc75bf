"""What each verb does, between the parsed command line and the library."""

import os
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from joblib import Parallel, delayed

from valuelens import _interrupt, analyses
from valuelens._clearing import clear
from valuelens._interrupt import interruptible
from valuelens._kinds import refuse_occupied, refuse_other
from valuelens._terminal import Told, bar, followed, phases
from valuelens._writing import drawn, figures_of, one_of
from valuelens.analyses import Result, impact
from valuelens.analyses.report import (
    Picture,
    pictures,
    require_pdf,
    write_pdf,
    write_report,
)
from valuelens.models import InputError, counters, deaf, device, icrl, lm

_DEMO = {
    "tied": {"model": {"num_layers": 10, "tied": True, "weights": "restricted"}},
    "untied-full": {"model": {"num_layers": 3, "tied": False, "weights": "full"}},
}
_SERIES, _SERIES_STEPS = "label-copy", 600
_SECONDS = {_SERIES: 35.0, "tied": 55.0, "untied-full": 30.0}
"""What the parts of the demo take, about: only the time left is told by it."""

_OF_A_RUN = {"emergence": "From which optimiser step on does each property last? (on a run)"}
"""Questions on a whole run, in the words of the report."""

_Part = tuple[str, Result, list[Picture]]
"""Of the demo: its name, its result and its figures."""

_WRITING = 0.25
"""Of an analysis that is written: the share of its time that figures and page take, about."""

_PDF, _PDF_SECONDS = "laying out the PDF", 40.0
_REPORT = {"reading results": 0.3, "drawing figures": 7.0, "writing the page": 0.8}
"""What the parts of a report take, about, in seconds."""

_RECENT = 40
"""Logged steps that the closing line of `pretrain` averages."""


def pretrain(given: Mapping[str, Any], *, progress: bool) -> dict[str, Any]:
    """Train what the command line asks for; returns the summary that `--json` prints."""
    config = icrl.run_config(
        {name: options_of(model, given) for name, model in icrl.RunConfig.model_fields.items()},
        where="command line",
    )
    icrl.resolve_task(config.task)
    out, num_seeds = given["out"], given["num_seeds"]
    jobs = checked("pretrain", given)
    started, total = time.monotonic(), config.train.steps * num_seeds
    with (
        interruptible(lambda: _interrupt.checkpoints(out), out=out) as keeper,
        bar("pretrain", show=progress) as told,
    ):
        keeper.cleared = cleared(given)
        last = icrl.pretrain(
            config,
            out,
            num_seeds=num_seeds,
            jobs=jobs,
            device=given["device"],
            progress=stepped(told, total),
        )
    seconds = time.monotonic() - started
    recent = pd.read_parquet(out / "metrics.parquet").groupby("seed").tail(_RECENT).groupby("seed").mean()
    return {
        "run": str(out),
        "checkpoints": [str(each.path) for each in last],
        "seconds": round(seconds, 2),
        "prompts_per_second": round(total * config.train.batch_size / seconds),
        "msve_vs_constant": {
            str(seed): float(row.msve / row.msve_constant) for seed, row in recent.iterrows()
        },
    }


def pretrain_lines(summary: Mapping[str, Any]) -> list[str]:
    """The summary of a training for people."""
    lines = [
        f"seed {seed}: MSVE {ratio:.3f} of the constant predictor's (mean of the last {_RECENT} logged steps)"
        for seed, ratio in summary["msve_vs_constant"].items()
    ]
    speed = f"{summary['seconds']:.1f} s, {summary['prompts_per_second']:,} prompts a second"
    return [*lines, speed, *(f"The last checkpoint is at {path}" for path in summary["checkpoints"])]


def questions() -> list[str]:
    """Names that `--only` takes."""
    return [*analyses.ANALYSES, *analyses.RUN_ANALYSES, *analyses.installed_names()]


def question_lines() -> list[str]:
    """A line for each: its name, what is asked, and of installed packages that it is theirs."""
    asked = {name: _first_sentence(each.introduction) for name, each in analyses.ANALYSES.items()} | _OF_A_RUN
    names = questions()
    width = max(map(len, names))
    return [f"{name:{width}}  {asked.get(name, 'of an installed package')}" for name in names]


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.?]) ", text, maxsplit=1)[0]


def analyze(given: Mapping[str, Any], *, progress: bool) -> Result:
    """Analyse, and write result, figures and report where `--out` asks for it."""
    if given.get("path") is None:
        raise InputError("analyze needs a checkpoint or run folder", "found none", "argument CKPT_OR_RUN")
    if given["device"] != "cpu":
        found = f"found {given['device']!r}"
        raise InputError("in-context models are measured on the cpu", found, "option --device")
    if not given.get("adapter"):
        refuse_other("analyze", given["path"])
    out = given.get("out")
    writable(out)

    def ready() -> None:
        keeper.cleared = cleared(given)

    why = "nothing is kept yet" if out else "nothing is kept without --out"
    with (
        interruptible(lambda: _interrupt.answers(out), why, out=out) as keeper,
        bar("analyze", show=progress) as told,
    ):
        asking, writing = followed(told, 0.0 if out is None else _WRITING)
        result = analyses.analyze(
            given["path"],
            analyses.AnalysisConfig(
                only=tuple(name.strip() for name in given["only"].split(",") if name.strip()),
                full=given["full"],
                num_tasks=given["num_tasks"],
                seed=given["seed"],
                dtype=given["dtype"],
                adapter=given.get("adapter", ""),
            ),
            out=out,
            jobs=given["jobs"],
            progress=asking,
            ready=ready,
        )
        if out is not None:
            drawn({str(given["path"]): result}, out, writing)
    return result


def imported(result: Result) -> str | None:
    """Which code of other packages a result was measured by, and where it stands; none without any."""
    adapter = result.provenance.get("adapter")
    said = [f"the adapter {adapter['name']} was imported from {adapter['file']}"] if adapter else []
    for name, code in result.provenance.get("installed", {}).items():
        said.append(f"the analysis {name} of {code['package']} was imported from {code['file']}")
    return "; ".join(said) or None


def unusable_inputs(result: Result) -> list[str]:
    """Parts of the input that were skipped because they cannot be used, each with the reason."""
    return list(dict.fromkeys(each["why"] for each in result.skipped if "input" in each))


def report(folders: list[Path], out: Path | None, *, pdf: bool = False, progress: bool = False) -> list[Path]:
    """One report of several results: the page, and the same as a PDF where it is asked for."""
    if pdf:
        require_pdf()  # before any work
    refuse_other("report", *folders)
    if out is not None:
        _html_file(out)
    named = {str(folder): folder for folder in folders}
    with (
        interruptible(_interrupt.nothing, "an older report is kept as it was, if there is one"),
        bar("report", show=progress) as told,
    ):
        step = phases(told, _REPORT | ({_PDF: _PDF_SECONDS} if pdf else {}))
        results, shown = {}, {}
        for k, (title, folder) in enumerate(named.items()):
            step("reading results", k, len(named))
            results[title] = analyses.load_result(folder)
        for k, (title, result) in enumerate(results.items()):
            shown[title] = pictures(result, progress=one_of(step, "drawing figures", k, len(named)))
        step("writing the page", 0, 1)
        usual = folders[0] / "report.html" if len(named) == 1 else Path("comparison.html")
        page = write_report(results, out or usual, folders=named, drawn=shown)
        return [page, write_pdf(page, progress=partial(step, _PDF))] if pdf else [page]


def _html_file(out: Path) -> None:
    """Refuse what a page cannot be written to, before any work."""
    if out.is_dir():
        meant = f"found the folder {out}: --out {out / 'report.html'}"
    elif out.suffix == ".pdf":
        meant = f"found {out.name}: --out {out.with_suffix('.html')} --pdf writes both"
    else:
        return writable(out.parent)
    raise InputError("--out of a report names its HTML file", meant, f"option --out {out}")


def demo(out: Path, *, seed: int, jobs: int | None, overwrite: bool, progress: bool) -> dict[str, Any]:
    """Both halves: two in-context learners and a series of language models, each part in a process of its own."""
    names = [*_DEMO, _SERIES]
    workers = processes(jobs, len(names))
    writable(out)
    for name in _DEMO:  # before anything is removed
        _part_config(name, seed)
    _series_configs(seed)
    with (
        interruptible(lambda: _interrupt.parts(out), out=out) as keeper,
        bar("demo", show=progress) as told,
    ):
        if overwrite:
            clear(*(out / f"{name}{kind}" for name in names for kind in ("", "-results")))
            keeper.cleared = True
        found = _demo_results(out, seed, workers, told)
        titles = {name: f"{name} ({_described(name)})" for name in names}
        told("writing the report", 1, 1)
        written = write_report(
            {titles[name]: found[name][1] for name in names},
            out / "report.html",
            folders={titles[name]: out / f"{name}-results" for name in names},
            drawn={titles[name]: found[name][2] for name in names},
        )
    return {"report": str(written), "verdicts": {name: found[name][1].verdict for name in names}}


def _demo_results(out: Path, seed: int, workers: int, told: Told) -> dict[str, _Part]:
    """All parts by name; what a part counts is the share of its time, in thousandths."""
    names = [_SERIES, *_DEMO]

    def counted(counts: list[int]) -> None:
        done = sum(_SECONDS[name] * count / 1000 for name, count in zip(names, counts, strict=True))
        busy = [
            f"{name} {count // 10} %" for name, count in zip(names, counts, strict=True) if 0 < count < 1000
        ]
        told(", ".join(busy) or "demo", done, sum(_SECONDS.values()))

    with counters(len(names), counted) as each:
        tasks = [delayed(_demo_series)(out, seed, each[0])]
        tasks += [
            delayed(_demo_part)(name, out, seed, tick) for name, tick in zip(_DEMO, each[1:], strict=True)
        ]
        with deaf():
            outcomes = Parallel(n_jobs=workers, return_as="generator_unordered")(tasks)
        return {part[0]: part for part in outcomes}


def _demo_part(name: str, out: Path, seed: int, tick: Callable[[int], None]) -> _Part:
    torch.set_num_threads(1)
    config = _part_config(name, seed)
    share = _thousandths(tick, {"train": 400, "analyze": 500, "draw": 100})
    train = stepped(lambda _, done, total: share("train", done, total), config.train.steps)
    icrl.pretrain(config, out / name, progress=train)
    result = analyses.analyze(
        out / name,
        out=out / f"{name}-results",
        progress=lambda _, done, total: share("analyze", done, total),
    )
    share("analyze", 1, 1)  # one that was there already has told nothing
    return name, result, figures_of(result, out / f"{name}-results", partial(share, "draw"))


def _part_config(name: str, seed: int) -> icrl.RunConfig:
    return icrl.run_config({**_DEMO[name], "task": {}, "train": {"seed": seed}}, where="demo")


def _thousandths(tick: Callable[[int], None], weights: Mapping[str, float]) -> Told:
    """Progress through the parts of a part, counted in thousandths of it."""
    before = 0

    def told(_: str, done: float, total: float) -> None:
        nonlocal before
        now = int(1000 * done / total)
        tick(now - before)
        before = now

    return phases(told, weights)


def _demo_series(out: Path, seed: int, tick: Callable[[int], None]) -> _Part:
    """Which of six checkpoints should RL start from? One RL seed, and so few checkpoints that nothing is correlated."""
    torch.set_num_threads(1)
    share = _thousandths(tick, {"train": 230, "rank": 690, "draw": 80})
    folder = out / _SERIES
    run, source, config = _series_configs(seed)
    steps = stepped(lambda _, done, total: share("train", done, total), run.train.steps)
    lm.pretrain_lm(run, folder, progress=steps)
    found = impact.members([str(folder)])
    result = impact.impact_run(
        found,
        source,
        config,
        out=out / f"{_SERIES}-results",
        progress=lambda _, done, total: share("rank", done, total),
    )
    share("rank", 1, 1)
    return _SERIES, result, figures_of(result, out / f"{_SERIES}-results", partial(share, "draw"))


def _series_configs(seed: int) -> tuple[lm.LMRunConfig, analyses.RolloutSource, impact.ImpactConfig]:
    task = lm.find_task(_SERIES)
    train = {"steps": _SERIES_STEPS, "num_checkpoints": 6, "seed": seed}
    run = lm.lm_run_config({"corpus": {"task": task.name}, "train": train}, where="demo")
    source = analyses.RolloutSource(task=task, generate=lm.GenerateConfig(seed=seed))
    return run, source, impact.ImpactConfig(recipe="fast", rl_seeds=1, seed=seed)


def _described(name: str) -> str:
    if name == _SERIES:
        return "six checkpoints of a small language model"
    model = icrl.ModelConfig.model_validate(_DEMO[name]["model"])
    return f"{model.weights} weights, {model.num_layers} {'tied' if model.tied else 'untied'} layers"


def checked(verb: str, given: Mapping[str, Any]) -> int:
    """Refuse what a training cannot do before anything is removed for it; its processes."""
    device(given["device"])
    if given["num_seeds"] < 1:
        found = f"found {given['num_seeds']}"
        raise InputError("there must be at least one seed", found, "option --num-seeds")
    writable(given["out"])
    if not given["overwrite"]:
        refuse_occupied(verb, given["out"])
    return processes(given.get("jobs"), given["num_seeds"])


def writable(out: Path | None) -> None:
    """Refuse a folder that nothing can be written to, as the user typed it, before any work is done for it."""
    if out is None:
        return
    here = out
    while not here.exists() and here != here.parent:
        here = here.parent
    if not here.is_dir():
        found = f"found the file {here}"
    elif not os.access(here, os.W_OK | os.X_OK):
        found = f"found that {here} is not"
    else:
        return
    raise InputError("the output must be writable", found, f"option --out {out}")


def cleared(given: Mapping[str, Any]) -> bool:
    """Clear the folder where `--overwrite` asks for it; whether it did."""
    if given["overwrite"] and given.get("out") is not None:
        clear(given["out"])
        return True
    return False


def stepped(told: Told, total: int) -> Callable[[int, int], None]:
    """Progress of a training, which counts steps of several seeds."""
    done = 0

    def advance(steps: int, seed: int) -> None:
        nonlocal done
        done += steps
        told(f"seed {seed}", done, total)

    return advance


def options_of(field: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those options that belong to a part of a configuration."""
    return {key: given[key] for key in field.annotation.model_fields if key in given}


def processes(asked: int | None, useful: int | None) -> int:
    """How many processes `--jobs` allows: as many as are useful (if that is known), or as there are cores."""
    if asked is not None and asked < 1:
        raise InputError("--jobs must be at least 1", f"found {asked}", "option --jobs")
    allowed = asked or os.cpu_count() or 1
    return allowed if useful is None else min(allowed, useful)
