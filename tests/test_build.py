"""What a user installs: the wheel holds every package file and nothing else, and works away from the checkout."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("build")  # one wheel for all

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TOPS = {
    "valuelens": "src/valuelens",
    **{f"valuelens/{area}": area for area in ("probe", "models", "analyses")},
}


Commands = tuple[tuple[str, ...], ...]
CACHE_NAMES = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME", "MPLCONFIGDIR", "TORCHINDUCTOR_CACHE_DIR")
CACHES = ("huggingface", "matplotlib", "fontconfig", "torch")
TINY_RUN = ("--steps", "21", "--num-checkpoints", "2", "--batch-size", "4")
TINY_ROLLOUTS = ("--num-prompts", "4", "--num-generations", "4")
SMOKE: Commands = (
    ("--version",),
    ("--help",),
    ("pretrain-lm", *TINY_RUN, "--d-model", "16", "--out", "out/series"),
    ("costates", "out/series/step-00000021", "--max-hops", "1", *TINY_ROLLOUTS, "--out", "out/costates"),
    ("impact", "out/series", "--rl-seeds", "0", "--jobs", "1", *TINY_ROLLOUTS, "--out", "out/impact"),
    ("report", "out/costates", "out/impact", "--out", "out/report.html"),
    ("doctor",),
)
SMOKE_HOMELESS: Commands = (
    ("pretrain", "--num-layers", "2", *TINY_RUN, "--out", "out/run"),
    ("analyze", "out/run", "--only", "slots,distance,emergence", "--num-tasks", "4", "--out", "out/analysis"),
)
PROGRAM = """
import ast, importlib, sys

for package in ast.literal_eval(sys.argv[1]):
    module = importlib.import_module(package)
    for name in getattr(module, "__all__", ()):
        getattr(module, name)
from valuelens import cli

for command in ast.literal_eval(sys.argv[2]):
    sys.argv = ["valuelens", *command]
    try:
        cli.main()
    except SystemExit as stop:
        print(f"{' '.join(command)}: {stop.code}", flush=True)
for name, module in list(sys.modules.items()):
    if name.split(".")[0] == "valuelens":
        print("module", module.__file__)
"""
WATCH = """
import os, sys

log = os.open(os.environ["WATCHED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND) if "WATCHED" in os.environ else None
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
TARGETS = {"os.mkdir": 0, "os.rename": 1, "os.link": 1, "os.symlink": 1, "sqlite3.connect": 0}


def watch(event, given):
    path = given[0] if event == "open" and given[2] & WRITES else given[TARGETS[event]] if event in TARGETS else None
    if isinstance(path, (str, bytes, os.PathLike)):
        os.write(log, os.fsencode(path) + b"\\n")


if log is not None:
    sys.addaudithook(watch)
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Stdout of a command that must succeed; no cache of ours is named to it, and no bytecode is written."""
    kept = {key: value for key, value in os.environ.items() if key not in CACHE_NAMES}
    answer = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**kept, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
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
    """Built from the sdist, so that what the sdist leaves out is missing here too."""
    build = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
    run(sys.executable, "-c", build, checkout.parent, cwd=checkout)
    (sdist,) = checkout.parent.glob("*.tar.gz")
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", checkout.parent, sdist, cwd=checkout)
    (built,) = checkout.parent.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip installed the wheel, away from the checkout; it stands before the checkout's own install."""
    target = tmp_path_factory.mktemp("site")
    options = ("--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check", "--quiet")
    run(sys.executable, "-m", "pip", "install", *options, "--target", target, wheel, cwd=target)
    (target / "sitecustomize.py").write_text(WATCH, encoding="utf-8")
    return target


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
def test_the_installed_wheel_works_and_writes_nowhere_else(site: Path, tmp_path: Path) -> None:
    """Every public name and the verbs on language models, away from the checkout; what Python opens is watched.

    What compiled code writes is seen by what the folders hold before and after. A demo is made of these verbs and of
    those below, and takes minutes at any size of its models: tests/front/test_demo.py runs it.
    """
    home = tmp_path / "home"
    home.mkdir()
    told, written = smoke(site, tmp_path, home, SMOKE)
    for command in SMOKE:
        assert f"{' '.join(command)}: 0" in told
    assert f"valuelens {PYPROJECT['project']['version']}" in told
    modules = [Path(line.removeprefix("module ")) for line in told if line.startswith("module ")]
    assert len(modules) >= len(PYPROJECT["tool"]["setuptools"]["packages"])
    assert [file for file in modules if not file.is_relative_to(site)] == []
    ours = {tmp_path / "work" / "out", home / ".cache", home / ".config", tmp_path / "tmp"}
    strange = [path for path in written if not any(path.is_relative_to(each) for each in ours)]
    tried = (
        tmp_path / "work" / ".valuelens-"
    )  # by the doctor, whether the folder can be written; nothing stays
    assert [path for path in strange if not str(path).startswith(str(tried))] == []
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["out"]
    assert {path.name.split("_")[0] for path in (tmp_path / "tmp").iterdir()} <= {
        "torchinductor"
    }  # torch's cache
    kept = {path.relative_to(home).parts[:2] for path in home.rglob("*") if path.is_file()}
    assert kept <= {(".cache", name) for name in CACHES} | {(".config", "matplotlib")}


@pytest.mark.slow
def test_it_works_where_home_cannot_be_written(site: Path, tmp_path: Path) -> None:
    """The verbs on in-context learners; HOME is no folder at all, which stops root too."""
    told, written = smoke(site, tmp_path, Path(os.devnull), SMOKE_HOMELESS)
    for command in SMOKE_HOMELESS:
        assert f"{' '.join(command)}: 0" in told
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["out"]
    ours = (tmp_path / "work" / "out", tmp_path / "tmp")
    assert [path for path in written if not any(path.is_relative_to(each) for each in ours)] == []
    assert {path.name.split("_")[0] for path in (tmp_path / "tmp").iterdir()} <= {
        "torchinductor"
    }  # torch's cache


def test_the_console_script_starts(site: Path, tmp_path: Path) -> None:
    told = run(site / "bin" / "valuelens", "--version", cwd=tmp_path, PYTHONPATH=str(site))
    assert told.strip() == f"valuelens {PYPROJECT['project']['version']}"


def smoke(site: Path, folder: Path, home: Path, commands: Commands) -> tuple[list[str], set[Path]]:
    """Lines of stdout, and every path that the process opened for writing, made or renamed to.

    Compiled code is not watched, so the installed files are compared with what they were, and so is what lies beside
    the folders that are the process's own.
    """
    for name in ("work", "tmp"):
        (folder / name).mkdir()
    log, program = folder / "written.txt", folder / "smoke.py"
    program.write_text(PROGRAM, encoding="utf-8")
    where = {"HOME": str(home), "TMPDIR": str(folder / "tmp"), "WATCHED": str(log), "PYTHONPATH": str(site)}
    packages = PYPROJECT["tool"]["setuptools"]["packages"]
    beside = {*folder.iterdir(), log, home}
    before = state(site)
    told = run(sys.executable, program, repr(packages), repr(commands), cwd=folder / "work", **where)
    assert state(site) == before
    assert {*folder.iterdir()} <= beside
    written = {Path(folder / "work", line) for line in log.read_text(encoding="utf-8").splitlines()}
    return told.splitlines(), {path for path in written if not path.is_relative_to("/dev")}


def state(folder: Path) -> dict[Path, tuple[int, int]]:
    """Size and time of change of every file."""
    files = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {path: (found.st_size, found.st_mtime_ns) for path, found in files.items()}


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
