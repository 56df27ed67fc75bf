"""Every public thing has a docstring, its `Args` are its parameters, and every example in it runs."""

import ast
import doctest
import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
FILES = {
    f"{package}.{file.stem}".removesuffix(".__init__"): file
    for package, folder in SETUPTOOLS["package-dir"].items()
    for file in sorted((ROOT / folder).glob("*.py"))
}

each_module = pytest.mark.parametrize("module", FILES)

Definition = ast.FunctionDef | ast.ClassDef


def public(node: ast.Module | ast.ClassDef) -> Iterator[Definition]:
    """Public functions, classes and methods, in order; what stands inside a function is its own business."""
    for child in node.body:
        if isinstance(child, Definition) and not child.name.startswith("_"):
            yield child
            if isinstance(child, ast.ClassDef):
                yield from public(child)


def overloaded(node: Definition) -> bool:
    return any(ast.unparse(d).split("(")[0].endswith(("overload", ".setter")) for d in node.decorator_list)


def parameters(node: Definition) -> list[str] | None:
    """Parameter names in order; of a class, those of its `__init__`, or None where it writes none."""
    if isinstance(node, ast.ClassDef):
        inits = [f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"]
        return parameters(inits[0]) if inits else None
    a = node.args
    names = [x.arg for x in (*a.posonlyargs, *a.args, a.vararg, *a.kwonlyargs, a.kwarg) if x is not None]
    return [name for name in names if name not in {"self", "cls"}]


def documented(docstring: str) -> list[str]:
    """Names in the `Args` section; one entry may name several."""
    section = re.search(r"^Args:\n((?:(?: {4}.*)?\n)*)", docstring + "\n", re.MULTILINE)
    entries = re.findall(r"^ {4}(\S[^:\n]*):", section[1], re.MULTILINE) if section else []
    return [name.strip(" *`") for entry in entries for name in entry.split(",")]


@each_module
def test_everything_public_has_a_docstring(module: str) -> None:
    tree = ast.parse(FILES[module].read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "the module has no docstring"
    assert [node.name for node in public(tree) if not overloaded(node) and not ast.get_docstring(node)] == []


@each_module
def test_args_name_the_parameters(module: str) -> None:
    for node in public(ast.parse(FILES[module].read_text(encoding="utf-8"))):
        names, described = parameters(node), documented(ast.get_docstring(node) or "")
        if names is not None and described:
            assert described == names, node.name


@each_module
def test_every_example_runs(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
    written = re.findall(r"^\s*>>> ", FILES[module].read_text(encoding="utf-8"), re.MULTILINE)
    assert result.attempted == len(written), "an example was not found by doctest"


def test_the_reader_of_args_reads() -> None:
    docstring = "A thing.\n\nArgs:\n    a: first,\n        with: a colon.\n\n    b, c: two.\n\nReturns:\n    d: none.\n"
    assert documented(docstring) == ["a", "b", "c"]
