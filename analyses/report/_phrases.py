"""The phrases of all findings, and the sections of a report that they stand in."""

from valuelens.analyses.report._phrases_costates import COSTATES, DIAGNOSIS
from valuelens.analyses.report._phrases_credit import HEADS, HOPS
from valuelens.analyses.report._phrases_dynamics import CONVERGENCE, CREDIT, GENERALISATION, NEU, TRAINING
from valuelens.analyses.report._phrases_identify import IDENTIFY
from valuelens.analyses.report._phrases_impact import ARC, CHOICE, JUDGEMENT
from valuelens.analyses.report._phrases_layers import KERNEL, RULE, VALUES, WEIGHTS
from valuelens.analyses.report._phrases_opaque import OPAQUE

PHRASES = (
    VALUES
    | WEIGHTS
    | RULE
    | KERNEL
    | CONVERGENCE
    | NEU
    | IDENTIFY
    | OPAQUE
    | CREDIT
    | GENERALISATION
    | TRAINING
    | DIAGNOSIS
    | COSTATES
    | HOPS
    | HEADS
    | CHOICE
    | ARC
    | JUDGEMENT
)
"""By name of the finding."""

SECTIONS: dict[str, tuple[str, ...]] = {
    "values": tuple(VALUES),
    "weights": tuple(WEIGHTS),
    "rule": tuple(RULE),
    "kernel": tuple(KERNEL),
    "convergence": tuple(CONVERGENCE),
    "neu": tuple(NEU),
    "identify": tuple(IDENTIFY),
    "opaque": tuple(OPAQUE),
    "credit": tuple(CREDIT),
    "generalisation": tuple(GENERALISATION),
    "training": ("emergence_order", "emergence_over_seeds", "emergence_precedes", "emergence_step"),
    "diagnosis": tuple(DIAGNOSIS),
    "costates": tuple(COSTATES),
    "hops": tuple(HOPS),
    "heads": tuple(HEADS),
    "choice": tuple(CHOICE),
    "arc": tuple(ARC),
    "judgement": tuple(JUDGEMENT),
}
"""Names of findings by section of the report."""
