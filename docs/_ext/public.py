"""`.. public:: PACKAGE`: everything that a package exports, by the file it comes from, each name on one page only.

Signatures are shown as they are written, with jaxtyping's shapes; docstrings are Markdown-like and become RST.
"""

import ast
import importlib
import inspect
import pathlib
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

PACKAGES = (
    "valuelens.probe",
    "valuelens.models",
    "valuelens.models.icrl",
    "valuelens.models.lm",
    "valuelens.models.control",
    "valuelens.analyses",
    "valuelens.analyses.impact",
    "valuelens.analyses.report",
)
"""In the order in which a name that several export finds its page."""


def exports(package: str) -> dict[str, object]:
    """What `import *` should give: public names of a package that are no modules."""
    module = importlib.import_module(package)
    if hasattr(module, "_HOMES"):
        return {name: getattr(module, name) for name in module.__all__}
    named = vars(module).items()
    return {name: value for name, value in named if name[0] != "_" and not inspect.ismodule(value)}


@cache
def homes() -> dict[str, dict[str, str]]:
    """By package and name: the package on whose page the name is documented."""
    found: dict[int, str] = {}
    table: dict[str, dict[str, str]] = {}
    for package in (*PACKAGES, "valuelens"):
        for name, value in exports(package).items():
            owner = (
                found.setdefault(id(value), package) if not isinstance(value, (int, float, str)) else package
            )
            table.setdefault(package, {})[name] = owner
    return table


@cache
def sources(package: str) -> dict[str, str]:
    """By name: the module that `__init__` takes it from."""
    tree = ast.parse(inspect.getsource(importlib.import_module(package)))
    taken = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: node.module or "" for node in taken for alias in node.names}


class Public(SphinxDirective):
    """The page of a package."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Sections by module, in the order of `__init__`, and a table of names that live elsewhere."""
        package = self.arguments[0]
        lines = [*_page(package)]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def _page(package: str) -> Iterator[str]:
    own = [name for name, home in homes()[package].items() if home == package]
    lent = {name: home for name, home in homes()[package].items() if home != package}
    yield from (f".. py:module:: {package}", "")
    seen = ""
    for name in own:
        module = sources(package)[name]
        if module != seen:
            yield from _heading(module)
            seen = module
        yield from _entry(package, name)
    if lent:
        title = "Names from elsewhere" if own else "Names"
        yield from (title, "-" * len(title), "")
        yield from (f"* :py:obj:`{name} <{home}.{name}>` of ``{home}``" for name, home in lent.items())
        yield ""


def _heading(module: str) -> Iterator[str]:
    title = module.rpartition("._")[2].replace("_", " ").capitalize()
    yield from (
        title,
        "-" * len(title),
        "",
        escaped(inspect.getdoc(importlib.import_module(module)) or ""),
        "",
    )


def _entry(package: str, name: str) -> Iterator[str]:
    value = exports(package)[name]
    if inspect.isclass(value):
        yield from (f".. autoclass:: {package}.{name}", "   :members:", "")
    elif inspect.isroutine(value):
        yield from (f".. autofunction:: {package}.{name}", "")
    else:
        yield from (f".. py:data:: {name}", "")
        yield from (textwrap.indent(escaped(_said(package, name)), "   "), "")


def _said(package: str, name: str) -> str:
    """The string that stands below an assignment."""
    body = ast.parse(inspect.getsource(importlib.import_module(sources(package)[name]))).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(each, ast.Name) and each.id == name for each in targets):
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                return inspect.cleandoc(str(after.value.value))
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                return f"`{ast.unparse(node.value)}`"
    return ""


def escaped(doc: str) -> str:
    """A docstring as RST: `code` in double backticks, and nothing else that RST would read as markup."""
    doc = re.sub(
        r"^(Source: .*\n)((?: {4}.*\n?)+)", lambda m: m[1] + textwrap.dedent(m[2]), doc, flags=re.MULTILINE
    )
    made, section = [], False
    for formula, lines in groupby(doc.splitlines(), key=lambda line: line.startswith("    ")):
        block = list(lines)
        if not formula:
            text = [line for line in block if line.strip()]
            if text:
                section = bool(re.fullmatch(r"\w+:", text[-1])) or text[-1].startswith("*")
            made.append(_marked("\n".join(block)))
        elif section:
            made.append(_described("\n".join(block)))
        else:
            made.append("\n".join(["", "::", "", *block, ""]))
    return "\n".join(made)


def _described(text: str) -> str:
    """What stands in a section such as `Args`: examples are left as they are."""
    chunks = re.split(r"(^[ ]*>>>.*?(?=^\s*$|\Z))", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(chunk if chunk.lstrip().startswith(">>>") else _marked(chunk) for chunk in chunks)


def _marked(text: str) -> str:
    parts = re.split(r"(``[^`]+``|`[^`]+`)", text)
    return "".join(_code(part) if part.startswith("`") else _plain(part) for part in parts)


def _code(part: str) -> str:
    inner = re.sub(r"\s*\n\s*", " ", part.strip("`").strip())  # code over the end of a line goes onto one
    return f":py:obj:`{inner}`" if re.fullmatch(r"[A-Za-z_][\w.]*", inner) else f"``{inner}``"


def _plain(part: str) -> str:
    kept = re.sub(r"([\\|])", r"\\\1", part)
    kept = re.sub(
        r"(?<![\w*])\*([^\s*]|[^\s*][^*\n]*[^\s*])\*(?!\w)", "\x00\\1\x00", kept
    )  # *stressed* stays so
    kept = re.sub(r"^( *)\* ", "\\1\x00 ", kept, flags=re.MULTILINE)  # so does a bullet
    kept = kept.replace("*", r"\*").replace("\x00", "*")
    kept = re.sub(r"(?<=\w)_(?!\w)", r"\\_", kept)
    return re.sub(r"theory ([AB]\d+)\b", lambda m: f"`{m[0]} <../theory.html#{theory()[m[1]]}>`__", kept)


@cache
def theory() -> dict[str, str]:
    """By section of the page of theory: the anchor of its heading."""
    page = (pathlib.Path(__file__).parents[1] / "theory.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### (([AB]\d+) .*)$", page, re.MULTILINE)
    return {section: re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title, section in headings}


def _docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if what != "module":
        lines[:] = escaped("\n".join(lines)).splitlines()


def _signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str] | None:
    """As it is written in the source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(obj)))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None
    if isinstance(tree, ast.ClassDef):
        shown = _class_signature(tree, obj)
        return (_paths(obj, shown), "") if shown else None
    if isinstance(tree, ast.FunctionDef):
        given = ast.unparse(tree.returns) if tree.returns else ""
        return _paths(obj, f"({_arguments(tree, what)})"), _paths(obj, given)
    return None


def _paths(obj: Any, signature: str) -> str:
    """`Path` of the standard library in full: `valuelens.probe` has a type of that name."""
    if vars(sys.modules[obj.__module__]).get("Path") is not pathlib.Path:
        return signature
    return re.sub(r"(?<![\w.])Path\b", "pathlib.Path", signature)


def _arguments(node: ast.FunctionDef, what: str) -> str:
    args = node.args
    if what in {"method", "class"}:
        drop = args.posonlyargs or args.args
        if drop and drop[0].arg in {"self", "cls"}:
            drop.pop(0)
    return ast.unparse(args)


def _class_signature(tree: ast.ClassDef, obj: Any) -> str:
    inits = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    if inits:
        return f"({_arguments(inits[0], 'class')})"
    if getattr(obj, "_is_protocol", False) or issubclass(obj, BaseException):
        return ""
    fields = [
        node for node in tree.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    shown = [_field(node) for node in fields if not ast.unparse(node.annotation).startswith("ClassVar")]
    star = "" if issubclass(obj, tuple) or not shown else "*, "
    return f"({star}{', '.join(shown)})"


def _field(node: ast.AnnAssign) -> str:
    declared = f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}"
    return declared if node.value is None else f"{declared} = {ast.unparse(node.value)}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("public", Public)
    app.connect("autodoc-process-docstring", _docstring, priority=400)  # before napoleon's 500
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True}


__all__ = ["PACKAGES", "exports", "homes", "setup"]
