"""Gains from what TRL wrote: a real run, several runs of a checkpoint, and every complaint."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from valuelens.analyses.impact import read_gains
from valuelens.analyses.impact._gain_logs import before_and_after
from valuelens.models import InputError

KNOWN = ["step-10", "step-20"]


def state(path: Path, *rewards: Any) -> None:
    """As transformers writes it: entries of training, of evaluation, and a summary at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    entries: list[dict[str, Any]] = [
        {"step": step, "loss": 0.0, "reward": each} for step, each in enumerate(rewards)
    ]
    history = [*entries, {"eval_reward": 7.0, "step": 9}, {"train_runtime": 1.0, "step": 9}]
    path.write_text(json.dumps({"log_history": history}), encoding="utf-8")


def complaint(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_gains(path, KNOWN)
    return str(caught.value).replace(str(path), "PATH")


@pytest.mark.xdist_group("trl")
def test_a_real_run_of_trl(trl_run: Callable[[str], Any], tmp_path: Path) -> None:
    """Two steps, from the trainer's state and, without it, from its completions: the same rewards."""
    output = trl_run("text").output
    shutil.copytree(output, tmp_path / "step-10")
    shutil.copytree(output / "completions", tmp_path / "step-20" / "completions")
    history = json.loads((output / "trainer_state.json").read_text(encoding="utf-8"))["log_history"]
    rewards = [entry["reward"] for entry in history if "reward" in entry]
    assert len(rewards) == 2
    found = read_gains(tmp_path, KNOWN)
    assert found["checkpoint"].tolist() == KNOWN
    assert found["reward_before"].tolist() == pytest.approx([rewards[0]] * 2, rel=1e-5)
    assert found["reward_after"].tolist() == pytest.approx([rewards[1]] * 2, rel=1e-5)
    assert found["gain"].tolist() == pytest.approx([rewards[1] - rewards[0]] * 2, rel=1e-4)


def test_runs_of_a_checkpoint_are_numbered_and_the_latest_state_is_read(tmp_path: Path) -> None:
    state(tmp_path / "step-10" / "run-a" / "checkpoint-9" / "trainer_state.json", 0.0, 0.5)
    state(tmp_path / "step-10" / "run-a" / "checkpoint-10" / "trainer_state.json", 0.0, 0.5, 0.75)
    state(tmp_path / "step-10" / "run-b" / "trainer_state.json", 0.0, 0.25)
    state(tmp_path / "step-20.json", 0.25, 0.5)
    found = read_gains(tmp_path, KNOWN)
    assert found["checkpoint"].tolist() == ["step-10", "step-10", "step-20"]
    assert found["rl_seed"].tolist() == [0, 1, 0]
    assert found["gain"].tolist() == [0.75, 0.25, 0.25]


def test_after_is_the_mean_of_the_last_tenth() -> None:
    found = before_and_after([float(each) for each in range(21)], "log")
    assert found == {"reward_before": 0.0, "reward_after": 19.0}  # of 18, 19 and 20


def test_complaints_about_folders(tmp_path: Path) -> None:
    must = "a folder of gains must have a sub-folder for each checkpoint"
    assert complaint(tmp_path) == f"{must}; found none; PATH"
    (tmp_path / "step-10").mkdir()
    assert (
        complaint(tmp_path)
        == "a run must hold trainer_state.json or completions; found neither; PATH/step-10"
    )
    state(tmp_path / "step-10.json", 0.0, 1.0)
    (tmp_path / "step-10" / "ignored.txt").touch()
    state(tmp_path / "step-10" / "trainer_state.json", 0.0, 1.0)
    assert complaint(tmp_path) == (
        "a checkpoint must stand there once; found a folder and a file step-10; PATH"
    )
    shutil.rmtree(tmp_path / "step-10")
    state(tmp_path / "step-1.json", 0.0, 1.0)
    assert complaint(tmp_path) == (
        "gains must be of checkpoints that are ranked; found 'step-1' (did you mean step-10?); PATH/step-1.json"
    )
    state(tmp_path / "trainer_state.json", 0.0, 1.0)
    assert complaint(tmp_path) == f"{must}; found a single run; PATH"


def test_complaints_about_logs(tmp_path: Path) -> None:
    file = tmp_path / "step-10.json"
    file.write_text("{", encoding="utf-8")
    assert complaint(tmp_path).startswith(
        "a trainer's state must be readable JSON; found Expecting property name"
    )
    file.write_text("[]", encoding="utf-8")
    assert (
        complaint(tmp_path) == "a trainer's state must have a list log_history; found none; PATH/step-10.json"
    )
    state(file, 0.5)
    assert (
        complaint(tmp_path) == "a log must hold the rewards of at least two steps; found 1; PATH/step-10.json"
    )
    state(file)
    assert (
        complaint(tmp_path)
        == "a log must hold the rewards of at least two steps; found none; PATH/step-10.json"
    )
    state(file, 0.5, float("nan"))
    assert complaint(tmp_path) == (
        "a logged reward must be a finite number; found nan; PATH/step-10.json, log_history, entry 1"
    )


def test_complaints_about_completions(tmp_path: Path) -> None:
    folder = tmp_path / "step-10" / "completions"
    folder.mkdir(parents=True)
    columns = {"prompt": ["a"], "completion": ["b"], "step": [1]}
    pd.DataFrame({**columns, "advantage": [0.0]}).to_parquet(folder / "completions_00001.parquet")
    assert complaint(tmp_path) == "completions must have a column of rewards; found none; PATH/step-10"
    pd.DataFrame({**columns, "right": [float("nan")]}).to_parquet(folder / "completions_00001.parquet")
    assert complaint(tmp_path) == (
        "a logged reward must be a finite number; found nan; PATH/step-10/completions/completions_00001.parquet"
    )
