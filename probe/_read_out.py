"""Outputs of named submodules of any torch module, and the linear read-out that turns them into values.

Shape legend: `sample` columns of contexts taken together, `D` width of what a hook shows.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


class HookError(ValueError):
    """A hook that does not show what it should; its arguments are what must hold, what was found, and where."""

    def __str__(self) -> str:
        return "; ".join(map(str, self.args))


def submodule_outputs(
    module: nn.Module, inputs: tuple[Any, ...], names: Sequence[str]
) -> tuple[Any, dict[str, Tensor]]:
    """What a call returns, and the detached outputs of named submodules during it.

    Works for any torch module, with or without hook points of TransformerLens (these are submodules too). Of a tuple
    its first entry is taken.

    Args:
        module: Called once, without gradients.
        inputs: Arguments of the call.
        names: As in `module.get_submodule(name)`.

    Raises:
        HookError: There is no submodule of that name, it shows no tensor, or the call did not reach it (never a silent
            zero) or reached it more than once (never a silent choice: one module that serves as several layers needs
            a submodule behind every use of it, such as `nn.Identity`).

    Example:
        >>> module = nn.Sequential(nn.Identity(), nn.Flatten())
        >>> output, seen = submodule_outputs(module, (torch.ones(2, 3, 1),), ["1"])
        >>> seen["1"].shape
        torch.Size([2, 3])
    """
    seen: dict[str, Tensor] = {}

    def keep(name: str, output: Any) -> None:
        shown = output[0] if isinstance(output, tuple) and output else output
        if not isinstance(shown, Tensor):
            must = "a hook must show a tensor, or a tuple that begins with one"
            raise HookError(must, f"found {type(shown).__name__}", f"hook {name}")
        if name in seen:
            raise HookError("a call must reach a hook once", "found a second time", f"hook {name}")
        seen[name] = shown.detach()

    targets = {name: _submodule(module, name) for name in names}
    handles = [
        target.register_forward_hook(lambda _, __, output, name=name: keep(name, output))
        for name, target in targets.items()
    ]
    try:
        with torch.no_grad():
            output = module(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    if missed := [name for name in names if name not in seen]:
        raise HookError("a call must reach a hook once", "found it idle", f"hook {missed[0]}")
    return output, seen


def _submodule(module: nn.Module, name: str) -> nn.Module:
    try:
        return module.get_submodule(name)
    except AttributeError:
        names = [known for known, _ in module.named_modules() if known]
        among = f"{', '.join(names[:4])}{', ...' if len(names) > 4 else ''}" or "none"
        must = "a hook must be the name of a submodule"
        raise HookError(must, f"found no {name!r} among {among}", f"hook {name}") from None


def linear_read_out(shown: Float[Tensor, "sample D"], values: Float[Tensor, "sample"]) -> Float[Tensor, "D"]:
    """The direction in which something shows values: least squares, of several solutions the shortest.

    Args:
        shown: What a hook shows in each column.
        values: What the network returns for the state of that column.
    """
    solution: Tensor = torch.linalg.lstsq(shown.cpu(), values[:, None].cpu(), driver="gelsd").solution
    return solution[:, 0].to(shown.device)
