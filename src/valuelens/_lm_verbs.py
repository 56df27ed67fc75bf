"""What the verbs on language models do, between the parsed command line and the library."""

import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from valuelens import analyses
from valuelens._clearing import refuse_foreign
from valuelens._interrupt import answers, checkpoints, interruptible
from valuelens._kinds import refuse_other
from valuelens._terminal import Told, bar, phases
from valuelens._verbs import checked, cleared, options_of, stepped, writable
from valuelens._writing import drawn
from valuelens.analyses import Result
from valuelens.models import InputError, lm

SIZES = ("num_items", "num_labels", "num_pairs", "num_digits")
"""Options that are sizes of a task; which of them it takes is its own business."""

_CUT = 64
"""Tokens at which sampled completions are cut, as trainers' default has it."""

_RECENT = 20
"""Logged steps that the closing line of `pretrain-lm` averages."""


def pretrain_lm(given: Mapping[str, Any], *, progress: bool) -> dict[str, Any]:
    """Pretrain the series that the command line asks for; returns the summary that `--json` prints."""
    parts = {name: options_of(part, given) for name, part in lm.LMRunConfig.model_fields.items()}
    sizes = {key: given[key] for key in SIZES if key in given}
    parts["corpus"]["sizes"] = sizes
    config = lm.lm_run_config(parts, where="command line")
    task = lm.find_task(config.corpus.task, **sizes)
    lm.pretraining_task(config.corpus.task, **sizes)
    out, num_seeds = given["out"], given["num_seeds"]
    jobs = checked("pretrain-lm", given)
    started, total = time.monotonic(), config.train.steps * num_seeds
    with (
        interruptible(lambda: checkpoints(out), out=out) as keeper,
        bar("pretrain-lm", show=progress) as told,
    ):
        keeper.cleared = cleared(given)
        last = lm.pretrain_lm(
            config,
            out,
            num_seeds=num_seeds,
            jobs=jobs,
            device=given["device"],
            progress=stepped(told, total),
        )
    loss = pd.read_parquet(out / "metrics.parquet").groupby("seed").tail(_RECENT).groupby("seed").loss.mean()
    return {
        "series": str(out),
        "checkpoints": [str(path) for path in last],
        "task": {"name": task.name, **task.sizes},
        "imported_from": str(task.file) if task.file else None,
        "seconds": round(time.monotonic() - started, 2),
        "loss": {str(seed): float(mean) for seed, mean in loss.items()},
    }


def pretrain_lm_lines(summary: Mapping[str, Any]) -> list[str]:
    """The summary of a series for people."""
    lines = [
        f"seed {seed}: loss {loss:.3f} nats a token (mean of the last {_RECENT} logged steps)"
        for seed, loss in summary["loss"].items()
    ]
    done = f"{summary['seconds']:.1f} s"
    return [*lines, done, *(f"The last checkpoint is at {path}" for path in summary["checkpoints"])]


def imported(task: Mapping[str, Any], file: str | None) -> str | None:
    """Which task was imported, and where its code stands; none for ours."""
    return f"the task {task['name']} was imported from {file}" if file else None


def costates(given: Mapping[str, Any], *, progress: bool) -> tuple[Result, str | None]:
    """Take costates and write result, figures and report where `--out` asks for it; also where a task's code stands."""
    config = analyses.CostateConfig(
        objective=given.get("objective", "reward" if "reward_targets" in given else "surrogate"),
        layers=tuple(part.strip() for part in given["layers"].split(",") if part.strip()),
        positions=given["positions"],
        update=analyses.Update(
            baseline=given["baseline"],
            scale_rewards=given["scale_rewards"],
            loss_type=given["loss_type"],
            max_completion_length=given.get("max_completion_length", 0 if "rollouts" in given else _CUT),
        ),
        micro_batch=given["micro_batch"],
        max_hops=given["max_hops"],
        tolerance=given["tolerance"],
        full=given["full"],
        seed=given["seed"],
    )
    refuse_other("costates", given["model"])
    out, afresh = given.get("out"), given["overwrite"]
    writable(out)
    if afresh and out is not None:
        refuse_foreign(out)  # before any work
    with (
        interruptible(lambda: answers(out), "nothing is kept: costates are taken in one go") as keeper,
        bar("costates", show=progress) as told,
    ):
        step = phases(told, _weights(config, written=out is not None))
        if Path(given["model"]).exists():  # else a download shows its own bars
            step("loading the model", 0, 1)
        model = lm.load_language_model(
            given["model"],
            revision=given.get("revision"),
            base=given.get("base"),
            dtype=given["dtype"],
            device=given["device"],
            progress=partial(step, "loading the model"),
        )
        source = _rollout_source(given)
        step("rollouts", 0, 1)
        result = analyses.costate_run(
            model,
            source,
            config,
            out=None if afresh else out,
            said=None if given["quiet"] else _say,
            progress=step,
        )
        if out is not None:
            if afresh:  # only now, so that a fault of the input loses nothing
                keeper.cleared = cleared(given)
                analyses.save_result(result, out)
            drawn({given["model"]: result}, out, partial(_drawing, step))
    file = source.task.file if source.task else None
    return result, str(file) if file else None


def _drawing(told: Told, _: str, done: float, total: float) -> None:
    told("drawing figures", done, total)


def _weights(config: analyses.CostateConfig, *, written: bool) -> dict[str, float]:
    """Parts of the work in their order, and about how long each takes beside the others."""
    relaxed = config.objective == "reward" and config.positions == "completion"
    parts = {"loading the model": 1.0, "rollouts": 3.0, "costates": 3.0}
    parts |= {"hops": 6.0} if relaxed else {}
    parts |= {"entropy bound": 12.0} if relaxed and config.full else {}
    parts |= {"heads": 6.0} if config.full else {}
    return {**parts, "drawing figures": 2.0} if written else parts


def _say(found: analyses.Diagnosis) -> None:
    """The diagnosis, before any costate is taken."""
    mismatch = (
        "The rollouts hold no logged log-probabilities: whether this model sampled them is not known."
        if found.mismatch is None
        else f"Logged log-probabilities differ from this model's by {found.mismatch:.2g} nats a token (median)."
    )
    print(f"{found.sentence}\n{mismatch}", file=sys.stderr)  # noqa: T201


def named_task(given: Mapping[str, Any], model: Path) -> lm.NamedTask | None:
    """The task asked for; without one, and without rollouts, that of the series that the model belongs to."""
    sizes = {key: given[key] for key in SIZES if key in given}
    if sizes and given.get("rollouts"):
        size = next(iter(sizes)).replace("_", "-")
        raise InputError("sizes belong to a task", f"found --{size} beside --rollouts", f"option --{size}")
    if "task" in given:
        return lm.find_task(given["task"], **sizes)
    return None if given.get("rollouts") else _series_task(model, sizes)


def _rollout_source(given: Mapping[str, Any]) -> analyses.RolloutSource:
    """As asked for; without a task or rollouts the task of the series that the model belongs to."""
    named = named_task(given, Path(given["model"]))
    keys = (
        *("num_prompts", "num_generations", "max_completion_length", "temperature", "top_k", "top_p"),
        *("seed", "completion_ends"),
    )
    return analyses.RolloutSource(
        task=named,
        generate=lm.GenerateConfig(**{key: given[key] for key in keys if key in given}),
        files=given.get("rollouts", ""),
        reward_targets=given.get("reward_targets"),
        longest=given.get("max_completion_length"),
    )


def _series_task(model: Path, sizes: Mapping[str, int]) -> lm.NamedTask | None:
    corpus = lm.corpus_of(model)
    return None if corpus is None else lm.find_task(corpus.task, **{**corpus.sizes, **sizes})


def unusable_rollouts(result: Result) -> list[str]:
    """What of the rollouts could not be used, each with the reason."""
    return [f"{each['what']}: {each['why']}" for each in result.skipped]
