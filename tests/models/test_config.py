"""Configurations: what is refused, what follows from what, and that files give back what was written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from valuelens.models import InputError
from valuelens.models.icrl import ModelConfig, RunConfig, TaskConfig, TrainConfig, load_config, run_config


def refusal(**sections):
    with pytest.raises(InputError) as caught:
        run_config(sections, where="command line")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_defaults_are_the_contracts():
    task = {"env": "boyan", "num_states": 10, "features": "sphere", "feature_dim": 4, "representable": False}
    model = {"arch": "tsm", "weights": "restricted", "num_layers": 10, "tied": True}
    train = {"loss": "td", "steps": 2000, "batch_size": 64, "learning_rate": 0.01, "num_checkpoints": 20}
    default = RunConfig().model_dump()
    assert default["task"] == {**task, "context_length": 30, "gamma": 0.5}
    assert model.items() <= default["model"].items()
    assert {**train, "seed": 0}.items() <= default["train"].items()


def test_configurations_are_small_and_frozen():
    for config in (TaskConfig(), ModelConfig(), TrainConfig(), RunConfig()):
        assert len(type(config).model_fields) <= 12
        with pytest.raises(ValidationError, match="frozen"):
            setattr(config, next(iter(type(config).model_fields)), 1)


REFUSED = {
    "task, gamma at one": ({"task": {"gamma": 1.0}}, "task.gamma must be less than 1; found 1.0"),
    "task, gamma below zero": (
        {"task": {"gamma": -0.1}},
        "task.gamma must be greater than or equal to 0; found -0.1",
    ),
    "task, gamma not a number": ({"task": {"gamma": float("nan")}}, "task.gamma must be"),
    "task, no context": (
        {"task": {"context_length": 0}},
        "task.context_length must be greater than or equal to 1; found 0",
    ),
    "task, no features": ({"task": {"feature_dim": 0}}, "task.feature_dim must be"),
    "task, features of another kind": (
        {"task": {"features": "spere"}},
        "task.features must be 'sphere', 'uniform' or 'one-hot'; found 'spere'",
    ),
    "task, a word for a number": (
        {"task": {"num_states": "many"}},
        "task.num_states must be integer, unable to parse string as an integer; found 'many'",
    ),
    "task, unknown key": (
        {"task": {"gama": 0.5}},
        "config keys must be known ones; found unknown key task.gama",
    ),
    "task, no object": ({"task": 3}, "task must be"),
    "unknown section": ({"extra": {}}, "config keys must be known ones; found unknown key extra"),
    "model, no layers": ({"model": {"num_layers": 0}}, "model.num_layers must be"),
    "model, factored linear": (
        {"model": {"arch": "linear", "weights": "factored"}},
        "linear attention has restricted or full weights; found weights factored",
    ),
    "model, heads": (
        {"model": {"arch": "transformer", "d_model": 10, "num_heads": 4}},
        "d_model must be a multiple of num_heads; found d_model 10, num_heads 4",
    ),
    "train, rate": ({"train": {"learning_rate": 0}}, "train.learning_rate must be greater than 0; found 0"),
    "train, infinite rate": ({"train": {"learning_rate": float("inf")}}, "train.learning_rate must be"),
    "train, loss": ({"train": {"loss": "huber"}}, "train.loss must be"),
    "train, one checkpoint": ({"train": {"num_checkpoints": 1}}, "train.num_checkpoints must be"),
    "train, seed": ({"train": {"seed": -1}}, "train.seed must be"),
    "train, endless seed": ({"train": {"seed": 2**63}}, "train.seed must be less than"),
}


@pytest.mark.parametrize(("sections", "message"), REFUSED.values(), ids=REFUSED)
def test_each_refusal_names_rule_finding_and_key(sections, message):
    told = refusal(**sections)
    assert told.startswith(message)
    assert "; command line" in told


def test_the_key_is_named():
    assert refusal(task={"gamma": 2}).endswith("; command line, key task.gamma")


def test_sizes_that_follow_are_set():
    assert TaskConfig(env="cartpole", num_states=5).num_states == 16
    assert TaskConfig(env="cartpole", features="one-hot").feature_dim == 16
    assert TaskConfig(features="one-hot", num_states=7, feature_dim=3).feature_dim == 7
    assert TaskConfig(features="one-hot").feature_dim == 10


configs = st.builds(
    RunConfig,
    task=st.builds(
        TaskConfig,
        env=st.sampled_from(["boyan", "loop", "garnet", "cartpole"]),
        num_states=st.integers(3, 20),
        features=st.sampled_from(["sphere", "uniform", "one-hot"]),
        gamma=st.floats(0, 1, exclude_max=True),
    ),
    model=st.builds(ModelConfig, arch=st.sampled_from(["tsm", "dual", "transformer"]), tied=st.booleans()),
    train=st.builds(TrainConfig, learning_rate=st.floats(1e-9, 1), seed=st.integers(0, 2**40)),
)


@given(configs)
def test_json_gives_back_the_configuration(config):
    again = json.loads(json.dumps(config.model_dump()))
    assert run_config(again, where="") == config


@pytest.mark.parametrize("more", [{}, {"step": 3}, {"num_seeds": 2}])
def test_a_file_gives_back_the_configuration(tmp_path, more):
    config = RunConfig(task=TaskConfig(gamma=0.1 + 0.2))
    (tmp_path / "config.json").write_text(json.dumps({**more, **config.model_dump()}))
    assert load_config(tmp_path / "config.json") == config


NO_CONFIG = {
    "empty": (b"", "config.json must be readable JSON; found Expecting value"),
    "cut": (b'{"task": {', "config.json must be readable JSON; found Expecting"),
    "not text": (b"\xff\xfe\x00", "config.json must be readable JSON; found 'utf-8' codec"),
    "deep": (b"[" * 200_000, "config.json must be readable JSON; found maximum recursion"),
    "a list": (b"[1]", "config.json must hold task and model; found list"),
    "another": (b'{"hidden_size": 8}', r"config.json must hold task and model; found ['hidden_size']"),
    "unknown key": (
        b'{"task": {"colour": 1}, "model": {}}',
        "config keys must be known ones; found unknown key task.colour",
    ),
}


@pytest.mark.parametrize(("content", "message"), NO_CONFIG.values(), ids=NO_CONFIG)
def test_a_file_that_is_no_configuration_is_refused(tmp_path, content, message):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_config(path)
    assert str(caught.value).startswith(message)
    assert str(caught.value).endswith(str(path))
    assert "\n" not in str(caught.value)


def test_no_file_is_refused(tmp_path):
    with pytest.raises(
        InputError, match=r"a checkpoint or run has a config\.json; found none; .*config\.json"
    ):
        load_config(tmp_path / "config.json")


@pytest.mark.parametrize("model", [{"arch": "transformer"}, ModelConfig(arch="transformer")])
def test_a_transformer_learns_at_its_own_rate_unless_told_otherwise(model):
    assert RunConfig.model_validate({"model": model}).train.learning_rate == 0.001
    told = RunConfig.model_validate({"model": model, "train": {"learning_rate": 0.01}})
    assert told.train.learning_rate == 0.01
    assert RunConfig().train.learning_rate == 0.01
