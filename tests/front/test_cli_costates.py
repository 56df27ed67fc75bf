"""`costates` as a user meets it: the diagnosis first, a result and a report, exit codes, one line for bad input."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from valuelens.analyses import analyze
from valuelens.models import InputError
from valuelens.models.lm import lm_run_config, pretrain_lm

Run = Callable[..., tuple[int, str, str]]
FEW = ("--num-prompts", 3, "--num-generations", 8)


@pytest.fixture
def costates(valuelens: Run) -> Run:
    """Exit code, stdout and stderr of `valuelens costates ARGUMENTS`, in this process."""
    return partial(valuelens, "costates")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last checkpoint of a small series of label copying."""
    config = lm_run_config(
        {
            "corpus": {"sizes": {"num_items": 2, "num_labels": 2, "num_pairs": 2}},
            "model": {"num_layers": 2, "d_model": 16},
            "train": {"steps": 40, "num_checkpoints": 2},
        },
        where="test",
    )
    return pretrain_lm(config, tmp_path_factory.mktemp("series") / "copy")[0]


def written(folder: Path, **columns: list[object]) -> Path:
    """A file of rollouts of one prompt."""
    rows = {"prompt_ids": [[2, 4, 6]] * 2, "completion_ids": [[4, 5], [5, 4]], "reward": [0.0, 1.0]}
    path = folder / "rollouts.parquet"
    pd.DataFrame({name: each for name, each in {**rows, **columns}.items() if each}).to_parquet(path)
    return path


@pytest.mark.slow
def test_the_task_is_that_of_the_series_and_a_result_is_written(
    costates: Run, model: Path, tmp_path: Path
) -> None:
    code, out, err = costates(model, *FEW, "--out", tmp_path / "r", "--json")
    assert code == 0
    summary = json.loads(out)
    assert summary["kind"] == "costates"
    diagnosis = next(each["estimate"] for each in summary["findings"] if each["name"] == "diagnosis")
    said, mismatch = err.splitlines()  # before any costate, and apart from the JSON
    assert said == diagnosis
    assert mismatch.startswith("Logged log-probabilities differ from this model's by ")
    assert {"cosine", "gap_discrete"} <= {each["name"] for each in summary["findings"]}
    assert {each.name for each in (tmp_path / "r").iterdir()} == {
        *("arrays.safetensors", "figures", "report.html", "result.json", "tables")
    }
    again, out_again, err_again = costates(model, *FEW, "--out", tmp_path / "r", "--json")
    assert again == 0
    assert json.loads(out_again)["findings"] == summary["findings"]
    assert err_again == ""
    code, _, err = costates(model, *FEW, "--out", tmp_path / "r", "--temperature", 2)
    assert code == 2
    assert "generate.temperature must be 2.0; found 1.0" in err


def test_people_get_a_table_and_a_verdict(costates: Run, model: Path) -> None:
    code, out, _ = costates(model, *FEW, "--layers", "0,L-1")
    assert code == 0
    assert "signal_to_noise" in out
    assert "own token" in out


def test_an_empty_completion_is_listed_and_the_exit_code_is_3(
    costates: Run, model: Path, tmp_path: Path
) -> None:
    rows = written(
        tmp_path, prompt_ids=[[2, 4, 6]] * 3, completion_ids=[[4, 5], [], [5]], reward=[0.0, 1.0, 0.5]
    )
    code, out, err = costates(model, "--rollouts", rows)
    assert code == 3
    assert "signal_to_noise" in out
    assert "skipped as unusable" in err
    assert "whether this model sampled them is not known" in err
    assert "empty" in err


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"reward": [1.0, 1.0]}, (), "some group must have rewards that differ"),
        ({"reward": []}, (), "rollouts must have a column of rewards or advantage"),
        ({"completion_ids": []}, (), "completion"),
        ({"completion_ids": [[4, 99], [5]]}, (), "99"),
        ({"prompt_ids": [[2, 4], [2, 5]]}, (), "n_group = 1"),
        ({"prompt_ids": [[2] * 5000] * 2}, (), "must fit the context window"),
        ({"log_probs": [[-9.0, -9.0], [-9.0, -9.0]]}, (), "logged log-probabilities must be this model's"),
        ({}, ("--objective", "reward"), "a differentiable reward needs right tokens"),
        ({}, ("--reward-targets", "gold"), "--reward-targets must name a column"),
        ({}, ("--layers", "7"), "a layer must lie in 0..2"),
        ({}, ("--layers", "half"), "a layer is a number or an expression in L"),
        ({}, ("--layers", "L//0"), "a layer is a number or an expression in L"),
        ({}, ("--tolerance", "inf"), "--tolerance must be at least 0"),
        ({}, ("--seed", "-5"), "the seed must lie in 0.."),
        ({}, ("--num-pairs", "3"), "sizes belong to a task; found --num-pairs beside --rollouts"),
        ({"prompt_ids": [[2], [2]]}, ("--positions", "prompt"), "found prompts of one token"),
        ({}, ("--temperature", "0"), "temperature must be above 0"),
        ({}, ("--task", "label-copy"), "rollouts come from --task or from --rollouts; found both"),
        ({}, ("--device", "nowhere"), "option --device"),
        ({}, ("--dtype", "int8"), "option --dtype"),
        ({}, ("--micro-batch", "0"), "--micro-batch must be at least 1"),
    ],
)
def test_bad_input_is_one_line(
    costates: Run,
    model: Path,
    tmp_path: Path,
    columns: dict[str, list[object]],
    options: tuple[str, ...],
    message: str,
) -> None:
    rows = written(tmp_path, **columns)
    code, out, err = costates(model, "--rollouts", rows, "--out", tmp_path / "r", *options)
    assert code == 2
    assert out == ""
    errors = [line for line in err.splitlines() if line.startswith("valuelens: error: ")]
    assert len(errors) == 1
    assert message in errors[0]
    assert "Traceback" not in err
    assert not (tmp_path / "r").exists()
    if columns.get("reward"):
        assert err.startswith("No group has rewards that differ")  # the diagnosis comes first


def test_a_model_or_a_task_that_is_none_is_named(costates: Run, model: Path, tmp_path: Path) -> None:
    code, _, err = costates(tmp_path / "nothing", "--task", "label-copy")
    assert code == 2
    assert str(tmp_path / "nothing") in err
    code, _, err = costates(model, "--task", "label-cpoy")
    assert code == 2
    assert "did you mean label-copy?" in err


def test_analyze_sends_a_language_model_to_costates_and_a_series_to_impact(
    valuelens: Run, model: Path
) -> None:
    for path, meant in ((model, f"costates {model}"), (model.parent, f"impact {model.parent}")):
        code, _, err = valuelens("analyze", path)
        assert code == 2
        assert f": `valuelens {meant}`; {path}" in err
        with pytest.raises(InputError, match=f"`valuelens {meant.split()[0]}` is meant"):
            analyze(path)


@pytest.mark.xdist_group("trl")
@pytest.mark.slow
def test_the_output_folder_of_trl_is_read_as_it_is(
    costates: Run, trl_run: Callable[[str], Any], tmp_path: Path
) -> None:
    """Two steps of a real run: rewards of two functions, texts without ends, no log-probabilities."""
    run = trl_run("text")
    code, out, err = costates(run.model, "--rollouts", run.output, "--out", tmp_path / "r", "--layers", "all")
    assert code == 0, err
    assert "signal_to_noise" in out
    assert "whether this model sampled them is not known" in err
    summary = json.loads((tmp_path / "r" / "result.json").read_text())
    assert summary["provenance"]["rollouts"]["count"] == 16
    files = sorted(summary["provenance"]["request"]["rollouts"]["files"])
    assert [Path(file).name for file in files] == ["completions_00001.parquet", "completions_00002.parquet"]


def test_overwrite_loses_nothing_where_the_input_is_at_fault(
    costates: Run, model: Path, tmp_path: Path
) -> None:
    rows = written(tmp_path)
    assert costates(model, "--rollouts", rows, "--out", tmp_path / "r", "--quiet")[0] == 0
    before = (tmp_path / "r" / "result.json").read_bytes()
    code, _, err = costates(tmp_path / "nothing", "--rollouts", rows, "--out", tmp_path / "r", "--overwrite")
    assert code == 2, err
    assert (tmp_path / "r" / "result.json").read_bytes() == before
    code, _, err = costates(
        model, "--rollouts", rows, "--out", tmp_path / "r", "--overwrite", "--seed", 1, "--quiet"
    )
    assert code == 0
    assert err == ""
    assert (tmp_path / "r" / "result.json").read_bytes() != before


def test_prompts_that_were_answered_once_have_costates_and_no_noise(
    costates: Run, model: Path, tmp_path: Path
) -> None:
    rows = written(tmp_path, prompt_ids=[[2, 4, 6], [3, 4, 6]], reward=[], gold=[[4, 5], [5, 4]])
    code, out, err = costates(model, "--rollouts", rows, "--reward-targets", "gold")
    assert code == 3
    assert "hop_share" in out
    assert "a group of one rollout has neither a mean nor a spread" in err
