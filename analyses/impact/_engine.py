"""The series engine: parts of a ranking, each computed once and kept, on as many processes or machines as there are.

A part is a question asked of a checkpoint. Whoever computes it writes its file as soon as it is done, so that a run
which is killed loses only what was under way, and goes on from there when it is started again.
"""

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from joblib import delayed

from valuelens.analyses._request import Progress
from valuelens.analyses.impact._entries import CorruptEntryError, canonical, digest, keep, kept, parsed
from valuelens.analyses.impact._workers import Workers, computed
from valuelens.models import InputError, atomic_path, clear_temporaries
from valuelens.models._threads import one_thread

Warn = Callable[[str], None]
"""Called with what went wrong and was made good."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A part: one question on one checkpoint.

    Attributes:
        checkpoint: What the user calls it.
        sha256: Of its weights.
        question: What is asked.
        how: Everything else that decides the answer, as plain data.
        function: Of a module, so that another process finds it too; answers in plain data. Members of its answer
            whose names start with `seconds` are provenance.
        arguments: Of the function; paths rather than tensors, as they are sent to other processes.
    """

    checkpoint: str
    sha256: str
    question: str
    how: Mapping[str, Any]
    function: Callable[..., dict[str, Any]]
    arguments: tuple[Any, ...] = ()

    @property
    def key(self) -> dict[str, Any]:
        """What decides the answer: neither the name of the checkpoint nor where it lies."""
        decisive = {"sha256": self.sha256, "question": self.question, "how": dict(self.how)}
        return {**decisive, "valuelens": version("valuelens")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a part came to.

    Attributes:
        work: The part.
        payload: The answer as plain data, the same to the last bit whether it was computed or read.
        cached: It was read.
    """

    work: Work
    payload: dict[str, Any]
    cached: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A part whose input is at fault.

    Attributes:
        work: The part.
        error: In one line.
    """

    work: Work
    error: str


def answers(
    work: Sequence[Work],
    *,
    cache: Path | None,
    workers: Workers | None = None,
    progress: Progress | None = None,
    warn: Warn | None = None,
) -> list[Answer | Failure]:
    """Compute what is not in the cache yet; parts with the same key are computed once.

    Everything is computed on one thread a process. Workers that see the folder of the cache write into it; for those
    that do not this process does. With several processes a script needs `if __name__ == "__main__":`.

    Args:
        work: The parts.
        cache: Folder of finished ones, if any; what a killed run left half-written is removed from it.
        workers: Who computes; this process alone if not given.
        progress: Called after each part.
        warn: Called with what went wrong and was made good.

    Returns:
        In the order of `work`; a part that fails for its input fails alone.

    Raises:
        InputError: The cache cannot be written, or there is no one to compute.
    """
    keys = [digest(each.key) for each in work]
    parts = dict(zip(keys, work, strict=True))
    if cache is not None:
        clear_temporaries(cache)
    outcomes: dict[str, Answer | Failure] = {}
    for key, outcome in _outcomes(parts, cache, workers or Workers(), warn):
        outcomes[key] = outcome
        if progress:
            progress(f"{outcome.work.question} {outcome.work.checkpoint}", len(outcomes), len(parts))
    return [replace(outcomes[key], work=each) for key, each in zip(keys, work, strict=True)]


def _outcomes(
    parts: Mapping[str, Work], cache: Path | None, workers: Workers, warn: Warn | None
) -> Iterator[tuple[str, Answer | Failure]]:
    """First those that are there."""
    missing = []
    for key, part in parts.items():
        if (payload := _read(cache, key, part, warn)) is None:
            missing.append(key)
        else:
            yield key, Answer(work=part, payload=payload, cached=True)
    if not missing:
        return
    with _token(cache) as token:
        calls = [delayed(_part)(parts[key], key, token) for key in missing]
        with contextlib.closing(computed(calls, workers, warn)) as found:
            for key, answer, written in found:
                if isinstance(answer, str):
                    yield key, Failure(work=parts[key], error=answer)
                    continue
                if cache is not None and not written:
                    keep(_file(cache, key), parts[key].key, answer)
                yield key, Answer(work=parts[key], payload=answer, cached=False)


def _part(work: Work, key: str, token: str | None) -> tuple[str, dict[str, Any] | str, bool]:
    """Compute a part where it is sent to: its key, its answer or what is wrong with its input, whether it is kept."""
    if digest(work.key) != key:
        found = f"found {version('valuelens')} on a worker"
        raise InputError("all workers must have the same valuelens", found, "option --scheduler")
    cache = Path(token).parent if token is not None and Path(token).exists() else None
    if (answer := _read(cache, key, work, None)) is not None:  # of a worker that died before it could tell
        return key, answer, True
    try:
        with one_thread():
            answer = work.function(*work.arguments)
    except InputError as error:
        return key, str(error), False
    answer = dict(parsed(canonical(answer)))
    if cache is not None:
        keep(_file(cache, key), work.key, answer)
    return key, answer, cache is not None


def _read(cache: Path | None, key: str, work: Work, warn: Warn | None) -> dict[str, Any] | None:
    if cache is None:
        return None
    try:
        return kept(_file(cache, key), work.key)
    except CorruptEntryError as error:
        if warn:
            warn(
                f"{work.question} of {work.checkpoint} is computed again: its entry in the cache is corrupt, {error}; "
                f"{_file(cache, key)}"
            )
        return None


def _file(cache: Path, key: str) -> Path:
    return cache / f"{key}.json"


@contextlib.contextmanager
def _token(cache: Path | None) -> Iterator[str | None]:
    """A file by which a worker sees whether it shares the folder; named as what a killed run leaves behind."""
    if cache is None:
        yield None
        return
    token = cache.absolute() / f".valuelens-tmp-shared-{uuid.uuid4().hex}"
    with atomic_path(token) as temporary:
        temporary.touch()
    try:
        yield str(token)
    finally:
        token.unlink(missing_ok=True)
