"""Every exported name exists, says what it is, is annotated, and is used by something."""

import importlib
import inspect
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
PACKAGES = [package for package in SETUPTOOLS["packages"] if package != "valuelens"]
USERS = ("README.md", "src", "probe", "models", "analyses", "tests", "benchmarks")


def exports(package: str) -> dict[str, object]:
    module = importlib.import_module(package)
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }


EXPORTS = [(package, name) for package in PACKAGES for name in exports(package)]
each_export = pytest.mark.parametrize(("package", "name"), EXPORTS)


def words() -> dict[Path, set[str]]:
    """The words of everything that may use a name: code, tests, README; re-exporting is not using."""
    roots = [ROOT / user for user in USERS]
    files = [file for root in roots for file in ([root] if root.is_file() else root.rglob("*.py"))]
    texts = {file: file.read_text(encoding="utf-8") for file in files if file.name != "__init__.py"}
    return {file: set(re.findall(r"\w+", text)) for file, text in texts.items()}


def home(value: object) -> Path | None:
    file = getattr(inspect.getmodule(value), "__file__", None)
    return Path(file) if file else None


@each_export
def test_an_export_is_documented(package: str, name: str) -> None:
    value = exports(package)[name]
    if inspect.isclass(value) or inspect.isroutine(value):
        assert value.__doc__, f"{package}.{name} has no docstring"


@each_export
def test_an_exported_function_is_annotated(package: str, name: str) -> None:
    value = exports(package)[name]
    if not inspect.isfunction(value):
        return
    signature = inspect.signature(value)
    bare = [p.name for p in signature.parameters.values() if p.annotation is inspect.Parameter.empty]
    assert bare == []
    assert signature.return_annotation is not inspect.Signature.empty


def test_no_export_is_dead() -> None:
    used = words()
    dead = []
    for package, name in EXPORTS:
        here = home(exports(package)[name])
        if not any(name in found for file, found in used.items() if file != here):
            dead.append(f"{package}.{name}")
    assert dead == []


def test_the_front_door_keeps_its_promises() -> None:
    front = importlib.import_module("valuelens")
    assert re.fullmatch(r"\d+\.\d+\.\d+", front.__version__)
    for name in getattr(front, "__all__", []):
        assert getattr(front, name) is not None
