"""Where a result on a language model comes from, in words: model, rollouts, sampling, objective.

Nothing in a provenance is certain to be there; what is missing is not told.
"""

from collections.abc import Mapping
from typing import Any

from valuelens.analyses.report._numbers import readable

SOURCES = (("value gradients in critic-free RL", "2605.21654"),)
"""What the measurements rest on, with numbers at arXiv."""


def language_model_words(provenance: Mapping[str, Any]) -> list[str]:
    """Model, rollouts, sampling and update in words, as far as the provenance has them.

    Args:
        provenance: Of a result of kind `costates`.
    """
    model, rollouts, sampling = (_part(provenance, key) for key in ("model", "rollouts", "sampling"))
    lines = (_model(model), _rollouts(rollouts), _sampling(sampling), _update(provenance))
    return [line for line in lines if line]


def language_model_origin(provenance: Mapping[str, Any]) -> list[str]:
    """Where the numbers come from: weights, rollouts, seed, precision, mask, versions, command, time.

    Args:
        provenance: Of a result of kind `costates`.
    """
    model, request = _part(provenance, "model"), _part(provenance, "request")
    seconds = provenance.get("seconds")
    known = {
        "Weights": model.get("sha256") and f"sha256 {model['sha256']}",
        "Loaded from": _listed(_part(model, "origin")),
        "Rollouts": _part(provenance, "rollouts").get("source"),
        "Seed": str(request["seed"]) if "seed" in request else None,
        "Precision": provenance.get("dtype"),
        "Device": provenance.get("device"),
        "Mask": provenance.get("mask"),
        "Versions": _listed(_part(provenance, "versions")),
        "Command": provenance.get("command"),
        "Finished": provenance.get("finished"),
        "Took": f"{readable(seconds)} s" if isinstance(seconds, int | float) else None,
    }
    return [f"{name}: {value}" for name, value in known.items() if value]


def language_model_subject(provenance: Mapping[str, Any]) -> str:
    """What is shown, in a sentence.

    Args:
        provenance: Of a result of kind `costates`.
    """
    rollouts = _part(provenance, "rollouts")
    count, groups = rollouts.get("count"), rollouts.get("groups")
    measured = f" on {_counted(count, 'rollout')} of {_counted(groups, 'prompt')}" if count and groups else ""
    return f"Shown is one checkpoint of a language model{measured}. It was measured as it is: nothing was trained."


def _model(model: Mapping[str, Any]) -> str:
    if not model:
        return ""
    family = f" ({model['family']})" if model.get("family") else ""
    parts = {
        "num_layers": "{} layers",
        "d_model": "width {}",
        "parameters": "{} parameters",
    }
    sizes = [text.format(readable(model[key])) for key, text in parts.items() if model.get(key)]
    return ", ".join((f"Model: {model.get('name', 'not named')}{family}", *sizes))


def _rollouts(rollouts: Mapping[str, Any]) -> str:
    count, groups, tokens = (rollouts.get(key) for key in ("count", "groups", "tokens"))
    grouped = f"{readable(count)} in {_counted(groups, 'group')}" if count and groups else ""
    sizes = ", ".join(filter(None, (grouped, tokens and f"{_counted(tokens, 'token')} sampled")))
    told = "; ".join(filter(None, (sizes, rollouts.get("source"))))
    return f"Rollouts: {told}" if told else ""


def _sampling(sampling: Mapping[str, Any]) -> str:
    if not sampling:
        return ""
    top_k, top_p = sampling.get("top_k"), sampling.get("top_p")
    cut = [f"top-k {top_k}"] if top_k else []
    cut += [f"top-p {top_p}"] if top_p not in (None, 1, 1.0) else []
    return f"Sampling: temperature {readable(sampling.get('temperature'))}, {', '.join(cut) or 'from all tokens'}"


def _update(provenance: Mapping[str, Any]) -> str:
    weights, loss = provenance.get("weights"), provenance.get("loss_type")
    if weights:
        return f"Weights of tokens: {weights}" + (f"; loss type {loss}" if loss not in (None, "none") else "")
    named = {
        "loss_type": "loss type {}",
        "baseline": "baseline {}",
        "scale_rewards": "advantages scaled by {}",
    }
    used = {key: provenance[key] for key in named if provenance.get(key) not in (None, "", "none")}
    parts = [named[key].format(value) for key, value in used.items()]
    return f"Update: {', '.join(parts)}" if parts else ""


def _counted(number: int, noun: str) -> str:
    return f"{readable(number)} {noun}{'' if number == 1 else 's'}"


def _listed(part: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key.replace('_', ' ')} {value}" for key, value in part.items() if value not in (None, "")
    )


def _part(provenance: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = provenance.get(key)
    return part if isinstance(part, Mapping) else {}
