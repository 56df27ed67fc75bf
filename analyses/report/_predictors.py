"""What predictors of a gain, and what they foretell, are called on a page."""

from valuelens.analyses.impact._spoken import NAMES as NAMES
from valuelens.analyses.impact._spoken import checkpoint_words as checkpoint_words
from valuelens.analyses.impact._spoken import isolated as isolated
from valuelens.analyses.impact._spoken import number_of
from valuelens.analyses.impact._spoken import predictor_name as predictor_name

OURS = "impact"
"""The score that a ranking is headed by."""

TARGETS = {"gain": "gain", "final_reward": "reward after RL"}

RECOMMENDS = {"gain": OURS, "final_reward": f"reward + {OURS}"}
"""Who recommends a checkpoint for which target."""

CHOOSERS = (
    *("impact", "update_aligned", "update_aligned x headroom"),
    *("reward + impact", "reward + update_aligned", "reward + update_aligned x headroom"),
    *list(NAMES)[3:],
)
"""Whose choices are compared, from the top."""

_LONGEST = 22


def checkpoint_name(label: str, step: str = "") -> str:
    """A checkpoint's name with room to stand in a figure: a step alone as a number, a long name cut in its middle.

    Args:
        label: As in the tables.
        step: Before a number.

    Example:
        >>> checkpoint_name("step-00002500"), checkpoint_name("allenai/OLMo-2-0425-1B@stage1-step140000-tokens294B")
        ('2,500', 'allenai/OL…tokens294B')
    """
    number = number_of(label)
    half = (_LONGEST - 1) // 2
    return (
        f"{step}{number}"
        if number
        else (label if len(label) <= _LONGEST else f"{label[:half]}…{label[-half:]}")
    )
