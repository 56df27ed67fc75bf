"""Ctrl-C: what is kept, and the command that goes on."""

import os
import shlex
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

_PATIENCE = 10.0
"""Seconds for a killed process to be gone: one that waits for a disk is not gone before."""


class Interrupted(BaseException):
    """Ctrl-C, told in one line; no KeyboardInterrupt, of which typer makes a bare exit code."""


@dataclass(slots=True)
class Keeper:
    """What an interruption leaves.

    Attributes:
        kept: Says what is kept, in words; empty if nothing is.
        why: Nothing is kept, if so.
        cleared: `--overwrite` has been done: with it the next call would remove what is kept.
    """

    kept: Callable[[], str]
    why: str
    cleared: bool = False

    def line(self, arguments: list[str]) -> str:
        """What is kept and how to go on.

        Args:
            arguments: Of the command line, with the program.
        """
        kept = "" if "--overwrite" in arguments and not self.cleared else self.kept()
        if not kept:
            return f"interrupted; {self.why}; to start again: {command(arguments)}"
        rest = [each for each in arguments if each != "--overwrite"] if self.cleared else arguments
        return f"interrupted; {kept}; to go on: {command(rest)}"


@contextmanager
def interruptible(
    kept: Callable[[], str], why: str = "nothing is kept yet", *, out: Path | None = None
) -> Iterator[Keeper]:
    """Turn Ctrl-C inside the block into a line.

    Args:
        kept: Says what is kept, asked when it happens; empty if nothing is.
        why: Nothing is kept, if so.
        out: Where processes of the block write: what one of them had half written is removed.

    Raises:
        Interrupted: On Ctrl-C.
    """
    keeper = Keeper(kept, why)
    with _heard() as workers:
        try:
            yield keeper
        except KeyboardInterrupt:
            if workers:
                _end_pool()
            for worker in workers:
                _end(worker, out)
            raise Interrupted(keeper.line(sys.argv)) from None


def _end_pool() -> None:
    """Put away the processes that joblib keeps for the next call: it must not find them dead."""
    if "joblib" in sys.modules:
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)


def _end(worker: "BaseProcess", out: Path | None) -> None:
    """End a process, which may be in the midst of a file and has no time to clear it away."""
    from multiprocessing.connection import wait

    with suppress(OSError, ValueError):  # ended and put away meanwhile
        if not wait([worker.sentinel], 0) and worker.pid is not None:
            os.kill(worker.pid, signal.SIGKILL)
            wait([worker.sentinel], _PATIENCE)
    if out is None:
        return
    with suppress(OSError):
        for left in list(out.rglob(f".valuelens-tmp-{worker.pid}-*")):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


@contextmanager
def _heard() -> Iterator[list["BaseProcess"]]:
    """From Ctrl-C on, threads that watch over processes say nothing: they stumble over those that are ended.

    Gives the processes that were there at Ctrl-C.
    """
    from multiprocessing import active_children

    workers: list[BaseProcess] = []
    if threading.current_thread() is not threading.main_thread():
        yield workers
        return
    before, hook = signal.getsignal(signal.SIGINT), threading.excepthook

    def stop(*_: object) -> None:
        threading.excepthook = lambda _: None
        workers.extend(active_children())
        # joblib's, on the way out
        warnings.filterwarnings("ignore", r"\d+ tasks (which|have been)", UserWarning)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)
    try:
        yield workers
    finally:
        signal.signal(signal.SIGINT, before)
        threading.excepthook = hook


def command(arguments: list[str]) -> str:
    """A command line that a shell takes as it was given.

    Args:
        arguments: With the program.
    """
    program, *rest = arguments
    found = shutil.which("valuelens")
    known = Path(program).name == program or (found and Path(found).resolve() == Path(program).resolve())
    return shlex.join(["valuelens" if known else program, *rest])


def nothing() -> str:
    """Nothing is kept."""
    return ""


def checkpoints(out: Path) -> str:
    """Checkpoints of a run or a series.

    Args:
        out: Its folder.
    """
    steps = [
        int(each.name.removeprefix("step-"))
        for pattern in ("checkpoints/step-*", "step-*", "seed-*/checkpoints/step-*", "seed-*/step-*")
        for each in out.glob(pattern)
        if each.name.removeprefix("step-").isdecimal()
    ]
    if not steps:
        return ""
    return _kept(len(steps), "checkpoint", f"up to step {max(steps):,} ", out)


def answers(out: Path | None) -> str:
    """The result of an analysis, or answers from which it goes on.

    Args:
        out: Its folder, if there is one.
    """
    if out is None:
        return ""
    if (out / "result.json").exists():
        return f"the result is kept in {out}, its figures and its report are not all written"
    count = sum(not each.name.startswith(".") for each in out.glob("cache/*"))
    return _kept(count, "answer", "", out / "cache") if count else ""


def parts(out: Path) -> str:
    """What of a demo is there.

    Args:
        out: Its folder.
    """
    here = [
        found
        for each in (sorted(out.iterdir()) if out.is_dir() else [])
        if (found := answers(each) if each.name.endswith("-results") else checkpoints(each))
    ]
    return ", ".join(here)


def _kept(count: int, noun: str, which: str, where: Path) -> str:
    return (
        f"{count} {noun} {which}is kept in {where}"
        if count == 1
        else f"{count} {noun}s {which}are kept in {where}"
    )
