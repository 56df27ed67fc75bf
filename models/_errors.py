"""The one error that means: the input is at fault, not the program."""

import textwrap
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

_LONGEST = 200


class InputError(ValueError):
    """Bad input, told in one line: what must hold; what was found; where.

    The command line prints it behind `valuelens: error: ` and exits with 2. Everything else that is raised is
    a bug of ours and keeps its traceback.

    Args:
        must: What must hold, as a rule (`gamma must lie in [0, 1)`).
        found: What was found instead (`found 1.2`).
        where: File, key, column, row or option.

    Example:
        >>> str(InputError("gamma must lie in [0, 1)", "found 1.2", "option --gamma"))
        'gamma must lie in [0, 1); found 1.2; option --gamma'
    """

    def __init__(self, must: str, found: str, where: str) -> None:
        super().__init__("; ".join(" ".join(part.split()) for part in (must, found, where)))
        self.must, self.found, self.where = must, found, where

    def __reduce__(self) -> tuple[type["InputError"], tuple[str, str, str]]:
        """Pickled by its parts, so that it comes back whole from another process."""
        return type(self), (self.must, self.found, self.where)


def did_you_mean(name: object, possible: Iterable[str]) -> str:
    """` (did you mean NAME?)` with the nearest of the names there are; empty if none is near.

    Args:
        name: What was asked for.
        possible: What there is.

    Example:
        >>> did_you_mean("lable-copy", ["label-copy", "addition"]), did_you_mean("chess", ["addition"])
        (' (did you mean label-copy?)', '')
    """
    close = get_close_matches(str(name), possible, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


@contextmanager
def told(must: str, where: str) -> Iterator[None]:
    """Turn whatever foreign code raises inside the block into one line; an `InputError` passes as it is.

    Args:
        must: What must hold.
        where: Whose code it is.
    """
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # foreign code may raise anything
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name} line {frame.lineno}"
        message = textwrap.shorten(str(error), _LONGEST, placeholder=" ...")
        raise InputError(must, f"found {type(error).__name__}: {message} ({place})", where) from error
