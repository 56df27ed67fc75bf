"""All credit through attention cut: keys and values come from the residual stream held fixed.

Every block reads the stream twice: once as it is, for queries, the mixing and everything behind; once held fixed, for
keys and values, those that a position has for itself included. So weights of keys and values (and of the norm before
them) are trained, but nothing that an earlier position, or an earlier block there, could do for a later position is.

Shape legend: `batch` rollouts, `head` heads, `pos` positions, `d_head` width of a head.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor
from torch.nn import Module

from valuelens.probe._locality import taken_attention
from valuelens.probe._residual_stream import residual_blocks


class _Read(Exception):  # noqa: N818  # it is no error: a block has computed its keys and values
    def __init__(self, key: Tensor, value: Tensor) -> None:
        super().__init__()
        self.key_value = key, value


@contextmanager
def credit_cut(model: Module) -> Iterator[None]:
    """Inside the block keys and values are computed from the detached residual stream; outputs stay as they are.

    The gradient of what is said at one position by the stream of another is exactly 0 at every layer. Queries, the
    residual path and a position's own MLPs keep theirs, and so do the weights of keys and values.

    Source: theory B6, causal control.

    Args:
        model: A causal language model of transformers whose blocks attend through its attention interface; used
            without a key-value cache.

    Raises:
        ValueError: As `taken_attention`, or a key-value cache is used.
    """
    held: list[tuple[Tensor, Tensor] | None] = [None]

    def attend(
        block: int, own: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any
    ) -> Any:
        if held[0] is None:
            raise _Read(key, value)
        (key, value), held[0] = held[0], None
        return own(query, key, value, *rest, **options)

    def read_first(forward: Callable[..., Any]) -> Callable[..., Any]:
        def twice(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
            _refuse_cache((*args, *kwargs.values()))
            try:
                forward(hidden_states.detach(), *args, **kwargs)
            except _Read as read:
                held[0] = read.key_value
            return forward(hidden_states, *args, **kwargs)

        return twice

    with taken_attention(model, attend, plain=False), ExitStack() as stack:
        for block in residual_blocks(model):
            stack.callback(_put_back, block, vars(block).get("forward"))
            block.forward = read_first(block.forward)
        yield


def _put_back(block: Module, forward: Callable[..., Any] | None) -> None:
    if forward is None:
        del block.forward
    else:
        block.forward = forward


def _refuse_cache(given: tuple[Any, ...]) -> None:
    from transformers import Cache

    if any(isinstance(each, Cache) for each in given):
        rule = "credit is cut in passes over whole sequences"
        raise ValueError(f"{rule}; found a key-value cache; credit_cut (use_cache=False)")
