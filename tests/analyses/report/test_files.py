"""A page leads to the files that its numbers come from, as long as it knows where they are."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from valuelens.analyses import Result, save_result
from valuelens.analyses.report import write_report
from valuelens.analyses.report._files import linked_files

Make = Callable[..., Result]
NAMES = [
    "result.json",
    "tables/groups.parquet",
    "tables/positions.parquet",
    "arrays.safetensors",
    "figures/a.svg",
]


def test_numbers_lead_to_their_files(tmp_path: Path, language_result: Make) -> None:
    folder, result = tmp_path / "re sults", language_result(flat=0.5, groups=4)
    save_result(result, folder)
    (folder / "figures").mkdir()
    for name in ("a.svg", ".a.svg-unfinished.svg"):
        (folder / "figures" / name).write_text("<svg/>")
    bare = replace(result, tables={"groups": result.tables["groups"]}, arrays={})
    page = write_report({"a": bare}, tmp_path / "page" / "r.html", folders={"a": folder})
    html = page.read_text("utf-8")
    addresses = list(dict.fromkeys(re.findall(r'href="(\.\.[^"]*)"', html)))
    assert sorted(unquote(each) for each in addresses) == sorted(f"../re sults/{name}" for name in NAMES)
    assert all((page.parent / unquote(each)).is_file() for each in addresses)
    for name in ("result.json", "tables/groups.parquet"):
        assert f'From <a href="../re%20sults/{name}">{name}</a>.</caption>' in html


def test_without_a_folder_there_is_no_link(tmp_path: Path) -> None:
    assert linked_files(None, tmp_path / "r.html") == {}
    assert linked_files(tmp_path / "nothing", tmp_path / "r.html") == {}
    page = write_report({"a": Result(kind="in-context-rl")}, tmp_path / "r.html")
    assert "../" not in page.read_text("utf-8")


def test_a_page_beside_its_results_needs_no_way(tmp_path: Path) -> None:
    save_result(Result(kind="in-context-rl"), tmp_path)
    assert linked_files(tmp_path, tmp_path / "r.html")["result.json"] == "result.json"
