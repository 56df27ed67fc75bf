"""Findings from costates that were summed up: norm, noise, locality, each beside its control.

Shape legend: `rollout` rows, `group` prompts, `layer`, `state`, `d_model`.
"""

import math
from collections.abc import Mapping

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._costate_measures import Measured
from valuelens.analyses._group_means import NOT_PERMUTED, PERMUTED, GroupMeans
from valuelens.analyses._result import Control, Finding
from valuelens.probe import Interval, TokenScores, ratio_interval, rollouts_needed

COSINE = 0.9
"""Of the mean costate with the value gradient, for which rollouts are counted."""

_FEW = "too few groups, or no spread between them"


def objective_finding(objective: str, count: int) -> Finding:
    """Which objective the costates are of.

    Args:
        objective: Its name.
        count: Rollouts.
    """
    return Finding(
        name="objective",
        estimate=objective,
        unit="name",
        n=count,
        definition="source",
        reasons={"interval": "a name", "control": "a name"},
    )


def norm_findings(found: Measured, index: Mapping[str, str], group: Tensor, seed: int) -> list[Finding]:
    """Root mean square of the norm of costates over states, beside that of the own-token part.

    Args:
        found: Sums over costates.
        index: Objective and position, for the index of each finding.
        group: Of each rollout.
        seed: Of the intervals.
    """
    states = _per_group(found.valid.double().sum(-1), group)
    findings = []
    for place, layer in enumerate(found.layers):
        squares = _per_group(found.squares[:, place].sum(-1), group)
        interval = ratio_interval(squares, states, seed=seed)
        own = None if found.own_squares is None else _rms(found.own_squares[:, place], found)
        findings.append(
            Finding(
                name="costate_norm",
                estimate=_rms(found.squares[:, place], found),
                unit="objective / unit of h",
                n=len(states),
                definition="derived",
                index={**index, "layer": layer},
                interval=interval and (interval[0] ** 0.5, interval[1] ** 0.5),
                control=None if own is None else Control(name="own token alone", estimate=own),
                reasons=({} if interval else {"interval": _FEW})
                | ({} if own is not None else {"control": "tokens of the prompt are not sampled"}),
            )
        )
    return findings


def locality_findings(found: Measured, index: Mapping[str, str], group: Tensor, seed: int) -> list[Finding]:
    """Share of costates that comes from the state's own token, beside credit spread evenly over the tokens to come.

    Args:
        found: Sums over costates of completions.
        index: Objective, for the index of each finding.
        group: Of each rollout.
        seed: Of the intervals.
    """
    if found.inner is None:
        return []
    ahead = found.valid.double().flip(-1).cumsum(-1).flip(-1)
    even = torch.where(found.valid, 1 / ahead.clamp(min=1), 0.0)
    findings = []
    for place, layer in enumerate(found.layers):
        inner, total = (_per_group(each[:, place].sum(-1), group) for each in (found.inner, found.squares))
        # evenly spread credit, weighed as the costates are
        control = float((even * found.squares[:, place]).sum() / found.squares[:, place].sum())
        interval = ratio_interval(inner, total, seed=seed)
        findings.append(
            Finding(
                name="locality",
                estimate=float(inner.sum() / total.sum()),
                unit="1",
                n=len(total),
                definition="choice",
                index={**index, "layer": layer},
                interval=interval,
                control=Control(name="credit spread evenly over the tokens to come", estimate=control),
                reasons={} if interval else {"interval": _FEW},
            )
        )
    return findings


def signal_findings(means: GroupMeans, index: Mapping[str, str], seed: int) -> list[Finding]:
    """Signal-to-noise, standard error and rollouts needed at the start state that a group shares.

    Args:
        means: Of its costates.
        index: Objective, for the index of each finding.
        seed: Of the intervals.
    """
    findings = []
    for place, layer in enumerate(means.layers):
        at: dict[str, int | str] = {**index, "layer": layer, "at": "start"}
        signal, trace = means.own.squared_norm[:, place], means.own.covariance_trace[:, place]
        ratio, control = float(means.own.signal_to_noise[place]), means.permuted_ratio(place)
        # an infinite ratio is one of rounding
        limits = ratio_interval(signal, trace, seed=seed) if math.isfinite(ratio) else None
        findings += [
            _ratio(ratio, limits, len(signal), at, control),
            _standard_error(signal, means.own.standard_error[:, place], at),
            _needed(ratio, limits, len(signal), at, control),
        ]
    return findings


def positions_table(found: Measured, scores: TokenScores, *, prompt: bool) -> pd.DataFrame:
    """A line for each layer and state: norm, norm of the group means, noise within groups, locality, entropy.

    Args:
        found: Sums over costates.
        scores: Entropies of the states of completions.
        prompt: The states are those before the last token of a prompt, counted from its first; no token of theirs is
            sampled.
    """
    counted = found.valid.double().sum(0).clamp(min=1)
    entropy = None if prompt else (scores.entropy.double().sum(0) / counted).tolist()
    pairs = found.count >= 2  # a covariance takes two
    rows = []
    for place, layer in enumerate(found.layers):
        square = found.squares[:, place].sum(0)
        trace = torch.where(pairs, found.trace[:, place], 0.0)
        signal = torch.where(pairs, found.mean_square[:, place] - trace / found.count.clamp(min=1), 0.0)
        rows.append(
            pd.DataFrame(
                {
                    "layer": layer,
                    "state": range(len(square)),
                    "n": found.valid.sum(0).tolist(),
                    "norm": (square / counted).sqrt().tolist(),
                    "mean_norm": (signal.sum(0) / pairs.sum(0).clamp(min=1)).clamp(min=0).sqrt().tolist(),
                    "signal_to_noise": (signal.sum(0) / trace.sum(0)).tolist(),
                    "locality": (found.inner[:, place].sum(0) / square).tolist()
                    if found.inner is not None
                    else None,
                    "entropy": entropy,
                }
            )
        )
    return pd.concat(rows, ignore_index=True)


def _ratio(
    ratio: float, interval: Interval | None, n: int, at: Mapping[str, int | str], control: float | None
) -> Finding:
    return Finding(
        name="signal_to_noise",
        estimate=ratio,
        unit="1",
        n=n,
        definition="choice",
        index=at,
        interval=interval,
        control=_permuted(control),
        reasons=_why(interval, control) | {"estimate": "costates of a group do not differ"},
    )


def _standard_error(signal: Tensor, errors: Tensor, at: Mapping[str, int | str]) -> Finding:
    norm = float(signal.mean().clamp(min=0).sqrt())
    return Finding(
        name="standard_error",
        estimate=float(errors.square().mean().sqrt()),
        unit="objective / unit of h",
        n=len(signal),
        definition="derived",
        index=at,
        control=Control(name="norm of the mean costate", estimate=norm),
        reasons={"interval": "signal_to_noise has one"},
    )


def _needed(
    ratio: float, limits: Interval | None, n: int, at: Mapping[str, int | str], control: float | None
) -> Finding:
    known = limits is not None and limits[0] > 0
    return Finding(
        name="rollouts_needed",
        estimate=_least(ratio) if ratio > 0 else None,
        unit="rollouts of a prompt",
        n=n,
        definition="choice",
        index=at,
        interval=(_least(limits[1]), _least(limits[0])) if limits and known else None,
        control=Control(name=PERMUTED, estimate=rollouts_needed(control, cosine=COSINE))
        if control is not None and control > 0
        else None,
        reasons=({} if ratio > 0 else {"estimate": "no signal above the noise was found"})
        | ({} if known else {"interval": "signal-to-noise may be 0" if limits else _FEW})
        | _no_control(control),
    )


def _least(ratio: float) -> float:
    return max(1.0, rollouts_needed(ratio, cosine=COSINE))


def _no_control(control: float | None) -> dict[str, str]:
    if control is None:
        return {"control": NOT_PERMUTED}
    return {} if control > 0 else {"control": "permuted advantages leave no signal"}


def _permuted(control: float | None) -> Control | None:
    return None if control is None else Control(name=PERMUTED, estimate=control)


def _why(interval: Interval | None, control: float | None) -> dict[str, str]:
    return ({} if interval else {"interval": _FEW}) | (
        {} if control is not None else {"control": NOT_PERMUTED}
    )


def _rms(squares: Float[Tensor, "rollout state"], found: Measured) -> float:
    return float((squares.sum() / found.valid.sum()).sqrt())


def _per_group(values: Float[Tensor, " rollout"], group: Tensor) -> Float[Tensor, " group"]:
    return torch.zeros(int(group.max()) + 1, dtype=torch.float64).index_add(0, group, values.double())
