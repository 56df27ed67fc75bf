"""How records of tensors show themselves in a session: sizes and a few numbers, not all of them."""

from dataclasses import fields
from typing import Any

from torch import Tensor

_FEW = 8
"""Numbers that are shown."""


class Measured:
    """A dataclass of tensors that shows what it holds in a line a field.

    Example:
        >>> import torch
        >>> from valuelens.probe import Locality
        >>> Locality(own=torch.ones(2, 3, 4), whole=torch.zeros(2, 3, 4))
        Locality
          own    float32 [2, 3, 4], norm 4.899
          whole  float32 [2, 3, 4], norm 0
    """

    __slots__ = ()

    def __repr__(self) -> str:
        held: Any = self
        names = [field.name for field in fields(held)]
        width = max(map(len, names))
        lines = [f"  {name:{width}}  {_told(getattr(self, name))}" for name in names]
        return "\n".join([type(self).__name__, *lines])


def _told(value: object) -> str:
    if not isinstance(value, Tensor):
        return str(value)
    kind = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if value.dtype.itemsize == 1:  # yes or no
        return f"{kind}, {int(value.sum())} of {value.numel()} true"
    if value.numel() <= _FEW:
        return f"{kind} {_numbers(value.tolist())}"
    return f"{kind}, norm {float(value.double().norm()):.4g}"


def _numbers(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_numbers, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
