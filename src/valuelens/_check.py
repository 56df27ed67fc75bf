"""What a doctor says of one thing."""

import sys
from dataclasses import asdict, dataclass
from typing import Literal

from valuelens._terminal import painted

State = Literal["ok", "missing", "warning", "broken"]

_COLOURS = {"ok": "good", "missing": "faint", "warning": "note", "broken": "error"}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        what: The thing.
        state: `ok`, `missing` (optional), `warning` (works, and may disappoint) or `broken` (needed).
        found: What was found, and what to do.
    """

    what: str
    state: State
    found: str

    def __str__(self) -> str:
        return f"{self.state:8}{self.what}: {self.found}"

    def line(self) -> str:
        """For people, with a colour where stdout shows it."""
        return painted(f"{self.state:8}", _COLOURS[self.state], sys.stdout) + f"{self.what}: {self.found}"

    def plain(self) -> dict[str, str]:
        """As data."""
        return asdict(self)


class Dubious(Exception):  # noqa: N818
    """What works and may disappoint: a warning, not a fault."""
