"""What each verb does, between the parsed command line and the library."""

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from valuelens import analyses
from valuelens.analyses import Result, impact
from valuelens.analyses.report import require_pdf, save_figures, write_pdf, write_report
from valuelens.models import InputError, device, icrl, lm

_OURS = (
    *("config.json", "metrics.parquet", "checkpoints", "seed-*"),
    *("result.json", "arrays.safetensors", "tables", "figures", "report.html", "cache"),
)
_DEMO = {
    "tied": {"model": {"num_layers": 10, "tied": True, "weights": "restricted"}},
    "untied-full": {"model": {"num_layers": 3, "tied": False, "weights": "full"}},
}
_SERIES, _SERIES_STEPS = "label-copy", 600
_RECENT = 40
"""Logged steps that the closing line of `pretrain` averages."""


def pretrain(given: Mapping[str, Any], *, progress: bool) -> dict[str, Any]:
    """Train what the command line asks for; returns the summary that `--json` prints."""
    config = icrl.run_config(
        {name: options_of(model, given) for name, model in icrl.RunConfig.model_fields.items()},
        where="command line",
    )
    out, num_seeds = given["out"], given["num_seeds"]
    prepare(given)
    started, total = time.monotonic(), config.train.steps * num_seeds
    with bar("pretrain", total, show=progress) as advance:
        last = icrl.pretrain(
            config,
            out,
            num_seeds=num_seeds,
            jobs=processes(given.get("jobs"), num_seeds),
            device=given["device"],
            progress=lambda steps, seed: advance(f"pretrain seed {seed}", steps),
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


def analyze(given: Mapping[str, Any], *, progress: bool) -> Result:
    """Analyse, and write result, figures and report where `--out` asks for it."""
    if given.get("path") is None:
        raise InputError("analyze needs a checkpoint or run folder", "found none", "argument CKPT_OR_RUN")
    if given["device"] != "cpu":
        found = f"found {given['device']!r}"
        raise InputError("in-context models are measured on the cpu", found, "option --device")
    out = given.get("out")
    if out is not None and given["overwrite"]:
        clear(out)
    # what foreign code prints must not stand in --json
    with redirect_stdout(sys.stderr), bar("analyze", None, show=progress) as advance:
        result = analyses.analyze(
            given["path"],
            analyses.AnalysisConfig(
                only=tuple(name for name in given["only"].split(",") if name),
                full=given["full"],
                num_tasks=given["num_tasks"],
                seed=given["seed"],
                dtype=given["dtype"],
                adapter=given.get("adapter", ""),
            ),
            out=out,
            jobs=given["jobs"],
            progress=lambda what, done, total: advance(what, 1, total),
        )
    if out is not None:
        save_figures(result, out / "figures")
        title = str(given["path"])
        write_report({title: result}, out / "report.html", folders={title: out})
    return result


def result_lines(result: Result, *, quiet: bool = False) -> list[str]:
    """Verdict and table of findings for people."""
    return [result.verdict if quiet else str(result)]


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


def report(folders: list[Path], out: Path | None, *, pdf: bool = False) -> list[Path]:
    """One report of several results: the page, and the same as a PDF where it is asked for."""
    if pdf:
        require_pdf()  # before any work
    named = {str(folder): folder for folder in folders}
    results = {title: analyses.load_result(folder) for title, folder in named.items()}
    page = write_report(results, out or folders[0] / "report.html", folders=named)
    return [page, write_pdf(page)] if pdf else [page]


def demo(out: Path, *, seed: int, jobs: int | None, overwrite: bool, progress: bool) -> dict[str, Any]:
    """Both halves: two in-context learners and a series of language models, each part in a process of its own."""
    names = [*_DEMO, _SERIES]
    if overwrite:
        for name in names:
            clear(out / name, "step-????????")
            clear(out / f"{name}-results")
    with bar("demo: in-context learners and a language model", len(names), show=progress) as advance:
        tasks = [delayed(_demo_series)(out, seed), *(delayed(_demo_part)(name, out, seed) for name in _DEMO)]
        found = {}
        for name, result in Parallel(n_jobs=processes(jobs, len(names)), return_as="generator_unordered")(
            tasks
        ):
            found[name] = result
            advance(f"demo: {name} done", 1)
    titles = {name: f"{name} ({_described(name)})" for name in names}
    results = {titles[name]: found[name] for name in names}
    folders = {titles[name]: out / f"{name}-results" for name in names}
    written = write_report(results, out / "report.html", folders=folders)
    return {"report": str(written), "verdicts": {name: found[name].verdict for name in names}}


def _demo_part(name: str, out: Path, seed: int) -> tuple[str, Result]:
    torch.set_num_threads(1)
    config = icrl.run_config({**_DEMO[name], "task": {}, "train": {"seed": seed}}, where="demo")
    icrl.pretrain(config, out / name)
    result = analyses.analyze(out / name, out=out / f"{name}-results")
    save_figures(result, out / f"{name}-results" / "figures")
    return name, result


def _demo_series(out: Path, seed: int) -> tuple[str, Result]:
    """Which of six checkpoints should RL start from? One RL seed, and so few checkpoints that nothing is correlated."""
    torch.set_num_threads(1)
    folder, task = out / _SERIES, lm.find_task("label-copy")
    train = {"steps": _SERIES_STEPS, "num_checkpoints": 6, "seed": seed}
    lm.pretrain_lm(lm.lm_run_config({"corpus": {"task": task.name}, "train": train}, where="demo"), folder)
    found = impact.members([str(folder)])
    source = analyses.RolloutSource(task=task, generate=lm.GenerateConfig(seed=seed))
    config = impact.ImpactConfig(recipe="fast", rl_seeds=1, seed=seed)
    result = impact.impact_run(found, source, config, out=out / f"{_SERIES}-results")
    save_figures(result, out / f"{_SERIES}-results" / "figures")
    return _SERIES, result


def _described(name: str) -> str:
    if name == _SERIES:
        return "six checkpoints of a small language model"
    model = icrl.ModelConfig.model_validate(_DEMO[name]["model"])
    return f"{model.weights} weights, {model.num_layers} {'tied' if model.tied else 'untied'} layers"


def prepare(given: Mapping[str, Any], *also: str) -> None:
    """Check device and seeds of a training, and clear its folder where `--overwrite` asks for it."""
    device(given["device"])
    if given["num_seeds"] < 1:
        found = f"found {given['num_seeds']}"
        raise InputError("there must be at least one seed", found, "option --num-seeds")
    if given["overwrite"]:
        clear(given["out"], *also)


def clear(out: Path, *also: str) -> None:
    """Remove what valuelens wrote into a folder, and nothing else; `also` are patterns of one verb."""
    for pattern in (*_OURS, *also):
        for path in out.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


@contextmanager
def bar(what: str, total: int | None, *, show: bool) -> Iterator[Any]:
    """A progress bar with the time left, on stderr if that is a terminal; yields advance(what, steps, total)."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    shown = show and console.is_terminal
    with Progress(*columns, console=console, disable=not shown, transient=True) as progress:
        task = progress.add_task(what, total=total)

        def advance(what: str, steps: int, total: int | None = total) -> None:
            progress.update(task, advance=steps, description=what, total=total)

        yield advance


def options_of(field: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those options that belong to a part of a configuration."""
    return {key: given[key] for key in field.annotation.model_fields if key in given}


def processes(asked: int | None, useful: int) -> int:
    """How many processes `--jobs` allows: as many as are useful, or as there are cores."""
    if asked is not None and asked < 1:
        raise InputError("--jobs must be at least 1", f"found {asked}", "option --jobs")
    return min(asked or os.cpu_count() or 1, useful)
