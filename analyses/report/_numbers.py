"""Numbers for readers: three digits, never surer than they are."""

import math

_SMALL, _NOTHING = 1e-4, 1e-9


def readable(x: float | int | str | None, digits: int = 3, *, at_most_one: bool = False) -> str:
    """A number with three digits, or in scientific notation where it is tiny.

    Args:
        x: Strings pass through; None is `none`.
        digits: Significant ones; one less below 0.01, and none that only say zero.
        at_most_one: It was measured and cannot exceed 1, so what rounds to 1 is `>0.999`.

    Example:
        >>> [readable(x) for x in (0.98935, 0.9, 1.0, 1.0001, -12418.5, 3.2e-5, 0.0, 2000)]
        ['0.989', '0.90', '1', '1.00', '-12,418', '3.2e-5', '0', '2,000']
        >>> readable(0.99999, at_most_one=True)
        '>0.999'
    """
    if x is None or isinstance(x, str):
        return x or "none"
    if at_most_one and x >= 0.9995:
        return ">0.999"
    if isinstance(x, int) or x == round(x, 9) == int(x):
        return f"{int(x):,}"
    return _rounded(x, digits)


def interval_words(low: float, high: float, *, at_most_one: bool = False) -> str:
    """An interval in words with as many digits as its ends need to differ: it never reads `1 to 1`.

    Args:
        low, high: Its ends.
        at_most_one: As in `readable`.

    Example:
        >>> interval_words(0.1503, 0.433), interval_words(1.0739, 1.0744)
        ('0.150 to 0.433', '1.0739 to 1.0744')
        >>> interval_words(0.99997, 1.0, at_most_one=True)
        'above 0.999'
    """
    for digits in range(3, 7):
        words = [readable(x, digits, at_most_one=at_most_one) for x in (low, high)]
        if words[0] != words[1]:
            return f"{words[0]} to {words[1]}"
    return "above 0.999" if words[0] == ">0.999" else f"within rounding of {readable(low)}"


def _rounded(x: float, digits: int) -> str:
    size = abs(x)
    if size < _NOTHING:
        return "<1e-9" if x > 0 else ">-1e-9"
    if size < _SMALL:
        mantissa, exponent = f"{x:.{digits - 2}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    kept = digits if size >= 0.01 else digits - 1
    decimals = max(0, kept - 1 - math.floor(math.log10(float(f"{size:.{kept - 1}e}"))))
    return f"{x:,.2f}" if decimals > 2 and abs(x - round(x, 2)) < _NOTHING else f"{x:,.{decimals}f}"
