"""When does each property appear during training? Light measurements on every checkpoint of a run."""

import math
from collections.abc import Callable

import pandas as pd
import torch

from valuelens.analyses._emergence_seeds import mean_curves, over_seeds
from valuelens.analyses._result import Control, Finding, Result
from valuelens.analyses._subject import (
    Subject,
    context_errors,
    has_free_slots,
    population_layer,
    query_errors,
    state_summary,
    weights_of,
)
from valuelens.models.icrl import LinearAttention, SoftmaxTD
from valuelens.probe import (
    ThetaStarDistance,
    assumption_margin,
    attention_patterns,
    kernel_diagonality,
    spectral_radius,
    within_chain_r2,
)

_Holds = Callable[[float, float], bool]

PROPERTIES: dict[str, tuple[str, _Holds]] = {
    "signs ++-": ("signs", lambda now, start: now == 1),
    "cosine with (1, 1, -1) at least 0.97": ("weight_cosine", lambda now, start: now >= 0.97),
    "kernel diagonal at least tripled": ("kernel_diagonal_mean", lambda now, start: now >= 3 * start),
    "MSVE at most a third of the constant predictor's": (
        "msve_vs_constant",
        lambda now, start: now <= 1 / 3,
    ),
    "within-chain R2 at least 0.85": ("within_chain_r2", lambda now, start: now >= 0.85),
    "effective discount within 0.1 of gamma": ("discount_error", lambda now, start: now <= 0.1),
    "the population map contracts in the median task": ("population_radius", lambda now, start: now < 1),
    "Assumption 5.1 holds in the median task": ("assumption_margin", lambda now, start: now > 0),
}
"""What counts as having emerged, from the value now and at step 0: our definition."""


def measurements(subject: Subject) -> dict[str, float]:
    """One row of the emergence table: value errors, kernel diagonal, and, of softmax TD, signs and cosine.

    Over untied layers: signs hold if every identified layer has ++-, the cosine is the smallest, the diagonal the
    mean; w, sharpness and effective discount are the last layer's. The margin of Assumption 5.1 is the smallest, the
    spectral radius of the population map I + w_C M_pi + gamma w_T M_pi P the largest over identified layers, each in
    the median task.

    Args:
        subject: One checkpoint, on the tasks that all checkpoints of the run share.
    """
    own, constant, square = query_errors(subject)
    everywhere, blind = context_errors(subject)
    row = {
        "msve_ratio": float(own.sum() / square.sum()),
        "msve_vs_constant": float(own.sum() / constant.sum()),
        "context_msve_vs_constant": float(everywhere.sum() / blind.sum()),
        "within_chain_r2": float(within_chain_r2(subject.values, subject.truth)),
    }
    if not isinstance(subject.model, LinearAttention):
        row["kernel_diagonal_mean"] = _diagonal(subject)
    if isinstance(subject.model, SoftmaxTD) and not has_free_slots(subject.model):
        row |= _of_weights(subject, subject.model)
    return row


def emergence(table: pd.DataFrame) -> Result:
    """From measurements of every checkpoint to the step from which each property holds until the end, and the order.

    Over the seeds of a run see `over_seeds`; the table `emergence_mean` holds the mean curves.

    Args:
        table: `measurements` with `seed` and `step` added, in the order of steps within each seed.
    """
    findings = [
        _step(run, column, holds, {"property": name, "seed": int(str(seed))})
        for seed, run in table.groupby("seed", sort=True)
        for name, (column, holds) in PROPERTIES.items()
        if column in run
    ]
    single = table["seed"].nunique() == 1
    why = "a single seed says nothing about how seeds differ"
    return Result(
        kind="in-context-rl",
        findings=(*findings, *over_seeds(findings)),
        skipped=({"what": "emergence over seeds", "why": why},) if single else (),
        tables={"emergence": table, "emergence_mean": mean_curves(table)},
    )


def _of_weights(subject: Subject, model: SoftmaxTD) -> dict[str, float]:
    weights = weights_of(subject)
    row = dict(zip(("w_R", "w_T", "w_C"), weights.w[-1].tolist(), strict=True))
    row["sharpness"] = float(weights.sharpness[-1])
    row["effective_discount"] = float(weights.effective_discount[-1])
    known = weights.w_identified.all(-1)
    row["discount_error"] = abs(row["effective_discount"] - subject.context.gamma)
    row |= _of_population(subject, model, weights)
    if bool(known.any()):
        row["signs"] = float(all(sign in ("++-", "unidentified") for sign in weights.sign_pattern))
        row["weight_cosine"] = float(weights.weight_cosine[known].min())
    return row


def _of_population(subject: Subject, model: SoftmaxTD, weights: ThetaStarDistance) -> dict[str, float]:
    """In the median task: margin of Assumption 5.1 in the worst layer, and the largest spectral radius."""
    gamma, margins, radii = subject.context.gamma, [], []
    for layer in range(1 if model.tied else model.num_layers):
        kernel = population_layer(subject, layer)
        margins.append(float(assumption_margin(kernel.M_hat, gamma).median()))
        if bool(weights.w_identified[layer].all()):
            radii.append(float(spectral_radius(kernel, gamma=gamma, w=weights.w[layer]).median()))
    return {"assumption_margin": min(margins)} | ({"population_radius": max(radii)} if radii else {})


def _diagonal(subject: Subject) -> float:
    patterns = attention_patterns(subject.model, subject.model.prompt(subject.context))
    each = patterns if patterns.ndim == 4 else patterns.movedim(2, 1).flatten(0, 1)
    kernels = [state_summary(subject, pattern) for pattern in each]
    means = [kernel_diagonality(kernel.M_hat, kernel.visited).mean.mean() for kernel in kernels]
    return float(torch.stack(means).mean())


def _step(run: pd.DataFrame, column: str, holds: _Holds, index: dict[str, int | str]) -> Finding:
    values, steps = run[column].tolist(), run["step"].tolist()
    held = [holds(value, values[0]) for value in values]
    lasting = next((i for i in range(len(held)) if all(held[i:])), None)
    reasons = {"interval": "one run; other seeds stand beside it"}
    if lasting is None:
        reasons["estimate"] = "it does not hold at the last checkpoint"
    if not all(math.isfinite(x) for x in (values[0], values[-1])):
        reasons["control"] = "not defined there"
    return Finding(
        name="emergence_step",
        estimate=None if lasting is None else int(steps[lasting]),
        unit="optimiser steps",
        n=len(run),
        definition="choice",
        index=index,
        control=Control(name="at step 0 and at the end", estimate=[values[0], values[-1]]),
        reasons=reasons,
    )
