"""What is known of a difference when only two estimates and their intervals are: the square-and-add method."""

import math

from valuelens.analyses._result import Finding

Interval = tuple[float, float]


def difference_interval(first: float, around: Interval, second: float, beside: Interval) -> Interval:
    """Interval of second - first, for two independent estimates.

    The square-and-add method (MOVER): the distance from each estimate to the end of its interval that matters is
    squared, the two are added, and the root is taken. For symmetric normal intervals this is the usual one; skewed
    intervals keep their skew. Estimates from the same tasks are mostly correlated for the better, and then the
    interval is too wide rather than too narrow.

    Args:
        first, around: An estimate and its interval.
        second, beside: The other one's.

    Source:
        Zou and Donner 2008, Statistics in Medicine 27, equation for the difference of two parameters.

    Example:
        >>> difference_interval(1.0, (0.7, 1.3), 3.0, (2.6, 3.4))
        (1.5, 2.5)
    """
    difference = second - first
    low = math.hypot(second - beside[0], around[1] - first)
    high = math.hypot(beside[1] - second, first - around[0])
    return difference - low, difference + high


def finding_difference(first: Finding, second: Finding) -> tuple[float | None, Interval | None]:
    """Difference of two findings, second - first, and its interval; none where it cannot be told.

    Args:
        first, second: Of one name.
    """
    one, other = first.estimate, second.estimate
    if not isinstance(one, int | float) or not isinstance(other, int | float):
        return None, None
    if first.interval is None or second.interval is None:
        return float(other - one), None
    return float(other - one), difference_interval(
        float(one), _around(float(one), first.interval), float(other), _around(float(other), second.interval)
    )


def _around(estimate: float, interval: Interval) -> Interval:
    """An interval that holds its estimate: a resampled one may miss it by a little."""
    return min(interval[0], estimate), max(interval[1], estimate)
