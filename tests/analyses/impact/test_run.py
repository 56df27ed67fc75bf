"""A ranking joins scores, gains and judgement, keeps what it found, and compares only what can be compared."""

import json
import shutil

import pandas as pd
import pytest
import torch

from valuelens.analyses import RolloutSource, load_result
from valuelens.analyses.impact import Execution, ImpactConfig, ScoreConfig, impact_run, members
from valuelens.models import InputError
from valuelens.models.lm import GenerateConfig, find_task, lm_run_config, pretrain_lm
from valuelens.probe import tilt

SIZES = {"num_items": 2, "num_labels": 2, "num_pairs": 2}
SCORES_ONLY = ImpactConfig(rl_seeds=0)


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    folder = tmp_path_factory.mktemp("series") / "copy"
    parts = {
        "corpus": {"sizes": SIZES},
        "model": {"d_model": 16},
        "train": {"steps": 40, "num_checkpoints": 3},
    }
    pretrain_lm(lm_run_config(parts, where="test"), folder)
    return folder


@pytest.fixture
def source():
    task = find_task("label-copy", **SIZES)
    return RolloutSource(task=task, generate=GenerateConfig(num_prompts=2, num_generations=4))


@pytest.mark.slow
def test_gains_are_after_minus_before_and_what_is_known_is_not_asked_again(series, source, tmp_path):
    execution, told = Execution(cache=tmp_path / "cache"), []
    config = ImpactConfig(rl_seeds=1, cut=False, recipe="fast")
    first = impact_run(members([str(series)]), source, config, out=tmp_path / "r", execution=execution)
    gains = first.tables["gains"]
    assert list(gains.checkpoint) == sorted(each.name for each in series.glob("step-*"))
    assert (gains.gain == gains.reward_after - gains.reward_before).all()
    assert len(first.tables["curves"]) == 3 * 20  # half the steps of the default
    assert first.provenance["recipe"] == ["fast"]
    assert first.provenance["reward_range"] == [0.0, 1.0]
    assert not first.tables["scores"].held_out_loss.isna().any()  # the corpus of a series of ours is known
    kept = {each.name: each.stat().st_mtime_ns for each in (tmp_path / "cache").iterdir()}
    again = impact_run(
        members([str(series)]),
        source,
        config,
        execution=execution,
        progress=lambda what, done, total: told.append((done, total)),
    )
    assert {each.name: each.stat().st_mtime_ns for each in (tmp_path / "cache").iterdir()} == kept
    assert told == [(done, 6) for done in range(1, 7)]
    for name, table in first.tables.items():
        pd.testing.assert_frame_equal(table, again.tables[name])
    assert again.findings == first.findings == load_result(tmp_path / "r").findings


def test_the_same_model_twice_has_the_same_scores(series, source, tmp_path):
    last = sorted(series.glob("step-*"))[-1]
    for name in ("one", "two"):
        shutil.copytree(last, tmp_path / name)
    (tmp_path / "two" / "README").write_text("another folder, so that both are computed")
    found = members([str(tmp_path / "one"), str(tmp_path / "two")])
    scores = impact_run(found, source, SCORES_ONLY).tables["scores"]
    one, two = scores.drop(columns="checkpoint").to_dict("records")
    assert json.dumps(one) == json.dumps(two)


def test_vocabularies_of_one_size_may_differ(series, source, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(sorted(series.glob("step-*"))[-1], tmp_path / name)
    words = tmp_path / "two" / "tokenizer.json"
    changed = json.loads(words.read_text())
    vocabulary = changed["model"]["vocab"]
    first, second = list(vocabulary)[-2:]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    words.write_text(json.dumps(changed))
    found = members([str(tmp_path / "one"), str(tmp_path / "two")])
    with pytest.raises(InputError, match="one architecture and vocabulary: words"):
        impact_run(found, source, SCORES_ONLY)


def test_the_range_of_users_rewards_is_that_of_the_series(series, tmp_path):
    sources = []
    for top, each in enumerate(sorted(series.glob("step-*")), 1):
        rows = {
            "prompt_ids": [[2, 4, 6]] * 4,
            "completion_ids": [[4, 5], [5, 4]] * 2,
            "reward": [1.0, top + 1] * 2,
        }
        pd.DataFrame(rows).to_parquet(tmp_path / f"{each.name}.parquet")
        sources.append(RolloutSource(files=str(tmp_path / f"{each.name}.parquet")))
    config = ImpactConfig(rl_seeds=0, score=ScoreConfig(signal="usable"))
    result = impact_run(members([str(series)]), sources, config)
    assert result.provenance["reward_range"] == [1.0, 4.0]
    headroom = list(result.tables["scores"].headroom_tilt)
    for top, found in enumerate(headroom, 1):
        rewards = torch.tensor([1.0, top + 1] * 2, dtype=torch.float64)
        assert found == pytest.approx(
            tilt(rewards, beta=5.0, reward_range=3.0)
        )  # not the checkpoint's own range


def test_one_signal_heads_a_ranking(series, source, tmp_path):
    first, *others = sorted(series.glob("step-*"))
    rows = {"prompt_ids": [[2, 4, 6]] * 4, "completion_ids": [[4, 5], [5, 4]] * 2, "reward": [0.0, 1.0] * 2}
    pd.DataFrame(rows).to_parquet(tmp_path / "rollouts.parquet")
    sources = [RolloutSource(files=str(tmp_path / "rollouts.parquet")), *[source] * len(others)]
    with pytest.raises(InputError, match=f"--signal auto must find right tokens .*; {first.name}"):
        impact_run(members([str(series)]), sources, SCORES_ONLY)


def test_gains_of_several_series_say_which(series, source, tmp_path):
    shutil.copytree(series, tmp_path / "other")
    table = pd.DataFrame({"checkpoint": ["step-00000040"], "gain": [0.5]})
    table.to_csv(tmp_path / "gains.csv", index=False)
    found = members([str(series), str(tmp_path / "other")])
    with pytest.raises(
        InputError, match=r"gains must say the series .*; found step-00000040 of none for copy, other"
    ):
        impact_run(found, source, ImpactConfig(gains=tmp_path / "gains.csv"))
