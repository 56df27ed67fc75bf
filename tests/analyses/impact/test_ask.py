"""Scores and RL runs of a ranking are asked about the same completions."""

from pathlib import Path
from typing import Any

import pytest

from valuelens.analyses import RolloutSource
from valuelens.analyses.impact import Execution, GainConfig, ImpactConfig, Member
from valuelens.analyses.impact._ask import Asker, asked_of
from valuelens.models.lm import GenerateConfig, find_task


@pytest.mark.parametrize("ends", ["auto", "yes", "no"])
def test_runs_sample_as_scores_do(ends: Any, tmp_path: Path) -> None:
    """Temperature, length, and whether completions end by themselves."""
    config = ImpactConfig(rl_seeds=2, cut=False, seed=3)
    sampling = GenerateConfig(max_completion_length=4, temperature=0.7, top_k=5, completion_ends=ends)
    source = RolloutSource(task=find_task("label-copy"), generate=sampling)
    member = Member(series="models", label="a", source=str(tmp_path))
    (asked,) = asked_of([member], [source], {"a": "0"}, config)
    asker = Asker(config=config, execution=Execution(), cache=None, progress=None)
    works = list(asker._gains(asked, 2))
    assert [work.arguments[1].rl_seed for work in works] == [3, 4]
    for work in works:
        run: GainConfig = work.arguments[1]
        for found in (run.held_out, run.training.sampling(0)):
            for name in ("max_completion_length", "temperature", "top_k", "top_p", "completion_ends"):
                assert getattr(found, name) == getattr(sampling, name)
    assert ("completion_ends" in works[0].key["how"]["gain"]) == (ends != "auto")
