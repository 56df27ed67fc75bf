"""Who computes the parts of a ranking: this process, processes of this machine, or workers of a Dask cluster."""

import contextlib
import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, get_args

from joblib import Parallel, parallel_config
from joblib.externals.loky.process_executor import TerminatedWorkerError

from valuelens.models import InputError, deaf, did_you_mean

Engine = Literal["joblib", "dask"]

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""As `joblib.delayed` makes it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workers:
    """Who computes.

    Attributes:
        engine: `joblib` for processes of this machine, `dask` for those of several.
        jobs: Processes; with a scheduler its workers decide.
        scheduler: Address of a Dask scheduler; without one Dask starts `jobs` workers here. Its workers have the same
            valuelens as this machine, one thread each, and find the models at the same paths.
    """

    engine: Engine = "joblib"
    jobs: int = 1
    scheduler: str | None = None

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        if self.engine not in get_args(Engine):
            must = f"--engine takes {', '.join(get_args(Engine))}"
            found = f"found {self.engine!r}{did_you_mean(self.engine, get_args(Engine))}"
            raise InputError(must, found, "option --engine")
        if self.jobs < 1:
            raise InputError("--jobs must be at least 1", f"found {self.jobs}", "option --jobs")
        if self.scheduler is not None and self.engine != "dask":
            found = f"found --engine {self.engine}"
            raise InputError("a scheduler belongs to --engine dask", found, "option --scheduler")


def computed(
    calls: Sequence[Call], workers: Workers, warn: Callable[[str], None] | None = None
) -> Generator[Any, None, None]:
    """What calls return, each as soon as it is there.

    The first error of a call stops the others and is raised.

    Args:
        calls: From `joblib.delayed`; the functions belong to modules.
        workers: Who computes.
        warn: Called with what may go wrong.

    Raises:
        InputError: There is no one to compute, or those who did have died.
    """
    if workers.engine == "dask":
        from_cluster = _on_dask(calls, workers, warn)
        with contextlib.closing(from_cluster):
            yield from from_cluster
        return
    jobs = max(1, min(workers.jobs, len(calls)))
    try:
        with parallel_config(backend="loky", inner_max_num_threads=1):
            yield from _unordered(calls, n_jobs=jobs)
    except TerminatedWorkerError as error:
        must = "a process must live until its part is done (finished parts are kept: run again)"
        found = f"found one of {jobs} that was killed, perhaps for want of memory"
        raise InputError(must, found, "option --jobs") from error


def _on_dask(
    calls: Sequence[Call], workers: Workers, warn: Callable[[str], None] | None
) -> Generator[Any, None, None]:
    if any(find_spec(name) is None for name in ("dask", "distributed")):
        found = "found that dask is not installed: pip install 'valuelens[dask]'"
        raise InputError("--engine dask needs dask and distributed", found, "option --engine")
    from valuelens.analyses.impact._cluster import dask_backend

    with dask_backend(workers.scheduler, max(1, min(workers.jobs, len(calls))), warn) as backend:
        yield from _unordered(calls, backend=backend)


def _unordered(calls: Sequence[Call], **pool: Any) -> Generator[Any, None, None]:
    with deaf():
        outcomes = Parallel(**pool, return_as="generator_unordered", batch_size=1, pre_dispatch="all")(calls)
    try:
        yield from outcomes
    finally:
        with warnings.catch_warnings():  # of parts that nobody waits for any more
            warnings.simplefilter("ignore")
            outcomes.close()
