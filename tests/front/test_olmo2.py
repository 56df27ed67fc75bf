"""The script that takes OLMo-2 through `costates` and `impact`, on three tiny revisions and without network."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from huggingface_hub import constants

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
REVISIONS = ["stage1-step0-tokens0B", "stage1-step9000-tokens19B", "stage1-step140000-tokens294B"]


@pytest.fixture
def olmo2(monkeypatch):
    """The script as a module."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    for name in ("HF_HUB_CACHE", "HF_HUB_OFFLINE"):  # which the dry run sets
        monkeypatch.setattr(constants, name, getattr(constants, name))
    return __import__("olmo2")


@pytest.mark.slow
def test_the_dry_run_takes_the_whole_way(olmo2, monkeypatch, tmp_path, capfd):
    monkeypatch.setattr("sys.argv", ["olmo2.py", "--dry-run", "--out", str(tmp_path)])
    olmo2.main()
    assert capfd.readouterr().err.endswith("the way is open; revisions left in the cache: 0\n")
    assert sorted(each.name for each in (tmp_path / "costates").iterdir()) == sorted(REVISIONS)
    scores = pd.read_parquet(tmp_path / "impact" / "tables" / "scores.parquet")
    assert list(scores.checkpoint) == REVISIONS
    assert list(scores.step) == [0, 9000, 140000]
    assert set(scores.series) == {olmo2.TINY}
    result = json.loads((tmp_path / "impact" / "result.json").read_text())
    assert list(result["provenance"]["request"]["checkpoints"].values()) == ["a" * 40, "b" * 40, "c" * 40]
    gains = pd.read_parquet(tmp_path / "impact" / "tables" / "gains.parquet")
    assert len(gains[~gains.cut.astype(bool)]) == 3
    assert (tmp_path / "impact" / "report.html").exists()


def test_letters_are_copied(olmo2):
    task = olmo2.LetterCopy()
    prompts = task.prompts(50, torch.Generator().manual_seed(0))
    for prompt in prompts:
        words = prompt.text.split()
        assert words[1:12:2] == prompt.answer.split()
        assert len(set(words[0:12:2])) == 6
        assert words[12:] == ["="]
        assert set(words) <= set(task.vocabulary)
        assert task.reward(prompt, prompt.answer) == 1
    first, right = prompts[0], prompts[0].answer.split()
    assert task.reward(first, " ".join([*right[:3], "x", "x"])) == 0.5
    assert task.reward(first, " ".join([*right, "x"])) == 1
