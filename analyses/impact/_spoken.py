"""What predictors of a gain and checkpoints are called in sentences, in a verdict as on a page."""

NAMES = {
    "impact": "signal x headroom (the score)",
    "update_aligned": "update-aligned signal",
    "update_aligned x headroom": "update-aligned x headroom",
    "reward": "reward before RL (R_0)",
    "reward_std": "standard deviation of rewards",
    "best_of_k": "best-of-k minus mean",
    "pass_at_k": "pass@k minus pass@1",
    "entropy": "entropy",
    "gradient_norm": "gradient norm",
    "signal": "signal alone",
    "headroom": "headroom alone",
    "held_out_loss": "held-out loss, negated",
    "last checkpoint": "the last checkpoint",
    "random checkpoint": "a random checkpoint",
}
"""Ours first, then the rivals."""


def predictor_name(predictor: str) -> str:
    """What a predictor is called on a page.

    Args:
        predictor: As in the index of a finding.

    Example:
        >>> predictor_name("reward_std"), predictor_name("reward + update_aligned")
        ('standard deviation of rewards', 'reward + update-aligned signal')
    """
    for joined in ("reward + ", "correlation of ", "choice of "):
        if predictor.startswith(joined):
            return f"{joined}{predictor_name(predictor.removeprefix(joined)).removesuffix(' (the score)')}"
    return NAMES.get(predictor, predictor.replace("_", " "))


def checkpoint_words(label: str) -> str:
    """A checkpoint in a sentence; a name that is no number keeps its own direction of writing.

    Args:
        label: As in the tables.

    Example:
        >>> checkpoint_words("step-00002500"), checkpoint_words("base.model")
        ('step 2,500', 'base.model')
    """
    number = number_of(label)
    return f"step {number}" if number else isolated(label)


def isolated(name: str) -> str:
    """A name that does not turn the words around it, whatever direction it is written in.

    Args:
        name: Any; plain ASCII stays as it is.
    """
    return name if name.isascii() else f"\u2068{name}\u2069"


def number_of(label: str) -> str:
    """The step of a checkpoint as it is spoken; empty if its name says none.

    Args:
        label: As in the tables.
    """
    number = label.rsplit("/", 1)[-1].removeprefix("step-").removeprefix("checkpoint-")
    return f"{int(number):,}" if number.isdecimal() else ""
