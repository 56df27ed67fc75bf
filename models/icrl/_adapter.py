"""An adapter by its name `package.module:Name`: imported from what is installed, never from a checkpoint.

Shape legend: `batch` contexts, `query` the query S_n, then extra query columns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from valuelens.models._errors import InputError, told
from valuelens.models._imported import import_named
from valuelens.models.icrl._config import TaskConfig
from valuelens.models.icrl._mrp import Context
from valuelens.models.icrl._network import Network, Slot

_MEMBERS = ("module", "slots", "inputs", "values")
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
        InputError: The name has another form, there is no such module or no such name in it, importing raises, or
            what it names cannot be called.

    Example:
        >>> adapter = import_adapter("valuelens.models.icrl:network_of")
        >>> adapter.file.name
        '__init__.py'
    """
    imported = import_named(name, "adapter")
    if not callable(imported.value):
        must = "an adapter must be callable with a path"
        raise InputError(must, f"found {type(imported.value).__name__}", f"adapter {name}")
    return Adapter(name=name, make=imported.value, file=imported.file)


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
