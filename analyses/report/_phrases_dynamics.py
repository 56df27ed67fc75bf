"""Phrases of findings on convergence, expected update, credit, other tasks and training."""

from valuelens.analyses.report._phrase import Phrase, radius

_GROWN = 1.05


def _away(x: float) -> str:
    return ", away from it" if x > 1 else ""


def _deeper(x: float) -> str:
    return ": do not run it deeper than it was trained" if x > _GROWN else ""


def _adjoint(x: float) -> str:
    return ", which is rounding" if x < 1e-9 else ""


_CLOSED = "contexts whose last state was a source"

CONVERGENCE = {
    "bottleneck": Phrase(
        noun="what limits the values most",
        text="Of depth, context and weights, what limits the values most is: {x}, chosen and judged on the same tasks",
        beside="as {name}: {c}",
    ),
    "depth_error": Phrase(
        noun="the {measure} to the {reference} against depth",
        text="The {measure} to the {reference}, over the states that a context leaves, is {x}",
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
        text="Repeated without end, the layer would still be off by {x} in these contexts, as the largest distance of "
        "its fixed point to the true value",
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
        text="In very long contexts the update, repeated without end, scales differences between value functions by "
        "{x} a step on average",
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
        "squared true value, which is what its effective discount and reward scale cost",
        beside="{name} is off by {c}",
    ),
    "context_error": Phrase(
        noun="the error against context length in contexts {contexts}",
        text="In contexts {contexts}, of {lengths} transitions, the largest error over their states is {x} on average",
        beside="the {name} is off by {c}",
    ),
    "floor_slope": Phrase(
        noun="the slope of the distance to the {reference} against context length",
        text="On double logarithmic axes the distance to the {reference} changes with context length at a slope of {x}",
        beside="that of the {name} to the true value has {c}, and the statistical law is -0.5",
        sampled="tasks with contexts that visit every state",
    ),
}

GENERALISATION = {
    "generalises_to": Phrase(
        noun="the list of tasks on which the model beats the constant predictor",
        text="Without retraining the model is better than the constant predictor (95 % interval over whole contexts "
        "below 1) on: {x}",
        beside="{name} is better on: {c}",
        sampled="kinds of tasks",
    ),
    "generalisation": Phrase(
        noun="the value error {of} on {shift} against that of the constant predictor",
        text="On {shift}, without retraining, the squared value error {of} is {x} times that of the constant predictor",
        beside="on the same contexts {c}",
    ),
}

NEU = {
    "neu_task": Phrase(
        noun="the norm of the expected update at {at}",
        text="Over {contexts}, the expected update of the values of {at} has a squared norm (NEU, task form) of {x}",
        beside="that of {name}, which sees no state, is {c}",
    ),
    "neu_parameter": Phrase(
        noun="the norm of the expected update of the weights at {at}",
        text="The expected update of the weights at {at} has a squared norm (NEU, parameter form) of {x}, by the inner "
        "product of two independent halves of the tasks, so that chance may make it negative",
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
}

CREDIT = {
    "credit_adjoint_gap": Phrase(
        noun="{whose} credit, passed back with the {weights} update weights,",
        text="{inside}the credit of each state, passed back with the {weights} update weights, misses the measured one "
        "by {x} of its norm",
        beside="{name} misses it by {c}",
        sampled="contexts whose credit has not faded",
        comment=_adjoint,
    ),
}

TRAINING = {
    "emergence_step": Phrase(
        noun='the step from which "{property}" lasts',
        text='"{property}" holds from optimiser step {x} until the end',
        beside="{name} it measures {c}",
        sampled="checkpoints",
    ),
    "emergence_over_seeds": Phrase(
        noun='the mean step over seeds from which "{property}" lasts',
        text='"{property}" holds until the end from optimiser step {x} on, in the geometric mean over seeds',
        beside="{name}: {c}",
        sampled="seeds",
    ),
    "emergence_order": Phrase(
        noun="the order in which properties appear",
        text="Properties appear in this order, by their median step over seeds: {x}",
        beside="{name}: {c}",
        sampled="seeds",
    ),
    "emergence_precedes": Phrase(
        noun='the share of seeds on which "{first}" comes before "{second}"',
        text='"{first}" comes before "{second}" on a share of {x} of the seeds',
        beside="{name}: {c}",
        sampled="seeds",
    ),
}
