"""Under xdist what a file, or a group of files, shares is made once, and slow files are handed out first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parent / "plugins"
TESTS = """
import os, pathlib, pytest
{mark}
@pytest.fixture(scope="module")
def dear():
    with open("made.txt", "a") as file:
        print(pathlib.Path(__file__).stem, file=file)
@pytest.mark.parametrize("number", range(6))
def test_it(dear, number):
    with open("run.txt", "a") as file:
        print(os.environ["PYTEST_XDIST_WORKER"], pathlib.Path(__file__).stem, number, file=file)
"""
TOGETHER = 'pytestmark = pytest.mark.xdist_group("together")'
SLOW = "pytestmark = pytest.mark.slow"
FILES = {"test_a": "", "test_b": TOGETHER, "test_c": "", "test_d": TOGETHER, "test_e": SLOW, "test_f": SLOW}


@pytest.mark.slow
def test_a_file_stays_in_one_process_and_slow_ones_come_first(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n", encoding="utf-8")
    for name, mark in FILES.items():
        text = TESTS.format(mark=mark)
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if "PYTEST" not in key}
    environment |= {"PYTHONPATH": str(PLUGINS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "whole_files", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-n", "2"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert sorted((tmp_path / "made.txt").read_text().split()) == sorted(FILES)
    rows = [line.split() for line in (tmp_path / "run.txt").read_text().splitlines()]
    places = {name: {worker for worker, file, _ in rows if file == name} for name in FILES}
    assert len(places["test_b"] | places["test_d"]) == 1
    assert {rows[0][1], next(row[1] for row in rows if row[0] != rows[0][0])} == {"test_e", "test_f"}
    for name in FILES:
        assert [number for _, file, number in rows if file == name] == list("012345")
