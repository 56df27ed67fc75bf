"""The documentation is true today: pages run and print what they show, and the strict build holds every public name."""

import ast
import importlib
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from sphinx.util.inventory import InventoryFile

from valuelens import cli

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
HOW_TOS = sorted(DOCS.glob("howto/*.md"))

PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, built as `make docs` builds them: a warning, or a link to nowhere, is a failure."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", str(folder / "doctrees"), str(DOCS), str(folder / "html")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def public() -> Any:
    """The part of the build that knows what is public."""
    sys.path.insert(0, str(DOCS / "_ext"))
    try:
        return importlib.import_module("public")
    finally:
        sys.path.remove(str(DOCS / "_ext"))


@pytest.mark.slow
def test_every_public_name_stands_on_exactly_one_page(site: Path, public: Any) -> None:
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    pages = {
        name: item.uri.partition("#")[0]
        for kind, items in inventory.items()
        if kind.startswith("py:") and kind != "py:module"
        for name, item in items.items()
    }
    for package in (*public.PACKAGES, "valuelens"):
        short = package.removeprefix("valuelens").strip(".").replace(".", "_") or "valuelens"
        told = (site / "reference" / f"{short}.html").read_text(encoding="utf-8")
        for name, home in public.homes()[package].items():
            places = [each for each in pages if each.split(".")[-1] == name and f"{home}.{name}" == each]
            assert places == [f"{home}.{name}"]
            assert name in told, f"{package}.{name}"
    assert set(public.PACKAGES) == {each for each in PACKAGES if each != "valuelens"}


@pytest.mark.slow
def test_the_reference_of_commands_holds_every_option_of_each_verb(site: Path) -> None:
    page = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    group: Any = typer.main.get_command(cli.app)
    assert len(group.commands) == page.count("<section") - 1
    for name, command in group.commands.items():
        (section,) = re.findall(rf'<section id="{name}">(.*?)</section>', page, re.DOTALL)
        assert f"valuelens {name} " in re.sub(r"<[^>]+>", "", section)
        entries = " ".join(re.findall(r"<dt>(.*?)</dt>", section))
        told = set(re.findall(r"(?<![\w-])--[\w-]+", re.sub(r"<[^>]+>", "", entries)))
        words = {word for each in command.params for word in (*each.opts, *each.secondary_opts)}
        assert told == {word for word in words if word.startswith("--")}, name


@pytest.mark.slow
def test_docstrings_lead_to_the_theory_that_they_cite(site: Path) -> None:
    anchors = set(re.findall(r'id="([^"]+)"', (site / "theory.html").read_text(encoding="utf-8")))
    pages = [page.read_text(encoding="utf-8") for page in (site / "reference").glob("*.html")]
    cited = [anchor for page in pages for anchor in re.findall(r'href="\.\./theory\.html#([^"]+)"', page)]
    assert len(cited) > 50
    assert set(cited) <= anchors


@pytest.mark.slow
def test_the_site_needs_no_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"<(script|img|iframe)[^>]+src=.https?:", text), page.name
        assert not re.search(r"<link[^>]+stylesheet[^>]+href=.https?:", text), page.name


@pytest.mark.slow
def test_every_how_to_prints_what_it_shows(follow: Callable[..., object], tmp_path: Path) -> None:
    order = re.findall(
        r"^\w+$", (DOCS / "howto/index.md").read_text().partition("{toctree}")[2], re.MULTILINE
    )
    assert sorted([*order, "index"]) == [page.stem for page in HOW_TOS]
    for page in ("index", *order):
        follow(DOCS / "howto" / f"{page}.md", tmp_path)
    standing = standings()
    for result in tmp_path.rglob("result.json"):
        for finding in json.loads(result.read_text(encoding="utf-8"))["findings"]:
            assert finding["definition"] in standing[finding["name"]], finding["name"]


@pytest.mark.parametrize("page", HOW_TOS, ids=lambda page: page.stem)
def test_every_how_to_ends_with_the_number_that_it_printed(page: Path) -> None:
    fences = re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert fences[-1][0] == "text"
    assert re.search(r"\d|True", fences[-1][1])


@pytest.mark.parametrize("page", HOW_TOS, ids=lambda page: page.stem)
def test_every_how_to_stands_alone(page: Path) -> None:
    """Whatever a block reads, a command or a block above it on the same page has made."""
    path = re.compile(r"\b(?:runs|series|results)/\w+|\b\w+\.(?:csv|parquet|py)\b")
    made = {"metrics.parquet", "scores.parquet"}  # parts of a folder that is named before them
    for kind, block in re.findall(r"^```(sh|python)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        made |= set(re.findall(r"(?:^# |\.to_csv\(\"|\.to_parquet\(\")(\w+\.\w+)", block))
        for line in block.splitlines() if kind == "sh" else [block]:
            assert set(path.findall(re.sub(r"--out \S+", "", line))) - made == set()
            made |= set(re.findall(r"--out (\S+)", line))
    assert len(made) > 2


def standings() -> dict[str, set[str]]:
    """By name of a finding: where its definition comes from, as the page of findings has it."""
    words = {"our definition": "choice", "derived": "derived", "audit": "audit", "source": "source"}
    rows = re.findall(r"^\| `(\w+)` \| .* \| ([^|]+) \|$", (DOCS / "findings.md").read_text(), re.MULTILINE)
    return {name: {key for word, key in words.items() if word in told} for name, told in rows}


def test_the_page_of_findings_has_every_name() -> None:
    schema = json.loads((ROOT / "analyses" / "result.schema.json").read_text())
    assert list(standings()) != []
    assert set(standings()) == set(names_in(schema))


def names_in(schema: Any) -> Iterator[str]:
    """The names of findings: the one long list of the schema."""
    if isinstance(schema, dict):
        if len(schema.get("enum", ())) > 50:
            yield from schema["enum"]
        for value in schema.values():
            yield from names_in(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from names_in(value)


def test_a_definition_of_ours_is_told_as_ours() -> None:
    """As written in the code: every finding whose name and standing are both constants there."""
    standing, seen = standings(), set()
    for file in (ROOT / "analyses").rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call):
                continue
            words = {word.arg: word.value for word in call.keywords}
            given = [words.get("name"), *call.args]
            names = [
                each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
            definition = words.get("definition")
            if names and names[0] in standing and isinstance(definition, ast.Constant):
                assert definition.value in standing[names[0]], f"{file.name}: {names[0]}"
                seen.add(names[0])
    assert len(seen) > 50


def test_every_picture_is_shown_with_words_and_all_are_small() -> None:
    pages = "".join(
        page.read_text() for page in (ROOT / "README.md", DOCS / "gallery.md", DOCS / "tutorial.md")
    )
    shown = re.findall(r"!\[([^\]]*)\]\(pictures/([\w-]+\.webp)\)", pages)
    shown += [
        (words, name)
        for name, words in re.findall(r'<img src="docs/pictures/([\w-]+\.webp)" [^>]*alt="([^"]+)"', pages)
    ]
    assert {name for _, name in shown} == {file.name for file in DOCS.glob("pictures/*")}
    assert all(len(words) > 30 for words, _ in shown)
    assert sum(file.stat().st_size for file in DOCS.glob("pictures/*")) < 600_000
