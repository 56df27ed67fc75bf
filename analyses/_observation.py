"""A network seen from outside: the values of its layers on contexts, through nothing but its adapter.

Shape legend: `batch` contexts, `pos` the n+1 columns S_0..S_n, `iterate` 0..L: before the first layer, then after each.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.models import InputError
from valuelens.models.icrl import Context, Network, Slot
from valuelens.probe import HookError, linear_read_out, submodule_outputs

_SHOWN = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """Values of a network on contexts.

    Attributes:
        context: What it saw.
        values: Of every column before the first layer (0 by convention: memories of a prompt are empty) and after
            every layer, in the units of what the network returns.
        returned: Its value of S_n.
    """

    context: Context
    values: Float[Tensor, "iterate batch shown"]
    returned: Float[Tensor, "batch"]

    @property
    def updates(self) -> Float[Tensor, "layer batch shown"]:
        """What every layer added."""
        return self.values.diff(dim=0)

    @property
    def unread(self) -> float:
        """Share of the squared returned values that the last layer's values at S_n miss: 0 if the slots are right."""
        missed = (self.values[-1, :, -1] - self.returned).square().sum()
        return float(missed / self.returned.square().sum())


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadOut:
    """How the slots of a network are turned into values: found once, then used on every context.

    Attributes:
        slots: By layer.
        direction: What the output of their hooks is multiplied with.
        repeated: Whether the value of S_j stands in an extra query column that repeats S_j, because column j itself
            shows something else (of linear attention, a TD error).
    """

    slots: tuple[Slot, ...]
    direction: Float[Tensor, "D"]
    repeated: bool = False


def value_slots_of(network: Network) -> tuple[Slot, ...]:
    """The slots that show values, one a layer, in the order of layers.

    Args:
        network: Its adapter.

    Raises:
        InputError: There are none, or not exactly one for each of the layers 0..L-1.
    """
    shown = sorted((slot for slot in network.slots if slot.holds != "target"), key=lambda slot: slot.layer)
    if not shown or [slot.layer for slot in shown] != list(range(len(shown))):
        found = f"found layers {[slot.layer for slot in shown]}"
        raise InputError("a network must show one value slot for each layer 0..L-1", found, "adapter, slots")
    return tuple(shown)


def read_out_of(network: Network, context: Context) -> ReadOut:
    """Find the direction of values: from what the last layer shows to what the network returns.

    A `value` slot needs no more than a scale; of a residual stream the direction is found at the last layer and used
    in all (theory A12). The values of all columns are used, which the network returns through extra queries that
    repeat S_0..S_n; where the columns themselves do not show them, these queries are read.

    Args:
        network: Its adapter.
        context: Some contexts.

    Raises:
        InputError: As `value_slots_of`, or hooks that are missing or show something of another shape.
    """
    slots = value_slots_of(network)
    shown, returned = _shown(network, context, slots[-1:], whole=True)
    last, pos = shown[0], context.states.shape[1]
    if returned.shape[1] == 1:
        direction, _ = _direction(last[:, pos - 1 : pos], returned)
        return ReadOut(slots=slots, direction=direction)
    direction, missed = _direction(last[:, :pos], returned[:, 1:])
    if missed > _SHOWN and last.shape[1] >= 2 * pos:
        other, less = _direction(last[:, pos : 2 * pos], returned[:, 1:])
        if less < missed:
            return ReadOut(slots=slots, direction=other, repeated=True)
    return ReadOut(slots=slots, direction=direction)


def _direction(last: Tensor, values: Tensor) -> tuple[Tensor, float]:
    """The direction, and the share of the squared values that it misses."""
    direction = linear_read_out(last.flatten(0, 1), values.flatten())
    missed = (last @ direction - values).square().sum() / values.square().sum()
    return direction, float(missed)


def observe(network: Network, context: Context, read_out: ReadOut) -> Observation:
    """Run a network on contexts and read the values of its layers.

    Args:
        network: Its adapter.
        context: What it sees.
        read_out: From `read_out_of`.

    Raises:
        InputError: Values that are not finite.
    """
    shown, returned = _shown(network, context, read_out.slots, whole=read_out.repeated)
    pos = context.states.shape[1]
    columns = slice(pos, 2 * pos) if read_out.repeated else slice(pos)
    values = torch.stack([each[:, columns] @ read_out.direction for each in shown])
    return Observation(
        context=context, values=torch.cat([torch.zeros_like(values[:1]), values]), returned=returned[:, 0]
    )


def observe_returned(network: Network, context: Context) -> Observation:
    """The values that a network returns, as one layer: of S_0..S_n if it takes extra queries, else of S_n alone.

    Args:
        network: Its adapter.
        context: What it sees.

    Raises:
        InputError: Values that are not finite.
    """
    with torch.no_grad():
        returned = network.values(network.module(*network.inputs(context, context.features)))
    if not bool(returned.isfinite().all()):
        must = "the network's values must be finite on every context"
        raise InputError(must, "found overflow", "returned values")
    values = returned[:, 1:] if returned.shape[1] > 1 else returned
    return Observation(
        context=context, values=torch.stack([torch.zeros_like(values), values]), returned=returned[:, 0]
    )


def _shown(
    network: Network, context: Context, slots: tuple[Slot, ...], *, whole: bool
) -> tuple[list[Float[Tensor, "batch column D"]], Float[Tensor, "batch query"]]:
    """What slots show, always with a last axis, and what the network returns (for every column if `whole`)."""
    queries = context.features if whole else context.features[:, :0]
    try:
        output, seen = submodule_outputs(
            network.module, network.inputs(context, queries), [slot.hook for slot in slots]
        )
    except HookError as error:
        must, found, where = error.args
        raise InputError(must, found, f"adapter, {where}") from None
    returned = _returned(network.values(output), queries)
    entries = [_entry(slot, seen[slot.hook], context, queries.shape[1]) for slot in slots]
    for where, numbers in zip(
        ("values", *(f"hook {slot.hook}" for slot in slots)), (returned, *entries), strict=True
    ):
        if not bool(numbers.isfinite().all()):
            must = "the network's values must be finite on every context"
            raise InputError(must, "found NaN or infinity", f"adapter, {where}")
    return [entry.to(context.features.dtype) for entry in entries], returned.to(context.features.dtype)


def _returned(values: object, queries: Float[Tensor, "batch column feature"]) -> Tensor:
    """Values of S_n and of the extra queries, or of S_n alone."""
    batch, extra = queries.shape[:2]
    shapes = {(batch, 1), (batch, 1 + extra)}
    if not isinstance(values, Tensor) or tuple(values.shape) not in shapes or not values.is_floating_point():
        found = (
            f"{tuple(values.shape)} {values.dtype}" if isinstance(values, Tensor) else type(values).__name__
        )
        must = f"values must be floating-point numbers of shape {' or '.join(map(str, sorted(shapes)))}"
        raise InputError(must, f"found {found}", "adapter, values")
    return values.detach()


def _entry(slot: Slot, shown: Tensor, context: Context, extra: int) -> Float[Tensor, "batch column D"]:
    """What a slot shows, by column of the prompt: those of the context first."""
    batch, pos = context.states.shape
    whole, where = tuple(shown.shape), f"adapter, hook {slot.hook}"
    if slot.index is not None:
        if not -shown.shape[-1] <= slot.index < shown.shape[-1]:
            must = f"the index of a slot must lie in its last axis of {shown.shape[-1]}"
            raise InputError(must, f"found {slot.index}", where)
        shown = shown[..., slot.index]
    shown = shown[..., None] if shown.ndim == 2 else shown
    if shown.ndim != 3 or len(shown) != batch or shown.shape[1] not in (pos, pos + extra):
        must = f"a slot must show {batch} contexts with the columns S_0..S_n and extra queries ({pos}"
        must += f" or {pos + extra})" if extra else ")"
        raise InputError(must, f"found shape {whole}", where)
    return shown
