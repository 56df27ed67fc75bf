"""Work in several processes: how far each is, and Ctrl-C heard by the one that started them alone."""

import contextlib
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import resource_tracker
from pathlib import Path

import numpy as np

_PAUSE = 0.2


@dataclass(frozen=True, slots=True)
class Counter:
    """Steps that another process has done, in a file that both see; it is sent along with the work.

    Attributes:
        path: Of the file, which has a number for each counter.
        place: Which number.
    """

    path: str
    place: int

    def __call__(self, steps: int, *_: object) -> None:
        """So many more steps are done."""
        _numbers(self.path)[self.place] += steps


@contextlib.contextmanager
def counters(count: int, told: Callable[[list[int]], None] | None) -> Iterator[list[Counter]]:
    """Counters for processes, and a thread that looks at them a few times a second.

    Args:
        count: How many.
        told: Called with what they say where that has changed, and once behind the block.

    Example:
        >>> seen = []
        >>> with counters(2, seen.append) as (first, second):
        ...     first(3)
        ...     second(1)
        >>> seen[-1]
        [3, 1]
    """
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "counters"))
        numbers = np.memmap(path, dtype=np.int64, mode="w+", shape=(count,))
        done, before = threading.Event(), [0] * count

        def look() -> None:
            nonlocal before
            now = [int(number) for number in numbers]
            if told and now != before:
                told(now)
            before = now

        def watch() -> None:
            while not done.wait(_PAUSE):
                look()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield [Counter(path, place) for place in range(count)]
        finally:
            done.set()
            watcher.join()
            _numbers.cache_clear()
        look()


@contextlib.contextmanager
def deaf() -> Iterator[None]:
    """Processes that are started inside do not hear Ctrl-C: whoever started them hears it, and ends them.

    Else each would answer with a traceback of its own. A Ctrl-C inside the block is heard at its end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = False

    def hear(*_: object) -> None:
        nonlocal heard
        heard = True

    resource_tracker.ensure_running()  # started inside, it would take the signal off the mask
    handler = signal.signal(signal.SIGINT, hear)  # other threads may be told of it meanwhile
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which processes inherit
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
        if heard:
            signal.raise_signal(signal.SIGINT)


@lru_cache(maxsize=8)
def _numbers(path: str) -> "np.memmap[tuple[int], np.dtype[np.int64]]":
    return np.memmap(path, dtype=np.int64, mode="r+")
