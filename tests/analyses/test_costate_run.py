"""From a model and a source to a saved result: resumed, read back as rollouts, and refused where sources clash."""

import dataclasses
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from valuelens.analyses import CostateConfig, RolloutSource, costate_run, costates, load_result
from valuelens.models import InputError
from valuelens.models.lm import GenerateConfig, NamedTask

CONFIG = CostateConfig(layers=("0", "L//2"))


@pytest.fixture
def source(copier: Any) -> RolloutSource:
    named = NamedTask(name="label-copy", task=copier.task, sizes={"num_pairs": 2}, file=None)
    return RolloutSource(task=named, generate=GenerateConfig(num_prompts=4, num_generations=8))


def test_a_result_is_kept_and_read_again(copier: Any, source: RolloutSource, tmp_path: Path) -> None:
    said: list[str] = []
    first = costate_run(
        copier.model, source, CONFIG, out=tmp_path / "r", said=lambda found: said.append(found.sentence)
    )
    assert len(said) == 1
    assert load_result(tmp_path / "r").findings == first.findings
    other = dataclasses.replace(CONFIG, micro_batch=3)  # changes no answer
    again = costate_run(
        copier.model, source, other, out=tmp_path / "r", said=lambda found: said.append(found.sentence)
    )
    assert again.findings == first.findings
    assert len(said) == 1
    with pytest.raises(
        InputError, match="a result of the same request is continued: seed must be 1; found 0"
    ):
        costate_run(copier.model, source, dataclasses.replace(CONFIG, seed=1), out=tmp_path / "r")


def test_the_rollouts_that_it_kept_give_the_same_costates(
    copier: Any, source: RolloutSource, tmp_path: Path
) -> None:
    first = costate_run(copier.model, source, CONFIG, out=tmp_path / "r")
    files = RolloutSource(files=str(tmp_path / "r" / "tables" / "rollouts.parquet"), generate=source.generate)
    second = costate_run(copier.model, files, CONFIG)
    torch.testing.assert_close(
        second.arrays["start_costate"].values, first.arrays["start_costate"].values, rtol=1e-4, atol=1e-7
    )
    for name in ("reward", "frac_reward_zero_std", "entropy", "truncated_share"):
        (left,), (right,) = first.find(name), second.find(name)
        assert left.estimate == pytest.approx(right.estimate), name
    mismatch = second.find("log_prob_mismatch")[0].estimate
    assert isinstance(mismatch, float)
    assert mismatch < 1e-6
    assert not second.find("gap_discrete")  # a file has no task to ask for rewards


def test_rollouts_of_another_policy_are_refused(copier: Any, source: RolloutSource, tmp_path: Path) -> None:
    costate_run(copier.model, source, CONFIG, out=tmp_path / "r")
    files = RolloutSource(
        files=str(tmp_path / "r" / "tables" / "rollouts.parquet"), generate=GenerateConfig(temperature=0.5)
    )
    with pytest.raises(InputError, match="another checkpoint, or another temperature, top-k or top-p"):
        costate_run(copier.model, files, CONFIG, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_an_empty_completion_contributes_nothing_and_is_listed(copier: Any, tmp_path: Path) -> None:
    rows = pd.DataFrame(
        {
            "group": [0, 0, 0],
            "prompt_ids": [[2, 3]] * 3,
            "completion_ids": [[2, 3], [], [3]],
            "reward": [1.0, 0.0, 0.5],
        }
    )
    rows.to_parquet(tmp_path / "rollouts.parquet")
    result = costate_run(copier.model, RolloutSource(files=str(tmp_path / "rollouts.parquet")), CONFIG)
    assert len(result.skipped) == 1
    assert "empty" in result.skipped[0]["why"]
    table = result.tables["positions"]
    assert list(table[table.layer == 0].n) == [2, 1]


@pytest.mark.parametrize(("files", "found"), [("x.parquet", "found both"), ("", "found neither")])
def test_rollouts_have_one_source(copier: Any, files: str, found: str) -> None:
    task = NamedTask(name="label-copy", task=copier.task, sizes={}, file=None) if files else None
    with pytest.raises(InputError, match=f"rollouts come from --task or from --rollouts; {found}"):
        RolloutSource(task=task, files=files)


def test_a_sampled_end_in_the_middle_is_read_back_where_completions_do_not_end(
    copier: Any, source: RolloutSource, tmp_path: Path
) -> None:
    """Files of ours tell that a completion is whole."""
    rows = pd.DataFrame(
        {
            "group": [0, 0],
            "prompt_ids": [[2, 3]] * 2,
            "completion_ids": [[1, 4], [4, 5]],
            "ended": [True, True],
            "reward": [1.0, 0.0],
        }
    )
    rows.to_parquet(tmp_path / "rollouts.parquet")
    result = costate_run(copier.model, RolloutSource(files=str(tmp_path / "rollouts.parquet")), CONFIG)
    assert list(result.tables["positions"][lambda table: table.layer == 0].n) == [2, 2]


def test_rollouts_that_another_temperature_sampled_are_refused_in_python_too(
    copier: Any, source: RolloutSource
) -> None:
    hot = copier.sample(temperature=3.0)
    with pytest.raises(InputError, match="another checkpoint, or another temperature"):
        costates(copier.model, hot, CONFIG)
