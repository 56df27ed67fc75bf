"""One thread means one thread in every pool, and only inside the block."""

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from valuelens.models.icrl import one_thread


def blas_threads() -> set[int]:
    np.ones((2, 2)) @ np.ones((2, 2))
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_every_pool_has_one_thread_inside_and_what_it_had_afterwards() -> None:
    with threadpool_limits(2, user_api="blas"):
        torch.set_num_threads(2)
        try:
            with one_thread():
                assert (blas_threads(), torch.get_num_threads()) == ({1}, 1)
            assert (blas_threads(), torch.get_num_threads()) == ({2}, 2)
        finally:
            torch.set_num_threads(1)


def test_threads_come_back_after_an_error() -> None:
    with threadpool_limits(2, user_api="blas"):
        with pytest.raises(RuntimeError, match="on purpose"), one_thread():
            raise RuntimeError("on purpose")
        assert blas_threads() == {2}
