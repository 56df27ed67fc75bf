"""Counts from other processes, and processes that do not hear Ctrl-C."""

import os
import pickle
import signal
import subprocess
import sys
import time

import pytest

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
    code = "import signal; print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"
    answers = []
    before = signal.getsignal(signal.SIGINT)
    with deaf():
        answers.append(subprocess.run([sys.executable, "-Sc", code], capture_output=True, text=True).stdout)
    answers.append(subprocess.run([sys.executable, "-Sc", code], capture_output=True, text=True).stdout)
    assert answers == ["True\n", "False\n"]
    assert signal.getsignal(signal.SIGINT) is before
