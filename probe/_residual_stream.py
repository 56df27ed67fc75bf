"""The residual stream of a causal language model: read it, and change it on the way, without touching the model.

h_l is what enters block l (`hidden_states[l]` of transformers), l = 0..L-1. h_L is `hidden_states[L]`, behind the final
norm; what the last block gives before that norm is `BEFORE_NORM`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor
from torch.nn import Module, ModuleList

BEFORE_NORM = -1
"""In place of a layer: the output of the last block, before the final norm."""

Edit = Callable[[Tensor], Tensor]
"""What stands in the stream instead of what it is given; to read only, it returns what it is given."""


def residual_blocks(model: Module) -> ModuleList:
    """The blocks of a model, first to last: of its module lists of the right length the one with most parameters.

    Args:
        model: A causal language model; with a `config`, its `num_hidden_layers` is the right length.

    Raises:
        ValueError: It has no such list.
    """
    config: Any = getattr(model, "config", None)
    depth = config.get_text_config().num_hidden_layers if hasattr(config, "get_text_config") else None
    lists = [module for module in model.modules() if isinstance(module, ModuleList)]
    fitting = [each for each in lists if depth is None or len(each) == depth]
    if not fitting:
        found = f"found {len(lists)} lists, none of {depth} blocks" if lists else "found no ModuleList"
        raise ValueError(f"the model must hold its blocks in one ModuleList; {found}; {type(model).__name__}")
    return max(fitting, key=lambda each: sum(p.numel() for p in each.parameters()))


@contextmanager
def edited_stream(model: Module, edits: Mapping[int, Edit]) -> Iterator[None]:
    """Let `edits` read or replace the stream before their blocks inside the block, and nothing behind it.

    Args:
        model: A causal language model.
        edits: By layer 0..L-1, or `BEFORE_NORM` for the last block's output.
    """
    blocks = residual_blocks(model)
    with ExitStack() as stack:
        for layer, edit in edits.items():
            handle = (
                blocks[-1].register_forward_hook(_after(edit))
                if layer == BEFORE_NORM
                else blocks[layer].register_forward_pre_hook(_before(edit), with_kwargs=True)
            )
            stack.callback(handle.remove)
        yield


@contextmanager
def frozen(model: Module) -> Iterator[None]:
    """No parameter asks for a gradient inside the block; those that did do so again behind it.

    Args:
        model: Any.
    """
    asking = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for parameter in asking:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in asking:
            parameter.requires_grad_(True)


def _before(edit: Edit) -> Callable[..., Any]:
    def hook(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            return (edit(args[0]), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": edit(kwargs["hidden_states"])}

    return hook


def _after(edit: Edit) -> Callable[..., Any]:
    def hook(module: Module, args: tuple[Any, ...], output: Any) -> Any:
        return (edit(output[0]), *output[1:]) if isinstance(output, tuple) else edit(output)

    return hook
