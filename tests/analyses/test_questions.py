"""The register: our questions are declared alike; a package's question is imported only when it is named."""

import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from valuelens.analyses import ANALYSES, GROUP, RUN_ANALYSES, installed_names, result_schema
from valuelens.analyses import _questions as module
from valuelens.models import InputError

NAMES = result_schema()["$defs"]["finding_name"]["enum"]
DECLARED = """
SECTION = ""
from valuelens.analyses import Phrase, Question, Result
QUESTION = Question(
    name="{name}", ask=lambda subject: Result(kind="in-context-rl"), title="Title", introduction="Why?",
    phrases={{"{finding}": Phrase(noun="it", text="it is {{x}}", beside="{{name}}: {{c}}")}}, section=SECTION,
)
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """install(name, code, module=...) puts a module and its metadata where installed packages are found."""
    monkeypatch.syspath_prepend(tmp_path)

    def put(name: str, code: str, *, module: str, value: str = "QUESTION") -> None:
        (tmp_path / f"{module}.py").write_text(code, encoding="utf-8")
        folder = tmp_path / f"{module}-0.3.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {module}\nVersion: 0.3\n", encoding="utf-8"
        )
        line = f"[{GROUP}]\n{name} = {module}:{value}\n"
        (folder / "entry_points.txt").write_text(line, encoding="utf-8")
        monkeypatch.delitem(sys.modules, module, raising=False)

    return put


@pytest.mark.parametrize("name", ANALYSES)
def test_every_question_of_ours_is_declared(name: str) -> None:
    question = ANALYSES[name]
    assert question.name == name
    assert question.title
    assert question.introduction.endswith(".")
    assert question.phrases


def test_plain_names_of_findings_stand_in_the_schema() -> None:
    """Whoever reads results is promised these; other names belong to a question: `question.finding`."""
    for question in ANALYSES.values():
        strange = [name for name in question.phrases if name not in NAMES]
        module.refuse_strange(question.name, strange, where="ours")


def test_sections_are_apart() -> None:
    sections = [question.section for question in ANALYSES.values()]
    assert len(set(sections)) == len(sections)


def test_what_a_package_brings_is_known_by_name_and_imported_late(install: Install) -> None:
    install("spread", DECLARED.format(name="spread", finding="spread.width"), module="brought_spread")
    assert "spread" in installed_names()
    assert "brought_spread" not in sys.modules
    found = module.installed("spread")
    assert module.question("spread") is found.question
    assert (found.question.section, found.code) == ("spread", "brought_spread:QUESTION")
    assert found.package == "brought_spread 0.3"
    assert found.file is not None
    assert found.file.name == "brought_spread.py"


def test_our_names_are_not_taken(install: Install) -> None:
    install("slots", DECLARED.format(name="slots", finding="slots.width"), module="brought_slots")
    assert module.question("slots") is ANALYSES["slots"]
    assert not {"slots", *RUN_ANALYSES} & set(installed_names())


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("gone", "", "brought_gone must have QUESTION; found no such name; analysis brought_gone:QUESTION"),
        (
            "broken",
            "1 / 0",
            r"an analysis must be importable; found ZeroDivisionError.*; analysis brought_broken",
        ),
        (
            "plain",
            "QUESTION = 3",
            "an analysis must be a Question; found int; analysis plain, brought_plain:QUESTION",
        ),
        ("other", DECLARED.format(name="another", finding="another.x"), "found 'another' and 'other'"),
        (
            "Big",
            DECLARED.format(name="Big", finding="Big.x"),
            "small letters, digits and _; found 'Big' and 'Big'",
        ),
        (
            "claim",
            DECLARED.format(name="claim", finding="msve_ratio"),
            r"must be named claim\.something; found 'msve",
        ),
        (
            "deep",
            DECLARED.format(name="deep", finding="deep.a.b"),
            r"must be named deep\.something; found 'deep\.a\.b'",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(install: Install, name: str, code: str, told: str) -> None:
    install(name, code, module=f"brought_{name}")
    with pytest.raises(InputError, match=told):
        module.installed(name)


@pytest.mark.parametrize(
    ("name", "section"),
    [
        *((each, "") for each in ("values", "heads", "hops", "choice", "training", "other")),
        ("mine", "values"),
    ],
)
def test_sections_of_ours_are_not_taken(install: Install, name: str, section: str) -> None:
    """Else it would stand in the place of ours, or lose its title and its notes."""
    code = DECLARED.format(name=name, finding=f"{name}.x").replace('SECTION = ""', f'SECTION = "{section}"')
    install(name, code, module=f"brought_section_{name}")
    must = (
        rf"the section .* must be its name, and none of arc, .*; found '{section or name}'; analysis {name}"
    )
    with pytest.raises(InputError, match=must):
        module.installed(name)


def test_what_a_question_is_measured_by_is_hashed(tmp_path: Path) -> None:
    """A module alone, a package, and a module deep in one."""
    (tmp_path / "pack" / "deep").mkdir(parents=True)
    for name in ("alone.py", "beside.py", "pack/__init__.py", "pack/deep/__init__.py", "pack/deep/it.py"):
        (tmp_path / name).write_text("", encoding="utf-8")
    question = ANALYSES["slots"]
    alone, *packed = (
        module.Installed(question=question, code=f"{code}:Q", package="p 1", file=tmp_path / file)
        for code, file in (
            ("alone", "alone.py"),
            ("pack", "pack/__init__.py"),
            ("pack.deep", "pack/deep/__init__.py"),
            ("pack.deep.it", "pack/deep/it.py"),
        )
    )
    before = alone.sha256, [each.sha256 for each in packed]
    assert before[1] == [before[1][0]] * 3
    for name in ("beside.py", "pack/data.txt"):
        (tmp_path / name).write_text("0", encoding="utf-8")
    assert (alone.sha256, [each.sha256 for each in packed]) == before
    (tmp_path / "pack" / "helper.py").write_text("0", encoding="utf-8")
    assert alone.sha256 == before[0]
    assert {each.sha256 for each in packed}.isdisjoint(before[1])
    assert module.Installed(question=question, code="x:Q", package="p 1", file=None).sha256 is None


def test_one_package_brings_a_question(install: Install) -> None:
    with pytest.raises(
        InputError, match="one installed package must bring the analysis; found none; analysis twice"
    ):
        module.installed("twice")
    for one in ("first", "second"):
        install("twice", DECLARED.format(name="twice", finding="twice.x"), module=f"brought_{one}")
    assert len(entry_points(group=GROUP, name="twice")) == 2
    with pytest.raises(InputError, match=r"found brought_first 0\.3 and brought_second 0\.3; analysis"):
        module.installed("twice")
