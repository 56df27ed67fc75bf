"""One thread per process: more of them slow small models down, and change the order of sums."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch and the linear algebra of numpy and scipy use one thread inside the block, as many as before behind it.

    Many small regressions cost ten times as much processor time on two BLAS threads.

    Example:
        >>> with one_thread():
        ...     torch.get_num_threads()
        1
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
