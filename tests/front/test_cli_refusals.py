"""What the system refuses is told in one line; a fault of another kind keeps its traceback."""

import errno
import os

import pytest

from valuelens import _verbs

LONG = "x" * 300


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """What is not refused is written to a folder of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        *(("pretrain", "--out", LONG), ("pretrain-lm", "--out", LONG), ("demo", "--out", LONG)),
        *(("analyze", LONG), ("costates", LONG), ("impact", LONG), ("report", LONG)),
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_the_system_refuses_is_one_line(valuelens, arguments):
    code, out, err = valuelens(*arguments)
    must = "names of files must be short enough for the disk; found File name too long"
    assert (code, out, err) == (2, "", f"valuelens: error: {must}; {LONG}\n")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, "files and folders must be within reach; found Permission denied; /root/x"),
        (errno.EROFS, "files and folders must be within reach; found Read-only file system; /root/x"),
        (errno.ENOSPC, "the disk must have room; found No space left on device; /root/x"),
        (errno.EBADF, None),
    ],
)
def test_a_file_out_of_reach_is_no_bug_and_another_fault_keeps_its_traceback(
    valuelens, monkeypatch, number, said
):
    def refused(*_, **__):
        raise OSError(number, os.strerror(number), "/root/x")

    monkeypatch.setattr(_verbs, "report", refused)
    if said is None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            valuelens("report", "run")
    else:
        assert valuelens("report", "run") == (2, "", f"valuelens: error: {said}\n")
