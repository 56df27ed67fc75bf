"""What stderr and stdout show while a verb works: colours and bars on a terminal, plain lines elsewhere."""

import contextlib
import os
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Told = Callable[[str, float, float], None]
"""Called as told(what is or was done, done, total)."""

EVERY = 30.0
"""Seconds between two lines of progress where there is no terminal; shorter work says nothing."""

_WINDOW = 60.0
_BURST = 10.0
"""So many times faster than what follows, and it was there already."""

_STYLES = {"bold": "1", "error": "1;31", "good": "32", "note": "33", "faint": "2"}
_STILL = {
    "PYTHONWARNINGS": "ignore",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
"""What keeps libraries silent, in child processes too."""


def rich_output(stream: Any) -> bool:
    """Whether a stream may be sent colours and control characters: a terminal that has them, and no NO_COLOR.

    Args:
        stream: stdout or stderr.
    """
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not plain and stream.isatty()


def painted(text: str, style: str, stream: Any) -> str:
    """A text in a style where the stream shows it.

    Args:
        text: One line.
        style: `bold`, `error`, `good`, `note` or `faint`.
        stream: It is meant for.
    """
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if rich_output(stream) else text


def say(message: str, style: str = "note", *, stream: Any = None) -> None:
    """A line on stderr behind our name.

    Args:
        message: Printed in one line.
        style: Of our name, on a terminal.
        stream: In the place of stderr.
    """
    stream = stream or sys.stderr
    name = painted("valuelens:", style, stream)
    print(f"{name} {' '.join(message.split())}", file=stream, flush=True)


def say_where(out: Path | None, *, quiet: bool) -> None:
    """Where the report of a result folder is.

    Args:
        out: The folder, if results were written.
        quiet: Say nothing.
    """
    if out is not None and not quiet:
        say(f"the report is at {out / 'report.html'}")


@contextmanager
def hushed(*, quiet: bool) -> Iterator[None]:
    """Keep stdout for the answer: what libraries, foreign code and child processes print inside goes to stderr.

    Args:
        quiet: Also no warnings and no logs of libraries.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        stack.enter_context(_second_for_first())
        stack.enter_context(warnings.catch_warnings())
        if quiet:
            warnings.simplefilter("ignore")
            stack.enter_context(_environment(_STILL))
        else:
            warnings.showwarning = _in_one_line
        yield


@contextmanager
def silent_downloads() -> Iterator[None]:
    """Processes that are started inside show no bars of downloads."""
    with _environment({"HF_HUB_DISABLE_PROGRESS_BARS": "1"}):
        yield


@contextmanager
def _second_for_first() -> Iterator[None]:
    """File descriptor 2 in place of 1, for what does not go through Python's stdout."""
    try:
        sys.__stdout__.flush()  # type: ignore[union-attr]
        before = os.dup(1)
        os.dup2(2, 1)
    except (OSError, AttributeError, ValueError):  # there is none
        yield
        return
    try:
        yield
    finally:
        os.dup2(before, 1)
        os.close(before)


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _in_one_line(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    say(f"warning: {message} ({category.__name__})")


@dataclass(slots=True)
class Pace:
    """How fast work goes, and so when it ends.

    Attributes:
        now: The clock.
    """

    now: Callable[[], float] = time.monotonic
    _seen: deque[tuple[float, float]] = field(default_factory=deque)

    def note(self, share: float) -> None:
        """So much of the whole is done now. The first call is what was done before."""
        seen, at = self._seen, self.now()
        speed = self._speed()
        if speed and at > seen[-1][0] and (share - seen[-1][1]) / (at - seen[-1][0]) < speed / _BURST:
            last = seen[-1]
            seen.clear()
            seen.append(last)
        while len(seen) > 2 and at - seen[1][0] > _WINDOW:
            seen.popleft()
        seen.append((at, share))

    def left(self) -> float | None:
        """Seconds to go; none where nothing tells yet."""
        speed = self._speed()
        if not speed:
            return None
        (start, before), (at, share) = self._seen[0], self._seen[-1]
        late = self.now() - at
        ahead = (1 - share) / speed - late
        return ahead if ahead > 0 else (1 - share) * (at + late - start) / (share - before)

    def _speed(self) -> float | None:
        """Share of the whole in a second."""
        if len(self._seen) < 2:
            return None
        (start, before), (at, share) = self._seen[0], self._seen[-1]
        return (share - before) / (at - start) if at > start and share > before else None


def span(seconds: float | None) -> str:
    """A time left in words, as coarse as it is known.

    Args:
        seconds: None where it is not known.
    """
    if seconds is None:
        return "time left not known yet"
    if seconds < 10:
        return "under 10 s left"
    if seconds < 115:
        return f"{round(seconds, -1):.0f} s left"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min left"
    return f"{seconds // 3600:.0f} h {seconds % 3600 / 60:.0f} min left"


@contextmanager
def bar(what: str, *, show: bool, now: Callable[[], float] = time.monotonic) -> Iterator[Told]:
    """Progress with the time left on stderr: a bar on a terminal, elsewhere a plain line every half minute.

    Args:
        what: The verb.
        show: Show anything.
        now: The clock.
    """
    pace = Pace(now)
    if not show:
        yield lambda *_: None
    elif rich_output(sys.stderr):
        with _live(what, pace) as told:
            yield told
    else:
        yield _lines(what, pace)


def phases(told: Told, weights: Mapping[str, float]) -> Told:
    """Progress through parts of a work that each count from nothing.

    Args:
        told: Of the whole.
        weights: About how long each part takes, by the name that it is told by, in their order.
    """
    whole = sum(weights.values())
    before = dict(zip(weights, (sum(list(weights.values())[:k]) for k in range(len(weights))), strict=True))

    def part(name: str, done: float, total: float) -> None:
        if name in weights and total:
            told(name, before[name] + weights[name] * done / total, whole)

    return part


def followed(told: Told, share: float) -> tuple[Told, Told]:
    """Progress of a work that counts in its own units, and of what follows it.

    Args:
        told: Of both.
        share: Of the whole that the second takes, about.
    """

    def first(what: str, done: float, total: float) -> None:
        told(what, (1 - share) * done / total if total else 0.0, 1.0 if total else 0.0)

    def second(what: str, done: float, total: float) -> None:
        told(what, 1 - share + share * done / total, 1.0)

    return first, second


def _lines(what: str, pace: Pace) -> Told:
    last, stream = pace.now(), sys.stderr  # that of now: a library that is kept quiet has another

    def told(doing: str, done: float, total: float) -> None:
        nonlocal last
        pace.note(done / total if total else 0.0)
        if pace.now() - last >= EVERY:
            last = pace.now()
            say(f"{what}: {doing}, {done / total if total else 0:.0%}, {span(pace.left())}", stream=stream)

    return told


@contextmanager
def _live(what: str, pace: Pace) -> Iterator[Told]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TaskProgressColumn, TextColumn
    from rich.text import Text

    class Left(ProgressColumn):
        """Time left, counted down between two calls."""

        def render(self, task: Any) -> Text:
            spent = f"{task.elapsed or 0:.0f} s, "
            return Text(spent + ("" if task.finished else span(pace.left())))

    columns = (TextColumn("{task.description}", markup=False), BarColumn(20), TaskProgressColumn(), Left())
    # a file of its own: what is printed meanwhile may go elsewhere
    console = Console(file=sys.stderr, force_terminal=True)
    progress = Progress(*columns, console=console, transient=True, redirect_stdout=False)
    task = progress.add_task(what, total=None, start=False)
    try:

        def told(doing: str, done: float, total: float) -> None:
            progress.start()  # not before: until then a download shows bars of its own
            progress.start_task(task)
            pace.note(done / total if total else 0.0)
            shown = doing if doing.startswith(what) else f"{what}: {doing}"
            progress.update(task, completed=done, total=total or None, description=shown)

        yield told
    finally:
        progress.stop()
