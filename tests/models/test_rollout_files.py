"""Where rollouts lie: TRL's real output folder, patterns, and files that are not there or no parquet."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from valuelens.models import InputError
from valuelens.models.lm import ReadConfig, read_rollouts
from valuelens.probe import rollout_advantages

CONFIG = ReadConfig(vocabulary=5)
IDS = {"prompt_ids": [[1], [1]], "completion_ids": [[0, 0, 2], [0, 4]]}


@pytest.mark.xdist_group("trl")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "chat"])
def test_the_output_folder_of_a_real_run_is_what_it_sampled(trl_run: Callable[[str], Any], kind: str) -> None:
    from transformers import AutoTokenizer

    run = trl_run(kind)
    tokenizer = AutoTokenizer.from_pretrained(run.model)
    config = ReadConfig(vocabulary=9, max_completion_length=6)
    rollouts = read_rollouts(str(run.output), tokenizer, config)
    assert [list(tokens) for tokens in rollouts.completion_ids] == run.completion_ids
    assert len({len(tokens) for tokens in run.completion_ids}) > 1
    assert rollouts.ended == tuple(tokens[-1] == 8 for tokens in run.completion_ids)
    assert len(set(rollouts.ended)) == 2
    assert rollouts.group == tuple(i // 4 for i in range(16))
    prompts = [rollouts.prompt_ids[4 * i] for i in range(4)]
    turn = (8, 7) if kind == "chat" else ()
    assert sorted(prompts) == sorted((*each, *turn) for each in ((0, 1, 2), (3,), (4, 5), (6, 7)))
    assert rollouts.rewards is not None
    for prompt, tokens, reward in zip(rollouts.prompt_ids, run.completion_ids, rollouts.rewards, strict=True):
        brevity = 0.0 if prompt[0] == 0 else -0.1 * len(tokens)
        assert reward == pytest.approx(tokens.count(0) + brevity)
    assert rollouts.skipped == ()
    assert rollouts.source.startswith("16 rows of 2 files from ")
    assert rollouts.source.endswith(", rewards: count_a + brevity")


@pytest.mark.xdist_group("trl")
@pytest.mark.slow
def test_advantages_recomputed_from_rewards_are_those_that_trl_logged(trl_run: Callable[[str], Any]) -> None:
    from transformers import AutoTokenizer

    run = trl_run("text")
    rollouts = read_rollouts(
        str(run.output), AutoTokenizer.from_pretrained(run.model), ReadConfig(vocabulary=9)
    )
    assert rollouts.advantages is None
    files = sorted((run.output / "completions").iterdir())
    logged = pd.concat([pd.read_parquet(file) for file in files])["advantage"].to_list()
    found = rollout_advantages(torch.tensor(rollouts.rewards), torch.tensor(rollouts.group), scale="group")
    torch.testing.assert_close(found, torch.tensor(logged), rtol=1e-5, atol=1e-5)


@pytest.mark.xdist_group("trl")
@pytest.mark.slow
def test_steps_that_repeat_the_rollouts_of_the_step_before_count_once(
    trl_run: Callable[[str], Any], tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    run = trl_run("text")
    tokenizer = AutoTokenizer.from_pretrained(run.model)
    (tmp_path / "completions").mkdir()
    for step in (1, 2):
        table = pd.read_parquet(run.output / "completions" / "completions_00001.parquet")
        table.assign(step=step).to_parquet(tmp_path / "completions" / f"completions_0000{step}.parquet")
    (tmp_path / "training_args.bin").write_bytes(b"never opened")
    assert len(read_rollouts(str(tmp_path), tokenizer, ReadConfig(vocabulary=9))) == 8
    assert len(read_rollouts(str(tmp_path / "**/*"), tokenizer, ReadConfig(vocabulary=9))) == 8


def test_files_that_are_not_there_or_no_parquet_are_named(tmp_path: Path) -> None:
    for source in (tmp_path / "no.parquet", tmp_path / "no" / "*.parquet"):
        with pytest.raises(InputError, match=r"a folder or a pattern that matches some; found none; .*no"):
            read_rollouts(str(source), None, CONFIG)
    with pytest.raises(InputError, match="a folder of rollouts must hold parquet files; found none; "):
        read_rollouts(str(tmp_path), None, CONFIG)
    for name, content in (("cut.parquet", b"PAR1 and then nothing"), ("training_args.bin", b"\x80\x04.")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=rf"must be readable as parquet; found .*; .*{name}"):
            read_rollouts(str(tmp_path / name), None, CONFIG)


def test_files_with_other_rewards_are_refused(tmp_path: Path) -> None:
    for name in ("x", "y"):
        pd.DataFrame({**IDS, name: [0.0, 1.0]}).to_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(
        InputError, match=r"must have the same rewards; found \['x'\] and \['y'\]; .*y.parquet"
    ):
        read_rollouts(str(tmp_path), None, CONFIG)
