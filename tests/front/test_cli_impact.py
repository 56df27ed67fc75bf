"""`impact` as a user meets it: a ranking, its files, how it goes on, exit codes, one line for bad input."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from valuelens.models.lm import lm_run_config, pretrain_lm

Run = Callable[..., tuple[int, str, str]]
FEW = ("--num-prompts", 2, "--num-generations", 4, "--jobs", 1)


@pytest.fixture
def impact(valuelens: Run) -> Run:
    """Exit code, stdout and stderr of `valuelens impact ARGUMENTS`, in this process."""
    return partial(valuelens, "impact")


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three checkpoints of label copying with two pairs."""
    folder = tmp_path_factory.mktemp("series") / "copy"
    config = lm_run_config(
        {
            "corpus": {"sizes": {"num_items": 2, "num_labels": 2, "num_pairs": 2}},
            "model": {"num_layers": 2, "d_model": 16},
            "train": {"steps": 60, "num_checkpoints": 3},
        },
        where="test",
    )
    pretrain_lm(config, folder)
    return folder


@pytest.fixture(scope="module")
def gains(series: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Gains that somebody else found."""
    names = sorted(each.name for each in series.glob("step-*"))
    table = pd.DataFrame({"checkpoint": names, "reward_before": 0.25, "reward_after": [0.25, 0.5, 0.75]})
    path = tmp_path_factory.mktemp("gains") / "gains.csv"
    table.to_csv(path, index=False)
    return path


@pytest.mark.slow
def test_a_series_is_ranked_and_goes_on(impact: Run, series: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    code, text, err = impact(series, *FEW, "--rl-seeds", 1, "--recipe", "fast", "--out", out, "--json")
    assert code == 0, err
    summary = json.loads(text)
    assert summary["kind"] == "impact"
    names = {each["name"] for each in summary["findings"]}
    assert {"signal", "headroom", "impact", "update_aligned", "gain", "gain_cut", "recommended"} <= names
    assert {each.name for each in out.iterdir()} == {
        *("arrays.safetensors", "cache", "figures", "report.html", "result.json", "tables")
    }
    assert len(list((out / "cache").glob("*.json"))) == 9  # a score, a run and a cut run of each checkpoint
    page = (out / "report.html").read_text(encoding="utf-8")
    assert summary["verdict"] in page.replace("&#39;", "'")
    again, text_again, _ = impact(series, *FEW, "--rl-seeds", 1, "--recipe", "fast", "--out", out, "--json")
    assert (again, text_again) == (0, text)
    code, _, err = impact(series, *FEW, "--rl-seeds", 1, "--recipe", "fast", "--out", out, "--beta", 3)
    assert code == 2
    assert "beta must be 3.0; found 5.0" in err


def test_people_get_a_line_for_each_checkpoint(impact: Run, series: Path, gains: Path) -> None:
    code, text, err = impact(series, *FEW, "--gains", gains)
    assert code == 0, err
    header, *lines = text.splitlines()
    assert header == "impact = subtractive signal x tilt headroom of beta 5 / reward range (rewards 0 to 1)"
    assert lines[0].split()[:2] == ["checkpoint", "reward"]
    assert [line.split()[0] for line in lines[1:4]] == sorted(each.name for each in series.glob("step-*"))
    assert lines[3].split()[-2:] == ["0.5", "0.75"]  # gain and final reward
    code, quiet, _ = impact(series, *FEW, "--gains", gains, "--quiet")
    assert quiet.strip() == lines[-1]


def test_scores_alone_need_no_task_of_rl(impact: Run, series: Path) -> None:
    code, text, err = impact(series, *FEW, "--rl-seeds", 0, "--json")
    assert code == 0, err
    assert "gain" not in {each["name"] for each in json.loads(text)["findings"]}


def test_a_broken_checkpoint_is_left_out(impact: Run, series: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(series, copy)
    broken = sorted(copy.glob("step-*"))[1] / "model.safetensors"
    broken.write_bytes(broken.read_bytes()[:-100])
    code, text, err = impact(copy, *FEW, "--rl-seeds", 0, "--json")
    assert code == 3
    assert f"score of copy/{broken.parent.name}" in err
    assert [each["input"] for each in json.loads(text)["skipped"] if "input" in each] == [
        f"copy/{broken.parent.name}"
    ]
    for each in copy.glob("step-*"):
        (each / "model.safetensors").write_bytes(b"")
    code, _, err = impact(copy, *FEW, "--rl-seeds", 0)
    assert code == 2
    assert err.startswith("valuelens: error: a checkpoint must be usable; found none: ")


def test_rollouts_of_each_checkpoint_are_read(impact: Run, series: Path, tmp_path: Path) -> None:
    for each in series.glob("step-*"):
        rows = {
            "prompt_ids": [[2, 4, 6]] * 4,
            "completion_ids": [[4, 5], [5, 4]] * 2,
            "reward": [0.0, 3.0] * 2,
        }
        pd.DataFrame(rows).to_parquet(tmp_path / f"{each.name}.parquet")
    code, text, err = impact(series, "--rollouts", tmp_path / "{checkpoint}.parquet", "--json", "--jobs", 1)
    assert code == 0, err
    headroom = [each for each in json.loads(text)["findings"] if each["name"] == "headroom"]
    assert [each["estimate"] > 0 for each in headroom] == [True] * 3
    code, _, err = impact(series, "--rollouts", tmp_path / "a.parquet")
    assert code == 2
    assert "one path for each checkpoint, in their order, or hold {checkpoint}; found 1 for 3" in err


def test_several_seeds_are_scored_on_their_own_task(impact: Run, series: Path, tmp_path: Path) -> None:
    shutil.copy(series / "config.json", tmp_path)
    for seed in range(2):
        shutil.copytree(sorted(series.glob("step-*"))[-1], tmp_path / f"seed-{seed}" / "step-00000060")
    code, text, err = impact(tmp_path, *FEW, "--rl-seeds", 0, "--json")
    assert code == 0, err
    losses = [each for each in json.loads(text)["findings"] if each["name"] == "held_out_loss"]
    assert [each["estimate"] is not None for each in losses] == [True, True]


def test_series_of_different_tasks_are_not_ranked_on_one(impact: Run, series: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(series, other)
    config = json.loads((other / "config.json").read_text())
    config["corpus"]["sizes"]["num_pairs"] = 1
    (other / "config.json").write_text(json.dumps(config))
    code, _, err = impact(series, other, *FEW)
    assert code == 2
    assert "series of one ranking must have one task (--task names it); found label-copy" in err


def test_a_mistyped_name_is_told_before_a_task_is_asked_for(
    impact: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    code, _, err = impact("no-such/series", *FEW)
    assert code == 2
    assert "a model must exist" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--beta", "0"), "--beta must be above 0; found 0.0"),
        (("--rl-seeds", "-1"), "--rl-seeds must be at least 0; found -1"),
        (("--scheduler", "tcp://x:1"), "a scheduler belongs to --engine dask"),
        (("--jobs", "0"), "--jobs must be at least 1; found 0"),
        (("--revisions", "all"), "revisions belong to a model of the hub"),
        (("--num-generations", "1"), "num_generations must be at least 2 (n_group = 1 has no baseline)"),
        (("--task", "label-copi"), "did you mean label-copy?"),
        (("--rollouts", "none.parquet"), "--rollouts must name one path for each checkpoint"),
        (("--layer", "L//0"), "a layer is a number or an expression in L"),
        (("--gains", "no.csv"), "no.csv"),
    ],
)
def test_bad_input_is_one_line(impact: Run, series: Path, arguments: tuple[str, ...], said: str) -> None:
    code, text, err = impact(series, *FEW, *arguments)
    assert code == 2
    assert text == ""
    assert err.startswith("valuelens: error: ")
    assert said in err
    assert len(err.splitlines()) == 1
