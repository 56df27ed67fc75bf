"""The worked examples are true today: each runs as its first line says, and its network is named for what it is."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

from valuelens import cli
from valuelens.models.icrl import TaskConfig, context_of, task_sampler
from valuelens.probe import submodule_outputs

EXAMPLES = Path(__file__).parents[2] / "examples"
KNOWN = {
    "plain_module": ("weighted softmax TD", 0.6),
    "state_dict": ("weighted softmax TD", 0.7),
    "nnsight_model": ("linear TD", 0.5),
}


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs an example in an empty folder, as `python examples/NAME.py` does; returns what it defines."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)

    def run(name: str, run_name: str = "__main__"):
        return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=run_name)

    return run


def test_every_example_is_known():
    assert {file.stem for file in EXAMPLES.glob("*.py")} == set(KNOWN)


@pytest.mark.slow
@pytest.mark.parametrize("name", KNOWN)
def test_every_example_is_named_for_what_it_is(example, capsys, name):
    example(name)
    said = dict(line.split(": ") for line in capsys.readouterr().out.splitlines())
    algorithm, discount = KNOWN[name]
    assert said["algorithm"] == algorithm
    assert float(said["identified_discount"]) == pytest.approx(discount, abs=1e-6)


@pytest.mark.slow
def test_the_command_line_does_the_same_and_says_what_it_imported(example, capsys, monkeypatch, tmp_path):
    example("plain_module")
    capsys.readouterr()
    (tmp_path / "chatty.py").write_text("from plain_module import MyNetwork\nprint('chatter')\n")
    monkeypatch.syspath_prepend(tmp_path)
    arguments = [
        "analyze",
        "weights.pt",
        "--adapter",
        "chatty:MyNetwork",
        "--num-tasks",
        "64",
        "--json",
    ]
    monkeypatch.setattr(sys, "argv", ["valuelens", *arguments, "--out", "out"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    out, err = capsys.readouterr()
    assert stop.value.code == 0
    summary = json.loads(out)
    found = {
        finding["name"]: finding for finding in summary["findings"] if "layer" not in finding.get("index", {})
    }
    assert found["algorithm"]["estimate"] == "weighted softmax TD"
    low, high = found["identified_discount"]["interval"]
    assert low <= 0.6 <= high
    said = f"valuelens: the adapter chatty:MyNetwork was imported from {tmp_path / 'chatty.py'}"
    assert err.splitlines() == ["chatter", said]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "seen only through the hooks of its adapter chatty:MyNetwork" in page
    assert any((tmp_path / "out" / "figures").glob("*.svg"))


def test_what_nnsight_traces_is_what_hooks_read(example):
    parts = example("nnsight_model", run_name="example")
    torch.save(parts["Stream"]().state_dict(), "stream.pt")
    network = parts["WrappedNetwork"]("stream.pt")
    generator = torch.Generator().manual_seed(0)
    context = context_of(*task_sampler(TaskConfig(), generator).sample(3, 30, generator, torch.float64))
    names = [slot.hook for slot in network.slots]
    _, seen = submodule_outputs(network.module, network.inputs(context, context.features[:, :0]), names)
    assert all(
        torch.equal(stream, seen[name]) for stream, name in zip(network.traced(context), names, strict=True)
    )


def test_every_first_line_names_its_own_command():
    for file in EXAMPLES.glob("*.py"):
        first = file.read_text(encoding="utf-8").splitlines()[0]
        assert re.search(r"`python (\S+)`", first)[1] == f"examples/{file.name}"
