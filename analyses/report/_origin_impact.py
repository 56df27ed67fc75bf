"""Where a ranking of checkpoints comes from, in words: variants, checkpoints, rollouts, RL runs.

Nothing in a provenance is certain to be there; what is missing is not told.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from valuelens.analyses._result import Result
from valuelens.analyses.report._numbers import readable
from valuelens.analyses.report._origin_costates import language_model_origin, language_model_words
from valuelens.analyses.report._predictors import checkpoint_words

_VARIANTS = {
    "signal": {
        "subtractive": "signal_subtractive",
        "usable": "signal_usable",
        "update-aligned": "signal_update_aligned",
    },
    "headroom": {
        "tilt": "headroom_tilt",
        "shortfall": "headroom_shortfall",
        "best-of-k": "headroom_best_of_k",
    },
}


def ranking_words(result: Result) -> list[str]:
    """What heads the ranking, and what it stands on, as far as it is known.

    Args:
        result: Of kind `impact`.
    """
    parts = (_ranked_by, _beta, _model, _task, _rollouts, _sampling, _runs)
    return [line for part in parts if (line := part(result))]


def ranking_subject(result: Result) -> str:
    """What is shown, in a sentence.

    Args:
        result: Of kind `impact`.
    """
    scores = result.tables.get("scores")
    if scores is None or not len(scores):
        return "Shown is a ranking of checkpoints."
    count, series = len(scores), scores["series"].nunique()
    of = "one series" if series == 1 else f"{series} series"
    gains = result.tables.get("gains")
    run = (
        f"RL was run {len(gains)} times from them to see what it brings."
        if gains is not None and len(gains)
        else "No RL was run: this is a forecast from rollouts alone."
    )
    return f"Shown are {count} checkpoints of {of}, scored before any RL. {run}"


def ranking_origin(result: Result) -> list[str]:
    """Where the numbers come from: checkpoints, task, protocol, seed, precision, versions, command, time.

    Args:
        result: Of kind `impact`.
    """
    provenance = result.provenance
    hashes = known(provenance, "checkpoints")
    hashes = hashes if isinstance(hashes, Mapping) else {}
    weights = [f"{checkpoint_words(str(label))} sha256 {sha}" for label, sha in hashes.items()]
    shown = weights if len(weights) < 3 else [weights[0], f"{len(weights) - 2} more (below)", weights[-1]]
    seed = known(provenance, "seed")
    parts = {
        "Checkpoints": ", ".join(shown),
        "Protocol": _text(known(provenance, "protocol")),
        "Seed": None if seed is None else str(seed),
    }
    own = [f"{name}: {value}" for name, value in parts.items() if value]
    return own + language_model_origin({key: value for key, value in provenance.items() if key != "request"})


def variant(result: Result, part: str) -> str:
    """The variant of the signal or the headroom that heads the ranking; empty if it cannot be told.

    Args:
        result: Of kind `impact`.
        part: `signal` or `headroom`.
    """
    recorded = known(result.provenance, part)
    if isinstance(recorded, str) and recorded != "auto":
        return recorded
    scores = result.tables.get("scores", pd.DataFrame())
    offered = {
        name: column for name, column in _VARIANTS[part].items() if column in scores and part in scores
    }
    alike = [name for name, column in offered.items() if _same(scores[column], scores[part])]
    return alike[0] if len(alike) == 1 else ""


def known(provenance: Mapping[str, Any], key: str) -> Any:
    """What was recorded under a name, by itself or within the configuration or the request.

    Args:
        provenance: Of a result.
        key: The name.
    """
    places = (provenance, *(_part(provenance, name) for name in ("config", "score", "request")))
    nested = (_part(_part(provenance, "config"), "score"), _part(_part(provenance, "request"), "score"))
    return next((place[key] for place in (*places, *nested) if place.get(key) is not None), None)


def _ranked_by(result: Result) -> str:
    signal, headroom = variant(result, "signal"), variant(result, "headroom")
    named = f"{signal or 'signal'} {'signal ' if signal else ''}x {headroom or ''} headroom".replace(
        "  ", " "
    )
    return f"Ranked by: {named} (our definition), the same for all checkpoints"


def _beta(result: Result) -> str:
    beta, ends = known(result.provenance, "beta"), known(result.provenance, "reward_range")
    ends = ends or _part(result.provenance, "task").get("reward_range")
    if not isinstance(beta, int | float) or variant(result, "headroom") not in ("", "tilt"):
        return ""
    told = f"Tilt: beta {readable(beta)} / reward range"
    if not isinstance(ends, Sequence) or isinstance(ends, str) or len(ends) != 2:
        return told
    low, high = (float(end) for end in ends)
    unit = f", so {readable(beta / (high - low))} per unit of reward" if high > low else ""
    return f"{told}; the range is {readable(low)} to {readable(high)}{unit}"


def _model(result: Result) -> str:
    model = _part(result.provenance, "model")
    sizes = {"layers": "{} layers", "num_layers": "{} layers", "width": "width {}", "d_model": "width {}"}
    sizes |= {"vocabulary": "vocabulary of {}", "parameters": "{} parameters"}
    told = [text.format(readable(model[key])) for key, text in sizes.items() if model.get(key)]
    names = [str(model[key]) for key in ("name", "family") if model.get(key)]
    return (
        f"Models: {', '.join((*names, *told))}, the same shape at every checkpoint" if names or told else ""
    )


def _task(result: Result) -> str:
    task = known(result.provenance, "task")
    if isinstance(task, Mapping):
        sizes = [f"{key} {value}" for key, value in _part(task, "sizes").items()]
        task = " ".join([str(task.get("name", "not named")), *sizes])
    return f"Task: {task}" if task else ""


def _rollouts(result: Result) -> str:
    scores = result.tables.get("scores", pd.DataFrame())
    if not len(scores) or not {"rollouts", "prompts"} <= {*scores.columns}:
        return ""
    counts = scores[["rollouts", "prompts"]].dropna().drop_duplicates()
    if not len(counts):
        return ""
    rollouts, prompts = (int(counts[name].min()) for name in ("rollouts", "prompts"))
    least = "" if len(counts) == 1 else "at least "
    source = _part(result.provenance, "rollouts").get("source")
    told = f"Rollouts of a checkpoint: {least}{readable(rollouts)} of {least}{readable(prompts)} prompts"
    return f"{told}; {source}" if source else told


def _sampling(result: Result) -> str:
    sampling = known(result.provenance, "sampling")
    told = language_model_words({"sampling": sampling} if isinstance(sampling, Mapping) else {})
    return told[0] if told else ""


def _runs(result: Result) -> str:
    gains = result.tables.get("gains", pd.DataFrame())
    if not len(gains):
        return ""
    recipes = " and ".join(str(each) for each in gains["recipe"].drop_duplicates())
    seeds = int(gains["rl_seed"].nunique())
    cut = ", with credit through time and without" if gains["cut"].astype(bool).any() else ""
    return f"RL: recipe {recipes}, {seeds} seed{'s' if seeds > 1 else ''}{cut}"


def _same(one: pd.Series, other: pd.Series) -> bool:
    pairs = pd.DataFrame({"one": pd.to_numeric(one), "other": pd.to_numeric(other)}).dropna()
    return bool(len(pairs) and (pairs["one"] == pairs["other"]).all() and (pairs["one"] != 0).any())


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {each}" for key, each in value.items() if each not in (None, ""))
    return "" if value is None else str(value)


def _part(provenance: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = provenance.get(key)
    return part if isinstance(part, Mapping) else {}
