"""The layout of the house: who may import whom, what a file may hold, and that shapes are really checked."""

import ast
import functools
import re
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from jaxtyping import TypeCheckError

from valuelens.models.icrl._mrp import MarkovRewardProcess, context_of

ROOT = Path(__file__).parents[1]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
FOLDERS = {package: ROOT / folder for package, folder in SETUPTOOLS["package-dir"].items()}
FILES = {file: package for package, folder in FOLDERS.items() for file in sorted(folder.glob("*.py"))}
FRONT = ("__init__.py", "cli.py")

MAY_IMPORT = {
    "probe": ("valuelens.probe",),
    "models": ("valuelens.models",),
    "analyses": ("valuelens.analyses", "valuelens.models", "valuelens.probe"),
    # drawn from results: it needs no model and measures nothing
    "analyses.report": (
        "valuelens.analyses",
        "valuelens.models._files",
        "valuelens.models.InputError",
        "valuelens.models.atomic_path",
    ),
}
PLOTTING = ("matplotlib", "seaborn")

each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
each_package = pytest.mark.parametrize("package", FOLDERS)
each_inner_package = pytest.mark.parametrize("package", [name for name in FOLDERS if name != "valuelens"])


@functools.cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def imports(file: Path) -> Iterator[str]:
    """Dotted names that a file imports, anywhere in it; `from a import b` counts as `a.b`."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)


def below(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def functions(file: Path) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree(file)) if isinstance(node, ast.FunctionDef)]


def parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [name for name in names if name not in {"self", "cls"}]


def body_lines(function: ast.FunctionDef) -> int:
    body = function.body if ast.get_docstring(function) is None else function.body[1:]
    return sum((statement.end_lineno or 0) - statement.lineno + 1 for statement in body)


@each_file
def test_arrows_point_one_way(file: Path) -> None:
    area = FILES[file].removeprefix("valuelens").lstrip(".")
    area = area if area in MAY_IMPORT else area.split(".")[0]
    ours = [name for name in imports(file) if below(name, ("valuelens", "probe", "models", "analyses"))]
    assert [name for name in ours if not below(name, MAY_IMPORT.get(area, ("valuelens",)))] == []


@each_file
def test_no_analysis_needs_the_report(file: Path) -> None:
    if FILES[file] == "valuelens.analyses":
        assert [name for name in imports(file) if below(name, ("valuelens.analyses.report",))] == []


@each_file
def test_imports_are_absolute_and_evaluated(file: Path) -> None:
    names = list(imports(file))
    assert [name for name in names if name.startswith(".")] == []
    assert "__future__.annotations" not in names  # shapes could not be checked


@each_file
def test_only_reports_draw(file: Path) -> None:
    if FILES[file] != "valuelens.analyses.report":
        assert [name for name in imports(file) if below(name, PLOTTING)] == []


@each_file
def test_modules_are_private(file: Path) -> None:
    allowed = FRONT if FILES[file] == "valuelens" else FRONT[:1]
    assert file.name in allowed or re.fullmatch(r"_[a-z][a-z0-9_]*\.py", file.name)


@each_file
def test_function_names_are_nouns_or_acts(file: Path) -> None:
    assert [f.name for f in functions(file) if re.match(r"_*(get|compute|do)_", f.name)] == []


@each_file
def test_parameters_are_few_and_flags_are_named(file: Path) -> None:
    if file.name in ("cli.py", "_lm_cli.py"):
        return  # the options of a command are its parameters
    for function in functions(file):
        assert len(parameters(function)) <= 6, function.name
        flags = [a.arg for a in function.args.args if a.annotation and ast.unparse(a.annotation) == "bool"]
        assert flags == [], f"{function.name}: booleans are keyword-only"


def test_functions_are_small() -> None:
    lengths = sorted(body_lines(function) for file in FILES for function in functions(file))
    assert statistics.median(lengths) < 10
    assert lengths[int(0.9 * len(lengths))] < 35


def test_files_are_short() -> None:
    files = [*FILES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    lengths = {
        str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines()) for file in files
    }
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_the_package_list_is_the_disk() -> None:
    found = {
        ".".join(("valuelens", *file.parent.relative_to(ROOT).parts))
        for area in MAY_IMPORT
        for file in (ROOT / area).rglob("__init__.py")
    }
    assert sorted(SETUPTOOLS["packages"]) == sorted({"valuelens"} | found)
    folders = {
        package: "/".join(package.split(".")[1:]) or "src/valuelens" for package in SETUPTOOLS["packages"]
    }
    assert SETUPTOOLS["package-dir"] == folders


@each_package
def test_packages_are_typed(package: str) -> None:
    assert (FOLDERS[package] / "py.typed").is_file()
    assert "py.typed" in SETUPTOOLS["package-data"][package]


@each_inner_package
def test_init_is_a_docstring_and_reexports(package: str) -> None:
    docstring, *statements = tree(FOLDERS[package] / "__init__.py").body
    assert isinstance(docstring, ast.Expr)
    assert isinstance(docstring.value, ast.Constant)
    assert isinstance(docstring.value.value, str)
    for statement in statements:
        assert isinstance(statement, ast.ImportFrom), ast.unparse(statement)
        assert all(alias.asname == alias.name for alias in statement.names), ast.unparse(statement)


@pytest.mark.parametrize("area", MAY_IMPORT)
def test_tests_mirror_the_modules(area: str) -> None:
    modules = {file.name for file, package in FILES.items() if package.split(".")[1:2] == [area]}
    tests = (ROOT / "tests" / area).rglob("test_*.py")
    assert [test.name for test in tests if test.name.removeprefix("test") not in modules] == []


@pytest.mark.parametrize("module", ["valuelens", "valuelens.cli"])
def test_the_front_door_opens_fast(module: str) -> None:
    if module == "valuelens.cli" and not (FOLDERS["valuelens"] / "cli.py").exists():
        pytest.skip("there is no command line yet")
    heavy = ("torch", "transformer_lens", "transformers", "matplotlib")
    program = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_a_wrong_shape_is_refused() -> None:
    mrp = MarkovRewardProcess(
        P=torch.eye(3)[None],
        r=torch.ones(1, 3),
        p0=torch.full((1, 3), 1 / 3),
        features=torch.eye(3)[None],
        gamma=0.5,
    )
    with pytest.raises(TypeCheckError, match="states"):
        context_of(mrp, torch.tensor([0, 1]))
    with pytest.raises(TypeCheckError, match="Int"):
        context_of(mrp, torch.tensor([[0.0, 1.0]]))
