"""Phrases of findings on values, weights, rules and kernels."""

from valuelens.analyses.report._phrase import Phrase, radius


def _margin(x: float) -> str:
    return f": on average the assumption {'holds' if x > 0 else 'does not hold'} (it is sufficient, not necessary)"


def _no_change(x: float) -> str:
    return ", worse than predicting no change at all" if x < 0 else ""


def _no_difference(x: float) -> str:
    return ", worse than predicting no difference at all" if x < 0 else ""


def _norm(x: float) -> str:
    return ", and below 1 an update contracts" if x < 1 else ", which above 1 says nothing about contraction"


VALUES = {
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

WEIGHTS = {
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
        text="{whose} entries of {matrix}, much as its source paper plots them ({unit}), are {x}",
        beside="{name} have {c}",
    ),
    "target_residual": Phrase(
        noun="{whose} misfit between the rows of the target head and the current head",
        text="{whose} target head misses the current head's row by {x} of its norm, once its free scale is fixed",
        beside="{name} has {c}",
    ),
}

RULE = {
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

RULE |= {
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

KERNEL = {
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
        comment=radius,
    ),
    "assumption_margin": Phrase(
        noun="{whose} margin in Assumption 5.1",
        text="{inside}the smallest population diagonal minus the (1 + gamma) / 2 of Assumption 5.1 is {x}",
        beside="{name} has {c}",
        comment=_margin,
    ),
}

KERNEL |= {
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
