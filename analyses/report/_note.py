"""A caveat and when it applies."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from valuelens.analyses._result import Finding

Applies = Callable[[Sequence[Finding], Mapping[str, Any]], bool]
"""Whether a caveat applies to the findings of a section, given the provenance."""


def named(*names: str) -> Applies:
    """Applies where a finding has one of the names.

    Args:
        *names: Of findings.
    """
    return lambda findings, provenance: any(finding.name in names for finding in findings)


def indexed(key: str, value: str) -> Applies:
    """Applies where a finding's index has this value.

    Args:
        key, value: Of the index.
    """
    return lambda findings, provenance: any(finding.index.get(key) == value for finding in findings)
