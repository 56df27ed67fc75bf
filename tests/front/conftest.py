"""The command line in this process; a page of the documentation followed as its reader would, and what it prints."""

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from valuelens import _impact_verbs, _lm_verbs, _verbs, cli

_FENCE = re.compile(r"^(`{3,})(\w+)\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?|-?\.\d+")


@pytest.fixture
def valuelens(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Exit code, stdout and stderr of `valuelens ARGUMENTS`, in this process."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["valuelens", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capsys.readouterr()
        return int(stop.value.code or 0), printed.out, printed.err

    return run


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """What verbs tell of their progress while a test lasts: what they do, and the share of the whole that is done."""
    seen: list[tuple[str, float]] = []

    @contextmanager
    def bar(what: str, *, show: bool) -> Iterator[Callable[[str, float, float], None]]:
        yield lambda doing, done, total: seen.append((doing, done / total)) if total else None

    for module in (_verbs, _lm_verbs, _impact_verbs):
        monkeypatch.setattr(module, "bar", bar)
    return seen


@pytest.fixture
def follow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path, Path], dict[str, Any]]]:
    """`follow(page, folder)`: run the page's blocks in order in the folder; what Python named is returned.

    `sh` blocks are commands (those of valuelens run here, in this process), `python` blocks run in one namespace; one
    that starts with a comment `# NAME.py` is a file instead. A `text` block is what the block above it printed, as far
    as it is shown: lines may be left out, and a number with a point may differ by one in its last digit.
    """
    written: list[str] = []

    def run(page: Path, folder: Path) -> dict[str, Any]:
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(folder)
        names: dict[str, Any] = {"__name__": "__main__"}
        printed = ""
        for _, kind, block in _FENCE.findall(page.read_text(encoding="utf-8")):
            file = re.match(r"# (\w+\.py)\n", block)
            if kind == "python" and file:
                (folder / file[1]).write_text(block)
                written.append(Path(file[1]).stem)
            elif kind == "python":
                printed = _printed(lambda code=block: exec(code, names))
            elif kind == "sh":
                printed = "".join(_command(line) for line in block.splitlines() if line.strip())
            elif kind == "text":
                missing = unshown(block, printed)
                assert not missing, f"{page.name}: not printed: {missing}\nPrinted was:\n{printed}"
        return names

    yield run
    for name in written:
        sys.modules.pop(name, None)


def _printed(act: Callable[[], object]) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        act()
    return out.getvalue()


def _command(line: str) -> str:
    words = shlex.split(line, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        name, _, value = words.pop(0).partition("=")
        assert (name, value) == ("PYTHONPATH", "."), "only the folder itself is put on the path"
    if not words:
        return ""
    if words[0] != "valuelens":
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(words, env={**os.environ, "PATH": path}, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        return done.stdout
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert ended.value.code in (0, None), f"{line}\n{err.getvalue()}"
    return out.getvalue()


@pytest.fixture
def agrees() -> Callable[[str, str], bool]:
    """`agrees(shown, printed)`: is what a page shows what was printed, to the digits that it shows?"""
    return lambda shown, printed: not unshown(shown, printed)


def unshown(shown: str, printed: str) -> str:
    """The first line of a page that was not printed, in order; empty if all were."""
    lines = iter(printed.splitlines())
    for line in shown.splitlines():
        if line.strip() in ("", "..."):
            continue
        if not any(_same(line, each) for each in lines):
            return line
    return ""


def _same(shown: str, printed: str) -> bool:
    return _words(shown) == _words(printed) and all(
        map(_near, _NUMBER.findall(shown), _NUMBER.findall(printed))
    )


def _words(line: str) -> list[str]:
    return _NUMBER.sub("0", line).split()


def _near(shown: str, printed: str) -> bool:
    a, b = shown.replace(",", ""), printed.replace(",", "")
    if "." not in a:
        return a == b
    mantissa, _, exponent = a.partition("e")
    last = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(float(a) - float(b)) <= 1.01 * last
