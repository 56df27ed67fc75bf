"""The README is true today: its commands and its Python run, and what it links to is there; so with the verbs' page."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from valuelens import cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
VERBS = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, flags=re.DOTALL)


@pytest.mark.slow
def test_the_readme_runs(follow: Callable[..., dict[str, object]], tmp_path: Path) -> None:
    assert len(blocks(README, "sh")[0].splitlines()) == 3
    assert len(blocks(README, "python")[0].splitlines()) <= 5
    result = follow(ROOT / "README.md", tmp_path)["result"]
    assert (tmp_path / "results/small/result.json").exists()
    assert "constant predictor" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "constant predictor" in result.verdict  # type: ignore[attr-defined]


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


def test_every_linked_file_exists() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]
    assert len(links) > 10
    for link in links:
        assert (ROOT / link).exists(), link


def test_the_readme_fits_on_one_screen() -> None:
    assert len(README.splitlines()) <= 60
