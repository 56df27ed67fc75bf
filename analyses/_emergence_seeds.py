"""When properties appear over the seeds of a run: mean step, order, and how far the seeds agree."""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import pandas as pd
import torch

from valuelens.analyses._result import Control, Finding
from valuelens.probe import share_interval, student_interval

Steps = dict[str, dict[int, float]]
"""By property and seed: the step from which it lasts, infinity if it does not."""

FEWEST_SEEDS = 5
"""Below it no interval over seeds is given."""

_FEW = f"fewer than {FEWEST_SEEDS} seeds"
_LOGARITHMIC = ("msve_ratio", "msve_vs_constant", "context_msve_vs_constant")
_WITHOUT_MEAN = ("effective_discount", "discount_error")


def over_seeds(found: Sequence[Finding]) -> list[Finding]:
    """What the seeds of a run say together; the order alone if there is one seed.

    `emergence_over_seeds`: geometric mean of the steps (of 1 + step, since 0 may be one of them), as checkpoints are
    log-spaced; its interval is Student's t on that scale, with the seed as the unit. There is none where a property
    does not last on every seed. `emergence_order`: the properties by median step, one that never lasts counting as
    infinite (then by mean, where medians tie); those whose median is infinite are left out. `emergence_precedes`, for
    neighbours in that order: the share of seeds on which the first comes at an earlier checkpoint, with its exact
    binomial interval. Our definition.

    Args:
        found: `emergence_step` of every property and seed.
    """
    steps: Steps = {}
    for finding in found:
        step = math.inf if finding.estimate is None else float(str(finding.estimate))
        steps.setdefault(str(finding.index["property"]), {})[int(finding.index["seed"])] = step
    medians = {name: median(by_seed.values()) for name, by_seed in steps.items()}
    lasting = [name for name in steps if medians[name] < math.inf]
    order = sorted(lasting, key=lambda name: (medians[name], sum(map(math.log1p, steps[name].values()))))
    seeds = {seed for by_seed in steps.values() for seed in by_seed}
    findings = [_order(order, len(seeds))]
    if len(seeds) > 1:
        findings = [_mean(name, by_seed) for name, by_seed in steps.items()] + findings
        findings += [_precedes(steps, first, second) for first, second in pairwise(order)]
    return findings


def mean_curves(table: pd.DataFrame) -> pd.DataFrame:
    """Every quantity over the steps that all seeds share: its mean and, from five seeds on, its Student interval.

    Value errors are averaged on a log scale, on which they are drawn. The effective discount is left out: early in
    training w_C crosses 0, and a ratio whose denominator does has no mean.

    Args:
        table: Measurements with `seed` and `step`.
    """
    rows = [
        {
            "quantity": quantity,
            "step": step,
            **_mean_point(group[quantity], logarithmic=quantity in _LOGARITHMIC),
        }
        for step, group in table.groupby("step", sort=True)
        if len(group) == table["seed"].nunique()
        for quantity in table.columns.drop(["seed", "step", *_WITHOUT_MEAN], errors="ignore")
    ]
    return pd.DataFrame(rows, columns=["quantity", "step", "seeds", "mean", "low", "high"])


def _mean_point(values: pd.Series, *, logarithmic: bool) -> dict[str, float]:
    sample = torch.tensor(values.to_numpy(), dtype=torch.float64)
    sample = sample.log() if logarithmic else sample
    interval = student_interval(sample) if len(sample) >= FEWEST_SEEDS else None
    numbers = (float(sample.mean()), *(interval or (math.nan, math.nan)))
    mean, low, high = (math.exp(x) if logarithmic else x for x in numbers)
    return {"seeds": len(sample), "mean": mean, "low": low, "high": high}


def _mean(name: str, by_seed: dict[int, float]) -> Finding:
    steps = list(by_seed.values())
    logs = torch.tensor(steps, dtype=torch.float64).log1p()
    interval = student_interval(logs) if len(steps) >= FEWEST_SEEDS else None
    return Finding(
        name="emergence_over_seeds",
        estimate=math.expm1(float(logs.mean())),
        unit="optimiser steps",
        n=len(steps),
        definition="choice",
        index={"property": name},
        interval=interval and (math.expm1(interval[0]), math.expm1(interval[1])),
        control=Control(
            name="share of seeds on which it lasts from step 0", estimate=steps.count(0) / len(steps)
        ),
        reasons=_reasons(steps),
    )


def _reasons(steps: list[float]) -> dict[str, str]:
    reached = sorted(int(step) for step in steps if step < math.inf)
    if len(reached) < len(steps):
        at = f", from step {', '.join(f'{step:,}' for step in reached)}" if reached else ""
        why = f"it lasts on {len(reached)} of {len(steps)} seeds only{at}"
        return {"estimate": why, "interval": why}
    if len(steps) < FEWEST_SEEDS:
        return {"interval": _FEW}
    return {"interval": "every seed has it from the same checkpoint on"} if len(set(reached)) == 1 else {}


def _order(order: list[str], num_seeds: int) -> Finding:
    reasons = {
        "interval": "an order has none; the share of seeds that agree stands beside each pair",
        "control": "an order has none; ties and reversals stand beside each pair",
    }
    if not order:
        reasons["estimate"] = "no property lasts on the median seed"
    return Finding(
        name="emergence_order",
        estimate=list(order) or None,
        unit="properties",
        n=num_seeds,
        definition="choice",
        reasons=reasons,
    )


def _precedes(steps: Steps, first: str, second: str) -> Finding:
    pairs = [(steps[first][seed], steps[second][seed]) for seed in steps[first]]
    earlier, same = sum(a < b for a, b in pairs), sum(a == b for a, b in pairs)
    n, limits = len(pairs), share_interval(earlier, len(pairs))
    enough = n >= FEWEST_SEEDS
    return Finding(
        name="emergence_precedes",
        estimate=earlier / n,
        unit="share of seeds",
        n=n,
        definition="choice",
        index={"first": first, "second": second},
        interval=limits if enough else None,
        control=Control(
            name="at the same checkpoint, and the other way round",
            estimate=[same / n, (n - earlier - same) / n],
        ),
        reasons={} if enough else {"interval": _FEW},
    )
