"""Dask: a worker that dies is replaced, and one that cannot be is told of rather than waited for."""

import contextlib
import json
import operator
import os
import signal
import sys
import threading
import time

import pytest
from distributed import LocalCluster
from joblib import delayed

from valuelens.analyses.impact import Work, Workers, _cluster, answers
from valuelens.analyses.impact._workers import computed
from valuelens.models import InputError

PART = '''
import os, pathlib, time


def slow_at_first(folder, x):
    """Stays until it is killed, the first time that it is asked for 2."""
    started = pathlib.Path(folder, str(x))
    if x == 2 and not started.exists():
        started.write_text(str(os.getpid()))
        time.sleep(120)
    return {"square": x * x, "seconds_pid": os.getpid()}
'''


@contextlib.contextmanager
def cluster(**sizes):
    """Workers that are threads of this process, which start at once."""
    options = {"processes": False, "dashboard_address": "127.0.0.1:0", "silence_logs": 50, "memory_limit": 0}
    with LocalCluster(**{"n_workers": 1, "threads_per_worker": 1, **options, **sizes}) as made:
        yield made


def dask(made):
    return Workers(engine="dask", scheduler=made.scheduler_address)


def here():
    return threading.current_thread().name


def stay(until):
    while not os.path.exists(until):
        time.sleep(0.01)


def test_even_one_worker_computes_itself():
    with cluster() as made:
        assert here() not in set(computed([delayed(here)() for _ in range(3)], dask(made)))


def test_an_error_of_a_call_is_raised_and_ends_it():
    with cluster() as made, pytest.raises(ZeroDivisionError):
        list(computed([delayed(operator.truediv)(1, 0), delayed(abs)(1)], dask(made)))


def test_several_threads_are_warned_of():
    told = []
    with cluster(threads_per_worker=2) as made:
        assert set(computed([delayed(abs)(-1)], dask(made), told.append)) == {1}
    assert told == ["workers with one thread each are faster and give the same numbers everywhere: found 2"]


def test_a_part_that_workers_die_of_is_told(tmp_path):
    with cluster() as made:
        scheduler = made.scheduler
        scheduler.allowed_failures = 0

        def lose_the_worker():
            while not any(worker.processing for worker in list(scheduler.workers.values())):
                time.sleep(0.01)
            for address in list(scheduler.workers):
                scheduler.loop.add_callback(scheduler.remove_worker, address, stimulus_id="test")

        losing = threading.Thread(target=lose_the_worker)
        losing.start()
        must = r"a worker must live until its part is done .*; found a part that 1 workers died of"
        with pytest.raises(InputError, match=must):
            list(computed([delayed(stay)(tmp_path / "lost")], dask(made)))
        losing.join()
        (tmp_path / "lost").touch()


def test_a_call_that_the_workers_cannot_read_is_told():
    class Unreadable:
        def __reduce__(self):
            return operator.truediv, (1, 0)

    with (
        cluster() as made,
        pytest.raises(InputError, match=r"the workers must have this valuelens .*; found "),
    ):
        list(computed([delayed(repr)(Unreadable())], dask(made)))


def test_a_scheduler_that_is_not_there_is_one_line(monkeypatch):
    monkeypatch.setattr(_cluster, "CONNECT_SECONDS", 0.2)
    for address in ("tcp://127.0.0.1:9", "nonsense://x"):
        with pytest.raises(InputError) as error:
            list(computed([delayed(abs)(1)], Workers(engine="dask", scheduler=address)))
        assert str(error.value).startswith("a Dask scheduler must answer at its address; found ")
        assert str(error.value).endswith(f"option --scheduler {address}")
        assert "\n" not in str(error.value)


def test_a_scheduler_without_workers_is_one_line(monkeypatch):
    backend = _cluster.Backend
    short = {"wait_for_workers_timeout": 0.2}  # the scheduler itself may take its time to answer
    monkeypatch.setattr(_cluster, "Backend", lambda **given: backend(**{**given, **short}))
    with (
        cluster(n_workers=0) as made,
        pytest.raises(InputError, match="a Dask scheduler must have workers; found TimeoutError"),
    ):
        list(computed([delayed(abs)(1)], dask(made)))


@pytest.mark.slow
def test_two_processes_of_which_one_is_killed_with_a_part_in_hand(tmp_path, monkeypatch):
    (tmp_path / "part_of_a_test.py").write_text(PART)
    (tmp_path / "started").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "part_of_a_test", raising=False)
    function = __import__("part_of_a_test").slow_at_first
    started = tmp_path / "started" / "2"

    def kill():
        while not started.exists() or not started.read_text():
            time.sleep(0.01)
        os.kill(int(started.read_text()), signal.SIGKILL)

    killing = threading.Thread(target=kill)
    killing.start()
    work = [
        Work(
            checkpoint=f"step-{x}",
            sha256=f"{x}",
            question="score",
            how={},
            function=function,
            arguments=(str(tmp_path / "started"), x),
        )
        for x in range(6)
    ]
    found = answers(work, cache=tmp_path / "cache", workers=Workers(engine="dask", jobs=2))
    killing.join()
    assert [each.payload["square"] for each in found] == [0, 1, 4, 9, 16, 25]
    assert found[2].payload["seconds_pid"] not in (os.getpid(), int(started.read_text()))
    kept = [json.loads(file.read_text())["payload"]["square"] for file in (tmp_path / "cache").iterdir()]
    assert sorted(kept) == [0, 1, 4, 9, 16, 25]
