"""Configurations of a series: the grid, defaults, and what is refused."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from valuelens.models import InputError
from valuelens.models.lm import (
    LMCorpusConfig,
    LMRunConfig,
    LMTrainConfig,
    corpus_of,
    lm_run_config,
    load_lm_config,
    series_steps,
)


@given(st.integers(21, 100_000), st.integers(2, 40))
def test_the_grid_runs_from_20_to_the_last_step_in_equal_ratios(steps, num_checkpoints):
    found = series_steps(steps, num_checkpoints)
    assert (found[0], found[-1]) == (20, steps)
    assert found == sorted(set(found))
    assert len(found) <= num_checkpoints
    ratios = [b / a for a, b in pairwise(found) if a > 200]
    assert not ratios or max(ratios) < 1.02 * min(ratios)


def test_the_default_grid_has_fourteen_checkpoints():
    train = LMTrainConfig()
    steps = [20, 29, 42, 61, 88, 128, 186, 269, 390, 566, 820, 1189, 1724, 2500]
    assert series_steps(train.steps, train.num_checkpoints) == steps


def test_sizes_are_resolved_to_those_of_the_task():
    resolved = LMCorpusConfig(task="modular-sum", sizes={"num_pairs": 3}).resolved()
    assert resolved.sizes == {"num_labels": 5, "num_pairs": 3}


def test_a_config_is_read_back(tmp_path):
    config = LMRunConfig(corpus=LMCorpusConfig(task="addition").resolved())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"num_seeds": 2, **config.model_dump()}))
    assert load_lm_config(path) == config


REFUSED = {
    "unknown": (
        {"model": {"colour": 1}},
        "config keys must be known ones; found unknown key model.colour; here",
    ),
    "shuffled": (
        {"corpus": {"shuffled": 1.5}},
        "corpus.shuffled must be less than or equal to 1; found 1.5; here",
    ),
    "steps": (
        {"train": {"steps": 20}},
        "train.steps must be greater than 20; found 20; here, key train.steps",
    ),
    "checkpoints": (
        {"train": {"num_checkpoints": 1}},
        "train.num_checkpoints must be greater than or equal to 2",
    ),
    "grid": (
        {"train": {"steps": 30, "num_checkpoints": 14}},
        "num_checkpoints must be the number of different log-spaced steps from 20 to steps; found num_checkpoints 14, "
        "steps 30; here, key train",
    ),
    "heads": (
        {"model": {"d_model": 36, "num_heads": 4}},
        "d_model must be a multiple of 2 num_heads; found d_model 36, num_heads 4; here, key model",
    ),
    "dtype": ({"train": {"dtype": "float16"}}, "train.dtype must be 'float32' or 'float64'; found 'float16'"),
}


@pytest.mark.parametrize(("data", "text"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_by_its_key(data, text):
    with pytest.raises(InputError) as caught:
        lm_run_config(data, where="here")
    assert str(caught.value).startswith(text)


def test_the_config_of_another_kind_of_run_is_refused(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"task": {}, "model": {}, "train": {}}))
    with pytest.raises(
        InputError, match=r"config\.json must hold corpus and model and train; found"
    ) as caught:
        load_lm_config(path)
    assert str(caught.value).endswith(str(path))


@pytest.mark.parametrize("model", ["step-00000020", "seed-1/step-00000020"])
def test_a_model_knows_the_corpus_of_its_series(tmp_path, model):
    (tmp_path / model).mkdir(parents=True)
    config = lm_run_config({"corpus": {"task": "addition"}}, where="here")
    (tmp_path / "config.json").write_text(json.dumps({**config.model_dump(), "num_seeds": 2}))
    found = corpus_of(tmp_path / model)
    assert found is not None
    assert found.task == "addition"


@pytest.mark.parametrize("text", ["{", "[]", '{"model_type": "llama"}'])
def test_the_config_of_others_is_no_corpus(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    assert corpus_of(tmp_path / "checkpoint-1") is None
