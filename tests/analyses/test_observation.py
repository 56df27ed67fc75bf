"""A network seen from outside: its values, wherever its slots hide them, and one line for every wrong adapter."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from valuelens.analyses._observation import Observation, observe, observe_returned, read_out_of
from valuelens.models import InputError
from valuelens.models.icrl import (
    Context,
    Network,
    Slot,
    SoftmaxTD,
    TaskConfig,
    context_of,
    network_of,
    task_sampler,
    theta_star,
    theta_td,
)
from valuelens.probe import value_slots

LAYERS = 3


def contexts(batch: int = 12, seed: int = 1) -> Context:
    generator = torch.Generator().manual_seed(seed)
    sampler = task_sampler(TaskConfig(context_length=9), generator)
    return context_of(*sampler.sample(batch, 9, generator, torch.float64))


def model() -> SoftmaxTD:
    return theta_star(feature_dim=4, num_layers=LAYERS, gamma=0.5, alpha=0.7, sharpness=3.0)


class Shown(nn.Module):
    """theta* with one submodule more a layer, which shows its residual stream as `show` has it."""

    def __init__(self, show: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.model = model()
        self.taps = nn.ModuleList(nn.Identity() for _ in range(LAYERS))
        self.show = show

    def forward(self, prompt: Tensor, num_queries: int) -> Tensor:
        for layer, block in enumerate(self.model.blocks):
            block.register_forward_hook(lambda _, __, out, layer=layer: self._tap(layer, out), prepend=True)
        try:
            return self.model(prompt, num_queries)
        finally:
            for block in self.model.blocks:
                block._forward_hooks.clear()

    def _tap(self, layer: int, stream: Tensor) -> None:
        self.taps[layer](self.show(stream))


@dataclass(kw_only=True)
class Adapted:
    """An adapter of `Shown`, every part of which a test may get wrong."""

    show: Callable[[Tensor], Any] = field(default=lambda stream: stream)
    slots: Sequence[Slot]
    returned: Callable[[Tensor], Any] = field(default=lambda output: output)
    module: nn.Module = field(init=False)

    def __post_init__(self) -> None:
        self.module = Shown(self.show)

    def inputs(self, context: Context, queries: Tensor) -> tuple[Any, ...]:
        return self.module.model.prompt(context, queries), 1 + queries.shape[1]

    def values(self, output: Tensor) -> Any:
        return self.returned(output)


def slots(**parts: Any) -> list[Slot]:
    return [Slot(hook=f"taps.{layer}", layer=layer, **parts) for layer in range(LAYERS)]


def truth(context: Context) -> Tensor:
    """Values before the first and after every layer, by the hooks that we know."""
    own = model()
    return torch.cat(
        [
            torch.zeros(1, *context.states.shape, dtype=torch.float64),
            value_slots(own, own.prompt(context)).detach(),
        ]
    )


def seen(network: Network, context: Context) -> Observation:
    """The read-out is found on other contexts."""
    return observe(network, context, read_out_of(network, contexts(40, seed=7)))


def mixed(width: int = 7) -> Tensor:
    return torch.randn(width, width, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


@pytest.mark.parametrize(
    ("show", "parts"),
    [
        (lambda stream: stream[..., -1], {}),
        (lambda stream: -3 * stream[..., -1], {}),
        (lambda stream: stream, {"index": 6}),
        (lambda stream: -stream, {"index": -1}),
        (lambda stream: (stream[..., -1:], "cache"), {}),
        (lambda stream: stream, {"holds": "residual"}),
        (lambda stream: stream @ mixed(), {"holds": "residual"}),
        (lambda stream: (stream @ mixed(), None), {"holds": "residual"}),
    ],
    ids=["plain", "negative", "index", "last", "tuple", "residual", "mixed residual", "mixed tuple"],
)
def test_values_are_read_wherever_they_are_hidden(
    show: Callable[[Tensor], Any], parts: dict[str, Any]
) -> None:
    context = contexts()
    observation = seen(Adapted(show=show, slots=slots(**parts)), context)
    assert_close(observation.values, truth(context), rtol=0, atol=1e-9)
    assert_close(observation.returned, truth(context)[-1, :, -1], rtol=0, atol=1e-12)
    assert observation.unread < 1e-18


def test_updates_are_what_every_layer_added() -> None:
    context = contexts()
    updates = seen(network_of(model()), context).updates
    assert_close(updates, truth(context).diff(dim=0), rtol=0, atol=1e-12)


def test_slots_may_stand_in_any_order() -> None:
    context = contexts()
    observation = seen(Adapted(slots=slots(index=6)[::-1]), context)
    assert_close(observation.values, truth(context), rtol=0, atol=1e-12)


def test_a_network_may_ignore_extra_queries() -> None:
    context = contexts()
    network = Adapted(show=lambda stream: 2 * stream, slots=slots(index=6), returned=lambda out: out[:, :1])
    assert_close(seen(network, context).values, truth(context), rtol=0, atol=1e-9)


def test_a_network_in_single_precision_is_measured_in_double() -> None:
    context = contexts()
    network = Adapted(show=lambda out: out.float(), slots=slots(index=6), returned=lambda out: out.float())
    observation = seen(network, context)
    assert observation.values.dtype == observation.returned.dtype == torch.float64
    assert_close(observation.values, truth(context), rtol=0, atol=1e-6)


def test_wrong_slots_leave_values_unread() -> None:
    assert seen(Adapted(slots=slots(index=4)), contexts()).unread > 0.1


def test_linear_attention_is_read_at_repeated_columns() -> None:
    context = contexts()
    linear = theta_td(feature_dim=4, num_layers=LAYERS, gamma=0.5, alpha=0.5).double()
    network = network_of(linear)
    read_out = read_out_of(network, context)
    assert read_out.repeated
    observation = observe(network, context, read_out)
    with torch.no_grad():
        assert_close(observation.values[-1], linear.values(context, context.features), rtol=0, atol=1e-9)
    assert observation.unread < 1e-18


def test_returned_values_alone_are_one_layer() -> None:
    context = contexts()
    every = observe_returned(Adapted(slots=[]), context)
    assert_close(every.values, truth(context)[[0, -1]], rtol=0, atol=1e-12)
    alone = observe_returned(Adapted(slots=[], returned=lambda out: out[:, :1]), context)
    assert_close(alone.values, truth(context)[[0, -1], :, -1:], rtol=0, atol=1e-12)


NAN = float("nan")
COLUMNS = "a slot must show 12 contexts with the columns S_0..S_n and extra queries (10 or 20)"


@pytest.mark.parametrize(
    ("network", "text"),
    [
        ({"slots": []}, "a network must show one value slot for each layer 0..L-1; found layers []"),
        (
            {"slots": [Slot(hook="taps.0", layer=0), Slot(hook="taps.2", layer=2)]},
            "a network must show one value slot for each layer 0..L-1; found layers [0, 2]; adapter, slots",
        ),
        (
            {"slots": [*slots(index=6), Slot(hook="taps.1", layer=1)]},
            "a network must show one value slot for each layer 0..L-1; found layers [0, 1, 1, 2]; adapter, slots",
        ),
        (
            {"slots": [Slot(hook="tap.0", layer=0)]},
            "a hook must be the name of a submodule; found no 'tap.0' among model, model.blocks",
        ),
        (
            {"slots": slots(index=7)},
            "the index of a slot must lie in its last axis of 7; found 7; adapter, hook taps.2",
        ),
        (
            {"slots": slots(), "show": lambda stream: stream[:, 3:, -1]},
            f"{COLUMNS}; found shape (12, 17); adapter, hook taps.2",
        ),
        (
            {"slots": slots(), "show": lambda stream: stream[:, :3, -1]},
            f"{COLUMNS}; found shape (12, 3); adapter, hook taps.2",
        ),
        (
            {"slots": slots(index=6), "show": lambda stream: stream / 0},
            "the network's values must be finite on every context; found NaN or infinity; adapter, hook taps.2",
        ),
        (
            {"slots": slots(index=6), "returned": lambda out: NAN * out},
            "the network's values must be finite on every context; found NaN or infinity; adapter, values",
        ),
        (
            {"slots": slots(index=6), "returned": lambda out: out[:, 0]},
            "values must be floating-point numbers of shape (12, 1) or (12, 11); found (12,) torch.float64; adapter",
        ),
        (
            {"slots": slots(index=6), "returned": lambda out: out.tolist()},
            "values must be floating-point numbers of shape (12, 1) or (12, 11); found list; adapter, values",
        ),
        (
            {"slots": slots(index=6), "show": lambda stream: {"stream": stream}},
            "a hook must show a tensor, or a tuple that begins with one; found dict; adapter, hook taps.2",
        ),
    ],
)
def test_a_wrong_adapter_is_told_in_one_line(network: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError) as caught:
        read_out_of(Adapted(**network), contexts())
    assert str(caught.value).startswith(text)


def test_a_hook_that_is_never_reached_is_told() -> None:
    network = Adapted(slots=slots(index=6))
    network.module.taps.append(nn.Identity())
    network.slots = [*network.slots, Slot(hook=f"taps.{LAYERS}", layer=LAYERS, index=6)]
    with pytest.raises(
        InputError, match=r"a call must reach a hook once; found it idle; adapter, hook taps\.3"
    ):
        read_out_of(network, contexts())
