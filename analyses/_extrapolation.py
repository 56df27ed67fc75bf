"""What becomes of tied layers that are run deeper than they were trained: errors up to 60 layers, and why.

Shape legend: `iterate` 0..60 (to twice the trained depth if that is more), `batch` tasks.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._result import Array, Control, Finding, Result
from valuelens.analyses._rule import ONE_LAYER, Rule
from valuelens.analyses._subject import (
    FEW,
    Subject,
    band,
    blind_distances,
    mean_square_ratio,
    share,
    task_mean,
)
from valuelens.models.icrl import LinearAttention, SoftmaxTD, deeper
from valuelens.probe import TD_WEIGHTS, residual_stream, spectral_radius, sup_distance

_DEPTH = 60
_ROUNDING = 1e-9
_TD = "the same kernel with w = (1, 1, -1)"


def extrapolation(subject: Subject, rule: Rule | None) -> Result:
    """Errors of tied layers, repeated, and, of a rule over states, why: the spectral radius of the population map.

    A map whose radius is at least 1 on a task does not contract there, however long the context (theory A5).

    Args:
        subject: Any model; layers that are not tied cannot be repeated.
        rule: Its update over states, if there is one.
    """
    model = subject.model
    alone = model.num_layers == 1
    if not isinstance(model, SoftmaxTD | LinearAttention) or not (model.tied or alone):
        return _skipped("untied layers cannot be repeated: there is no layer beyond the last")
    if alone and isinstance(model, SoftmaxTD):
        return _skipped(ONE_LAYER)
    depth = max(_DEPTH, 2 * model.num_layers)
    own = _repeated(subject, model, depth) if rule is None else _errors(subject, rule, depth, rule.w[0])
    other = None if rule is None else _errors(subject, rule, depth, TD_WEIGHTS.to(rule.w))
    findings = [_growth(subject, own, other), *([] if rule is None else _radius(subject, rule))]
    arrays = {
        "extrapolation": Array(axes="band iterate", values=band(own, seed=subject.seed)),
        "trained_depth": Array(axes="scalar", values=torch.tensor([model.num_layers])),
    }
    if other is not None:
        arrays["extrapolation_control"] = Array(axes="iterate", values=other.mean(1))
    return Result(kind="in-context-rl", findings=tuple(findings), arrays=arrays)


def _skipped(why: str) -> Result:
    return Result(kind="in-context-rl", skipped=({"what": "depth extrapolation", "why": why},))


def _radius(subject: Subject, rule: Rule) -> list[Finding]:
    endless = rule.kernels(subject.mrp)[0]
    weights = (rule.w[0], TD_WEIGHTS.to(rule.w))
    radius, td_radius = (spectral_radius(endless, gamma=rule.gamma, w=w) for w in weights)
    diverging, td_diverging = ((each >= 1 - _ROUNDING).to(each.dtype) for each in (radius, td_radius))
    return [
        task_mean(subject, "population_radius", radius, (_TD, td_radius)),
        share(subject, "divergence_share", diverging, (_TD, td_diverging)),
    ]


def _errors(subject: Subject, rule: Rule, depth: int, w: Tensor) -> Float[Tensor, "iterate batch"]:
    kernel = rule.kernels(subject.mrp, subject.context.states)[0]
    return sup_distance(rule.iterates([kernel], depth, w), subject.mrp.value, kernel.visited)


def _repeated(
    subject: Subject, model: SoftmaxTD | LinearAttention, depth: int
) -> Float[Tensor, "iterate batch"]:
    """The same errors of a model without a rule over states: its own layer, run again and again."""
    context, truth = subject.context, subject.truth[:, :-1]
    repeated, num_queries = deeper(model, depth), 2 + context.num_transitions
    residuals = residual_stream(repeated, model.prompt(context, context.features), num_queries=num_queries)
    with torch.no_grad():
        lens = torch.stack([model.read_out(resid)[:, 1 - num_queries : -1] for resid in residuals])
    return sup_distance(lens, truth, torch.ones_like(truth, dtype=torch.bool))


def _growth(subject: Subject, own: Tensor, other: Tensor | None) -> Finding:
    trained = subject.model.num_layers
    estimate, interval = mean_square_ratio(own[-1], own[trained], subject.seed)
    reasons = {} if interval else {"interval": FEW}
    if not math.isfinite(estimate):
        reasons["estimate"] = "not defined: the values overflow, so the layer diverges when it is repeated"
    control = _blind(subject, own[trained]) if other is None else _exact(other, trained)
    if control.estimate is None:
        reasons["control"] = "its values overflow"
    return Finding(
        name="depth_extrapolation",
        estimate=estimate,
        unit="error after the last trained layer",
        n=subject.num_tasks,
        definition="choice",
        index={"depth": len(own) - 1, "trained": trained},
        interval=interval,
        control=control,
        reasons=reasons,
    )


def _exact(other: Tensor, trained: int) -> Control:
    return Control(name=_TD, estimate=float(other[-1].sum() / other[trained].sum()))


def _blind(subject: Subject, own: Tensor) -> Control:
    """Where no w can be exchanged: what guessing would make of the error at the trained depth."""
    guess = blind_distances(subject).sum()
    return Control(name="the constant predictor", estimate=float(guess / own.sum()))
