"""Our own models behind the adapter protocol: what they show, what they are given, what they return."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformer_lens import HookedRootModule

from valuelens.models import InputError
from valuelens.models.icrl import (
    Context,
    LearnerNetwork,
    Network,
    RunConfig,
    ValueLearner,
    build,
    context_of,
    network_of,
    task_sampler,
)


def model(arch: str) -> ValueLearner:
    config = RunConfig.model_validate({"model": {"arch": arch, "num_layers": 3}})
    return build(config.model, config.task, torch.Generator().manual_seed(0))


def context() -> Context:
    config, generator = RunConfig(), torch.Generator().manual_seed(1)
    mrp, states = task_sampler(config.task, generator).sample(4, config.task.context_length, generator)
    return context_of(mrp, states)


@pytest.mark.parametrize(
    ("arch", "shown"),
    [
        ("tsm", {"value": "hook_value", "target": "hook_target"}),
        ("dual", {"value": "hook_value", "target": "hook_target"}),
        ("linear", {"value": "hook_value"}),
        ("transformer", {"residual": "hook_resid_post"}),
    ],
)
def test_every_architecture_shows_every_layer(arch: str, shown: dict[str, str]) -> None:
    network = network_of(model(arch))
    assert isinstance(network, Network)
    for holds, name in shown.items():
        slots = [slot for slot in network.slots if slot.holds == holds]
        assert [slot.layer for slot in slots] == [0, 1, 2]
        assert [slot.hook for slot in slots] == [f"blocks.{layer}.{name}" for layer in range(3)]
    assert {slot.holds for slot in network.slots} == set(shown)


@pytest.mark.parametrize("arch", ["tsm", "dual", "linear", "transformer"])
def test_calls_return_the_value_of_the_query_and_of_extra_queries(arch: str) -> None:
    learner, seen = model(arch), context()
    network = network_of(learner)
    for queries in (seen.features, seen.features[:, :0]):
        values = network.values(network.module(*network.inputs(seen, queries)))
        assert values.shape == (4, 1 + queries.shape[1])
        assert_close(values[:, 0], learner(learner.prompt(seen))[:, 0])
        assert_close(values[:, 1:], learner.values(seen, queries))


def test_a_model_without_hooks_is_refused() -> None:
    class Bare(ValueLearner):
        num_layers, gamma = 1, 0.5

        def __init__(self) -> None:
            HookedRootModule.__init__(self)
            self.setup()

        def prompt(self, context: Context, queries: Tensor | None = None) -> Tensor:
            return context.features

        def forward(self, prompt: Tensor, num_queries: int = 1) -> Tensor:
            return prompt[:, -num_queries:, 0]

        def read_out(self, resid: Tensor) -> Tensor:
            return resid[..., 0]

    with pytest.raises(InputError, match="hook_value or hook_resid_post in every block; found neither; Bare"):
        network_of(Bare())


def test_what_lacks_a_member_is_no_network() -> None:
    class Half:
        module, slots = torch.nn.Identity(), ()

        def inputs(self, context: Context, queries: Tensor) -> tuple[Tensor]:
            return (context.features,)

    assert not isinstance(Half(), Network)
    assert isinstance(LearnerNetwork(module=model("tsm"), slots=()), Network)
