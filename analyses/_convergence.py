"""Do the layers converge, to what, how fast, and what limits the error: depth, context or the weights? (theory A5)

Shape legend: `iterate` 0..L, `layer` L, `batch` tasks, `pos` the n source columns of a context, `point` of a curve,
`band` mean and interval.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from valuelens.analyses._bottleneck import bottleneck
from valuelens.analyses._context_length import context_lengths, fixed_point_errors
from valuelens.analyses._diagonality import radius
from valuelens.analyses._extrapolation import extrapolation
from valuelens.analyses._question import Phrase, Question
from valuelens.analyses._result import Array, Control, Finding, Result, merged
from valuelens.analyses._rule import Rule, rule_of, tabular_kernel
from valuelens.analyses._subject import (
    NONE_COUNTS,
    Subject,
    band,
    blind_distances,
    in_float64,
    share,
    task_mean,
)
from valuelens.models.icrl import at_states
from valuelens.probe import (
    StateKernel,
    contraction_bound,
    contraction_norm,
    contraction_ratios,
    depth_rate,
    error_bound,
    fixed_point,
    spectral_radius,
    sup_distance,
)

_ROUNDING = 1e-6
"""Relative rounding of a ratio of errors that are as small as 1e-9."""
_NO_RATE = dict.fromkeys(
    ("estimate", "interval", "control"), "no context shows three errors in a row above rounding"
)
_LIST = "a list over depths; the arrays have the bands of the largest distances"
_Layer = tuple[dict[str, int | str], int]


def convergence(subject: Subject) -> Result:
    """Error against depth and context length, measured and predicted, the fixed point of the weights, and what limits.

    Distances are the largest over the states that a context leaves (its sources). What concerns the empirical fixed
    point leaves out contexts whose S_n never was a source. Of models without an update over states only the errors
    against depth and context length, and tied layers repeated, are measured. In double precision whatever the
    subject's: in single precision rounding hides what layers do to small errors.

    Args:
        subject: Any model and tasks.
    """
    subject = in_float64(subject)
    rule, why = rule_of(subject)
    parts = [_towards_truth(subject), context_lengths(subject, rule), extrapolation(subject, rule)]
    if rule is None:
        left_out = "contraction, rate, fixed point, statistical floor and bottleneck"
        return merged([*parts, Result(kind="in-context-rl", skipped=({"what": left_out, "why": why},))])
    ends = Result(kind="in-context-rl", findings=tuple(fixed_point_errors(subject, rule)))
    return merged([*parts, _towards_fixed_point(subject, rule), ends, bottleneck(subject, rule)])


def _towards_truth(subject: Subject) -> Result:
    """Errors of what is read after every layer against v_pi: of any model."""
    truth, values = subject.truth[:, :-1], subject.lens[:, :, 1:-1]
    everywhere = torch.ones_like(truth, dtype=torch.bool)
    largest = sup_distance(values, truth, everywhere)
    blind = blind_distances(subject)
    square = truth.square().sum()
    mean_square = (values - truth).square().sum((1, 2)) / square
    constant = (subject.constant[:, None] - truth).square().sum() / square
    name, counted = "constant predictor", subject.num_tasks
    findings = (
        _curve("true value", largest.mean(1), (name, float(blind.mean())), counted),
        _curve(
            "true value",
            mean_square,
            (name, float(constant)),
            counted,
            measure="relative mean square distance",
        ),
    )
    arrays = {"depth_true_value": Array(axes="band iterate", values=band(largest, seed=subject.seed))}
    return Result(kind="in-context-rl", findings=findings, arrays=arrays)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Contraction:
    """What each layer does to the distance to its own fixed point, on closed contexts.

    Attributes:
        before, after: That distance; of tied layers a row for each of the L layers.
        norm, radius, bound: Of the same layers and contexts.
        left: Distance of the last layer's fixed point to the true value.
        astray: Ratios of the distances to the true value, which nothing bounds by the norm.
    """

    before: Float[Tensor, "layer batch"]
    after: Float[Tensor, "layer batch"]
    norm: Float[Tensor, "layer batch"]
    radius: Float[Tensor, "layer batch"]
    bound: Float[Tensor, "layer batch"]
    left: Float[Tensor, "batch"]
    astray: Float[Tensor, "layer batch"]

    @property
    def ratios(self) -> Float[Tensor, "layer batch"]:
        """By what factor each layer changed the distance; NaN from rounding on."""
        return contraction_ratios(torch.stack([self.before, self.after]).flatten(1)).view_as(self.before)

    @property
    def errors(self) -> Float[Tensor, "iterate batch"]:
        """Distances after 0..L layers, if all have one fixed point."""
        return torch.cat([self.before, self.after[-1:]])


def _towards_fixed_point(subject: Subject, rule: Rule) -> Result:
    kernels = rule.kernels(subject.mrp, subject.context.states)
    layers: list[_Layer] = [({}, layer) for layer in range(rule.num_layers)] if rule.tied else rule.layers
    closed = kernels[0].closed
    found = _contraction(subject, rule, kernels, [layer for _, layer in layers], closed)
    findings = _steps(subject, found)
    if not rule.tied:
        why = "untied layers have a fixed point each, so there is no common rate or error against depth"
        skipped = ({"what": "rate and errors towards the empirical fixed point", "why": why},)
        return Result(kind="in-context-rl", findings=tuple(findings), skipped=skipped)
    curves, arrays = _decay(subject, found)
    return Result(kind="in-context-rl", findings=(*findings, *curves), arrays=arrays)


def _contraction(
    subject: Subject, rule: Rule, kernels: list[StateKernel], layers: list[int], closed: Bool[Tensor, "batch"]
) -> _Contraction:
    states, seen = subject.context.states[:, :-1], subject.lens[:, :, 1:-1]
    everywhere = torch.ones_like(states, dtype=torch.bool)
    distances, numbers, made = [], [], {}
    for layer in layers:
        kernel, w = kernels[layer], rule.w[layer]
        key = 0 if rule.tied else layer
        if key not in made:
            target = at_states(fixed_point(kernel, gamma=rule.gamma, w=w), states)
            measured = [m(kernel, gamma=rule.gamma, w=w)[closed] for m in _MEASURES]
            made[key] = (target, torch.stack(measured))
        target, measures = made[key]
        distances.append(sup_distance(seen[layer : layer + 2], target, everywhere)[:, closed])
        numbers.append(measures)
    near, size = torch.stack(distances), torch.stack(numbers)
    truth = subject.truth[:, :-1]
    to_truth = sup_distance(seen, truth, everywhere)[:, closed]
    return _Contraction(
        before=near[:, 0],
        after=near[:, 1],
        norm=size[:, 0],
        radius=size[:, 1],
        bound=size[:, 2],
        left=sup_distance(target, truth, everywhere)[closed],
        astray=contraction_ratios(to_truth)[layers],
    )


_MEASURES = (contraction_norm, spectral_radius, contraction_bound)


def _steps(subject: Subject, found: _Contraction) -> list[Finding]:
    """Layer by layer against the norm, over all layers of a context."""
    ratios, counted = found.ratios, ~found.ratios.isnan().all(0)
    largest = ratios.nan_to_num(-torch.inf).amax(0)[counted]
    beyond, astray = (
        (measured > found.norm * (1 + _ROUNDING)).any(0)[counted].to(largest.dtype)
        for measured in (ratios, found.astray)
    )
    return [
        task_mean(
            subject, "contraction_ratio", largest, ("the largest infinity norm", found.norm.amax(0)[counted])
        ),
        share(subject, "contraction_violations", beyond, ("towards the true value instead", astray)),
    ]


def _decay(subject: Subject, found: _Contraction) -> tuple[list[Finding], dict[str, Array]]:
    errors, start = found.errors, found.before[0]
    predicted = {
        "radius": error_bound(start, found.radius),
        "norm": error_bound(start, found.norm),
        "bound": error_bound(start, found.bound),
    }
    late = errors.shape[0] // 2
    rates = {"all": depth_rate(errors), "the later": depth_rate(errors, first=late)}
    against = ("e_0 times the spectral radius to the power of the layer", _means(predicted["radius"]))
    findings = [_curve("fixed point of the context", errors.mean(1), against, len(start))]
    for layers, rate in rates.items():
        known = rate.isfinite()
        control = ("the spectral radius", found.radius[0][known])
        found_rate = task_mean(
            subject, "depth_rate", rate[known], control, definition="choice", index={"layers": layers}
        )
        findings.append(found_rate if bool(known.any()) else replace(found_rate, reasons=_NO_RATE))
    findings.append(
        task_mean(subject, "context_floor", found.left, _chain_floor(subject), definition="choice")
    )
    arrays = {"depth_fixed_point": Array(axes="band iterate", values=band(errors, seed=subject.seed))}
    arrays |= {
        f"depth_predicted_{name}": Array(axes="iterate", values=curve.mean(1))
        for name, curve in predicted.items()
    }
    arrays["depth_floor"] = Array(axes="band", values=band(found.left[None], seed=subject.seed)[:, 0])
    return findings, arrays


def _chain_floor(subject: Subject) -> tuple[str, Tensor]:
    """Distance of the value of the empirical chain to the true value, on the same contexts."""
    mrp, states = subject.mrp, subject.context.states
    chain = tabular_kernel(mrp, states)
    error = sup_distance(fixed_point(chain, gamma=mrp.gamma), mrp.value, chain.visited)
    return "value of the empirical chain", error[chain.closed]


def _means(curve: Tensor) -> list[float | int | str | None]:
    return list(curve.mean(1).tolist())


def _curve(
    reference: str,
    errors: Float[Tensor, "iterate"],
    control: tuple[str, float | list[float | int | str | None]],
    counted: int,
    *,
    measure: str = "largest distance",
) -> Finding:
    known = bool(errors.isfinite().all())
    return Finding(
        name="depth_error",
        estimate=errors.tolist(),
        unit="value" if measure == "largest distance" else "mean squared value",
        n=counted,
        definition="choice",
        index={"reference": reference, "measure": measure},
        control=Control(name=control[0], estimate=control[1]),
        reasons={"interval": _LIST} | ({} if known else dict.fromkeys(("estimate", "control"), NONE_COUNTS)),
    )


_CLOSED = "contexts whose last state was a source"
_GROWN = 1.05


def _away(x: float) -> str:
    return ", away from it" if x > 1 else ""


def _deeper(x: float) -> str:
    return ": do not run it deeper than it was trained" if x > _GROWN else ""


QUESTION = Question(
    name="convergence",
    ask=convergence,
    tenths=10,
    title="Convergence",
    introduction="Do the layers converge, to what and how fast, what would more context give, and what limits the "
    "values? Distances are the largest over the states that a context leaves. Controls are the constant predictor, the "
    "spectral radius and the norm as predictions, and the value of the empirical chain, which theta* reaches with "
    "endless depth.",
    phrases={
        "bottleneck": Phrase(
            noun="what limits the values most",
            text="Of depth, context and weights, what limits the values most is: {x}, chosen and judged on the same "
            "tasks",
            beside="as {name}, over all states weighted by the stationary distribution: {c}",
        ),
        "depth_error": Phrase(
            noun="the {measure} to the {reference} against depth",
            text="The {measure} to the {reference}, over the states that a context leaves (all columns but the query), "
            "is {x}",
            beside="{name}: {c}",
        ),
        "contraction_ratio": Phrase(
            noun="the largest factor by which a layer changes the distance to its fixed point",
            text="The layer that contracts least changes the distance to its fixed point by a factor of {x} on average",
            beside="{name}, which no factor exceeds, is {c}",
            sampled=_CLOSED,
            comment=_away,
        ),
        "contraction_violations": Phrase(
            noun="the share of contexts in which a layer changes the distance to its fixed point by more than its norm",
            text="In {x} of the contexts some layer changes the distance to its fixed point by more than its infinity "
            "norm, which cannot be",
            beside="{name}: {c}",
            sampled=_CLOSED,
        ),
        "depth_rate": Phrase(
            noun="the geometric rate fitted over {layers} layers",
            text="Fitted over {layers} layers, the distance to the fixed point shrinks by a factor of {x} a layer",
            beside="{name} is {c}",
            sampled=_CLOSED,
        ),
        "context_floor": Phrase(
            noun="the error that endless depth would leave",
            text="Repeated without end, the layer would still be off by {x} in these contexts, as the largest "
            "distance of its fixed point to the true value",
            beside="the {name} is off by {c}",
            sampled=_CLOSED,
        ),
        "depth_extrapolation": Phrase(
            noun="the error at {depth} layers over that at the trained {trained}",
            text="Run with {depth} layers where {trained} were trained, its largest error is {x} times as large",
            beside="for {name} the factor is {c}",
            comment=_deeper,
        ),
        "population_radius": Phrase(
            noun="the spectral radius of the update in very long contexts",
            text="In very long contexts the update, repeated without end, scales differences between value functions "
            "by {x} a step on average",
            beside="{name} has {c}",
            comment=radius,
        ),
        "divergence_share": Phrase(
            noun="the share of tasks on which the repeated update does not contract",
            text="The share of tasks on which the repeated update does not contract (spectral radius 1 or more), "
            "however long the context, is {x}",
            beside="with {name} it is {c}",
        ),
        "fixed_point_error": Phrase(
            noun="the error of {whose} fixed point in endless contexts",
            text="Repeated without end in endless contexts, {whose} update is off by {x}, as mean squared error / mean "
            "squared true value over all states weighted by the stationary distribution, which is what its effective "
            "discount and reward scale cost",
            beside="{name} is off by {c}",
        ),
        "context_error": Phrase(
            noun="the error against context length in contexts {contexts}",
            text="In contexts {contexts}, the largest error over their states is on average, by the number of "
            "transitions, {x}",
            beside="the {name} is off by {c}",
        ),
        "floor_slope": Phrase(
            noun="the slope of the distance to the {reference} against context length",
            text="On double logarithmic axes the distance to the {reference} changes with context length at a slope "
            "of {x}",
            beside="that of the {name} to the true value has {c}, and the statistical law is -0.5",
            sampled="tasks with contexts that visit every state",
        ),
    },
)
