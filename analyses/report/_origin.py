"""Where a result comes from, in words: model, task, training, weights, versions.

Nothing in a provenance is certain to be there; what is missing is not told.
"""

from collections.abc import Mapping
from typing import Any

from valuelens.analyses._result import Result
from valuelens.analyses.report._numbers import readable
from valuelens.analyses.report._origin_costates import (
    SOURCES,
    language_model_origin,
    language_model_words,
)
from valuelens.analyses.report._origin_impact import ranking_origin, ranking_words


def model_words(result: Result) -> list[str]:
    """Model, task and training in words, as far as the provenance has them.

    Args:
        result: Of any kind.
    """
    provenance = result.provenance
    if result.kind == "costates":
        return language_model_words(provenance)
    if result.kind == "impact":
        return ranking_words(result)
    model, task, train = (config_part(provenance, key) for key in ("model", "task", "train"))
    theirs = config_part(provenance, "incontexttd")
    lines = (_model(model) or _adapted(provenance), _task(task), _training(train), _incontexttd(theirs))
    return [line for line in lines if line]


def origin_words(result: Result, label: str) -> list[str]:
    """Where the numbers come from: weights, tasks, precision, mask, versions, command, time.

    Args:
        result: Of any kind.
        label: Of the checkpoint that is shown; empty if it stands alone.
    """
    provenance = result.provenance
    if result.kind == "costates":
        return language_model_origin(provenance)
    if result.kind == "impact":
        return ranking_origin(result)
    request = provenance.get("request", {})
    hashes = request.get("checkpoints", {})
    weights = hashes.get(label) or next(iter(hashes.values()), None)
    versions = ", ".join(f"{name} {number}" for name, number in provenance.get("versions", {}).items())
    known = {
        "Weights": weights and f"sha256 {weights}",
        "Evaluation tasks": "num_tasks" in request
        and f"{request['num_tasks']}, drawn with seed {request.get('seed')}",
        "Precision": provenance.get("dtype"),
        "Mask": provenance.get("mask"),
        "Versions": versions,
        "Command": provenance.get("command"),
        "Finished": provenance.get("finished"),
    }
    return [f"{name}: {value}" for name, value in known.items() if value]


def sources(result: Result) -> tuple[tuple[str, str], ...]:
    """What the measurements of a result rest on, with numbers at arXiv.

    Args:
        result: Of any kind.
    """
    return SOURCES if result.kind in ("costates", "impact") else _SOURCES


def _model(model: Mapping[str, Any]) -> str:
    if not model:
        return ""
    layers = _layers(model, "")
    if model.get("arch") == "transformer":
        causal = "causal" if model.get("causal") else "not causal"
        positions = "with positions" if model.get("positions") else "without positions (set-only)"
        return (
            f"Model: standard transformer, {layers}, {model.get('num_heads')} heads, width "
            f"{model.get('d_model')}, {causal}, {positions}"
        )
    arch = str(model.get("arch", ""))
    tied = "" if "tied" not in model else "tied " if model["tied"] else "untied "
    parts = ("{}", _ARCHITECTURES.get(arch, arch)), ("{} weights", model.get("weights"))
    return _listed("Model", *parts, ("{}", _layers(model, tied)))


def _layers(model: Mapping[str, Any], tied: str) -> str | None:
    count = model.get("num_layers")
    return None if count is None else "1 layer" if count == 1 else f"{count} {tied}layers"


def _adapted(provenance: Mapping[str, Any]) -> str:
    adapter = provenance.get("adapter")
    if not isinstance(adapter, Mapping):
        return ""
    return (
        f"Model: {adapter.get('module')}, seen only through the hooks of its adapter {adapter.get('name')} "
        f"({adapter.get('file')}); tasks: {adapter.get('task')}"
    )


def _task(task: Mapping[str, Any]) -> str:
    if not task:
        return ""
    return _listed(
        "Tasks",
        ("{}", task.get("env")),
        ("{} states", task.get("num_states")),
        (f"{{}} features of dimension {task.get('feature_dim')}", task.get("features")),
        ("contexts of {} transitions", task.get("context_length")),
        ("gamma {}", task.get("gamma")),
    )


def _training(train: Mapping[str, Any]) -> str:
    if not train:
        return ""
    return _listed(
        "Training",
        ("{} loss", train.get("loss")),
        (
            f"{{}} steps of {train.get('batch_size')} fresh tasks",
            train.get("steps") and readable(train["steps"]),
        ),
        ("learning rate {}", train.get("learning_rate")),
        ("seed {}", train.get("seed")),
    )


def _incontexttd(settings: Mapping[str, Any]) -> str:
    if not settings:
        return ""
    return (
        f"Training: by the public code of arXiv 2405.13861 (InContextTD), {readable(settings.get('n_mrps'))} "
        f"processes, {settings.get('n_batch_per_mrp')} steps of {settings.get('mini_batch_size')} consecutive windows "
        f"each, learning rate {settings.get('lr')}, seed {settings.get('random_seed')}"
    )


def _listed(name: str, *parts: tuple[str, Any]) -> str:
    """What is known, one after the other."""
    told = [text.format(value) for text, value in parts if value not in (None, "")]
    return f"{name}: {', '.join(told)}" if told else ""


def config_part(provenance: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The task, model or training of a recorded configuration; empty if it was not recorded.

    Args:
        provenance: Of a result.
        key: `task`, `model`, `train` or `incontexttd`.
    """
    config = provenance.get("config")
    part = config.get(key) if isinstance(config, Mapping) else None
    return part if isinstance(part, Mapping) else {}


_SOURCES = (("softmax TD and its convergence", "2605.07333"), ("linear attention and TD", "2405.13861"))
_ARCHITECTURES = {
    "tsm": "softmax TD, single head with temporal shift",
    "dual": "softmax TD, dual head",
    "linear": "linear attention",
}
