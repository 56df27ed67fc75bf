"""Findings on gap and entropy from tables: a line for each state, and a line for each pair of states.

Shape legend: `sample` states or pairs.
"""

import math
from collections.abc import Iterator, Mapping
from typing import get_args

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._result import Control, Finding
from valuelens.probe import BoundForm, median_interval, partial_rank_correlation, ratio_interval

_OBJECTIVE = {"objective": "reward"}
_FEW = "too few groups, or no spread between them"


def tightness_findings(states: pd.DataFrame, norms: str, seed: int) -> list[Finding]:
    """Median of error / bound of both forms, a layer each, beside the states that violate it.

    Args:
        states: A line for each state at each layer.
        norms: How the norms were found: `whole`, or `power iteration`.
        seed: Of the intervals.
    """
    findings = []
    for layer, at in _by_layer(states):
        for form in get_args(BoundForm):
            known = at[at[f"{form}_tightness"].notna()]
            values, group = _tensor(known, f"{form}_tightness"), torch.tensor(known.group.tolist())
            interval = median_interval(values, group.long(), seed=seed)
            violated = int(at[f"{form}_violated"].sum())
            findings.append(
                Finding(
                    name="bound_tightness",
                    estimate=float(values.quantile(0.5)) if len(values) else None,
                    unit="error / bound, median",
                    n=len(values),
                    definition="derived",
                    index={**_OBJECTIVE, "layer": layer, "form": form},
                    interval=interval,
                    control=Control(name=_VIOLATED[norms], estimate=violated),
                    reasons=({} if len(values) else {"estimate": _NOTHING})
                    | ({} if interval else {"interval": _FEW}),
                )
            )
    return findings


def correlation_findings(states: pd.DataFrame, seed: int) -> list[Finding]:
    """Partial rank correlation of the relative gap with entropy, position and distance to the end held fixed.

    A rollout's last state is left out: no token follows whose sampling could carry credit, so its gap is 0.

    Args:
        states: A line for each state at each layer; `group`, `state`, `ahead` (states that follow), `entropy`, `gap`.
        seed: Of the intervals.
    """
    findings = []
    for layer, all_at in _by_layer(states):
        at = all_at[(all_at.ahead > 0) & all_at.gap.notna()]
        entropy, gap = _tensor(at, "entropy"), _tensor(at, "gap")
        held = torch.stack([_tensor(at, "state"), _tensor(at, "ahead")], dim=-1)
        cluster = torch.tensor(at.group.tolist()).long()
        enough = len(at) > _LEAST
        found = partial_rank_correlation(entropy, gap, held, cluster=cluster, seed=seed) if enough else None
        plain = _spearman(entropy, gap) if enough else math.nan
        missing = found is None or math.isnan(found.estimate)
        interval = found.interval if found else None
        findings.append(
            Finding(
                name="entropy_correlation",
                estimate=found.estimate if found else None,
                unit="rank correlation",
                n=len(at),
                definition="choice",
                index={**_OBJECTIVE, "layer": layer},
                interval=interval,
                control=Control(name="position not held fixed", estimate=plain),
                reasons=({"estimate": _FLAT} if missing else {})
                | ({} if interval else {"interval": _FEW})
                | ({"control": _FLAT} if math.isnan(plain) else {}),
            )
        )
    return findings


def path_findings(paths: pd.DataFrame, d_model: int, seed: int) -> list[Finding]:
    """Mean spectral norm of paths from a state to a later one's logits, and whether both kinds of path agree.

    Args:
        paths: A line for each pair of states at each layer.
        d_model: Width of the residual stream.
        seed: Of the intervals.
    """
    findings = []
    for layer, at in _by_layer(paths):
        later, itself = at[at.source < at.target], at[at.source == at.target]
        index: dict[str, int | str] = {**_OBJECTIVE, "layer": layer}
        own = Control(name="from a state to its own logits", estimate=_mean(itself, "attention"))
        beside = Control(name="attention, the same pairs", estimate=_mean(later, "attention"))
        findings += [
            _norm(later, "attention", index, own, seed),
            _norm(later, "sampling", index, beside, seed),
            _cosine(later, index, d_model, seed),
        ]
    return findings


def _by_layer(table: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    for layer in sorted(set(table.layer.tolist())):
        yield int(layer), table[table.layer == layer]


def _norm(
    pairs: pd.DataFrame, through: str, index: Mapping[str, int | str], control: Control, seed: int
) -> Finding:
    interval = _mean_interval(pairs, through, seed)
    return Finding(
        name="jacobian_norm",
        estimate=_mean(pairs, through),
        unit="logit / unit of h, mean spectral norm",
        n=len(pairs),
        definition="derived",
        index={**index, "form": through},
        interval=interval,
        control=control,
        reasons=_why(pairs, interval) | ({"control": _ALONE} if control.estimate is None else {}),
    )


def _cosine(pairs: pd.DataFrame, index: Mapping[str, int | str], d_model: int, seed: int) -> Finding:
    """Of the directions of the residual stream that move the later logits most."""
    limits = _mean_interval(pairs, "cosine", seed)
    interval = limits and (max(-1.0, limits[0]), min(1.0, limits[1]))
    half = d_model / 2
    chance = math.exp(math.lgamma(half) - math.lgamma(half + 0.5)) / math.sqrt(math.pi)
    return Finding(
        name="path_cosine",
        estimate=_mean(pairs, "cosine"),
        unit="1",
        n=len(pairs),
        definition="choice",
        index=index,
        interval=interval,
        control=Control(name="two directions at random", estimate=chance),
        reasons=_why(pairs, interval),
    )


def _why(pairs: pd.DataFrame, interval: tuple[float, float] | None) -> dict[str, str]:
    return ({} if len(pairs) else {"estimate": _ALONE}) | ({} if interval else {"interval": _FEW})


def _mean(pairs: pd.DataFrame, column: str) -> float | None:
    return float(pairs[column].mean()) if len(pairs) else None


def _mean_interval(pairs: pd.DataFrame, column: str, seed: int) -> tuple[float, float] | None:
    """Rollouts resampled whole."""
    by_row = pairs.groupby("row")[column].agg(["sum", "count"])
    return ratio_interval(_tensor(by_row, "sum"), _tensor(by_row, "count"), seed=seed)


def _spearman(x: Float[Tensor, " sample"], y: Float[Tensor, " sample"]) -> float:
    one = torch.zeros(len(x), dtype=torch.long)
    return partial_rank_correlation(x, y, cluster=one).estimate


def _tensor(table: pd.DataFrame, column: str) -> Float[Tensor, " sample"]:
    return torch.tensor(table[column].to_numpy(dtype=float, copy=True))


_LEAST = 8
"""States below which ranks say nothing."""

_NOTHING = "no credit crosses a sampled token"
_FLAT = "too few states, or entropy or gap does not vary beyond position"
_ALONE = "completions of one token have no later state"
_VIOLATED = {
    "whole": "states that violate it",
    "power iteration": "states that violate it by lower bounds of the norms, as power iteration gives them",
}
