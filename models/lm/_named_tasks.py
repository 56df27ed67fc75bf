"""Tasks by name: ours, or `package.module:Name` of what is installed."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from valuelens.models._errors import InputError, did_you_mean, told
from valuelens.models._imported import import_named
from valuelens.models.lm._addition import Addition
from valuelens.models.lm._label_copy import LabelCopy
from valuelens.models.lm._modular_sum import ModularSum
from valuelens.models.lm._task import PretrainingTask, Task

_OURS: dict[str, Callable[..., Any]] = {
    "label-copy": LabelCopy,
    "modular-sum": ModularSum,
    "addition": Addition,
}
_MEMBERS = ("reward_range", "completion_length", "ends", "prompts", "reward")
_CORPUS = ("vocabulary", "corpus")


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedTask:
    """A task and how it is made again.

    Attributes:
        name: As it was asked for.
        task: It.
        sizes: Every size of ours with its value; of an imported task those that were given.
        file: Where the code of an imported task stands; none for ours.
    """

    name: str
    task: Task
    sizes: dict[str, int]
    file: Path | None


def find_task(name: str, **sizes: int) -> NamedTask:
    """A task by its name, with its sizes.

    Args:
        name: `label-copy`, `modular-sum`, `addition`, or `package.module:Name`: a `Task`, or whatever returns one
            when it is called with the sizes.
        sizes: Keywords for it; what is left out has the task's default.

    Raises:
        InputError: There is no such task, it lacks such a size, or what is imported implements no `Task`.
    """
    if ":" in name:
        return _imported(name, sizes)
    if name not in _OURS:
        must = f"the task must be {', '.join(_OURS)} or package.module:Name"
        raise InputError(must, f"found {name!r}{did_you_mean(name, _OURS)}", "option --task")
    possible = [field.name for field in fields(_OURS[name])]  # type: ignore[arg-type]
    for size in sizes:
        if size not in possible:
            where = f"task {name}, option --{size.replace('_', '-')}"
            raise InputError(f"the sizes of {name} are {', '.join(possible)}", f"found {size}", where)
    task = _OURS[name](**sizes)
    return NamedTask(name=name, task=task, sizes=asdict(task), file=None)


def task_named(name: str, **sizes: int) -> Task:
    """The task of `find_task`, alone.

    Args:
        name: `label-copy`, `modular-sum`, `addition`, or `package.module:Name`.
        sizes: Keywords for it.

    Raises:
        InputError: As `find_task`.

    Example:
        >>> task_named("modular-sum", num_pairs=3).completion_length
        3
    """
    return find_task(name, **sizes).task


def pretraining_task(name: str, **sizes: int) -> PretrainingTask:
    """A task that also has a corpus.

    Args:
        name: `label-copy`, `modular-sum`, `addition`, or `package.module:Name`.
        sizes: Keywords for it.

    Raises:
        InputError: As `find_task`; or it has no vocabulary or no corpus.
    """
    task = task_named(name, **sizes)
    _check_members(task, _CORPUS, "a task to pretrain on", f"task {name}")
    assert isinstance(task, PretrainingTask)
    return task


def _imported(name: str, sizes: dict[str, int]) -> NamedTask:
    found = import_named(name, "task")
    where, task = f"task {name}", found.value
    if isinstance(task, type) or (callable(task) and not isinstance(task, Task)):
        given = ", ".join(f"{key}={value}" for key, value in sizes.items())
        with told(f"a task must be made by {name.partition(':')[2]}({given})", where):
            task = task(**sizes)
    elif sizes:
        must = "a task that is no class takes no sizes"
        raise InputError(must, f"found {next(iter(sizes))}", where)
    with told("a task must have plain numbers as its reward_range and completion_length", where):
        _check_members(task, _MEMBERS, "a task", where)
        low, high = map(float, task.reward_range)
        length = int(task.completion_length)
    if not low < high or length < 1:
        must = "a task must have a least reward below its largest one, and at least one token in a completion"
        raise InputError(must, f"found reward_range {low, high}, completion_length {length}", where)
    return NamedTask(name=name, task=task, sizes=sizes, file=found.file)


def _check_members(task: object, members: tuple[str, ...], what: str, where: str) -> None:
    missing = [member for member in members if not hasattr(task, member)]
    if missing:
        found = f"found {type(task).__name__} without {missing[0]}"
        raise InputError(f"{what} must have {', '.join(members)}", found, where)
