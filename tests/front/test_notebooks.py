"""Every notebook runs, shows tables and figures, checks what it claims, and is kept without outputs."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path: Path, kind: str) -> list[NotebookNode]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind]


def test_there_are_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS} == {"value_slots", "which_algorithm", "costates", "start_rl"}


@each_notebook
def test_a_notebook_is_kept_clean_and_says_how_sure_and_what_next(path: Path) -> None:
    assert not any(cell.outputs or cell.execution_count for cell in cells(path, "code"))
    words = "\n".join(cell.source for cell in cells(path, "markdown"))
    assert re.search(r"How sure", words)
    assert "**Try next**" in cells(path, "markdown")[-1].source
    assert sum(cell.source.count("assert ") for cell in cells(path, "code")) >= 3


def test_value_slots_takes_ten_cells() -> None:
    path = next(path for path in NOTEBOOKS if path.stem == "value_slots")
    assert len(cells(path, "code")) == 10


@each_notebook
def test_what_a_notebook_links_to_exists(path: Path) -> None:
    words = "\n".join(cell.source for cell in cells(path, "markdown"))
    links = [link for link in re.findall(r"\]\(([^)]+)\)", words) if not link.startswith("http")]
    pages = re.findall(r"`((?:benchmarks|examples|docs)/\S+?)`", words)
    for file in [path.parent / link for link in links] + [path.parents[1] / page for page in pages]:
        assert file.exists(), file


@pytest.mark.slow
@each_notebook
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("text/html" in output.get("data", {}) for output in shown)
    assert any("image/png" in output.get("data", {}) for output in shown)
    assert [output.text for output in shown if output.get("name") == "stderr"] == []
