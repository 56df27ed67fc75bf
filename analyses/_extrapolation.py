"""What becomes of tied layers that are run deeper than they were trained: errors up to 60 layers, and why.

Shape legend: `iterate` 0..60, `batch` tasks.
"""

import torch
from torch import Tensor

from valuelens.analyses._result import Array, Control, Finding, Result
from valuelens.analyses._rule import Rule
from valuelens.analyses._subject import FEW, Subject, band, mean_square_ratio, task_mean
from valuelens.probe import TD_WEIGHTS, spectral_radius, sup_distance

_DEPTH = 60
_TD = "the same kernel with w = (1, 1, -1)"


def extrapolation(subject: Subject, rule: Rule) -> Result:
    """Errors of 0..60 tied layers over those of the trained depth, and the spectral radius of the population map.

    A map whose radius is at least 1 on a task does not converge there, however long the context (theory A5).

    Args:
        subject: Whose contexts.
        rule: Its update over states.
    """
    if not rule.tied:
        why = "untied layers cannot be repeated: there is no layer beyond the last"
        return Result(kind="in-context-rl", skipped=({"what": "depth extrapolation", "why": why},))
    td, trained = TD_WEIGHTS.to(rule.w), rule.num_layers
    depth = max(_DEPTH, 2 * trained)
    own, other = (_errors(subject, rule, depth, w) for w in (rule.w[0], td))
    endless = rule.kernels(subject.mrp)[0]
    radius, td_radius = (spectral_radius(endless, gamma=rule.gamma, w=w) for w in (rule.w[0], td))
    diverging, td_diverging = ((each >= 1 - 1e-9).to(each.dtype) for each in (radius, td_radius))
    findings = (
        _growth(subject, own, other, trained),
        task_mean(subject, "population_radius", radius, (_TD, td_radius)),
        task_mean(subject, "divergence_share", diverging, (_TD, td_diverging)),
    )
    arrays = {
        "extrapolation": Array(axes="band iterate", values=band(own, seed=subject.seed)),
        "extrapolation_control": Array(axes="iterate", values=other.mean(1)),
        "trained_depth": Array(axes="scalar", values=torch.tensor([trained])),
    }
    return Result(kind="in-context-rl", findings=findings, arrays=arrays)


def _errors(subject: Subject, rule: Rule, depth: int, w: Tensor) -> Tensor:
    kernel = rule.kernels(subject.mrp, subject.context.states)[0]
    return sup_distance(rule.iterates([kernel], depth, w), subject.mrp.value, kernel.visited)


def _growth(subject: Subject, own: Tensor, other: Tensor, trained: int) -> Finding:
    estimate, interval = mean_square_ratio(own[-1], own[trained], subject.seed)
    reasons = {} if interval else {"interval": FEW}
    if not torch.isfinite(torch.tensor(estimate)):
        reasons["estimate"] = "the values overflow: it diverges"
    return Finding(
        name="depth_extrapolation",
        estimate=estimate,
        unit="error after the last trained layer",
        n=subject.num_tasks,
        definition="choice",
        index={"depth": len(own) - 1, "trained": trained},
        interval=interval,
        control=Control(name=_TD, estimate=float(other[-1].sum() / other[trained].sum())),
        reasons=reasons,
    )
