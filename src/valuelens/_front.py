"""What the command line does besides asking, as functions: doctor, demo, the list of questions, starting afresh."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from valuelens import _clearing, _doctor, _verbs
from valuelens._interrupt import Interrupted


def doctor(model: str | Path | None = None) -> pd.DataFrame:
    """Look at what commonly goes wrong: `valuelens doctor`.

    Args:
        model: A checkpoint of either kind that should be usable, if any: a path, or a name on the hub.

    Returns:
        A line for each thing that was looked at: `what`, `state` (`broken` only for what is needed) and `found`.

    Example:
        >>> import valuelens as vl
        >>> vl.doctor().columns.tolist()
        ['what', 'state', 'found']
    """
    with _in_python():
        return pd.DataFrame([check.plain() for check in _doctor.checks(model)])


def demo(
    out: str | Path = "demo", *, seed: int = 0, jobs: int | None = None, overwrite: bool = False
) -> dict[str, Any]:
    """Train three small models, analyse them and write one report: `valuelens demo`, three minutes on two cores.

    Args:
        out: Folder for runs, results and the report; a second call goes on from what is there.
        seed: Decides everything random.
        jobs: Processes, one thread each; one per core if none.
        overwrite: Start afresh.

    Returns:
        `report`, where it is, and `verdicts` by part.
    """
    with _in_python():
        return _verbs.demo(Path(out), seed=seed, jobs=jobs, overwrite=overwrite, progress=False)


def questions() -> list[str]:
    """The names that `AnalysisConfig(only=...)` takes: `valuelens analyze --list`.

    Example:
        >>> import valuelens as vl
        >>> vl.questions()[:3]
        ['slots', 'distance', 'reparameterisation']
    """
    return _verbs.questions()


def clear(folder: str | Path) -> None:
    """Remove what valuelens wrote into a folder, as `--overwrite` does.

    Args:
        folder: Of a run, a series or a result. One that does not exist is clear.

    Raises:
        InputError: It holds anything else; nothing is removed then.
    """
    _clearing.clear(Path(folder))


@contextmanager
def _in_python() -> Iterator[None]:
    """Ctrl-C is Python's own: the line that tells how to go on names a command of the shell."""
    try:
        yield
    except Interrupted:
        raise KeyboardInterrupt from None
