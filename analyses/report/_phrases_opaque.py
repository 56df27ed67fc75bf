"""Phrases of findings on opaque models."""

from valuelens.analyses.report._phrase import Phrase


def _unanswered(x: float) -> str:
    return ", no better than predicting no change" if x >= 1 else ""


OPAQUE = {
    "opaque_reading": Phrase(
        noun="the reading of the residual stream",
        text="In short: {x}",
        beside="{name}: {c}",
    ),
    "returned_rule_error": Phrase(
        noun="the error of {rule}",
        text="With {steps} step(s), fitted to other tasks, {rule} misses {x} of the squared values that are returned",
        beside="{name} misses {c}",
    ),
    "decodability": Phrase(
        noun="the decoding of {quantity}, {after},",
        text="{after} a linear probe decodes {quantity}{which} with R^2 = {x}",
        beside="{c}",
    ),
    "selectivity": Phrase(
        noun="the selectivity of {quantity} {after}",
        text="{after} {quantity}{which} is decoded better than in the control by {x} of R^2",
        beside="{name} is {c}",
    ),
    "decoded_increment": Phrase(
        noun="what {whose} decoded values gain",
        text="{inside}decoded values gain what {rule} adds from iterate {from} to {to} with R^2 = {x}",
        beside="{name}: {c}",
    ),
    "patch_response": Phrase(
        noun="{whose} response of the {response} to a patch of {memory}",
        text="{after} moving the decoded value of one column ({memory}) changes the {response} as TD predicts "
        "up to {x} of the predicted change",
        beside="{c}",
        comment=_unanswered,
    ),
    "head_agreement": Phrase(
        noun="{whose} agreement with the kernel",
        text="{inside}attention on transitions shares {x} with the kernel of softmax TD asked with {asks}",
        beside="{c}",
    ),
}
