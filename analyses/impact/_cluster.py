"""joblib's Dask backend, made to say when a worker dies of its part: as it is, it would wait for ever.

Imported only where Dask is asked for.
"""

import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from distributed import Client, KilledWorker, LocalCluster
from joblib._dask import DaskDistributedBackend

from valuelens.models import InputError
from valuelens.models._errors import told

CONNECT_SECONDS = 10
"""How long a scheduler has to answer, and its first worker to come."""


class Backend(DaskDistributedBackend):  # type: ignore[misc]
    """Passes on the errors of Dask itself, and computes on the workers even where there is only one."""

    def submit(self, func: Any, callback: Any = None) -> "Future[Any]":
        """Send a call to the workers.

        Args:
            func: The call.
            callback: Told what came of it.
        """
        future: Future[Any] = super().submit(func, callback)
        future.add_done_callback(lambda done: callback(done.exception()) if done.exception() else None)
        return future

    def retrieve_result_callback(self, out: Any) -> Any:
        """What a call returned, or its error raised.

        Args:
            out: What came of it.
        """
        if isinstance(out, KilledWorker):
            must = "a worker must live until its part is done (finished parts are kept: run again)"
            found = (
                f"found a part that {out.allowed_failures + 1} workers died of, perhaps for want of memory"
            )
            raise InputError(must, found, "option --engine dask")
        if isinstance(out, BaseException):
            must = "the workers must have this valuelens and stay within reach (finished parts are kept)"
            raise InputError(must, f"found {type(out).__name__}: {out}", "option --engine dask") from out
        return super().retrieve_result_callback(out)

    def effective_n_jobs(self, n_jobs: int) -> int:
        """Threads of all workers; at least 2, as joblib takes 1 to mean this process.

        Args:
            n_jobs: Of no account.
        """
        with told("a Dask scheduler must have workers", "option --scheduler"):
            threads: int = super().effective_n_jobs(n_jobs)
        return max(2, threads)


@contextlib.contextmanager
def dask_backend(
    scheduler: str | None, jobs: int, warn: Callable[[str], None] | None
) -> Iterator[DaskDistributedBackend]:
    """A backend of joblib whose workers are those of a scheduler.

    Args:
        scheduler: Its address; a cluster on this machine, which ends with the block, if none.
        jobs: Workers of such a cluster.
        warn: Called if the workers have several threads each.

    Raises:
        InputError: The scheduler does not answer.
    """
    with contextlib.ExitStack() as stack:
        where = stack.enter_context(_local(jobs)) if scheduler is None else scheduler
        with told("a Dask scheduler must answer at its address", f"option --scheduler {scheduler or ''}"):
            client = stack.enter_context(Client(where, timeout=CONNECT_SECONDS, set_as_default=False))
        threads = max(client.nthreads().values(), default=1)
        if threads > 1 and warn:
            warn(
                f"workers with one thread each are faster and give the same numbers everywhere: found {threads}"
            )
        yield Backend(client=client, wait_for_workers_timeout=CONNECT_SECONDS)


@contextlib.contextmanager
def _local(jobs: int) -> Iterator[LocalCluster]:
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=jobs,
            threads_per_worker=1,
            processes=True,
            memory_limit=0,
            dashboard_address="127.0.0.1:0",
            local_directory=folder,
            silence_logs=logging.CRITICAL,
        ) as cluster,
    ):
        yield cluster
