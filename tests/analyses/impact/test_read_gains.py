"""Gains from tables: what is filled in, and every complaint in one line that names the place."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from valuelens.analyses.impact import GAINS, read_gains
from valuelens.models import InputError

KNOWN = ["step-10", "step-20", "step-30"]


def complaint(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_gains(path, KNOWN)
    told = str(caught.value)
    assert "\n" not in told
    return told.replace(str(path), "PATH")


def csv(folder: Path, *lines: str) -> Path:
    (folder / "gains.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "gains.csv"


def parquet(folder: Path, **columns: Any) -> Path:
    pd.DataFrame(columns).to_parquet(folder / "gains.parquet")
    return folder / "gains.parquet"


def test_gains_alone_are_enough(tmp_path: Path) -> None:
    found = read_gains(csv(tmp_path, "checkpoint, gain", "step-20, 0.5", "step-10, -0.25"), KNOWN)
    assert list(found) == list(GAINS)
    assert found["checkpoint"].tolist() == ["step-20", "step-10"]
    assert found["gain"].tolist() == [0.5, -0.25]
    assert found["reward_after"].isna().all()
    assert set(zip(found["recipe"], found["cut"], found["rl_seed"], found["series"], strict=True)) == {
        ("given", False, 0, "")
    }


def test_rewards_before_and_after_make_a_gain(tmp_path: Path) -> None:
    columns = {"checkpoint": ["step-10"] * 2, "reward_before": [0.25, 0.25], "reward_after": [0.75, 1.0]}
    more = {"rl_seed": [3, 4], "recipe": "mine", "cut": [True, False], "series": "a"}
    found = read_gains(parquet(tmp_path, **columns, **more), KNOWN)
    assert found["gain"].tolist() == [0.5, 0.75]
    assert found["cut"].tolist() == [True, False]
    assert found["rl_seed"].tolist() == [3, 4]
    assert found["series"].tolist() == ["a", "a"]


def test_names_that_are_numbers_are_names(tmp_path: Path) -> None:
    """A spreadsheet makes numbers of them."""
    found = read_gains(parquet(tmp_path, checkpoint=[10, 20], gain=[0.0, 1.0]), ["10", "20"])
    assert found["checkpoint"].tolist() == ["10", "20"]
    assert read_gains(csv(tmp_path, "checkpoint,gain", "0010,1"), ["0010"])["checkpoint"].tolist() == ["0010"]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            ["checkpoint,gain", "step-10,1", "step-21,1"],
            "gains must be of checkpoints that are ranked; found 'step-21' (did you mean step-20?); "
            "PATH, column checkpoint, row 1",
        ),
        (
            ["checkpoint,gain", "zebra,1"],
            "gains must be of checkpoints that are ranked; found 'zebra' (there are step-10, step-20, step-30, ...); "
            "PATH, column checkpoint, row 0",
        ),
        (
            ["name,gain", "step-10,1"],
            "gains must have the columns checkpoint and gain, or reward_before and reward_after; "
            "found name, gain; PATH",
        ),
        (
            ["checkpoint,reward_after", "step-10,1"],
            "gains must have the columns checkpoint and gain, or reward_before and reward_after; "
            "found checkpoint, reward_after; PATH",
        ),
        (["checkpoint,gain"], "gains must have a run; found no row; PATH"),
        (
            ["checkpoint,gain", "step-10,1", "step-20,"],
            "a number must be finite; found nan; PATH, column gain, row 1",
        ),
        (
            ["checkpoint,gain", "step-10,inf"],
            "a number must be finite; found inf; PATH, column gain, row 0",
        ),
        (
            ["checkpoint,gain", "step-10,much"],
            "a number must be finite; found 'much'; PATH, column gain, row 0",
        ),
        (["checkpoint,gain", ",1"], "a name must not be empty; found none; PATH, column checkpoint, row 0"),
        (
            ["checkpoint,gain", "step-10,1", "step-20,1", "step-10,2"],
            "several runs of a checkpoint must differ in rl_seed; found step-10 again, as in row 0; "
            "PATH, column checkpoint, row 2",
        ),
        (
            ["checkpoint,gain,rl_seed", "step-10,1,0", "step-10,2,0"],
            "a run must stand there once; found step-10 again, as in row 0; PATH, column rl_seed, row 1",
        ),
        (
            ["checkpoint,gain,rl_seed", "step-10,1,0.5"],
            "a seed must be a whole number; found 0.5; PATH, column rl_seed, row 0",
        ),
        (
            ["checkpoint,gain,cut", "step-10,1,perhaps"],
            "cut must be true or false; found 'perhaps'; PATH, column cut, row 0",
        ),
        (
            ["checkpoint,gain,reward_before,reward_after", "step-10,0.5,0.25,0.5"],
            "gain must be reward_after - reward_before; found 0.5, not 0.25; PATH, column gain, row 0",
        ),
        (
            ["checkpoint,gain", '"step-10,1'],
            "gains must be readable as csv; found Error tokenizing data. C error: EOF inside string starting at row 1; "
            "PATH",
        ),
    ],
)
def test_a_complaint_names_the_place(lines: list[str], told: str, tmp_path: Path) -> None:
    assert complaint(csv(tmp_path, *lines)) == told


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.touch()
    assert complaint(empty) == "gains must have a run; found an empty file; PATH"
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 but no more")
    assert complaint(broken).startswith("gains must be readable as parquet; found ")
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"checkpoint,gain\n\xff\xfe,1\n")
    assert complaint(binary).startswith("gains must be readable as csv; found 'utf-8' codec can't decode")
    assert complaint(tmp_path / "none.csv") == "gains must be a file or a folder; found none; PATH"
    assert (
        complaint(tmp_path / "none")
        == "gains must be a .csv or .parquet file or a folder of TRL runs; found none; PATH"
    )
    other = tmp_path / "gains.xlsx"
    other.touch()
    assert complaint(other) == (
        "gains must be a .csv or .parquet file or a folder of TRL runs; found gains.xlsx; PATH"
    )


def test_a_seed_apart_may_stand_there_again(tmp_path: Path) -> None:
    """With and without credit, by another recipe, of another series."""
    lines = ["a,default,false", "a,default,true", "a,fast,false", "b,default,false"]
    found = read_gains(
        csv(tmp_path, "checkpoint,gain,series,recipe,cut", *(f"step-10,1,{each}" for each in lines)), KNOWN
    )
    assert len(found) == 4
