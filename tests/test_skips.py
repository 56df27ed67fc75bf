"""CI fails on a test that did not run and is not listed, says which and why, and nothing is listed in vain."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parent / "plugins"
TESTS = """
import pytest
def test_passes(): pass
def test_skips(): pytest.skip("no moon")
@pytest.mark.skipif(True, reason="no sun")
def test_is_marked(): pass
@pytest.mark.xfail(reason="no stars")
def test_is_expected_to_fail(): assert False
@pytest.mark.xfail(reason="no comets", strict=False)
def test_passes_unexpectedly(): pass
@pytest.mark.far
def test_is_left_out(): pass
"""
MODULE = 'import pytest\npytest.skip("no planets", allow_module_level=True)\n'
WHY = {
    "tests/test_a.py::test_skips": "skipped: no moon",
    "tests/test_a.py::test_is_marked": "skipped: no sun",
    "tests/test_a.py::test_is_expected_to_fail": "expected to fail: no stars",
    "tests/test_a.py::test_passes_unexpectedly": "expected to fail: no comets",
    "tests/test_a.py::test_is_left_out": "left out by -k or -m",
    "tests/test_b.py": "skipped: no planets",
}
LISTED = "".join(
    f"[[skip]]\ntest = {test!r}\nreason = {reason.removeprefix('skipped: ')!r}\n"
    for test, reason in WHY.items()
)


def outcome(folder: Path, *options: str, ci: bool = True, listed: str = "skip = []") -> tuple[int, str]:
    tests = folder / "tests"
    tests.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = far\n", encoding="utf-8")
    for name, text in {"test_a.py": TESTS, "test_b.py": MODULE, "skips.toml": listed}.items():
        (tests / name).write_text(text, encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if key != "CI" and "PYTEST" not in key}
    environment |= {"PYTHONPATH": str(PLUGINS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment |= {"CI": "true"} if ci else {}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "unlisted_skips",
        "-p",
        "no:cacheprovider",
        "-m",
        "not far",
    ]
    answer = subprocess.run(
        [*command, *options], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return answer.returncode, answer.stdout


@pytest.mark.slow
def test_each_way_of_not_running_fails_ci(tmp_path: Path) -> None:
    code, told = outcome(tmp_path, "-p", "xdist", "-n", "1")
    assert code == 1
    for test, reason in WHY.items():
        assert f"NOT LISTED in tests/skips.toml: {test}: {reason}" in told
    assert "6 did not run, 6 of them not listed" in told


def test_what_is_listed_may_be_skipped_for_its_reason(tmp_path: Path) -> None:
    code, told = outcome(tmp_path, listed=LISTED)
    assert code == 0
    assert "listed: tests/test_a.py::test_skips: skipped: no moon" in told
    assert "6 did not run, 0 of them not listed" in told


def test_another_reason_is_not_listed(tmp_path: Path) -> None:
    code, told = outcome(tmp_path, listed=LISTED.replace("no moon", "no rain"))
    assert code == 1
    assert "NOT LISTED in tests/skips.toml: tests/test_a.py::test_skips: skipped: no moon" in told
    assert "6 did not run, 1 of them not listed" in told


def test_elsewhere_nothing_fails(tmp_path: Path) -> None:
    code, told = outcome(tmp_path, ci=False)
    assert code == 0
    assert "did not run" not in told
