"""Parts are computed once, kept, and survive whatever happens to the run."""

import errno
import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from joblib.externals.loky import get_reusable_executor

from valuelens.analyses.impact import Answer, Failure, Work, Workers, _engine, answers
from valuelens.models import InputError

PARTS = '''
"""What other processes compute: a module that they can import."""
import os, pathlib, signal, time

from valuelens.models import InputError


def count(folder, name):
    pathlib.Path(folder, f"{name}-{time.monotonic_ns()}").touch()


def square(folder, x):
    count(folder, x)
    return {"square": x * x, "third": x / 3, "seconds": time.monotonic()}


def unusable(folder, x):
    count(folder, x)
    raise InputError("weights must be finite", "found nan", f"step-{x}")


def broken(folder, x):
    raise KeyError("a bug of ours")


def killed(folder, x):
    os.kill(os.getpid(), signal.SIGKILL)


def interrupted(folder, x):
    raise KeyboardInterrupt


def apart(folder, x):
    for token in pathlib.Path(folder).parent.glob("cache/.*shared*"):
        token.unlink()
    return square(folder, x)
'''
TWO = Workers(jobs=2)


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """The module of PARTS."""
    (tmp_path / "module").mkdir()
    (tmp_path / "module" / "parts_of_a_test.py").write_text(PARTS)
    monkeypatch.syspath_prepend(tmp_path / "module")
    monkeypatch.delitem(sys.modules, "parts_of_a_test", raising=False)
    return __import__("parts_of_a_test")


@pytest.fixture
def counted(tmp_path):
    """A folder with a file for each time that a part was computed."""
    (tmp_path / "counted").mkdir()
    return tmp_path / "counted"


@pytest.fixture
def six(parts, counted):
    """Six parts."""
    return [
        Work(
            checkpoint=f"step-{x}",
            sha256=f"hash-{x}",
            question="score",
            how={"beta": 5.0, "layer": "L//2"},
            function=parts.square,
            arguments=(str(counted), x),
        )
        for x in range(6)
    ]


@pytest.fixture
def no_processes_left():
    """Processes of this test import its module; those of others must not be met."""
    get_reusable_executor().shutdown(wait=True, kill_workers=True)
    yield
    get_reusable_executor().shutdown(wait=True, kill_workers=True)


def computed(counted):
    """Which parts were computed, in order."""
    return sorted(int(file.name.split("-")[0]) for file in counted.iterdir())


def entries(cache):
    """Everything in the cache but provenance."""
    return {
        file.name: {**json.loads(file.read_text()), "provenance": None} for file in sorted(cache.iterdir())
    }


def test_a_part_is_computed_once(six, counted, tmp_path):
    told = []
    first = answers(six, cache=tmp_path / "cache", progress=lambda *said: told.append(said))
    again = answers(six, cache=tmp_path / "cache", warn=pytest.fail)
    assert computed(counted) == list(range(6))
    assert [each.payload for each in first] == [each.payload for each in again]
    assert [each.payload["square"] for each in again] == [0, 1, 4, 9, 16, 25]
    assert ([each.cached for each in first], [each.cached for each in again]) == ([False] * 6, [True] * 6)
    assert [each.work for each in first] == six
    assert told == [(f"score step-{x}", x + 1, 6) for x in range(6)]
    assert len(list((tmp_path / "cache").iterdir())) == 6


def test_what_decides_the_answer_decides_the_entry(six, counted, tmp_path):
    part = six[3]
    answers([part], cache=tmp_path / "cache")
    others = [replace(part, sha256="b"), replace(part, question="gain"), replace(part, how={"beta": 5})]
    for done, other in enumerate([replace(part, checkpoint="a", arguments=()), *others], 1):
        answers([replace(other, arguments=part.arguments)], cache=tmp_path / "cache")
        assert len(computed(counted)) == done


def test_the_same_part_twice_is_computed_once(six, counted, tmp_path):
    twice = [six[2], six[1], replace(six[2], checkpoint="copy")]
    found = answers(twice, cache=None)
    assert computed(counted) == [1, 2]
    assert found[0].payload == found[2].payload
    assert [each.work.checkpoint for each in found] == ["step-2", "step-1", "copy"]


def test_there_is_one_thread(six, tmp_path):
    torch.set_num_threads(2)
    try:
        part = replace(six[0], function=_threads, arguments=())
        assert answers([part], cache=None)[0].payload == {"threads": 1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def _threads():
    return {"threads": torch.get_num_threads()}


def test_an_answer_is_the_same_computed_or_read(six, tmp_path):
    part = replace(six[0], function=_odd, arguments=())
    for cache in (None, tmp_path / "cache", tmp_path / "cache"):
        payload = answers([part], cache=cache)[0].payload
        assert list(payload) == ["a", "b"]
        assert payload["a"] == [1, [2.5]]
        assert math.isnan(payload["b"])
    with pytest.raises(TypeError, match="an answer must be of dicts"):
        answers([replace(part, sha256="c", function=_odder)], cache=tmp_path / "cache")


def _odd():
    return {"b": math.nan, "a": (1, (2.5,))}


def _odder():
    return {"a": torch.ones(2)}


@pytest.mark.parametrize(
    "damage", [lambda old: old[: len(old) // 2], lambda old: old.replace(b"4", b"5"), lambda _: b""]
)
def test_a_corrupt_entry_is_computed_again_with_a_warning(six, counted, tmp_path, damage):
    cache, told = tmp_path / "cache", []
    answers(six, cache=cache)
    before = entries(cache)
    part = next(file for file in cache.iterdir() if b'"square":4' in file.read_bytes())
    part.write_bytes(damage(part.read_bytes()))
    again = answers(six, cache=cache, warn=told.append)
    assert [each.cached for each in again] == [x != 2 for x in range(6)]
    assert again[2].payload["square"] == 4
    assert len(told) == 1
    assert told[0].startswith("score of step-2 is computed again: its entry in the cache is corrupt, it")
    assert told[0].endswith(str(part))
    assert entries(cache) == before


def test_what_a_killed_run_left_half_written_is_removed(six, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / ".valuelens-tmp-1-new-a.json").write_text("half")
    answers(six[:1], cache=tmp_path / "cache")
    assert [file.suffix for file in (tmp_path / "cache").iterdir()] == [".json"]


def test_a_part_whose_input_is_at_fault_fails_alone(six, parts, counted, tmp_path):
    mixed = [*six[:2], replace(six[2], function=parts.unusable), *six[3:]]
    for times in (1, 2):  # it is not kept: the user may repair it
        found = answers(mixed, cache=tmp_path / "cache")
        assert found[2] == Failure(work=mixed[2], error="weights must be finite; found nan; step-2")
        assert [type(each) for each in found] == [Failure if x == 2 else Answer for x in range(6)]
        assert computed(counted).count(2) == times


def test_workers_elsewhere_have_their_answers_kept_here(six, parts, counted, tmp_path):
    cache = tmp_path / "cache"
    mixed = [replace(six[0], function=parts.apart), *six[1:4], replace(six[4], function=parts.unusable)]
    answers(mixed[1:2], cache=cache)
    next(cache.iterdir()).write_text("corrupt")
    found = answers(
        mixed, cache=cache
    )  # from the second on there is no file by which to see that they share it
    assert [each.payload["square"] for each in found[:4]] == [0, 1, 4, 9]
    assert answers(mixed, cache=cache, warn=pytest.fail)[:4] == [
        replace(each, cached=True) for each in found[:4]
    ]
    assert [file.suffix for file in cache.iterdir()] == [".json"] * 4


def test_a_worker_of_another_version_is_refused(six, tmp_path, monkeypatch):
    versions = iter(["0.1.0", "0.1.0", "9.9.9", "9.9.9"])
    monkeypatch.setattr(_engine, "version", lambda _: next(versions))
    with pytest.raises(
        InputError, match=r"all workers must have the same valuelens; found 9\.9\.9 on a worker"
    ):
        answers(six[:1], cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("how", ["broken", "interrupted"])
def test_whatever_ends_a_run_what_is_finished_stays(six, parts, counted, tmp_path, how):
    ending = [*six[:3], replace(six[3], function=getattr(parts, how)), *six[4:]]
    with pytest.raises((KeyError, KeyboardInterrupt)):
        answers(ending, cache=tmp_path / "cache")
    assert computed(counted) == [0, 1, 2]
    answers(six, cache=tmp_path / "cache")
    assert computed(counted) == list(range(6))


def test_a_full_disk_is_one_line_and_nothing_half_written(six, counted, tmp_path, monkeypatch):
    cache, write = tmp_path / "cache", Path.write_text

    def full(path, text, **options):
        if '"square":9' in text:
            write(path, text[:10], **options)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, text, **options)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(
        InputError, match=r"the output must be writable; found No space left on device; .*json$"
    ):
        answers(six, cache=cache)
    monkeypatch.undo()
    assert len(entries(cache)) == 3
    assert all(file.suffix == ".json" for file in cache.iterdir())
    answers(six, cache=cache)
    assert computed(counted) == [0, 1, 2, 3, 3, 4, 5]


def test_a_fault_between_write_and_rename_loses_that_part_alone(six, counted, tmp_path, monkeypatch):
    cache, rename, seen = tmp_path / "cache", os.replace, []

    def fail_third(source, target):
        seen.append(target)
        if len([each for each in seen if each.suffix == ".json"]) == 3:
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "replace", fail_third)
    with pytest.raises(KeyboardInterrupt):
        answers(six, cache=cache)
    monkeypatch.undo()
    answers(six, cache=cache)
    assert computed(counted) == [0, 1, 2, 2, 3, 4, 5]
    answers(six, cache=tmp_path / "whole")
    assert entries(cache) == entries(tmp_path / "whole")


@pytest.mark.slow
def test_processes_give_the_answers_of_one(six, parts, counted, tmp_path, no_processes_left):
    one = answers(six, cache=tmp_path / "one")
    mixed = [*six, replace(six[0], sha256="x", function=parts.unusable)]
    two = answers(mixed, cache=tmp_path / "two", workers=TWO)
    assert isinstance(two.pop(), Failure)
    assert [{**each.payload, "seconds": 0} for each in one] == [
        {**each.payload, "seconds": 0} for each in two
    ]
    assert entries(tmp_path / "one") == entries(tmp_path / "two")
    dying = replace(six[0], sha256="z", function=parts.killed)
    with pytest.raises(
        InputError, match=r"a process must live .*run again\); found one of 2 that was killed"
    ):
        answers([dying, replace(six[0], sha256="w")], cache=tmp_path / "two", workers=TWO)
