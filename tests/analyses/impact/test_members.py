"""Which checkpoints a ranking compares, and what it refuses to compare."""

import json

import pytest

from valuelens.analyses.impact import Member, members
from valuelens.models import InputError

SHAPE = {"model_type": "llama", "vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2}


@pytest.fixture
def saved(tmp_path):
    """Writes the configuration of a model, which is all that is looked at before one is loaded."""

    def write(name, **changes):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({**SHAPE, **changes}))
        return folder

    return write


def test_a_series_is_listed_by_step(saved, tmp_path):
    for step in (200, 20, 1000):
        saved(f"copy/step-{step}")
    found = members([str(tmp_path / "copy")])
    assert [(each.series, each.label, each.step) for each in found] == [
        ("copy", "step-20", 20),
        ("copy", "step-200", 200),
        ("copy", "step-1000", 1000),
    ]
    assert found[0].name == "copy/step-20"
    assert all(each.local for each in found)


def test_the_seeds_of_a_run_are_series(saved, tmp_path):
    for seed in (0, 1):
        saved(f"copy/seed-{seed}/step-20")
    found = members([str(tmp_path / "copy")])
    assert [each.name for each in found] == ["seed-0/step-20", "seed-1/step-20"]


def test_series_of_one_name_keep_their_paths(saved, tmp_path):
    for parent in ("a", "b"):
        saved(f"{parent}/copy/step-20")
    found = members([str(tmp_path / "a" / "copy"), str(tmp_path / "b" / "copy")])
    assert [each.series for each in found] == [str(tmp_path / "a" / "copy"), str(tmp_path / "b" / "copy")]


def test_single_models_are_one_series_in_their_order(saved):
    late, early = saved("late"), saved("early")
    found = members([str(late), str(early)])
    assert len({each.series for each in found}) == 1
    assert [(each.name, each.step) for each in found] == [(str(late), None), (str(early), None)]


def test_steps_of_a_later_stage_are_not_those_of_the_first() -> None:
    """They count anew: sorted by step the last stage of OLMo-2 would stand amid the first."""
    labels = (
        "stage1-step140000-tokens294B",
        "stage2-ingredient1-step1000-tokens3B",
        "stage1-step0-tokens0B",
        "main",
    )
    found = [Member(series="olmo", label=label, source="olmo", revision=label).step for label in labels]
    assert found == [140000, None, 0, None]


def test_identity_is_that_of_the_files(saved):
    one, same = saved("one"), saved("same")
    first, second = members([str(one), str(same)])
    assert first.identity == second.identity
    (same / "config.json").write_text(json.dumps({**SHAPE, "rope_theta": 1}))
    assert first.identity != members([str(same)])[0].identity


def test_what_is_refused(saved, tmp_path):
    one = str(saved("one"))
    with pytest.raises(InputError, match=r"must be named once; found .*one twice"):
        members([one, one])
    with pytest.raises(InputError, match="revisions belong to a model of the hub; found a path"):
        members([one], "every:10")
    with pytest.raises(InputError, match="revisions are asked for once; found @main too"):
        members(["no/such@main"], "all")
    with pytest.raises(InputError, match="there must be a model or a series; found none"):
        members([])
    icrl = tmp_path / "icrl"
    icrl.mkdir()
    (icrl / "config.json").write_text(json.dumps({"model": {}, "task": {}}))
    with pytest.raises(InputError, match="compares language models; found an in-context value learner"):
        members([str(icrl)])


@pytest.mark.parametrize(
    ("key", "value"),
    [("model_type", "gpt2"), ("vocab_size", 21), ("hidden_size", 16), ("num_hidden_layers", 3)],
)
def test_architectures_must_be_the_same(saved, key, value):
    one, other = saved("one"), saved("other", **{key: value})
    with pytest.raises(
        InputError, match=rf"one architecture and vocabulary: {key} {SHAPE[key]}; found {value}"
    ):
        members([str(one), str(other)])
