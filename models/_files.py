"""Files that are either the old ones or the new ones (write to a temporary name, then rename), and their hashes."""

import contextlib
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from safetensors import SafetensorError

from valuelens.models._errors import InputError

_TEMPORARY = ".valuelens-tmp-"


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, renamed to it when the block ends without an error.

    Works for a file or a folder that the block creates; an existing folder is replaced.

    Args:
        path: Where the result shall be; its parent is created.

    Raises:
        InputError: The place cannot be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with atomic_path(Path(folder, "a.txt")) as temporary:
        ...         _ = temporary.write_text("done")
        ...     sorted(os.listdir(folder))
        ['a.txt']
    """
    ours = (
        f"{_TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}"  # machines that share a folder may share numbers
    )
    temporary, old = (path.with_name(f"{ours}-{age}-{path.name}") for age in ("new", "old"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _share(temporary)
        if temporary.is_dir() and path.is_dir():
            os.replace(path, old)  # a folder cannot be replaced at once: never a half-removed one by its name
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        found = getattr(error, "strerror", None) or str(error).replace(temporary.name, path.name)
        raise InputError("the output must be writable", f"found {found}", str(path)) from error
    finally:
        if old.is_dir() and not path.exists():
            os.replace(old, path)
        _remove(temporary)
        _remove(old)


def clear_temporaries(folder: Path) -> None:
    """Remove what a killed run left half-written in a folder."""
    for leftover in folder.glob(f"{_TEMPORARY}*"):
        _remove(leftover)


def content_hash(path: Path, pattern: str = "*") -> str | None:
    """sha256 of a file, or of all files of a folder and their names; none if there is neither.

    Args:
        path: It need not be a path on this machine at all.
        pattern: Of the files of a folder that count.
    """
    if path.is_dir():
        files = sorted(each for each in path.rglob(pattern) if each.is_file())
        parts = [f"{each.relative_to(path).as_posix()} {content_hash(each)}\n" for each in files]
        return hashlib.sha256("".join(parts).encode()).hexdigest()
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def nearest(path: Path) -> str:
    """` (did you mean PATH?)`: the path that exists and differs in one name, the first that is missing; else empty.

    Args:
        path: Of something that does not exist.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Path(folder, "step-00000100").mkdir()
        ...     nearest(Path(folder, "stpe-00000100")).replace(folder, "runs")
        ' (did you mean runs/step-00000100?)'
    """
    missing = path
    while not missing.parent.exists() and missing != missing.parent:
        missing = missing.parent
    try:
        names = [each.name for each in missing.parent.iterdir() if not each.name.startswith(_TEMPORARY)]
    except OSError:
        return ""
    close = get_close_matches(missing.name, names, n=1)
    meant = missing.parent / close[0] / path.relative_to(missing) if close else None
    return f" (did you mean {meant}?)" if meant is not None and meant.exists() else ""


def _share(temporary: Path) -> None:
    """Give files the mode that the user's umask gives: safetensors keeps its own to their owner alone."""
    files = [temporary] if temporary.is_file() else [each for each in temporary.rglob("*") if each.is_file()]
    closed = [each for each in files if not each.stat().st_mode & 0o077]
    if closed:
        probe = temporary.with_name(f"{temporary.name}-mode")
        probe.touch()
        mode = stat.S_IMODE(probe.stat().st_mode)
        probe.unlink()
        for each in closed:
            each.chmod(mode)


def _remove(path: Path) -> None:
    """A link goes, and what it points to stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):  # not there, or below something that is no folder
            path.unlink()
