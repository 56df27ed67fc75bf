"""What a row of scores says in words: why a score is 0, and what it cannot see."""

from collections.abc import Mapping

_SMALL, _LARGE = 0.1, 0.3
"""Of gaps: closed, and open (our definition)."""


def remarks(scores: Mapping[str, float]) -> tuple[str, ...]:
    """Sentences for whoever reads the scores of one checkpoint; none where there is nothing to say.

    Args:
        scores: A row of `SCORES`; not a number where something is not there.

    Example:
        >>> remarks({"frac_reward_zero_std": 1.0, "reward": 0.0, "headroom": 0.0})
        ('Rewards are equal within every group: signal and headroom are 0 by definition.',)
    """
    said = []
    zero = scores.get("frac_reward_zero_std", 0.0)
    if zero == 1:
        said.append("Rewards are equal within every group: signal and headroom are 0 by definition.")
    elif zero > 0:
        said.append(f"Rewards are equal within {zero:.0%} of the groups, which count with signal 0.")
    if zero < 1 and scores.get("update_aligned", 1.0) == 0:
        said.append("Rewards differ in one half of the prompts only: update-aligned is 0 for want of data.")
    if scores.get("gap_relaxed", 1.0) < _SMALL and scores.get("gap_discrete", 0.0) > _LARGE:
        said.append(
            f"The relaxed gap is small ({scores['gap_relaxed']:.2g}), the discrete one is not "
            f"({scores['gap_discrete']:.2g}): the signal misses what sampling another token would change."
        )
    return tuple(said)
