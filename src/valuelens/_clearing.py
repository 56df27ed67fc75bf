"""Starting afresh: a folder is cleared if valuelens wrote all that it holds, else nothing of it is touched."""

import json
import re
import shutil
from pathlib import Path

from valuelens.models import InputError, icrl, lm

_RUN = ("config.json", "metrics.parquet", "checkpoints", "seed-*")
_SERIES = (*_RUN, "step-????????")
_RESULT = (
    *("result.json", "arrays.safetensors", "tables", "figures", "cache"),
    *("report.html", "report.pdf"),
)
_UNFINISHED = {"arrays.safetensors": "", "tables": r".+\.parquet", "cache": r"[0-9a-f]{32,64}(\.json)?"}
"""What an interrupted analysis leaves, and how files in its folders are called."""

_LEFT = ".valuelens-tmp-*"
_LAST = ("config.json", "result.json")
"""By these a folder is known as ours, also after an interruption."""


def clear(*folders: Path) -> None:
    """Remove what valuelens wrote into folders.

    Args:
        folders: Of a run, a series or a result each. One that does not exist is clear.

    Raises:
        InputError: One of them holds other things; nothing is removed then, of none of them. Or the system refuses.
    """
    for path in sorted((path for each in folders for path in _written(each)), key=lambda p: p.name in _LAST):
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        except OSError as error:
            found = f"found {error.strerror or error}"
            raise InputError("what is cleared must be writable", found, str(path)) from None


def refuse_foreign(folder: Path) -> None:
    """Refuse a folder that `clear` does, and touch nothing.

    Args:
        folder: Need not exist.

    Raises:
        InputError: It holds what valuelens did not write.
    """
    _written(folder)


def _written(folder: Path) -> list[Path]:
    """All that a folder holds, if valuelens wrote it."""
    if not folder.is_dir():
        return []
    patterns = (*_identified(folder), _LEFT)
    foreign = [
        path.name
        for path in sorted(folder.iterdir())
        if not any(path.match(pattern) for pattern in patterns) and not _unfinished(path)
    ]
    if foreign:
        must = "a folder to clear must hold a run, a series or a result, and nothing else"
        raise InputError(must, f"found other files: {', '.join(foreign[:3])}", str(folder))
    return list(folder.iterdir())


def _identified(folder: Path) -> tuple[str, ...]:
    """Patterns of the names that belong to what the folder is."""
    known: tuple[str, ...] = ()
    for load, patterns in ((icrl.load_config, _RUN), (lm.load_lm_config, _SERIES)):
        try:
            load(folder / "config.json")
        except InputError:
            continue
        known += patterns
    return known + (_RESULT if _is_result(folder / "result.json") else ())


def _is_result(path: Path) -> bool:
    try:
        return bool(json.loads(path.read_text(encoding="utf-8"))["schema"]["name"] == "valuelens.result")
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False


def _unfinished(path: Path) -> bool:
    """A part of a result that is not there yet."""
    name = _UNFINISHED.get(path.name)
    if name is None:
        return False
    if not path.is_dir():
        return not name
    return all(re.fullmatch(name, each.name) or each.match(_LEFT) for each in path.iterdir())
