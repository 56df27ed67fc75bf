"""Outputs of named submodules of any torch module, and the linear read-out that turns them into values.

Shape legend: `sample` columns of contexts taken together, `D` width of what a hook shows.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


def submodule_outputs(
    module: nn.Module, inputs: tuple[Any, ...], names: Sequence[str]
) -> tuple[Any, dict[str, Tensor]]:
    """What a call returns, and the detached outputs of named submodules during it (the last one of each).

    Works for any torch module, with or without hook points of TransformerLens (these are submodules too). Of a tuple
    its first entry is taken.

    Args:
        module: Called once, without gradients.
        inputs: Arguments of the call.
        names: As in `module.named_modules()`.

    Raises:
        ValueError: There is no submodule of that name, or the call did not reach it (never a silent zero).
    """
    known = dict(module.named_modules())
    seen: dict[str, Tensor] = {}

    def keep(name: str, output: Any) -> None:
        seen[name] = (output[0] if isinstance(output, tuple) else output).detach()

    for name in names:
        if name not in known:
            raise ValueError(f"hooks must be submodules; found no {name} among {len(known)}; hook names")
    handles = [
        known[name].register_forward_hook(lambda _, __, output, name=name: keep(name, output))
        for name in names
    ]
    try:
        with torch.no_grad():
            output = module(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    if missed := [name for name in names if name not in seen]:
        raise ValueError(f"every hook must be reached by a call; found {missed[0]} idle; hook names")
    return output, seen


def linear_read_out(shown: Float[Tensor, "sample D"], values: Float[Tensor, "sample"]) -> Float[Tensor, "D"]:
    """The direction in which something shows values: least squares, of several solutions the shortest.

    Args:
        shown: What a hook shows in each column.
        values: What the network returns for the state of that column.
    """
    solution: Tensor = torch.linalg.lstsq(shown.cpu(), values[:, None].cpu(), driver="gelsd").solution
    return solution[:, 0].to(shown.device)
