"""An adapter by its name `package.module:Name`: imported from what is installed, never from a checkpoint.

Shape legend: `batch` contexts, `query` the query S_n, then extra query columns.
"""

import hashlib
import importlib
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from valuelens.models._errors import InputError
from valuelens.models.icrl._config import TaskConfig
from valuelens.models.icrl._mrp import Context
from valuelens.models.icrl._network import Network, Slot

_MEMBERS = ("module", "slots", "inputs", "values")
_LONGEST = 200
_SAME = 1e-5


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapter:
    """What makes a network of a path.

    Attributes:
        name: `package.module:Name`.
        make: Called with the path, returns a `Network`.
        file: Where its code stands, if in a file.
    """

    name: str
    make: Callable[[Path], Any]
    file: Path | None

    def network(self, path: Path) -> Network:
        """The network of a path, in evaluation mode.

        Args:
            path: What the adapter loads: a checkpoint of any kind.

        Raises:
            InputError: The adapter raises, or what it returns is no `Network`.
        """
        with told("an adapter must return a network for this path", f"adapter {self.name}, {path}"):
            network = self.make(path)
            missing = [member for member in _MEMBERS if not hasattr(network, member)]
            if missing:
                found = f"found {type(network).__name__} without {missing[0]}"
                must = f"an adapter must return a Network (with {', '.join(_MEMBERS)})"
                raise InputError(must, found, f"adapter {self.name}")
            self._check(network)
            network.module.eval()
        checked: Network = network
        return checked

    def _check(self, network: Any) -> None:
        if not isinstance(network.module, nn.Module):
            found = f"found {type(network.module).__name__}"
            if isinstance(getattr(network.module, "_module", None), nn.Module):
                found += " (what it wraps is its _module)"
            raise InputError("module must be a torch module", found, f"adapter {self.name}")
        strange = [type(slot).__name__ for slot in network.slots if not isinstance(slot, Slot)]
        if strange:
            raise InputError("slots must be Slot", f"found {strange[0]}", f"adapter {self.name}")
        task = getattr(network, "task", None)
        if not isinstance(task, TaskConfig | None):
            must = "task must be a TaskConfig, or left out"
            raise InputError(must, f"found {type(task).__name__}", f"adapter {self.name}")


def import_adapter(name: str) -> Adapter:
    """Import an adapter from what is installed here, or stands on PYTHONPATH.

    Args:
        name: `package.module:Name`.

    Raises:
        InputError: The name has another form, there is no such module or no such name in it, or importing raises.

    Example:
        >>> adapter = import_adapter("valuelens.models.icrl:network_of")
        >>> adapter.file.name
        '__init__.py'
    """
    module, _, member = name.partition(":")
    if not (member.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        must = "an adapter must be named package.module:Name"
        raise InputError(must, f"found {name!r}", "option --adapter")
    with told("an adapter must be importable", f"adapter {name}"):
        try:
            importlib.invalidate_caches()
            imported = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise  # something that the adapter itself needs
            must = "an adapter's module must be installed, or on PYTHONPATH"
            raise InputError(must, f"found no {error.name}", f"adapter {name}") from None
    if not hasattr(imported, member):
        raise InputError(f"{module} must have {member}", "found no such name", f"adapter {name}")
    if not callable(make := getattr(imported, member)):
        must = "an adapter must be callable with a path"
        raise InputError(must, f"found {type(make).__name__}", f"adapter {name}")
    file = getattr(sys.modules[module], "__file__", None)
    return Adapter(name=name, make=make, file=Path(file) if file else None)


def check_network(network: Network, context: Context, *, where: str) -> None:
    """Call a network as a measurement will, and say in one line what is wrong with it.

    Args:
        network: Of an adapter.
        context: Of its task.
        where: Stands in the error.

    Raises:
        InputError: It does not take the contexts, does not return the same values twice, or the value of S_n changes
            when extra queries are appended.
    """
    n, d = context.num_transitions, context.features.shape[-1]
    must = f"a network must take contexts of {n} transitions with {d} features (an adapter's task says other)"
    with told(must, where), torch.no_grad():
        plain, again, extra = (
            network.values(network.module(*network.inputs(context, queries)))
            for queries in (context.features[:, :0], context.features[:, :0], context.features)
        )
    if not all(isinstance(values, Tensor) and values.ndim == 2 for values in (plain, again, extra)):
        found = f"found {tuple(plain.shape) if isinstance(plain, Tensor) else type(plain).__name__}"
        raise InputError("values must be [batch query]", found, where)
    if _apart(plain, again):
        raise InputError("a network must return the same values twice", "found others", where)
    if _apart(plain, extra):
        must = "extra queries must not change the value of S_n (they may be ignored)"
        raise InputError(must, "found another value", where)


def _apart(one: Tensor, other: Tensor) -> bool:
    """Whether values of S_n differ by more than rounding in single precision; what is not finite is told elsewhere."""
    difference = (one[:, :1] - other[:, :1]).abs().nan_to_num(0.0)
    return bool((difference > _SAME * one[:, :1].abs().nan_to_num(0.0).max()).any())


@contextmanager
def told(must: str, where: str) -> Iterator[None]:
    """Turn whatever foreign code raises inside the block into one line; an `InputError` passes as it is.

    Args:
        must: What must hold.
        where: Whose code it is.
    """
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:  # foreign code may raise anything
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name} line {frame.lineno}"
        message = textwrap.shorten(str(error), _LONGEST, placeholder=" ...")
        raise InputError(must, f"found {type(error).__name__}: {message} ({place})", where) from error


def content_hash(path: Path) -> str | None:
    """sha256 of a file, or of all files of a folder and their names; none if there is neither.

    Args:
        path: What an adapter loads; it need not be a path on this machine at all.
    """
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.is_file())
        parts = [f"{each.relative_to(path).as_posix()} {content_hash(each)}\n" for each in files]
        return hashlib.sha256("".join(parts).encode()).hexdigest()
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
