"""A user's own network through `analyze`: its request, its tasks, its provenance, and what cannot be asked of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from valuelens.analyses import AnalysisConfig, Finding, Result, _adapter, analyze, load_result
from valuelens.models import InputError
from valuelens.models.icrl import Network, TaskConfig

CODE = """
import json
from valuelens.models.icrl import LearnerNetwork, TaskConfig, network_of, theta_star

def plain(path):
    return network_of(theta_star(feature_dim=4, num_layers=2, gamma=json.loads(path.read_text())))

class Own:
    def __init__(self, path):
        inner = plain(path)
        self.module, self.slots = inner.module, inner.slots
        self.inputs, self.values = inner.inputs, inner.values
        self.task = TaskConfig(context_length=7, gamma=0.3)

def hub(path):
    return network_of(theta_star(feature_dim=4, num_layers=2, gamma=0.5))

def other_features(path):
    return network_of(theta_star(feature_dim=3, num_layers=2, gamma=0.5))
"""


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of adapters on the path, under a name of its own for each test."""
    module = f"adapters_{abs(hash(tmp_path))}"
    (tmp_path / f"{module}.py").write_text(CODE)
    (tmp_path / "weights").write_text("0.5")
    monkeypatch.syspath_prepend(tmp_path)
    return module


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Identifications that were asked for; the answer is always the same."""
    asked: list[dict[str, Any]] = []

    def identified(network: Network, task: TaskConfig, *, num_tasks: int, seed: int) -> Result:
        asked.append({"slots": len(network.slots), "task": task, "num_tasks": num_tasks, "seed": seed})
        finding = Finding(
            name="effective_discount",
            estimate=0.5,
            unit="",
            n=num_tasks,
            definition="choice",
            reasons={"interval": "not applicable", "control": "not applicable"},
        )
        return Result(kind="in-context-rl", verdict="Named.", findings=(finding,))

    monkeypatch.setattr(_adapter, "identify_network", identified)
    return asked


def config(adapter: str, **other: Any) -> AnalysisConfig:
    return AnalysisConfig(adapter=adapter, num_tasks=8, seed=3, **other)


def test_the_default_tasks_are_taken_where_the_adapter_names_none(
    name: str, calls: list[dict[str, Any]], tmp_path: Path
) -> None:
    result = analyze(tmp_path / "weights", config(f"{name}:plain"))
    assert calls == [{"slots": 4, "task": TaskConfig(), "num_tasks": 8, "seed": 3}]
    assert result.verdict == "Named."
    assert result.provenance["config"] == {"task": TaskConfig().model_dump()}
    assert result.provenance["adapter"] == {
        "name": f"{name}:plain",
        "file": str(tmp_path / f"{name}.py"),
        "module": "SoftmaxTD",
        "task": "the default one",
    }


def test_the_adapter_may_bring_its_tasks(name: str, calls: list[dict[str, Any]], tmp_path: Path) -> None:
    result = analyze(tmp_path / "weights", config(f"{name}:Own", only=("identify",)))
    assert calls[0]["task"] == TaskConfig(context_length=7, gamma=0.3)
    assert result.provenance["adapter"]["task"] == "its own"
    assert result.provenance["config"]["task"]["gamma"] == 0.3


def test_a_result_of_the_same_request_is_read_again(
    name: str, calls: list[dict[str, Any]], tmp_path: Path
) -> None:
    weights, out = tmp_path / "weights", tmp_path / "out"
    steps: list[tuple[str, int, int]] = []
    first = analyze(weights, config(f"{name}:plain"), out=out, progress=lambda *each: steps.append(each))
    again = analyze(weights, config(f"{name}:plain"), out=out)
    assert len(calls) == 1
    assert steps == [("identify weights", 1, 1)]
    assert (
        json.dumps(first.summary()) == json.dumps(again.summary()) == json.dumps(load_result(out).summary())
    )
    assert not (out / "cache").exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("weights", r"checkpoints\.weights must be '[0-9a-f]{64}'; found '[0-9a-f]{64}'"),
        ("code", r"adapter\.sha256 must be '[0-9a-f]{64}'; found '[0-9a-f]{64}'"),
        ("name", r"adapter\.name must be 'adapters_\d+:Own'; found 'adapters_\d+:plain'"),
        ("tasks", "num_tasks must be 9; found 8"),
    ],
)
def test_another_request_is_refused(
    name: str, calls: list[dict[str, Any]], tmp_path: Path, change: str, told: str
) -> None:
    weights, out, adapter, count = tmp_path / "weights", tmp_path / "out", f"{name}:plain", 8
    analyze(weights, config(adapter), out=out)
    if change == "weights":
        weights.write_text("0.6")
    elif change == "code":
        (tmp_path / f"{name}.py").write_text(CODE + "\n# changed\n")
    elif change == "name":
        adapter = f"{name}:Own"
    else:
        count = 9
    with pytest.raises(InputError, match=f"a result of the same request is continued: {told}"):
        analyze(weights, AnalysisConfig(adapter=adapter, num_tasks=count, seed=3), out=out)
    assert len(calls) == 1


def test_the_result_says_what_was_loaded(name: str, calls: list[dict[str, Any]], tmp_path: Path) -> None:
    out = tmp_path / "out"
    analyze(tmp_path / "weights", config(f"{name}:plain"), out=out)
    asked = json.loads((out / "result.json").read_text())["provenance"]["request"]
    assert list(asked["checkpoints"]) == ["weights"]
    assert asked["adapter"]["name"] == f"{name}:plain"
    assert (asked["only"], asked["num_tasks"], asked["dtype"]) == (["identify"], 8, "float64")


def test_a_path_that_is_no_file_may_mean_something_to_the_adapter(
    name: str, calls: list[dict[str, Any]]
) -> None:
    result = analyze(Path("some/hub-name"), config(f"{name}:hub"))
    assert result.provenance["request"]["checkpoints"] == {"some/hub-name": None}


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (
            {"only": ("identify", "slots")},
            "--only takes identify with --adapter (other questions need a checkpoint of ours); found 'slots'; option",
        ),
        (
            {"dtype": "float32"},
            "an adapter's network is measured in float64; found 'float32'; option --dtype",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_imported(
    asked: dict[str, Any], text: str
) -> None:
    with pytest.raises(InputError) as caught:
        analyze(Path("nowhere"), config("nowhere:Name", **asked))
    assert str(caught.value).startswith(text)


def test_a_network_of_other_tasks_is_refused(name: str, calls: list[dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must take contexts of 30 transitions with 4 features"):
        analyze(tmp_path / "weights", config(f"{name}:other_features"), out=tmp_path / "out")
    assert calls == []
    assert not (tmp_path / "out").exists()


WRONG = """
import torch
from dataclasses import replace
from valuelens.models.icrl import LearnerNetwork, Slot, network_of, theta_star

class Wrong:
    def __init__(self, slots=None, change=lambda output: output):
        self.inner = network_of(theta_star(feature_dim=4, num_layers=2, gamma=0.5))
        self.module, self.slots, self.inputs = self.inner.module, slots or self.inner.slots, self.inner.inputs
        self.module.unused = torch.nn.Identity()
        self.change = change

    def values(self, output):
        return self.change(output)

def slot(hook, layer=0, **other):
    return Slot(hook=hook, layer=layer, **other)

makers = {
    "missing": lambda: Wrong([slot("blocks.0.hook_valeu"), slot("blocks.1.hook_value", 1)]),
    "idle": lambda: Wrong([slot("blocks.0.hook_value"), slot("unused", 1)]),
    "layers": lambda: Wrong([slot("blocks.0.hook_value"), slot("blocks.1.hook_value")]),
    "index": lambda: Wrong([slot("blocks.0.hook_resid_post"), slot("blocks.1.hook_resid_post", 1, index=7)]),
    "finite": lambda: Wrong(change=lambda output: output / 0),
    "integer": lambda: Wrong(change=lambda output: output.long()),
}

def make(path):
    return makers[path.name]()
"""


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            "missing",
            r"a hook must be the name of a submodule; found no 'blocks\.0\.hook_valeu' among blocks, ",
        ),
        ("idle", "a call must reach a hook once; found it idle; adapter, hook unused"),
        (
            "layers",
            r"must show one value slot for each layer 0\.\.L-1; found layers \[0, 0\]; adapter, slots",
        ),
        (
            "index",
            r"the index of a slot must lie in its last axis of 7; found 7; adapter, hook blocks\.1\.hook_resid",
        ),
        (
            "finite",
            "the network's values must be finite on every context; found NaN or infinity; adapter, values",
        ),
        (
            "integer",
            r"values must be floating-point numbers of shape .*; found \(\d+, \d+\) torch\.int64; adapter",
        ),
    ],
)
def test_a_network_whose_adapter_is_wrong_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str, text: str
) -> None:
    module = f"wrong_{abs(hash(tmp_path))}"
    (tmp_path / f"{module}.py").write_text(WRONG)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=text):
        analyze(Path(wrong), config(f"{module}:make"), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
