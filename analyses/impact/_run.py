"""From models to a ranking, resumable for each checkpoint and question: what the command line asks."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd

from valuelens.analyses._costate_run import RolloutSource, rollouts_asked
from valuelens.analyses._request import Progress, finished, measured
from valuelens.analyses._result import Control, Finding, Result, save_result
from valuelens.analyses.impact._ask import Asker, Execution, Reply, asked_of
from valuelens.analyses.impact._config import ImpactConfig
from valuelens.analyses.impact._engine import Answer, Failure
from valuelens.analyses.impact._members import Member
from valuelens.analyses.impact._read_gains import read_gains
from valuelens.analyses.impact._result import impact_result
from valuelens.analyses.impact._tables import CURVES, GAINS, SCORES
from valuelens.analyses.impact._verdict import variants
from valuelens.models import InputError
from valuelens.models.icrl import content_hash

_MASK = "padding and everything behind the end of a completion has no loss term and no costate"


def impact_run(
    found: Sequence[Member],
    sources: RolloutSource | Sequence[RolloutSource],
    config: ImpactConfig | None = None,
    *,
    out: str | Path | None = None,
    execution: Execution | None = None,
    progress: Progress | None = None,
) -> Result:
    """Score checkpoints, realise their gains, and judge how well scores foretell them.

    Args:
        found: The checkpoints, as `members` lists them.
        sources: Where the rollouts of all come from, or of each in the same order; RL runs need a task.
        config: Scores, recipe, seeds.
        out: Result folder; answers are kept in its `cache/`, from which an interrupted call goes on.
        execution: Processes and machines.
        progress: Called as progress(what, done, total).

    Raises:
        InputError: No checkpoint can be scored, architectures differ, or `out` holds another result.
    """
    started, config, execution = time.monotonic(), config or ImpactConfig(), execution or Execution()
    out = None if out is None else Path(out)
    sources = [sources] * len(found) if isinstance(sources, RolloutSource) else sources
    config = replace(config, score=replace(config.score, sampling=sources[0].sampling))
    hashes = {member.name: member.identity for member in found}
    request = {
        "checkpoints": hashes,
        "sources": {each.name: rollouts_asked(source) for each, source in zip(found, sources, strict=True)},
        "dtype": config.loading.dtype,
        **_settings(config),
        "gains": config.gains and content_hash(config.gains),
    }
    table = None if config.gains is None else _given(config.gains, found)
    if execution.ready:
        execution.ready()
    if out is not None and (result := finished(out, request)):
        return result
    cache = execution.cache or (None if out is None else out / "cache")
    asker = Asker(config=config, execution=execution, cache=cache, progress=progress)
    runs = config.rl_seeds if table is None and sources[0].task else 0
    replies = asker.replies(asked_of(found, sources, hashes, config), runs=runs)
    scores, gains, curves = _tables(found, replies)
    if scores.empty:
        failed = next(each for each in replies if isinstance(each, Failure))
        raise InputError("a checkpoint must be usable", f"found none: {failed.error}", failed.work.checkpoint)
    _check_signal(scores, config)
    gains = gains if table is None else table
    result = impact_result(scores, gains, curves, config.score, seed=config.seed)
    result = replace(
        result,
        findings=(*result.findings, _cost(replies)),
        skipped=(*result.skipped, *_lost(replies)),
        provenance={**measured(request, started, mask=_MASK), **_about(result, config, sources[0], replies)},
    )
    if out is not None:
        save_result(result, out)
    return result


def _given(path: Path, found: Sequence[Member]) -> pd.DataFrame:
    """Gains of others, each in the series of its checkpoint."""
    table = read_gains(path, [each.label for each in found])
    homes = {(each.series, each.label) for each in found}
    for row, (series, label) in enumerate(zip(table.series, table.checkpoint, strict=True)):
        possible = sorted(home for home, name in homes if name == label and series in ("", home))
        if len(possible) != 1:
            must = "gains must say the series of a checkpoint, in a column `series`, where several have one"
            told = f"found {label} of {series or 'none'} for {', '.join(sorted({home for home, _ in homes}))}"
            raise InputError(must, told, f"{path}, row {row}")
        table.loc[row, "series"] = possible[0]
    return table


def _check_signal(scores: pd.DataFrame, config: ImpactConfig) -> None:
    """One signal heads a ranking; which one `auto` takes is seen from the rollouts of each checkpoint."""
    graded = scores.signal_subtractive.notna()
    if config.score.signal == "auto" and graded.any() and not graded.all():
        must = (
            "--signal auto must find right tokens for all checkpoints or for none (name a signal otherwise)"
        )
        raise InputError(must, "found none here, and some elsewhere", str(scores[~graded].checkpoint.iloc[0]))


def _settings(config: ImpactConfig) -> dict[str, Any]:
    plain = asdict(config)
    return {**plain.pop("loading"), **plain.pop("score"), **{k: v for k, v in plain.items() if k != "gains"}}


def _tables(
    found: Sequence[Member], replies: Sequence[Reply]
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Scores, gains and learning curves, in the order of the checkpoints."""
    by_name = {member.name: member for member in found}
    scores, gains, curves = [], [], []
    for each in replies:
        if isinstance(each, Failure):
            continue
        member, payload = by_name[each.work.checkpoint], each.payload
        who = {"series": member.series, "checkpoint": member.label}
        if each.work.question == "score":
            scores.append({**who, "step": member.step, **payload["scores"]})
        elif each.work.question == "gain":
            asked: Any = each.work.how["gain"]
            run = {**who, **{key: asked[key] for key in ("recipe", "rl_seed", "cut")}}
            before, after = payload["reward_before"], payload["reward_after"]
            gains.append({**run, "reward_before": before, "reward_after": after, "gain": after - before})
            curves += [
                {**run, "step": step, "reward": reward} for step, reward in enumerate(payload["curve"])
            ]
    made = ((SCORES, scores), (GAINS, gains), (CURVES, curves))
    return tuple(pd.DataFrame(rows, columns=list(columns)) for columns, rows in made)  # type: ignore[return-value]


def _cost(replies: Sequence[Reply]) -> Finding:
    """What scoring took, in passes of one token: forward 1, backward 2, sampling 1."""
    scored = [each.payload for each in replies if isinstance(each, Answer) and each.work.question == "score"]
    share = [each["scores"]["token_passes"] / each["token_passes_of_a_run"] for each in scored]
    return Finding(
        name="scoring_cost",
        estimate=max(share),
        unit="of a default GRPO run, in token passes of the dearest checkpoint",
        n=len(share),
        definition="choice",
        control=Control(name="one default GRPO run", estimate=1.0),
        reasons={"interval": "a count"},
    )


def _lost(replies: Sequence[Reply]) -> tuple[Mapping[str, str], ...]:
    failed = [each for each in replies if isinstance(each, Failure)]
    return tuple(
        {
            "what": f"{each.work.question} of {each.work.checkpoint}",
            "why": each.error,
            "input": each.work.checkpoint,
        }
        for each in failed
    )


def _about(
    result: Result, config: ImpactConfig, source: RolloutSource, replies: Sequence[Reply]
) -> dict[str, Any]:
    """What the provenance says besides the request."""
    shapes = [
        each.payload["architecture"]
        for each in replies
        if isinstance(each, Answer) and each.work.question == "score"
    ]
    task, scored = source.task, next(each for each in replies if each.work.question == "score")
    declared: Any = task.task.reward_range if task else scored.work.how["reward_range"]
    signal, headroom = variants(result, config.score)
    return {
        "model": {key: value for key, value in shapes[0].items() if key != "words"},
        "signal": signal,
        "headroom": headroom,
        "beta": config.score.beta,
        "reward_range": list(declared),
        "task": task and " ".join([task.name, *(f"{key} {value}" for key, value in task.sizes.items())]),
        "recipe": sorted({str(each) for each in result.tables["gains"].recipe}),
        "rl_seeds": int(result.tables["gains"].rl_seed.nunique()),
        "sampling": asdict(source.sampling),
        "seconds_of_scores": [
            each.payload["seconds"]
            for each in replies
            if isinstance(each, Answer) and each.work.question == "score"
        ],
    }
