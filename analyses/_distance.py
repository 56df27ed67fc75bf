"""How far are the weights from theta*? Signs, scales, residuals and the functional distance (theory A8)."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from valuelens.analyses._batch_td import beside_batch_td
from valuelens.analyses._question import Phrase, Question
from valuelens.analyses._result import Array, Control, Finding, Result, Scalar, merged
from valuelens.analyses._subject import (
    Subject,
    another_context,
    has_free_slots,
    layer_indices,
    td_iterates,
    weights_of,
)
from valuelens.models.icrl import Context, LinearAttention, SoftmaxTD
from valuelens.probe import (
    ThetaStarDistance,
    ThetaTDDistance,
    functional_distance,
    linear_td_kernel,
    softmax_td,
    theta_td_distance,
    value_slots,
)

Index = Mapping[str, int | str]

_UNIDENTIFIED = "unidentified: an entry that it needs has exactly zero gradient in this form"
_NEGATIVE = "not defined: the fitted scale is not positive"
_BY_ZERO = "not defined: a weight that it divides by is zero"
_STILL = "not defined: the model's values stay zero, or the fitted rule diverges"
_FREE = "unidentified: free full two-head models have a wider gauge (theory A8); see functional_distance"
_WEIGHTS_ONLY = "a property of the weights, nothing is sampled"

_SCALARS: tuple[tuple[str, str, Control], ...] = (
    # finding, attribute, control; the cosine of a random direction in 3 dimensions is uniform on [-1, 1]
    ("weight_cosine", "weight_cosine", Control(name="95 % quantile of random directions", estimate=0.9)),
    ("step_size", "step_size", Control(name="theta* as published", estimate=1.0)),
    ("reward_scale", "reward_scale", Control(name="theta*", estimate=1.0)),
    ("sharpness", "sharpness", Control(name="even attention", estimate=0.0)),
    ("attention_residual", "attention_residual", Control(name="theta*", estimate=0.0)),
    ("frobenius_distance", "frobenius", Control(name="theta*", estimate=0.0)),
)


def distance(subject: Subject) -> Result:
    """Compare the weights with the construction of their family, as far as they are identified.

    Args:
        subject: Model and tasks; an opaque transformer has no such weights and is skipped.
    """
    if isinstance(subject.model, SoftmaxTD):
        return _softmax(subject, subject.model)
    if isinstance(subject.model, LinearAttention):
        return _linear(subject, subject.model)
    why = "a standard transformer has no weights of the theta* form"
    return Result(kind="in-context-rl", skipped=({"what": "distance", "why": why},))


def _softmax(subject: Subject, model: SoftmaxTD) -> Result:
    weights = weights_of(subject)
    findings: list[Finding] = []
    for index, layer in layer_indices(subject):
        if has_free_slots(model):
            findings += _free(index)
        else:
            findings += _identified(weights, subject.context.gamma, index, layer)
    findings += _functional(subject, weights)
    arrays = {name: Array(axes="layer D D", values=x.detach()) for name, x in model.matrices().items()}
    arrays["w"] = Array(axes="layer 3", values=weights.w)
    arrays["identified_A"] = Array(axes="layer D D", values=weights.identified_A)
    arrays["identified_V"] = Array(axes="layer D D", values=weights.identified_V)
    return Result(kind="in-context-rl", findings=tuple(findings), arrays=arrays)


def _identified(weights: ThetaStarDistance, gamma: float, index: Index, layer: int) -> list[Finding]:
    sign = weights.sign_pattern[layer]
    w: list[Scalar] = list(weights.w[layer].tolist())
    zero, discount = Control(name="theta*", estimate=0.0), Control(name="gamma of the tasks", estimate=gamma)
    findings = [
        _finding("sign_pattern", sign, "signs of (w_R, w_T, w_C)", index, Control(name="TD", estimate="++-")),
        _finding("weights", w, "1", index, Control(name="theta*", estimate=[1.0, 1.0, -1.0])),
    ]
    for name, attribute, control in (("effective_discount", "effective_discount", discount), *_SCALARS):
        value = float(getattr(weights, attribute)[layer])
        findings.append(
            _finding(name, value, "1", index, control, why=_reason(name, weights.w_identified[layer]))
        )
    for matrix, unit, off in (("A", "c", weights.off_support_A), ("V", "alpha", weights.off_support_V)):
        place = {**index, "matrix": matrix}
        findings.append(_finding("off_support", float(off[layer]), unit, place, zero, why=_NEGATIVE))
    if not bool(weights.target_residual.isnan().all()):
        findings.append(_finding("target_residual", float(weights.target_residual[layer]), "1", index, zero))
    return findings


def _reason(name: str, identified: Tensor) -> str:
    if name == "attention_residual":
        return _NEGATIVE
    return _BY_ZERO if bool(identified.all()) else _UNIDENTIFIED


def _free(index: Index) -> list[Finding]:
    return [
        _finding("sign_pattern", "unidentified", "signs of (w_R, w_T, w_C)", index, None, why=_FREE),
        _finding("weights", None, "1", index, None, why=_FREE),
    ]


def _functional(subject: Subject, weights: ThetaStarDistance) -> list[Finding]:
    values = value_slots(subject.model, subject.model.prompt(subject.context))
    other = another_context(subject.context)
    rules = td_iterates(subject, weights)[1:], td_iterates(subject, weights, other)[1:]
    return _distances(subject, values, *rules)


def _linear_functional(subject: Subject, fitted: ThetaTDDistance) -> list[Finding]:
    def rule(context: Context) -> Tensor:
        kernel = linear_td_kernel(context.features, context.num_transitions)
        kernels = fitted.step_size[:, None, None, None] * kernel
        start, layers = torch.zeros_like(subject.values), subject.model.num_layers
        return softmax_td(start, context.rewards, kernels, gamma=context.gamma, num_layers=layers)[1:]

    own, other = rule(subject.context), rule(another_context(subject.context))
    return _distances(subject, subject.lens[1:, :, 1:], own, other)


def _distances(subject: Subject, values: Tensor, own: Tensor, other: Tensor) -> list[Finding]:
    no_interval = {"interval": "a root of pooled squares; reparameterisation_r2 has intervals"}
    near, far = functional_distance(values, own), functional_distance(values, other)
    return [
        Finding(
            name="functional_distance",
            estimate=float(near[layer]),
            unit="rms of the model's values",
            n=subject.num_tasks,
            definition="derived",
            index={"layer": layer},
            control=Control(name="the rule with exchanged rewards", estimate=float(far[layer])),
            reasons=no_interval
            | {
                key: _STILL
                for key, x in (("estimate", near), ("control", far))
                if not math.isfinite(x[layer])
            },
        )
        for layer in range(subject.model.num_layers)
    ]


def _linear(subject: Subject, model: LinearAttention) -> Result:
    fitted = theta_td_distance(model.P.detach(), model.Q.detach())
    zero = Control(name="theta_TD", estimate=0.0)
    findings: list[Finding] = []
    for index, layer in layer_indices(subject):
        one = Control(name="theta_TD as published", estimate=1.0)
        findings += [
            _finding("step_size", float(fitted.step_size[layer]), "1", index, one),
            _finding("attention_residual", float(fitted.residual[layer]), "1", index, zero, why=_NEGATIVE),
        ]
        for matrix, unit, off in (("P", "p", fitted.off_support_P), ("Q", "alpha", fitted.off_support_Q)):
            place = {**index, "matrix": matrix}
            findings.append(_finding("off_support", float(off[layer]), unit, place, zero, why=_NEGATIVE))
    findings += _linear_functional(subject, fitted)
    published = beside_batch_td(subject, model, fitted.step_size)
    arrays = {name: Array(axes="layer D D", values=x.detach()) for name, x in model.matrices().items()}
    return merged([Result(kind="in-context-rl", findings=tuple(findings), arrays=arrays), published])


def _finding(
    name: str,
    estimate: Scalar | list[Scalar],
    unit: str,
    index: Index,
    control: Control | None,
    *,
    why: str = _UNIDENTIFIED,
) -> Finding:
    """A finding on the weights; `why` is told only if the estimate is missing."""
    reasons = {"interval": _WEIGHTS_ONLY}
    if control is None:
        reasons["control"] = "not applicable: nothing is estimated"
    if _unknown(estimate):
        reasons["estimate"] = why
    return Finding(
        name=name,
        estimate=estimate,
        unit=unit,
        n=0,
        definition="derived",
        index=index,
        control=control,
        reasons=reasons,
    )


def _unknown(estimate: Scalar | list[Scalar]) -> bool:
    if isinstance(estimate, list):
        return any(_unknown(x) for x in estimate)
    return estimate in (None, "unidentified") or (isinstance(estimate, float) and not math.isfinite(estimate))


QUESTION = Question(
    name="distance",
    section="weights",
    ask=distance,
    title="Weights and theta*",
    introduction="Do the weights have the form of theta*, the construction of softmax TD? Step size alpha and "
    "sharpness c are free, so the distance is to a set; entries without any effect are called unidentified and "
    "left out.",
    phrases={
        "sign_pattern": Phrase(
            noun="{whose} sign pattern of the update weights (w_R, w_T, w_C)",
            text="{whose} update weights on reward, target memory and current memory have the signs {x}",
            beside="{name} has {c}",
        ),
        "weights": Phrase(
            noun="{whose} vector of update weights (w_R, w_T, w_C)",
            text="{whose} update weights on reward, target memory and current memory are {x}",
            beside="{name} has {c}",
        ),
        "weight_cosine": Phrase(
            noun="{whose} cosine between the update weights and the TD direction (1, 1, -1)",
            text="{whose} update weights point along the TD direction (1, 1, -1) with cosine {x}",
            beside="95 % of random directions stay below {c}",
        ),
        "effective_discount": Phrase(
            noun="{whose} effective discount gamma w_T / |w_C|",
            text="{whose} effective discount gamma w_T / |w_C|, to which the cosine is blind, is {x}",
            beside="the {name} is {c}",
        ),
        "reward_scale": Phrase(
            noun="{whose} reward scale w_R / |w_C|",
            text="{whose} reward scale w_R / |w_C| is {x}",
            beside="{name} has {c}",
        ),
        "step_size": Phrase(
            noun="{whose} step size alpha",
            text="{whose} step size alpha is {x}",
            beside="{name} has {c}, and any positive alpha is as valid",
        ),
        "sharpness": Phrase(
            noun="{whose} attention sharpness c",
            text="{whose} attention compares features with sharpness c = {x}",
            beside="{name} has {c}",
        ),
        "attention_residual": Phrase(
            noun="{whose} distance of the attention matrix from that of {name}, its scale taken out,",
            text="{whose} attention matrix, its scale taken out, is {x} away from that of {name} (relative Frobenius "
            "norm)",
            beside="equality is {c}",
        ),
        "off_support": Phrase(
            noun="{whose} mean size of the entries of {matrix} that are zero in {name}",
            text="{whose} entries of {matrix} that are zero in {name} have a mean size of {x}, in units of {unit}",
            beside="{name} has {c}",
        ),
        "frobenius_distance": Phrase(
            noun="{whose} raw Frobenius distance to theta* with alpha = c = 1",
            text="{whose} raw Frobenius distance to theta* with alpha = c = 1 is {x}, free scales counted",
            beside="{name} is at {c}",
        ),
        "sparsity": Phrase(
            noun="{whose} entries of {matrix} on and off the support of theta_TD",
            text="{whose} entries of {matrix}, much as its source paper plots them ({unit}), are {x}",
            beside="{name} have {c}",
        ),
        "target_residual": Phrase(
            noun="{whose} misfit between the rows of the target head and the current head",
            text="{whose} target head misses the current head's row by {x} of its norm, once its free scale is fixed",
            beside="{name} has {c}",
        ),
    },
)
