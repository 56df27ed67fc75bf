"""`.. verbs::`: the command line, verb by verb, from the app itself."""

from collections.abc import Iterator
from typing import Any

import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from valuelens import cli


class Verbs(SphinxDirective):
    """A section for each verb: what it does, its options and their defaults, examples."""

    def run(self) -> list[nodes.Node]:
        """Parsed where the directive stands."""
        group: Any = typer.main.get_command(cli.app)
        lines = [line for name, command in group.commands.items() for line in _verb(name, command)]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def _verb(name: str, command: Any) -> Iterator[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    usage = " ".join(["valuelens", name, *(_metavar(each) for each in arguments), "[OPTIONS]"])
    yield from (name, "-" * len(name), "", f"``{usage}``", "", _text(command.help), "")
    for each in arguments:
        yield from (f"``{_metavar(each)}``", f"   {_text(each.help)}", "")
    for each in options:
        shown = " / ".join([", ".join(each.opts), *each.secondary_opts])
        yield from (f"``{shown}``", f"   {_text(each.help)}{_default(each)}", "")
    if command.epilog:
        lines = [line.strip() for line in command.epilog.replace("\b", "").splitlines() if line.strip()]
        yield from (".. code-block:: text", "", *(f"   {line}" for line in lines), "")


def _metavar(argument: Any) -> str:
    return argument.metavar or (argument.name or "").upper()


def _default(option: Any) -> str:
    shown = option.show_default if isinstance(option.show_default, str) else option.default
    if shown in (None, "", False) or not option.show_default or callable(shown):
        return " Required." if option.required else ""
    return f" Default: ``{shown}``."


def _text(words: str | None) -> str:
    return " ".join((words or "").split()).replace("*", r"\*").replace("|", r"\|").replace("`", "``")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("verbs", Verbs)
    return {"parallel_read_safe": True}
