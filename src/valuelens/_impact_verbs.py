"""What the verb `impact` does, between the parsed command line and the library."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
from transformers.utils import logging

from valuelens._interrupt import answers, interruptible
from valuelens._kinds import refuse_other
from valuelens._lm_verbs import named_task
from valuelens._tables import fitted
from valuelens._terminal import Told, bar, followed, say, silent_downloads
from valuelens._verbs import cleared, processes, writable
from valuelens._writing import drawn
from valuelens.analyses import Result, RolloutSource
from valuelens.analyses.impact import (
    Execution,
    ImpactConfig,
    Loading,
    Member,
    ScoreConfig,
    Workers,
    impact_run,
    members,
)
from valuelens.models import InputError, lm

_SAMPLED = (
    *("num_prompts", "num_generations", "max_completion_length", "temperature", "top_k", "top_p"),
    *("seed", "completion_ends"),
)
_RUN_SECONDS = {"default": 3.5, "fast": 1.75, "long": 7.0}
"""What an RL run takes beside a score, about: only the time left is told by it."""

_WRITING = 0.1
"""The share of the time that figures and page take, about."""

_SHOWN = {
    "reward": "reward",
    "reward_std": "std",
    "frac_reward_zero_std": "flat groups",
    "signal": "signal",
    "headroom": "headroom",
    "impact": "impact",
    "update_aligned": "update-aligned",
}


def impact(given: Mapping[str, Any], *, progress: bool) -> Result:
    """Rank checkpoints, and write result, figures and report where `--out` asks for it."""
    out = given.get("out")
    refuse_other("impact", *given["models"])
    writable(out)
    jobs = processes(given.get("jobs"), None)

    def ready() -> None:
        keeper.cleared = cleared(given)

    why = "nothing is kept yet" if out else "nothing is kept without --out"
    with (
        interruptible(lambda: answers(out), why, out=out) as keeper,
        bar("impact", show=progress) as told,
        _one_bar(show=progress),
    ):
        ranking, writing = followed(told, 0.0 if out is None else _WRITING)
        ranking("reading checkpoints", 0, 0)
        found = members(given["models"], given.get("revisions"))
        config, sources = _config(given), _sources(given, found)
        if (task := sources[0].task) and task.file and not given["quiet"]:
            say(f"the task {task.name} was imported from {task.file}")
        execution = Execution(
            workers=Workers(
                engine=given["engine"],
                jobs=min(jobs, len(found) * (1 + 2 * config.rl_seeds)),
                scheduler=given.get("scheduler"),
            ),
            evict=given["evict"],
            warn=None if given["quiet"] else say,
            ready=ready,
        )
        result = impact_run(
            found, sources, config, out=out, execution=execution, progress=_paced(ranking, config, len(found))
        )
        if out is not None:
            drawn({_title(given["models"]): result}, out, writing)
    return result


@contextmanager
def _one_bar(*, show: bool) -> Iterator[None]:
    """Where ours is shown, models that are downloaded meanwhile, in whichever process, show none."""
    shown = logging.is_progress_bar_enabled()
    with silent_downloads() if show else nullcontext():
        if show:
            logging.disable_progress_bar()
        try:
            yield
        finally:
            if shown:
                logging.enable_progress_bar()


def _paced(told: Told, config: ImpactConfig, count: int) -> Callable[[str, int, int], None]:
    """Progress in about seconds: an RL run takes longer than a score."""
    run, spent = _RUN_SECONDS[config.recipe], 0.0

    def advance(what: str, done: int, total: int) -> None:
        nonlocal spent
        spent += run if what.startswith("gain") else 1.0
        runs = max(total - count, 0)
        told(what, spent, max(spent, min(total, count) + run * runs) if done < total else spent)

    return advance


def impact_lines(result: Result, *, quiet: bool) -> list[str]:
    """The ranking and the judgement for people."""
    if quiet:
        return [result.verdict]
    left_out = [f"skipped: {each['what']}: {each['why']}" for each in result.skipped]
    return [_header(result), _ranking(result), "", *left_out, result.verdict]


def _header(result: Result) -> str:
    """Which score this is: one for all checkpoints."""
    about = result.provenance
    low, high = about["reward_range"]
    tilt = f" of beta {about['beta']:g} / reward range" if about["headroom"] == "tilt" else ""
    return f"impact = {about['signal']} signal x {about['headroom']} headroom{tilt} (rewards {low:g} to {high:g})"


def _ranking(result: Result) -> str:
    """A line for each checkpoint: what it scores, and what RL gained from it."""
    scores, gains = result.tables["scores"], result.tables["gains"]
    several = scores.series.nunique() > 1
    name = scores.series + "/" + scores.checkpoint if several else scores.checkpoint
    table = pd.DataFrame({"checkpoint": name, **{title: scores[key] for key, title in _SHOWN.items()}})
    if len(gains):
        uncut = gains[~gains.cut.astype(bool)]
        keys = ["series", "checkpoint"]
        means = uncut.groupby(keys)[["gain", "reward_after"]].mean()
        at = pd.MultiIndex.from_frame(scores[keys])
        table["gain"], table["final reward"] = (
            means.reindex(at).gain.values,
            means.reindex(at).reward_after.values,
        )
    return fitted(table)


def _config(given: Mapping[str, Any]) -> ImpactConfig:
    return ImpactConfig(
        score=ScoreConfig(
            signal=given["signal"],
            headroom=given["headroom"],
            beta=given["beta"],
            layer=given["layer"],
            max_hops=given["max_hops"],
            tolerance=given["tolerance"],
            micro_batch=given["micro_batch"],
            seed=given["seed"],
        ),
        recipe=given["recipe"],
        rl_seeds=given["rl_seeds"],
        gains=given.get("gains"),
        loading=Loading(base=given.get("base"), dtype=given["dtype"], device=given["device"]),
        seed=given["seed"],
    )


def _sources(given: Mapping[str, Any], found: Sequence[Member]) -> list[RolloutSource]:
    """Where the rollouts of each checkpoint come from: one task for all, or files of its own."""
    files: list[str] = given.get("rollouts") or []
    task = _task(given, found)
    paths = _paths(files, found) if files else [""] * len(found)
    return [
        RolloutSource(
            task=task,
            generate=lm.GenerateConfig(**{key: given[key] for key in _SAMPLED if key in given}),
            files=path,
            reward_targets=given.get("reward_targets"),
            longest=given.get("max_completion_length"),
        )
        for path in paths
    ]


def _task(given: Mapping[str, Any], found: Sequence[Member]) -> lm.NamedTask | None:
    """The task asked for, else the one that all series were pretrained on."""
    if "task" in given or "rollouts" in given:
        return named_task(given, Path(found[0].source))
    tasks = {}
    for each in {Path(member.source).parent: member for member in found}.values():
        if not each.local:
            _ = each.identity  # a name that is no model is told before a task is asked for
        tasks[each.name] = named_task(given, Path(each.source)) if each.local else None
    (first, task), *others = tasks.items()
    for name, other in others:
        if _named(other) != _named(task):
            must = "series of one ranking must have one task (--task names it)"
            raise InputError(must, f"found {_named(other)} of {name}", f"beside {_named(task)} of {first}")
    return task


def _named(task: lm.NamedTask | None) -> str:
    return " ".join([task.name, *(f"{key} {value}" for key, value in task.sizes.items())]) if task else "none"


def _paths(files: Sequence[str], found: Sequence[Member]) -> list[str]:
    if len(files) == 1 and "{checkpoint}" in files[0]:
        return [files[0].replace("{checkpoint}", member.label) for member in found]
    if len(files) != len(found):
        must = "--rollouts must name one path for each checkpoint, in their order, or hold {checkpoint}"
        raise InputError(must, f"found {len(files)} for {len(found)} checkpoints", "option --rollouts")
    return list(files)


def _title(models: Sequence[str]) -> str:
    return models[0] if len(models) == 1 else f"{models[0]} and {len(models) - 1} more"
