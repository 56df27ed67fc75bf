"""Either the old file or the new one."""

import errno
import os

import pytest
import torch
from safetensors.torch import save_file

from valuelens.models import InputError, atomic_path, clear_temporaries, nearest


def tree(folder):
    """Every path below a folder; the text of files."""
    paths = sorted(folder.rglob("*"))
    return {str(p.relative_to(folder)): p.read_text() if p.is_file() else None for p in paths}


def write_folder(path, text):
    with atomic_path(path) as temporary:
        temporary.mkdir()
        (temporary / "a").write_text(text)


def test_a_file_appears_when_the_block_ends_and_not_before(tmp_path):
    path = tmp_path / "deep" / "a.txt"
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
    assert tree(tmp_path) == {"deep": None, "deep/a.txt": "new"}


def test_a_file_is_replaced(tmp_path):
    for text in ("old", "new"):
        with atomic_path(tmp_path / "a.txt") as temporary:
            temporary.write_text(text)
    assert tree(tmp_path) == {"a.txt": "new"}


def test_a_folder_appears_whole_and_is_replaced_whole(tmp_path):
    write_folder(tmp_path / "f", "old")
    (tmp_path / "f" / "more").write_text("old")
    write_folder(tmp_path / "f", "new")
    assert tree(tmp_path) == {"f": None, "f/a": "new"}


def test_a_link_to_a_folder_is_replaced_and_what_it_points_to_stays(tmp_path):
    write_folder(tmp_path / "elsewhere", "mine")
    (tmp_path / "f").symlink_to(tmp_path / "elsewhere")
    write_folder(tmp_path / "f", "new")
    assert not (tmp_path / "f").is_symlink()
    assert tree(tmp_path) == {"elsewhere": None, "elsewhere/a": "mine", "f": None, "f/a": "new"}


@pytest.mark.parametrize("old", [False, True])
def test_an_error_inside_leaves_what_was_there(tmp_path, old):
    if old:
        write_folder(tmp_path / "f", "old")
    before = tree(tmp_path)
    with pytest.raises(KeyError, match="inside"), atomic_path(tmp_path / "f") as temporary:  # noqa: PT012
        temporary.mkdir()
        (temporary / "a").write_text("half")
        raise KeyError("inside")
    assert tree(tmp_path) == before


def test_a_failed_rename_leaves_the_old_folder(tmp_path, monkeypatch):
    write_folder(tmp_path / "f", "old")
    rename = os.replace

    def refuse_the_new(source, target):
        if "-new-" in str(source):
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "replace", refuse_the_new)
    with pytest.raises(InputError, match=r"the output must be writable; found No space left on device; .*f"):
        write_folder(tmp_path / "f", "new")
    assert tree(tmp_path) == {"f": None, "f/a": "old"}


def test_files_have_the_mode_that_the_umask_gives(tmp_path):
    """safetensors writes what its owner alone can read."""
    before = os.umask(0o027)
    try:
        with atomic_path(tmp_path / "alone.safetensors") as temporary:
            save_file({"a": torch.ones(1)}, temporary)
        with atomic_path(tmp_path / "folder") as temporary:
            temporary.mkdir()
            save_file({"a": torch.ones(1)}, temporary / "model.safetensors")
            (temporary / "script").touch(0o755)
    finally:
        os.umask(before)
    modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.rglob("*")}
    assert modes == {"alone.safetensors": 0o640, "folder": 0o750, "model.safetensors": 0o640, "script": 0o750}


def test_an_error_never_names_the_temporary_file(tmp_path):
    with (
        pytest.raises(InputError, match=r"writable; found cannot write .*/a.parquet; .*/a.parquet$"),
        atomic_path(tmp_path / "a.parquet") as temporary,
    ):
        raise OSError(f"cannot write {temporary}")


@pytest.mark.parametrize(
    ("missing", "meant"),
    [
        ("stpe-100", "step-100"),
        ("run/stpe-100", ""),
        ("rnu/step-100", "run/step-100"),
        ("else", ""),
        ("rnu/no", ""),
    ],
)
def test_the_nearest_path_is_one_name_away(tmp_path, missing, meant):
    for name in ("step-100", "run/step-100"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "run" / "step-100").rmdir() if missing == "run/stpe-100" else None
    assert nearest(tmp_path / missing) == (f" (did you mean {tmp_path / meant}?)" if meant else "")


def test_a_place_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file" / "a", tmp_path / "file" / "deep" / "a"):
        with pytest.raises(InputError, match=r"the output must be writable; found .+; .*file.*a$"):
            write_folder(path, "new")
    assert tree(tmp_path) == {"file": "mine"}


def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path):
    write_folder(tmp_path / "f", "old")
    with (
        pytest.raises(InputError, match=r"the output must be writable; found Is a directory"),
        atomic_path(tmp_path / "f") as temporary,
    ):
        temporary.write_text("new")
    assert tree(tmp_path) == {"f": None, "f/a": "old"}


def test_only_our_leftovers_are_cleared(tmp_path):
    for name in (".valuelens-tmp-1-new-step", ".tmp-mine", "step"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text("half")
    (tmp_path / ".valuelens-tmp-2-new-config.json").write_text("half")
    clear_temporaries(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".tmp-mine", "step"]
    clear_temporaries(tmp_path / "none")


def test_a_leftover_is_what_an_interrupted_write_leaves(tmp_path):
    with atomic_path(tmp_path / "a") as temporary:
        temporary.write_text("half")
        clear_temporaries(tmp_path)
        assert not temporary.exists()
        temporary.write_text("whole")
    assert tree(tmp_path) == {"a": "whole"}
