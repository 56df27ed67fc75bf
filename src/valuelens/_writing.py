"""Figures and pages of results, as the verbs write them, with the time left."""

from collections.abc import Callable, Mapping
from pathlib import Path

from valuelens._terminal import Told, phases
from valuelens.analyses import Result
from valuelens.analyses.report import Picture, pictures, save_figures, write_report


def one_of(told: Told, what: str, k: int, count: int) -> Callable[[float, float], None]:
    """Progress of one of several alike.

    Args:
        told: Of them all.
        what: They are.
        k: Its number, from 0.
        count: How many they are.
    """
    return lambda done, total: told(what, k + done / total, count)


def drawn(results: Mapping[str, Result], out: Path, told: Told) -> None:
    """Figures and report of a result folder.

    Args:
        results: By title.
        out: The folder.
        told: Hears how far it is.
    """
    step = phases(told, {"drawing figures": 9.0, "writing the report": 1.0})
    shown = {
        title: figures_of(result, out, one_of(step, "drawing figures", k, len(results)))
        for k, (title, result) in enumerate(results.items())
    }
    step("writing the report", 0, 1)
    write_report(results, out / "report.html", folders=dict.fromkeys(results, out), drawn=shown)


def figures_of(
    result: Result, out: Path, progress: Callable[[float, float], None] | None = None
) -> list[Picture]:
    """The figures of a result, which are also written into its folder.

    Args:
        result: Of any kind.
        out: The folder.
        progress: Called as progress(done, total).
    """
    shown = pictures(result, progress=progress)
    save_figures(result, out / "figures", drawn=shown)
    if progress:
        progress(1, 1)
    return shown
