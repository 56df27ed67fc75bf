"""Options that several verbs share, and how a verb's answer is printed."""

import json
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from valuelens._complete import CHOICES, OPEN, Completer, choices
from valuelens._terminal import painted

Out = Annotated[
    Path | None,
    typer.Option("--out", help="Folder for results, made if need be; the same request continues there."),
]
RequiredOut = Annotated[
    Path, typer.Option("--out", help="Run folder, made if need be; the same configuration continues there.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Start afresh: remove a run or result of valuelens from --out.")
]
Seed = Annotated[
    int, typer.Option("--seed", help="Decides everything random; several seeds are seed, seed+1, ...")
]
Device = Annotated[
    str,
    typer.Option("--device", help="Where to compute: cpu, cuda, ...", autocompletion=choices("--device")),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", help="Processes, one thread each.", show_default="one per core")
]
Json = Annotated[
    bool, typer.Option("--json", help="Print the result summary as JSON on stdout, nothing else.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress, no logs.")]


class MistypedError(Exception):
    """A value that was nearly right, told in one line without importing what it names."""


def setting(name: str, help_: str, default: str, complete: Completer | None = None) -> Any:
    """An option whose default is not known here, only told.

    Args:
        name: With its dashes.
        help_: What it decides.
        default: In words.
        complete: Offers values to the shell; those that are known by the name if none.
    """
    offers: Any = {"autocompletion": complete or _known(name), "callback": _nearly(name)}
    return typer.Option(name, help=help_, show_default=default, **offers)


def choice(name: str, help_: str, complete: Completer | None = None) -> Any:
    """An option whose default stands in the signature.

    Args:
        name: With its dashes.
        help_: What it decides.
        complete: Offers values to the shell; those that are known by the name if none.
    """
    offers: Any = {"autocompletion": complete or _known(name), "callback": _nearly(name)}
    return typer.Option(name, help=help_, **offers)


def _nearly(name: str) -> Callable[[Any], Any] | None:
    """Refuses what is nearly one of the values of an option, at once; anything else is the library's to judge."""
    if name not in CHOICES or name in OPEN:
        return None

    def told(value: Any) -> Any:
        near = get_close_matches(str(value), CHOICES[name], n=1)
        if value is not None and value not in CHOICES[name] and near:
            found = f"found {value!r} (did you mean {near[0]}?)"
            raise MistypedError(f"{name} takes {', '.join(CHOICES[name])}; {found}; option {name}")
        return value

    return told


def _known(name: str) -> Completer | None:
    return choices(name) if name in CHOICES else None


def emit(summary: dict[str, Any], lines: list[str], *, as_json: bool, strong: int | None = None) -> None:
    """Print a verb's answer on stdout.

    Args:
        summary: As data.
        lines: For people.
        as_json: Print the data.
        strong: The line that a terminal shows in bold, if any.
    """
    shown = list(lines)
    if strong is not None and shown:
        shown[strong] = painted(shown[strong], "bold", sys.stdout)
    text = json.dumps(summary, indent=2, ensure_ascii=False) if as_json else "\n".join(shown)
    print(text)  # noqa: T201
