"""All that an identification may know of a network: a callable, the names of hooks, and how to read its output.

Shape legend: `batch` contexts, `pos` the n+1 columns S_0..S_n of a context, then extra query columns; `query` the
query S_n, then the extra ones; `D` the width of a residual stream.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from valuelens.models._errors import InputError
from valuelens.models.icrl._learner import ValueLearner
from valuelens.models.icrl._mrp import Context

Holds = Literal["value", "target", "residual"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """Where a layer shows something: hook name to layer and slot.

    What is shown has the columns S_0..S_n of every context, with or without the extra queries behind them.

    Attributes:
        hook: Name of a submodule (a TransformerLens HookPoint is one) that a call reaches once; its output is read, of
            a tuple the first entry.
        layer: The layer, counted from 0, *after* which the output stands there.
        holds: `value`, the current value of every column up to one factor; `target`, gamma times the value of its
            successor, which interventions may scale; or `residual`, a whole residual stream in which the value must
            first be found.
        index: Which entry of the last axis is meant; none if the output is [batch pos], or a residual stream.
    """

    hook: str
    layer: int
    holds: Holds = "value"
    index: int | None = None


@runtime_checkable
class Network(Protocol):
    """The adapter of a network: what a user writes to have their own network identified.

    Contexts come in float64 on the CPU; the module and its hooks may return another precision. An adapter that
    `analyze --adapter` imports is called with a path, and may have an attribute `task`: the `TaskConfig` of the tasks
    that its network is asked on, else the default one.

    Attributes:
        module: What is called and hooked.
        slots: One `value` slot (or one `residual` slot) for every layer, `target` slots if there are any.

    Example:
        >>> from valuelens.models.icrl import network_of, theta_star
        >>> network = network_of(theta_star(feature_dim=2, num_layers=2, gamma=0.5))
        >>> isinstance(network, Network), network.slots[0].hook
        (True, 'blocks.0.hook_value')
    """

    @property
    def module(self) -> nn.Module:
        """What is called, and whose submodules carry the hooks."""

    @property
    def slots(self) -> Sequence[Slot]:
        """Where its layers show their values."""

    def inputs(self, context: Context, queries: Float[Tensor, "batch query feature"]) -> tuple[Any, ...]:
        """Arguments of the call for a context, with extra states behind S_n whose values are wanted too.

        There may be none, and a network that cannot answer them ignores them; in no case do they change anything else.
        """

    def values(self, output: Any) -> Float[Tensor, "batch query"]:
        """What a call returned, as values: of S_n first, then of the extra queries if they are answered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnerNetwork:
    """One of our own value learners behind the adapter protocol."""

    module: ValueLearner
    slots: tuple[Slot, ...]

    def inputs(self, context: Context, queries: Float[Tensor, "batch query feature"]) -> tuple[Any, ...]:
        """Its prompt, and how many columns are queries."""
        return self.module.prompt(context, queries), 1 + queries.shape[1]

    def values(self, output: Any) -> Float[Tensor, "batch query"]:
        """Its output as it is."""
        return torch.as_tensor(output)


def network_of(model: ValueLearner) -> LearnerNetwork:
    """The adapter of one of our own models, by the hooks that it has.

    Args:
        model: With `hook_value` in every block (and `hook_target`), else its residual streams are read.

    Raises:
        InputError: It has no such hooks.
    """
    layers = range(model.num_layers)
    names = {
        "value": [f"blocks.{layer}.hook_value" for layer in layers],
        "target": [f"blocks.{layer}.hook_target" for layer in layers],
        "residual": [f"blocks.{layer}.hook_resid_post" for layer in layers],
    }
    held: tuple[Holds, ...] = ("value", "target")
    if names["value"][0] not in model.hook_dict:
        held = ("residual",)
    slots = tuple(
        Slot(hook=name, layer=layer, holds=kind)
        for kind in held
        for layer, name in enumerate(names[kind])
        if name in model.hook_dict
    )
    if not slots:
        must = "a model must have hook_value or hook_resid_post in every block"
        raise InputError(must, "found neither", f"{type(model).__name__}, hooks")
    return LearnerNetwork(module=model, slots=slots)
