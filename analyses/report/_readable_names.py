"""What findings are called where a name stands alone: in lists of definitions."""

import re

from valuelens.analyses.report._notes_costates import COSTATE_CHOICES
from valuelens.analyses.report._notes_impact import IMPACT_CHOICES
from valuelens.analyses.report._phrases import PHRASES

_NAMES = {
    "attention_residual": "distance of the attention matrix from theta*'s, its scale taken out",
    "off_support": "mean size of the entries that are zero in theta*",
    "sparsity": "entries on and off the support of theta*",
    "reparameterisation_r2": "share of value updates that weighted softmax TD with three free weights explains (R2)",
    "depth_error": "error or distance against depth",
    "depth_rate": "geometric rate over layers",
    "depth_extrapolation": "error at other depths over that at the trained one",
    "fixed_point_error": "error of the fixed point in endless contexts",
    "context_error": "error against context length",
    "floor_slope": "slope of the error against context length",
    "neu_task": "norm of the expected update, task form (NEU)",
    "neu_parameter": "norm of the expected update, parameter form (NEU)",
    "neu_gradient_norm": "slope of the norm of the expected update",
    "mstde": "mean squared TD error",
    "algorithm_margin": "lead of the named algorithm over the next",
    "rule_error": "what a rule leaves unexplained",
    "rule_response": "response to a changed prompt",
    "returned_rule_error": "error of a rule on the returned values",
    "decodability": "decodability (held-out R2 of a linear probe)",
    "selectivity": "selectivity (decodability minus that of shuffled labels)",
    "decoded_increment": "what decoded values gain in a layer",
    "patch_response": "response to a patch",
    "credit_adjoint_gap": "gap between measured credit and the recursion of softmax TD",
    "generalisation": "value error on other tasks against the constant predictor's",
    "emergence_step": "step from which a property lasts",
    "emergence_over_seeds": "mean step over seeds from which a property lasts",
    "emergence_precedes": "share of seeds on which one property comes before another",
    "best_of_k": "best of several rollouts",
    "hop_share": "share of credit by hop",
    "bound_tightness": "tightness of the entropy bound",
    "jacobian_norm": "norm of the paths to later states",
    "head_share": "share of a head in a costate",
    "head_ablation": "what costates lose without some heads",
    "signal_to_noise": "signal-to-noise",
    "standard_error": "standard error of the mean costate",
    "rollouts_needed": "rollouts needed",
    "locality": "locality",
    "costate_norm": "norm of a costate",
    "cosine": "cosine with the value gradient",
    "gap_discrete": "gap to the value gradient",
}
_LONGER = COSTATE_CHOICES | IMPACT_CHOICES


def readable_name(name: str) -> str:
    """A finding's name in words.

    Args:
        name: As in result.json.

    Example:
        >>> readable_name("kernel_diagonal_mean"), readable_name("brand_new")
        ('share of attention that a visited state gives to itself', 'brand new')
    """
    if name in _LONGER or name in _NAMES:
        return _LONGER.get(name) or _NAMES[name]
    noun = PHRASES[name].noun if name in PHRASES else ""
    noun = re.sub(r"^(\{whose\}|the) ", "", noun)
    return name.replace("_", " ") if "{" in noun or not noun else noun
