"""Counts from other processes, and processes that do not hear Ctrl-C."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest
from joblib import Parallel, delayed

from valuelens.models import counters, deaf


def test_counts_arrive_while_the_work_goes_on_and_at_the_end():
    seen = []
    with counters(2, seen.append) as counted:
        for place, counter in enumerate(counted):
            pickle.loads(pickle.dumps(counter))(place + 3)  # as it comes to another process
        deadline = time.monotonic() + 30
        while not seen and time.monotonic() < deadline:
            time.sleep(0.01)
        assert seen
        counted[0](1)
    assert seen[-1] == [4, 4]


def test_nobody_need_listen():
    with counters(1, None) as (counter,):
        counter(5, 0)


def test_an_error_inside_passes_and_the_file_is_gone():
    with pytest.raises(KeyError, match="inside"), counters(1, None) as (counter,):  # noqa: PT012
        path = counter.path
        raise KeyError("inside")
    assert not os.path.exists(path)


def test_a_process_that_is_started_deaf_does_not_hear_ctrl_c():
    code = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('deaf')"
    answers = []
    before = signal.getsignal(signal.SIGINT)
    with deaf():
        answers.append(subprocess.run([sys.executable, "-Sc", code], capture_output=True, text=True).stdout)
    answers.append(subprocess.run([sys.executable, "-Sc", code], capture_output=True, text=True).stdout)
    assert answers == ["deaf\n", ""]
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_workers_of_joblib_do_not_hear_it():
    """The process by which they keep account of files is started with them, and changes the mask."""
    with deaf():
        masks = Parallel(n_jobs=2, return_as="generator")([delayed(signal.pthread_sigmask)(0, ())] * 2)
    assert [signal.SIGINT in mask for mask in masks] == [True, True]


@pytest.mark.parametrize("listening", [False, True], ids=["alone", "beside another thread"])
def test_ctrl_c_while_processes_start_is_heard_when_they_have(listening):
    """A thread that was there before is told of it at once, and Python's handler runs in the main one."""
    done, passed = threading.Event(), []
    if listening:
        other = threading.Thread(target=done.wait)
        other.start()
    with pytest.raises(KeyboardInterrupt), deaf():  # noqa: PT012
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        passed.append("to the end")
    done.set()
    assert passed == ["to the end"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with deaf():
        passed.append("and heard once")
    assert len(passed) == 2
