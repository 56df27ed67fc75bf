"""The README fits on one screen and its links are there; its commands, and those of the verbs' page, are true today."""

import math
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from valuelens import cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
VERBS = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, flags=re.DOTALL)


@pytest.mark.slow
def test_every_verb_runs_as_its_page_says(follow: Callable[..., object], tmp_path: Path) -> None:
    called = {line.split()[1] for line in blocks(VERBS, "sh")[0].splitlines()}
    assert called == verbs() - {"demo"}
    follow(ROOT / "docs" / "commands.md", tmp_path)
    assert (tmp_path / "report.html").exists()


def verbs() -> set[str]:
    commands = cli.app.registered_commands
    return {command.name or command.callback.__name__ for command in commands if command.callback}


def test_every_verb_stands_in_the_table_and_every_row_is_a_verb() -> None:
    assert set(re.findall(r"^\| `valuelens ([\w-]+)", VERBS, flags=re.MULTILINE)) == verbs()


def test_every_optional_part_stands_in_the_table() -> None:
    told = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", VERBS.partition("## What is optional")[2], re.MULTILINE)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert sorted(re.findall(r"\w+", " ".join(told))) == sorted(extras)


def test_every_linked_file_exists() -> None:
    named = re.findall(r"\]\(([^)]+)\)", README) + re.findall(r'src="([^"]+)"', README)
    links = [link for link in named if not link.startswith("http")]
    assert len(links) > 10
    for link in links:
        assert (ROOT / link).exists(), link


def test_two_commands_that_the_makefile_has_and_five_lines_of_python() -> None:
    """The Python runs on the demo's own files in tests/front/test_demo.py, which also looks at what it prints."""
    commands = re.findall(r"^    make (\w+) +# \w", README, flags=re.MULTILINE)
    assert commands == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{name}:", makefile, flags=re.MULTILINE) for name in commands)
    (python,) = blocks(README, "python")
    assert len([line for line in python.splitlines() if not line.startswith("#")]) <= 5


def test_the_readme_fits_on_one_screen() -> None:
    """In pixels, about, where text is 832 wide as on GitHub: Chromium with its styles gave 885 for what is 879 here."""
    whole = re.split(r"\n\n(?![^`]*\n```\n\n)", README.strip())  # code keeps its empty lines
    assert sum(map(height, whole)) + 2 * 32 - 16 <= 900


def height(block: str) -> int:
    """Of a heading, a picture, code, or prose of 112 letters a line."""
    if block.startswith("# "):
        return 67
    if picture := re.search(r'<img src="([^"]+)" width="(\d+)"', block):
        with Image.open(ROOT / picture[1]) as shown:
            return round(int(picture[2]) * shown.height / shown.width) + 22
    lines = [line for line in block.splitlines() if not line.startswith("```")]
    if block.startswith(("```", "    ")):
        assert all(len(line) <= 98 + 4 * line.startswith("    ") for line in lines), (
            "code would need scrolling"
        )
        return 20 * len(lines) + 48
    words = re.sub(r"\]\([^)]+\)|[*\[]", "", " ".join(lines))
    return 24 * math.ceil(len(words) / 112) + 16
