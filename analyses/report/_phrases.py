"""What each name of a finding means, as a sentence with holes.

Holes: {x} the estimate, {c} the control and {name} its name, {unit}, the keys of the index, and the place as {whose}
(`layer 2's`), {inside} (`in layer 2, `) or {after} (`after layer 2`).
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Phrase:
    """A sentence with holes.

    Attributes:
        noun: Stands alone where there is no number.
        text: The sentence.
        beside: What the control gives.
        sampled: What `n` counts.
        comment: What the size of the number means.
    """

    noun: str
    text: str
    beside: str
    sampled: str = "tasks"
    comment: Callable[[float], str] = lambda x: ""


def _margin(x: float) -> str:
    return f": on average the assumption {'holds' if x > 0 else 'does not hold'} (it is sufficient, not necessary)"


def _no_change(x: float) -> str:
    return ", worse than predicting no change at all" if x < 0 else ""


def _no_difference(x: float) -> str:
    return ", worse than predicting no difference at all" if x < 0 else ""


def _norm(x: float) -> str:
    return ", and below 1 an update contracts" if x < 1 else ", which above 1 says nothing about contraction"


def _radius(x: float) -> str:
    return ", and below 1 they vanish" if x < 1 else ", and from 1 on they need not vanish"


def _away(x: float) -> str:
    return ", away from it" if x > 1 else ""


def _deeper(x: float) -> str:
    return ": do not run it deeper than it was trained" if x > _GROWN else ""


_GROWN = 1.05

_VALUES = {
    "value_lens": Phrase(
        noun="the value lens",
        text="Against the {reference}, the value read at the query is off by {x}, as mean squared difference / mean "
        "squared true value",
        beside="{name}: {c}",
    ),
    "msve_ratio": Phrase(
        noun="the value error at the query",
        text="The squared value error at the query is {x} of the mean squared true value",
        beside="the {name}, which sees no state, is at {c}",
    ),
    "msve_vs_constant": Phrase(
        noun="the value error at the query against that of the constant predictor",
        text="The squared value error at the query is {x} times that of a predictor that sees no state, only the "
        "mean reward",
        beside="the {name} itself is at {c}",
    ),
    "context_msve_vs_constant": Phrase(
        noun="the value error over whole contexts against that of the constant predictor",
        text="Over all columns of a context the squared value error is {x} times that of the constant predictor",
        beside="the {name} itself is at {c}",
    ),
    "within_chain_r2": Phrase(
        noun="the explained share of value differences within a chain",
        text="The read-out explains {x} of the differences in value between the states of one chain",
        beside="the {name} explains {c}",
        comment=_no_difference,
    ),
}

_WEIGHTS = {
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
        text="{whose} attention matrix, its scale taken out, is {x} away from that of {name} (relative Frobenius norm)",
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
        text="{whose} entries of {matrix}, as its source paper plots them ({unit}), are {x}",
        beside="{name} have {c}",
    ),
    "target_residual": Phrase(
        noun="{whose} misfit between the rows of the target head and the current head",
        text="{whose} target head misses the current head's row by {x} of its norm, once its free scale is fixed",
        beside="{name} has {c}",
    ),
}

_RULE = {
    "reparameterisation_r2": Phrase(
        noun="{whose} share of value updates that a TD rule fitted {fit} explains",
        text="A TD rule fitted {fit} explains {x} of {whose} value updates on held-out tasks",
        beside="with {name} it explains {c}",
        comment=_no_change,
    ),
    "functional_distance": Phrase(
        noun="{whose} distance between its values and those of the fitted TD rule",
        text="{after}, the values differ from those of TD with the fitted step sizes and attention by {x} of their rms",
        beside="{name} differs by {c}",
    ),
}

_RULE |= {
    "value_difference": Phrase(
        noun="the squared difference between the values of the model and of batch TD",
        text="Over the states of a task the values differ from those of batch TD at the nearest step sizes by {x} "
        "in the mean square",
        beside="with {name} they differ by {c}",
    ),
    "implicit_weight_similarity": Phrase(
        noun="the cosine between the weight that explains the model's values best and that of batch TD",
        text="The linear weight that explains the values of a task best has cosine {x} with that of batch TD",
        beside="with {name} it has {c}",
    ),
    "sensitivity_similarity": Phrase(
        noun="the cosine between the gradients of the model and of batch TD by the query",
        text="The gradient of a value by its query features has cosine {x} with that of batch TD",
        beside="with {name} it has {c}",
    ),
}

_KERNEL = {
    "kernel_diagonal_mean": Phrase(
        noun="{whose} share of attention that a visited state gives to itself",
        text="{inside}a visited state gives on average {x} of its attention to its own columns",
        beside="{name} would give {c}",
    ),
    "kernel_diagonal_min": Phrase(
        noun="{whose} smallest share of attention that a visited state gives to itself",
        text="{inside}the visited state that attends least to its own columns gives them {x}",
        beside="{name} would give {c}",
    ),
    "population_diagonal_mean": Phrase(
        noun="{whose} share of attention that a state gives to itself in very long contexts",
        text="{inside}a state would give on average {x} of its attention to itself in very long contexts",
        beside="{name} would give {c}",
    ),
    "population_diagonal_min": Phrase(
        noun="{whose} smallest share of attention that a state gives to itself in very long contexts",
        text="{inside}the state that attends least to itself would give itself {x} in very long contexts",
        beside="{name} would give {c}",
    ),
    "coverage": Phrase(
        noun="the share of states that a context visits",
        text="A context visits on average {x} of the states",
        beside="{c} of the contexts visit every state",
    ),
    "contraction_norm": Phrase(
        noun="{whose} infinity norm of one update",
        text="{inside}one update stretches differences between value functions by a factor of at most {x} on average",
        beside="{name} has {c}",
        sampled="contexts whose last state was a source",
        comment=_norm,
    ),
    "spectral_radius": Phrase(
        noun="{whose} spectral radius of the update",
        text="{inside}the update, repeated without end, scales differences between value functions by {x} a step on "
        "average",
        beside="{name} has {c}",
        sampled="contexts whose last state was a source",
        comment=_radius,
    ),
    "assumption_margin": Phrase(
        noun="{whose} margin in Assumption 5.1",
        text="{inside}the smallest population diagonal minus the (1 + gamma) / 2 of Assumption 5.1 is {x}",
        beside="{name} has {c}",
        comment=_margin,
    ),
}

_KERNEL |= {
    "closed_share": Phrase(
        noun="the share of contexts whose last state is one of their sources",
        text="The share of contexts whose last state is also one of their sources is {x}; the others are left out of "
        "norm, radius and contraction",
        beside="{c} of the contexts visit every state",
    ),
    "assumption_share": Phrase(
        noun="the share of tasks on which Assumption 5.1 holds",
        text="{inside}the share of tasks on which Assumption 5.1 holds is {x}",
        beside="with {name} it is {c}",
    ),
    "contraction_share": Phrase(
        noun="the share of tasks on which the update contracts in very long contexts",
        text="{inside}the share of tasks on which the update contracts in very long contexts, by its {by}, is {x}",
        beside="with {name} it is {c}",
    ),
}

_CLOSED = "contexts whose last state was a source"

_CONVERGENCE = {
    "bottleneck": Phrase(
        noun="what limits the values most",
        text="Of depth, context and weights, what limits the values most is: {x}",
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
        comment=_radius,
    ),
    "divergence_share": Phrase(
        noun="the share of tasks on which the repeated update does not converge",
        text="The share of tasks on which the repeated update does not converge, however long the context, is {x}",
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


def _no_better(x: float) -> str:
    return ", so it does worse than seeing no state" if x > 1 else ""


_GENERALISATION = {
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
        comment=_no_better,
    ),
}

_TRAINING = {
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

PHRASES = _VALUES | _WEIGHTS | _RULE | _KERNEL | _CONVERGENCE | _GENERALISATION | _TRAINING
"""By name of the finding."""

SECTIONS: dict[str, tuple[str, ...]] = {
    "values": tuple(_VALUES),
    "weights": tuple(_WEIGHTS),
    "rule": tuple(_RULE),
    "kernel": tuple(_KERNEL),
    "convergence": tuple(_CONVERGENCE),
    "generalisation": tuple(_GENERALISATION),
    "training": ("emergence_order", "emergence_over_seeds", "emergence_precedes", "emergence_step"),
}
"""Names of findings by section of the report."""
