"""What a user installs: the wheel holds every package file and nothing else, and works away from the checkout."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TOPS = {
    "valuelens": "src/valuelens",
    **{f"valuelens/{area}": area for area in ("probe", "models", "analyses")},
}


def run(*command: str | Path, cwd: Path) -> str:
    answer = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what git has or would add: a fresh clone."""
    copy = tmp_path_factory.mktemp("build") / "clone"
    git = (
        "git",
        "-c",
        f"safe.directory={ROOT}",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    )
    for name in filter(None, run(*git, cwd=ROOT).split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Path:
    build = (
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--wheel-dir",
    )
    run(*build, checkout.parent, ".", cwd=checkout)
    (built,) = checkout.parent.glob("*.whl")
    return built


@pytest.mark.slow
def test_the_wheel_holds_the_packages_and_nothing_else(checkout: Path, wheel: Path) -> None:
    wanted = {
        f"{top}/{file.relative_to(checkout / folder).as_posix()}"
        for top, folder in TOPS.items()
        for file in (checkout / folder).rglob("*")
        if file.is_file()
    }
    found = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert found == wanted


@pytest.mark.slow
def test_the_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    packages = PYPROJECT["tool"]["setuptools"]["packages"]
    program = f"""
import sys
sys.path.insert(0, "site")
import {", ".join(packages)}
print(*(module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "valuelens"), sep="\\n")
"""
    files = [Path(line) for line in run(sys.executable, "-c", program, cwd=tmp_path).splitlines()]
    assert len(files) >= len(packages)
    assert [file for file in files if not (tmp_path / file).is_relative_to(tmp_path / "site")] == []


def test_every_dependency_is_pinned() -> None:
    """A range may fetch what nobody tried: each name that pyproject.toml asks for has its exact version."""
    project = PYPROJECT["project"]
    asked = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    names = {re.split(r"[^\w.-]", requirement)[0].lower() for requirement in asked} - {"valuelens"}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {line.split("==")[0].lower() for line in lines if "==" in line and not line.startswith("#")}
    assert names - pins == set()
