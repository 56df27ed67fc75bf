"""How large is the expected update (NEU), and is theta* where it is least? Theory A6, and A4 for endless contexts.

Shape legend: `batch` tasks, `state` S.
"""

import math
from collections.abc import Mapping
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._landscape import (
    Chain,
    Landscape,
    Point,
    chain_of,
    landscape,
    own_point,
    population_landscape,
    star_point,
    star_scales,
)
from valuelens.analyses._neu_slices import depth_arrays, plane_arrays, segment_arrays
from valuelens.analyses._question import Phrase, Question
from valuelens.analyses._result import Control, Definition, Finding, Result
from valuelens.analyses._subject import FEW, Subject, has_free_slots, weights_of
from valuelens.models.icrl import SoftmaxTD, has_state_form
from valuelens.probe import (
    UpdateNorm,
    inner_product_interval,
    mean_interval,
    mstde_minimum,
    task_gradients,
    update_norm,
)

CHECKPOINT, STAR, FITTED_STAR = "the checkpoint", "theta* with alpha = 1", "theta* with the fitted alpha"
ENDLESS = "endless contexts"
_CONSTANT = "the constant predictor"
_OTHER = "the landscape lies between a checkpoint and theta*, which is a softmax TD construction"
_MIXED = (
    "a free model with two heads may mix its slots (theory A8): the same function has many weights, and a gradient or "
    "a straight way between weights depends on which"
)
_OVERFLOW = "the values overflow"
_LARGE, FEW_TASKS = 20_000, 64
"""Models of more parameters have neu_parameter measured on the first few tasks: one gradient a task is held."""
_EXACT = (
    "the norm of a mean over tasks, which chance makes larger; neu_parameter is unbiased and has an interval"
)


def neu(subject: Subject) -> Result:
    """NEU in its `task` and `parameter` forms, MSTDE, gradient norms, and the landscape around theta*.

    Measured at the checkpoint, at theta* of the same depth with the fitted sharpness, and where the state form is
    exact also in the limit of endless contexts. NEU and MSTDE need values at all states only, so every value learner
    has them; theta* and the landscape belong to softmax TD. Control: the constant predictor, which sees no state.

    Args:
        subject: Model and tasks.
    """
    model, chain, finite = subject.model, chain_of(subject), landscape(subject)
    weights = weights_of(subject) if isinstance(model, SoftmaxTD) else None
    grounds = {f"contexts of {subject.context.num_transitions} transitions": finite}
    if has_state_form(model):
        grounds[ENDLESS] = population_landscape(subject)
    points: dict[str, Point] = {CHECKPOINT: own_point(subject, weights)}
    if weights is not None:
        points[STAR] = star_point(subject, weights, 1.0)
    mixed = isinstance(model, SoftmaxTD) and has_free_slots(model)
    if weights is not None and not mixed:
        points[FITTED_STAR] = star_point(subject, weights)
    findings = _task_form(subject, chain, grounds, points)
    findings += _squared_error(subject, chain, finite, points)
    if mixed:
        skipped = ({"what": "NEU by the weights and its landscape", "why": _MIXED},)
        return Result(kind="in-context-rl", findings=tuple(findings), skipped=skipped)
    findings += _parameter_form(subject, chain, finite, points)
    findings += _gradients(subject, chain, grounds, points)
    if weights is None:
        skipped = ({"what": "NEU landscape", "why": _OTHER},)
        return Result(kind="in-context-rl", findings=tuple(findings), skipped=skipped)
    own, star = points[CHECKPOINT], points[FITTED_STAR]
    arrays = depth_arrays(subject, chain, *(float(x.mean()) for x in star_scales(subject, weights)))
    arrays |= segment_arrays(chain, tuple(grounds.values()), own, star)
    arrays |= plane_arrays(subject, chain, finite, own, star)
    return Result(kind="in-context-rl", findings=tuple(findings), arrays=arrays)


def _task_form(
    subject: Subject, chain: Chain, grounds: Mapping[str, Landscape], points: Mapping[str, Point]
) -> list[Finding]:
    endless = ((chain.mu * chain.r).sum(-1) / (1 - chain.gamma))[:, None].expand_as(chain.r)
    return [
        _task_mean(
            subject,
            "neu_task",
            {"at": at, "contexts": where},
            chain.neu(ground.values(point)),
            Control(
                name=_CONSTANT,
                estimate=float(chain.neu(endless if where == ENDLESS else _constant(subject)).mean()),
            ),
        )
        for where, ground in grounds.items()
        for at, point in points.items()
    ]


def _parameter_form(
    subject: Subject, chain: Chain, ground: Landscape, points: Mapping[str, Point]
) -> list[Finding]:
    chosen = [at for at in (CHECKPOINT, FITTED_STAR) if at in points]
    return [_parameter_norm(subject, at, _updates(chain, ground, points[at])) for at in chosen]


def _updates(chain: Chain, ground: Landscape, point: Point) -> UpdateNorm:
    large = sum(x.numel() for x in point.values()) > _LARGE
    ground = ground.first(FEW_TASKS) if large else ground
    residual = chain.residual(ground.values(point))
    return update_norm(task_gradients(ground.values_of, point, ground.inputs, residual))


def _parameter_norm(subject: Subject, at: str, norm: UpdateNorm) -> Finding:
    interval = inner_product_interval(norm.products, seed=subject.seed)
    reasons = {} if interval else {"interval": FEW}
    if not bool(norm.unbiased.isfinite()):
        reasons |= {"estimate": "not defined: two halves need two tasks, or the values overflow"}
    if not bool(norm.plug_in.isfinite()):
        reasons |= {"control": _OVERFLOW}
    return Finding(
        name="neu_parameter",
        estimate=float(norm.unbiased),
        unit="squared update of the weights",
        n=sum(norm.products.shape),
        definition="choice",
        index={"at": at},
        interval=interval,
        control=Control(name="the plug-in norm", estimate=float(norm.plug_in)),
        reasons=reasons,
    )


def _squared_error(
    subject: Subject, chain: Chain, ground: Landscape, points: Mapping[str, Point]
) -> list[Finding]:
    least = mstde_minimum(chain.P, chain.r, chain.mu, chain.gamma).minimum
    at_truth = chain.mstde(subject.mrp.value)
    blind = Control(name=_CONSTANT, estimate=float(chain.mstde(_constant(subject)).mean()))
    named = partial(_task_mean, subject, "mstde")
    return [
        named(
            {"at": "the true value"},
            at_truth,
            Control(name="the least possible", estimate=float(least.mean())),
        ),
        named(
            {"at": "the least possible"},
            least,
            Control(name="the true value", estimate=float(at_truth.mean())),
        ),
        *(named({"at": at}, chain.mstde(ground.values(point)), blind) for at, point in points.items()),
    ]


def _gradients(
    subject: Subject, chain: Chain, grounds: Mapping[str, Landscape], points: Mapping[str, Point]
) -> list[Finding]:
    halved = {name: x / 2 for name, x in points[CHECKPOINT].items()}
    findings = []
    for where, ground in grounds.items():
        control = Control(
            name="the checkpoint with all weights halved", estimate=_gradient_norm(chain, ground, halved)
        )
        for at, point in points.items():
            norm = _gradient_norm(chain, ground, point)
            reasons = {"interval": _EXACT} | (
                {} if math.isfinite(norm) else {"estimate": f"not defined: {_OVERFLOW}"}
            )
            if control.estimate is None:
                reasons["control"] = _OVERFLOW
            findings.append(
                Finding(
                    name="neu_gradient_norm",
                    estimate=norm,
                    unit="NEU by weight",
                    n=subject.num_tasks,
                    definition="choice",
                    index={"at": at, "contexts": where},
                    control=control,
                    reasons=reasons,
                )
            )
    return findings


def _gradient_norm(chain: Chain, ground: Landscape, point: Point) -> float:
    leaves = {name: x.clone().requires_grad_() for name, x in point.items()}
    gradients = torch.autograd.grad(chain.neu(ground.values(leaves)).mean(), list(leaves.values()))
    return float(torch.stack([each.square().sum() for each in gradients]).sum().sqrt())


def _constant(subject: Subject) -> Float[Tensor, "batch state"]:
    return subject.constant[:, None].expand_as(subject.mrp.r)


def _task_mean(
    subject: Subject, name: str, index: Mapping[str, int | str], sample: Tensor, control: Control
) -> Finding:
    interval = mean_interval(sample, seed=subject.seed)
    estimate = float(sample.mean())
    reasons = {} if interval else {"interval": FEW}
    if not math.isfinite(estimate):
        reasons |= {"estimate": f"not defined: {_OVERFLOW}"}
    definition: Definition = "choice" if name == "neu_task" else "derived"
    return Finding(
        name=name,
        estimate=estimate,
        unit="squared reward",
        n=len(sample),
        definition=definition,
        index=index,
        interval=interval,
        control=control,
        reasons=reasons,
    )


QUESTION = Question(
    name="neu",
    ask=neu,
    tenths=5,
    title="Expected update (NEU)",
    introduction="Would TD still change anything? NEU is the squared norm of the update that TD would make on average "
    "to the model's values (task form) or to its weights (parameter form); theta* is claimed to have none in the "
    "limit of endless contexts and then of many layers. The control is the constant predictor.",
    phrases={
        "neu_task": Phrase(
            noun="the norm of the expected update at {at}",
            text="Over {contexts}, the expected update of the values of {at} has a squared norm (NEU, task form) of "
            "{x}",
            beside="that of {name}, which sees no state, is {c}",
        ),
        "neu_parameter": Phrase(
            noun="the norm of the expected update of the weights at {at}",
            text="The expected update of the weights at {at} has a squared norm (NEU, parameter form) of {x}, by the "
            "inner product of two independent halves of the tasks, so that chance may make it negative",
            beside="{name}, which is biased upwards, is {c}",
        ),
        "mstde": Phrase(
            noun="the mean squared TD error of {at}",
            text="The mean squared TD error (MSTDE) of {at} is {x}",
            beside="that of {name} is {c}",
        ),
        "neu_gradient_norm": Phrase(
            noun="the slope of NEU at {at}",
            text="Over {contexts}, the gradient of NEU by the weights at {at} has norm {x}, which chance makes "
            "larger where the gradient is small",
            beside="at {name} it is {c}",
        ),
    },
)
