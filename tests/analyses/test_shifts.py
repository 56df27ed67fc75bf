"""Which shifts a model can be asked about: one thing changes at a time, and what cannot change says why."""

import pytest
import torch

from valuelens.analyses._shifts import OWN, shifts
from valuelens.models.icrl import ModelConfig, TaskConfig, build

TSM = ModelConfig(num_layers=1)


def asked(task: TaskConfig, model: ModelConfig = TSM) -> dict[str, dict[str, object]]:
    """By name of the shift, what differs from the own task."""
    found, _ = shifts(task, build(model, task, torch.Generator()))
    own = task.model_dump()
    return {
        each.name: {key: value for key, value in each.task.model_dump().items() if value != own[key]}
        | ({"scale": each.reward_scale} if each.reward_scale != 1 else {})
        for each in found
    }


def left_out(task: TaskConfig) -> dict[str, str]:
    _, skipped = shifts(task, build(TSM, task, torch.Generator()))
    return {each["what"].removeprefix("generalisation to "): each["why"] for each in skipped}


def test_the_default_changes_one_thing_at_a_time() -> None:
    assert asked(TaskConfig()) == {
        OWN: {},
        "loop": {"env": "loop"},
        "garnet": {"env": "garnet"},
        "cart-pole": {"env": "cartpole", "num_states": 16},
        "states x 0.5": {"num_states": 5},
        "states x 2": {"num_states": 20},
        "states x 4": {"num_states": 40},
        "context x 0.5": {"context_length": 15},
        "context x 2": {"context_length": 60},
        "context x 10": {"context_length": 300},
        "rewards x 0.1": {"scale": 0.1},
        "rewards x 10": {"scale": 10},
    }
    assert left_out(TaskConfig()) == {}


def test_only_what_is_told_gamma_is_asked_about_another() -> None:
    linear = ModelConfig(arch="linear", num_layers=1)
    assert asked(TaskConfig(), linear)["gamma 0.9"] == {"gamma": 0.9}
    assert asked(TaskConfig(gamma=0.9), linear)["gamma 0.5"] == {"gamma": 0.5}
    assert not any(name.startswith("gamma") for name in asked(TaskConfig()))


def test_one_hot_features_tie_the_number_of_states() -> None:
    task = TaskConfig(features="one-hot")
    assert not any("states" in name or name == "cart-pole" for name in asked(task))
    assert left_out(task) == {
        "cart-pole": "one-hot features have as many entries as states, and cart-pole has 16 cells",
        "other numbers of states": "one-hot features have as many entries as states",
    }
    assert asked(TaskConfig(features="one-hot", num_states=16))["cart-pole"] == {"env": "cartpole"}


@pytest.mark.parametrize(
    ("task", "environments"),
    [
        (TaskConfig(env="loop"), {"boyan", "garnet", "cart-pole"}),
        (TaskConfig(env="cartpole"), {"boyan", "loop", "garnet"}),
        (TaskConfig(env="chain.safetensors"), set()),
    ],
)
def test_other_environments(task: TaskConfig, environments: set[str]) -> None:
    names = {"boyan", "loop", "garnet", "cart-pole"}
    assert set(asked(task)) & names == environments
    own = task.env not in ("boyan", "loop", "garnet")
    assert ("other numbers of states" in left_out(task)) == own
    assert ("other environments" in left_out(task)) == (task.env == "chain.safetensors")


def test_small_chains_are_not_halved_below_three_states() -> None:
    assert "states x 0.5" not in asked(TaskConfig(num_states=4))
    assert asked(TaskConfig(num_states=6))["states x 0.5"] == {"num_states": 3}
    assert asked(TaskConfig(context_length=1))["context x 0.5"] == {}
