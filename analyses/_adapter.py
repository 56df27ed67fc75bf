"""What `analyze --adapter` asks of a user's own network, with its provenance and its resume rule."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from valuelens.analyses._identify import identify_network
from valuelens.analyses._request import AnalysisConfig, finished, measured, request_through
from valuelens.analyses._result import Result, save_result
from valuelens.analyses._subject import evaluation_stream
from valuelens.analyses._verdict import verdict
from valuelens.models import InputError, did_you_mean
from valuelens.models.icrl import (
    Adapter,
    Context,
    TaskConfig,
    check_network,
    context_of,
    import_adapter,
    one_thread,
    task_sampler,
)

QUESTION = "identify"
"""The one question that an adapter's network can be asked: it needs neither weights nor configuration."""

_TRIED = 2


def analyze_adapter(
    path: Path,
    config: AnalysisConfig,
    *,
    out: Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    ready: Callable[[], None] | None = None,
) -> Result:
    """Identify the network that an adapter makes of a path.

    The tasks are those of the adapter's optional attribute `task`, else the default ones; the provenance says which,
    and where the adapter's code was imported from.

    Args:
        path: Given to the adapter.
        config: With the adapter's name.
        out: Folder of the result; one of the same request is read again.
        progress: Called as progress(what, done, total).
        ready: Called before `out` is looked at.

    Raises:
        InputError: Another question is asked, another precision than float64, the adapter cannot be imported or its
            network not be measured, or `out` holds another result.
    """
    _check(config)
    started, adapter = time.monotonic(), import_adapter(config.adapter)
    asked = request_through(adapter, path, replace(config, only=(QUESTION,)))
    if ready:
        ready()
    if out is not None and (result := finished(out, asked)):
        return result
    with one_thread():
        result = _identified(adapter, path, config)
    if progress:
        progress(f"{QUESTION} {path.name}", 1, 1)
    provenance = {**result.provenance, **measured(asked, started)}
    result = replace(result, provenance=provenance, verdict=result.verdict or verdict(result))
    if out is not None:
        save_result(result, out)
    return result


def _identified(adapter: Adapter, path: Path, config: AnalysisConfig) -> Result:
    network = adapter.network(path)
    own = getattr(network, "task", None)
    task = own or TaskConfig()
    check_network(network, _contexts(task), where=f"adapter {adapter.name}")
    result = identify_network(network, task, num_tasks=config.num_tasks, seed=config.seed)
    seen = {
        "name": adapter.name,
        "file": str(adapter.file) if adapter.file else None,
        "module": type(network.module).__name__,
        "task": "its own" if own else "the default one",
    }
    return replace(
        result, provenance={**result.provenance, "config": {"task": task.model_dump()}, "adapter": seen}
    )


def _contexts(task: TaskConfig) -> Context:
    generator = evaluation_stream(0)
    sampler = task_sampler(task, generator)
    return context_of(*sampler.sample(_TRIED, task.context_length, generator, torch.float64))


def _check(config: AnalysisConfig) -> None:
    other = [name for name in config.only if name != QUESTION]
    if other:
        must = f"--only takes {QUESTION} with --adapter (other questions need a checkpoint of ours)"
        raise InputError(must, f"found {other[0]!r}{did_you_mean(other[0], [QUESTION])}", "option --only")
    if config.dtype != "float64":
        must = "an adapter's network is measured in float64"
        raise InputError(must, f"found {config.dtype!r}", "option --dtype")
