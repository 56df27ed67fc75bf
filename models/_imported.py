"""Things named `package.module:Name`: imported from what is installed, never from a checkpoint or a data file."""

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from valuelens.models._errors import InputError, told


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """What a name stands for.

    Attributes:
        name: `package.module:Name`.
        value: It.
        file: Where its code stands, if in a file.
    """

    name: str
    value: Any
    file: Path | None


def import_named(name: str, kind: str) -> Imported:
    """Import a name from what is installed here, or stands on PYTHONPATH.

    Args:
        name: `package.module:Name`.
        kind: What it shall be, in one word: that of the option which takes it.

    Raises:
        InputError: The name has another form, there is no such module or no such name in it, or importing raises.

    Example:
        >>> import_named("json:loads", "adapter").file.name
        '__init__.py'
    """
    module, _, member = name.partition(":")
    where, one = f"{kind} {name}", f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
    if not (member.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise InputError(f"{one} must be named package.module:Name", f"found {name!r}", f"option --{kind}")
    with told(f"{one} must be importable", where):
        try:
            importlib.invalidate_caches()
            imported = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise  # something that the named module itself needs
            must = f"{one}'s module must be installed, or on PYTHONPATH"
            raise InputError(must, f"found no {error.name}", where) from None
    if not hasattr(imported, member):
        raise InputError(f"{module} must have {member}", "found no such name", where)
    file = getattr(sys.modules[module], "__file__", None)
    return Imported(name=name, value=getattr(imported, member), file=Path(file) if file else None)
