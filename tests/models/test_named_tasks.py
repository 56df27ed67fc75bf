"""Tasks by name: ours with their sizes, yours from a module, and one line for everything else."""

from pathlib import Path

import pytest

from valuelens.models import InputError
from valuelens.models.lm import (
    Addition,
    LabelCopy,
    ModularSum,
    NamedTask,
    find_task,
    pretraining_task,
    task_named,
)

CODE = """
from dataclasses import dataclass
from valuelens.models.lm import Prompt

number = 3

@dataclass(frozen=True)
class Echo:
    width: int = 2
    reward_range: tuple = (0, 2)
    completion_length: int = 1
    ends: bool = False

    def prompts(self, count, generator):
        return [Prompt(text="say a")] * count

    def reward(self, prompt, completion):
        return 2.0 * (completion == "a")

made = Echo(width=5)

class Corpus(Echo):
    vocabulary = ("say", "a")

    def corpus(self, count, shuffled, generator):
        return ["say a"] * count

class Upside(Echo):
    def __init__(self):
        super().__init__(reward_range=(1, 0))

class Endless(Echo):
    def __init__(self):
        super().__init__(completion_length=0)

class Vague(Echo):
    def __init__(self):
        super().__init__(reward_range="high")

def nothing():
    return None

def dies(width):
    raise KeyError(width)
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of tasks on the path, under a name of its own for each test."""
    name = f"tasks_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.mark.parametrize(
    ("name", "task"), [("label-copy", LabelCopy()), ("modular-sum", ModularSum()), ("addition", Addition())]
)
def test_ours_have_their_defaults(name: str, task: object) -> None:
    assert task_named(name) == task
    assert pretraining_task(name) == task


def test_sizes_are_kept_whole() -> None:
    found = find_task("label-copy", num_pairs=3)
    assert found.task == LabelCopy(num_pairs=3)
    assert found.sizes == {"num_items": 12, "num_labels": 6, "num_pairs": 3}
    assert found.file is None
    assert find_task("addition").sizes == {"num_digits": 2}


def test_a_task_of_ones_own_is_imported_and_made_with_its_sizes(mine: str, tmp_path: Path) -> None:
    found = find_task(f"{mine}:Echo", width=3)
    assert isinstance(found, NamedTask)
    assert (found.name, found.sizes, found.file) == (f"{mine}:Echo", {"width": 3}, tmp_path / f"{mine}.py")
    prompt = found.task.prompts(1, None)[0]
    assert found.task.reward(prompt, "a") == 2
    assert find_task(f"{mine}:made").task.width == 5
    assert pretraining_task(f"{mine}:Corpus").corpus(1, 0.0, None) == ["say a"]


def test_ours_can_be_imported_too() -> None:
    assert task_named("valuelens.models.lm:LabelCopy", num_pairs=2) == LabelCopy(num_pairs=2)


@pytest.mark.parametrize(
    ("name", "sizes", "text"),
    [
        (
            "label-coppy",
            {},
            "the task must be label-copy, modular-sum, addition or package.module:Name; found 'label-coppy' "
            "(did you mean label-copy?); option --task",
        ),
        (
            "chess",
            {},
            "the task must be label-copy, modular-sum, addition or package.module:Name; found 'chess';",
        ),
        (
            "modular-sum",
            {"num_items": 3},
            "the sizes of modular-sum are num_labels, num_pairs; found num_items; "
            "task modular-sum, option --num-items",
        ),
        ("mine", {}, "the task must be label-copy"),
        ("mine:", {}, "a task must be named package.module:Name; found '{mine}:'; option --task"),
        (
            "nowhere.at.all:Task",
            {},
            "a task's module must be installed, or on PYTHONPATH; found no nowhere; task",
        ),
        ("mine:Absent", {}, "{mine} must have Absent; found no such name; task {mine}:Absent"),
        (
            "mine:number",
            {},
            "a task must have reward_range, completion_length, ends, prompts, reward; found int without reward_range;",
        ),
        (
            "mine:nothing",
            {},
            "a task must have reward_range, completion_length, ends, prompts, reward; found NoneType",
        ),
        (
            "mine:dies",
            {"width": 1},
            "a task must be made by dies(width=1); found KeyError: 1 ({mine}.py line ",
        ),
        ("mine:Echo", {"height": 1}, "a task must be made by Echo(height=1); found TypeError: "),
        ("mine:made", {"width": 1}, "a task that is no class takes no sizes; found width; task {mine}:made"),
        (
            "mine:Upside",
            {},
            "a task must have a least reward below its largest one, and at least one token in a completion; "
            "found reward_range (1.0, 0.0), completion_length 1; task {mine}:Upside",
        ),
        ("mine:Endless", {}, "a task must have a least reward below its largest one"),
        (
            "mine:Vague",
            {},
            "a task must have plain numbers as its reward_range and completion_length; found ValueError: ",
        ),
    ],
)
def test_what_is_no_task_is_told_in_one_line(mine: str, name: str, sizes: dict[str, int], text: str) -> None:
    with pytest.raises(InputError) as caught:
        find_task(name.replace("mine", mine), **sizes)
    assert str(caught.value).startswith(text.replace("{mine}", mine))
    assert "\n" not in str(caught.value)


def test_a_task_without_a_corpus_cannot_be_pretrained_on(mine: str) -> None:
    with pytest.raises(InputError) as caught:
        pretraining_task(f"{mine}:Echo")
    told = "a task to pretrain on must have vocabulary, corpus; found Echo without vocabulary; "
    assert str(caught.value) == f"{told}task {mine}:Echo"
