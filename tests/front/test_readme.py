"""The README is true today: every command and the notebook example are executed."""

import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from valuelens import cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.slow
def test_every_command_runs(tmp_path, monkeypatch):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(commands) >= 5
    (tmp_path / "my_network.py").write_text(blocks("python")[3])
    shutil.copy(ROOT / "examples" / "plain_module.py", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    torch.save(
        importlib.import_module("plain_module").MyModule().double().state_dict(), tmp_path / "weights.pt"
    )
    for command in commands:
        done = subprocess.run(
            shlex.split(command),
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "results/small/result.json").exists()
    mine = json.loads((tmp_path / "results/mine/result.json").read_text())["findings"]
    assert mine[0]["estimate"] == "weighted softmax TD"
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks("python")[1:3])], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "signal-to-noise" in done.stdout
    assert "By subtractive signal x tilt headroom" in done.stdout


@pytest.mark.slow
def test_the_notebook_example_runs(tmp_path):
    example = blocks("python")[0]
    done = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "torch.Size([3, 64, 31])" in done.stdout
    assert "constant predictor" in done.stdout


def test_every_verb_stands_in_the_table_and_every_row_is_a_verb():
    rows = set(re.findall(r"^\| `valuelens ([\w-]+)", README, flags=re.MULTILINE))
    verbs = {
        command.name or command.callback.__name__
        for command in cli.app.registered_commands
        if command.callback
    }
    assert rows == verbs


def test_every_linked_file_exists():
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]
    assert links
    for link in links:
        assert (ROOT / link).exists(), link
