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


def _adjoint(x: float) -> str:
    return ", which is rounding" if x < 1e-9 else ""


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

_NEU = {
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
        text="Over {contexts}, the gradient of NEU by the weights at {at} has norm {x}",
        beside="at {name} it is {c}",
    ),
}

_CREDIT = {
    "credit_adjoint_gap": Phrase(
        noun="{whose} credit, passed back with the {weights} update weights,",
        text="{inside}the credit of each state, passed back with the {weights} update weights, misses the measured one "
        "by {x} of its norm",
        beside="{name} misses it by {c}",
        sampled="contexts whose credit has not faded",
        comment=_adjoint,
    ),
}

_TRAINING = {
    "emergence_step": Phrase(
        noun='the step from which "{property}" lasts',
        text='"{property}" holds from optimiser step {x} until the end',
        beside="{name} it measures {c}",
        sampled="checkpoints",
    ),
}

PHRASES = _VALUES | _WEIGHTS | _RULE | _KERNEL | _NEU | _CREDIT | _TRAINING
"""By name of the finding."""

SECTIONS: dict[str, tuple[str, ...]] = {
    "values": tuple(_VALUES),
    "weights": tuple(_WEIGHTS),
    "rule": tuple(_RULE),
    "kernel": tuple(_KERNEL),
    "neu": tuple(_NEU),
    "credit": tuple(_CREDIT),
    "training": tuple(_TRAINING),
}
"""Names of findings by section of the report."""
