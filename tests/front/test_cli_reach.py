"""Files that the system refuses, and nonsense in the place of a file: one line, whichever verb meets them."""

import errno
import os

import pytest

from valuelens import _doctor, _verbs

LONG = "x" * 300


@pytest.mark.parametrize(
    "arguments",
    [
        *(("pretrain", "--out", LONG), ("pretrain-lm", "--out", LONG), ("demo", "--out", LONG)),
        *(("analyze", LONG), ("costates", LONG), ("impact", LONG), ("report", LONG)),
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_the_system_refuses_is_one_line(valuelens, arguments):
    must = "names of files must be short enough for the disk; found File name too long"
    assert valuelens(*arguments) == (2, "", f"valuelens: error: {must}; {LONG}\n")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, "files and folders must be within reach; found Permission denied; /closed/x"),
        (errno.EROFS, "files and folders must be within reach; found Read-only file system; /closed/x"),
        (errno.ENOSPC, "the disk must have room; found No space left on device; /closed/x"),
        (errno.EBADF, None),
    ],
)
def test_a_file_out_of_reach_is_no_bug_and_another_fault_keeps_its_traceback(
    valuelens, monkeypatch, number, said
):
    def refused(*_, **__):
        raise OSError(number, os.strerror(number), "/closed/x")

    monkeypatch.setattr(_verbs, "report", refused)
    if said is None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            valuelens("report", ".")
    else:
        assert valuelens("report", ".") == (2, "", f"valuelens: error: {said}\n")


@pytest.mark.parametrize("verb", ["analyze", "costates", "impact", "doctor"])
@pytest.mark.parametrize("place", ["run", "run/checkpoints/step-00000001", "series/step-00000001"])
def test_a_configuration_of_endless_brackets_is_one_line(valuelens, monkeypatch, tmp_path, verb, place):
    monkeypatch.setattr(_doctor.machine, "LOOKS", {})
    for name in ("config.json", "model.safetensors"):
        (tmp_path / place / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place / name).write_text("[" * 100_000)
    for asked in (tmp_path / place, tmp_path / place.partition("/")[0]):
        code, out, err = valuelens(verb, asked, *(["--quiet"] if verb == "doctor" else []))
        said = out if verb == "doctor" else err
        assert (code, said.count("\n")) == (2, 1)
