"""`pretrain-lm` as a user meets it: exit codes, one line on stderr, nothing half-written, and a series that goes on."""

import inspect
import json
import shlex
from functools import partial
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from valuelens import cli
from valuelens._lm_verbs import SIZES
from valuelens.models.lm import LMRunConfig, find_task

SMALL = [
    "--num-layers",
    "1",
    "--d-model",
    "8",
    "--steps",
    "24",
    "--batch-size",
    "4",
    "--num-checkpoints",
    "3",
]

CODE = """
from valuelens.models.lm import Prompt

print("imported")
calls = None

class Count:
    reward_range, completion_length, ends = (0.0, 1.0), 1, False
    vocabulary = ("one", "two")

    def prompts(self, count, generator):
        return [Prompt(text="one")] * count

    def reward(self, prompt, completion):
        return float(completion == "two")

    def corpus(self, count, shuffled, generator):
        global calls
        if calls is not None:
            calls += 1
            if calls == 22:
                raise KeyboardInterrupt
        return ["one two"] * count
"""


@pytest.fixture
def pretrained(valuelens):
    """Exit code, stdout and stderr of `valuelens pretrain-lm ARGUMENTS`, in this process."""
    return partial(valuelens, "pretrain-lm")


def assert_refused(outcome: tuple[int, str, str], *parts: str) -> None:
    code, out, err = outcome
    assert code == 2, err
    assert out == ""
    assert err.startswith("valuelens: error: ")
    assert err.count("\n") == 1
    assert err.count("; ") >= 2
    for part in parts:
        assert part in err


def test_a_series_is_written_said_and_loaded(pretrained, tmp_path):
    code, out, err = pretrained("--out", tmp_path / "run", *SMALL)
    last = tmp_path / "run" / "step-00000024"
    assert (code, err) == (0, "")
    assert "nats a token" in out
    assert f"The last checkpoint is at {last}" in out
    assert AutoModelForCausalLM.from_pretrained(last).config.vocab_size == len(
        AutoTokenizer.from_pretrained(last)
    )


def test_json_is_alone_on_stdout(pretrained, tmp_path):
    code, out, err = pretrained(
        "--out", tmp_path / "run", "--task", "addition", *SMALL, "--json", "--num-digits", "1"
    )
    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert set(summary) == {"series", "checkpoints", "task", "imported_from", "seconds", "loss"}
    assert summary["task"] == {"name": "addition", "num_digits": 1}
    assert Path(summary["checkpoints"][0]).is_dir()


def test_options_reach_the_configuration(pretrained, tmp_path):
    sizes = ["--num-items", "5", "--num-labels", "3", "--num-pairs", "4"]
    options = [
        "--shuffled",
        "0.5",
        "--num-heads",
        "2",
        "--learning-rate",
        "0.01",
        "--seed",
        "3",
        "--dtype",
        "float64",
    ]
    assert (
        pretrained("--out", tmp_path / "run", *SMALL, *sizes, *options, "--num-seeds", "2", "--jobs", "1")[0]
        == 0
    )
    assert json.loads((tmp_path / "run" / "config.json").read_text()) == {
        "num_seeds": 2,
        "corpus": {
            "task": "label-copy",
            "shuffled": 0.5,
            "sizes": {"num_items": 5, "num_labels": 3, "num_pairs": 4},
        },
        "model": {"num_layers": 1, "d_model": 8, "num_heads": 2},
        "train": {
            "steps": 24,
            "batch_size": 4,
            "learning_rate": 0.01,
            "num_checkpoints": 3,
            "seed": 3,
            "dtype": "float64",
        },
    }
    assert (tmp_path / "run" / "seed-4" / "step-00000024").is_dir()


def test_another_configuration_is_refused_and_overwrite_starts_afresh(pretrained, tmp_path):
    run = tmp_path / "run"
    assert pretrained("--out", run, *SMALL)[0] == 0
    before = (run / "step-00000020" / "model.safetensors").read_bytes()
    outcome = pretrained("--out", run, *SMALL, "--num-pairs", "5")
    assert_refused(outcome, "corpus.sizes.num_pairs must be 5", "found 6", "--overwrite")
    assert pretrained("--out", run, *SMALL)[0] == 0
    assert (run / "step-00000020" / "model.safetensors").read_bytes() == before
    assert_refused(pretrained("--out", run, *SMALL, "--overwrite", "--task", "chess"), "found 'chess'")
    assert (run / "step-00000020").is_dir()  # nothing is removed for a request that cannot be met
    (run / "notes.txt").write_text("mine")
    assert_refused(pretrained("--out", run, *SMALL, "--overwrite"), "found other files: notes.txt")
    assert (run / "step-00000020").is_dir()
    (run / "notes.txt").unlink()
    assert pretrained("--out", run, *SMALL, "--num-pairs", "5", "--overwrite")[0] == 0


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--task", "label-coppy"], ["did you mean label-copy?", "option --task"]),
        (["--task", "nowhere.mine:Task"], ["on PYTHONPATH", "found no nowhere;"]),
        (["--task", "json:loads"], ["a task must be made by loads()", "TypeError", "task json:loads"]),
        (["--task", "json:Absent"], ["json must have Absent", "found no such name"]),
        (
            ["--task", "modular-sum", "--num-items", "3"],
            ["num_labels, num_pairs", "found num_items", "--num-items"],
        ),
        (["--num-pairs", "13"], ["num_items must be at least num_pairs, 13", "found 12"]),
        (["--num-labels", "1"], ["num_labels must be at least 2", "found 1", "--num-labels"]),
        (["--shuffled", "1.5"], ["corpus.shuffled", "found 1.5"]),
        (["--steps", "20"], ["train.steps must be greater than 20", "found 20"]),
        (["--steps", "25"], ["different log-spaced steps", "found num_checkpoints 14, steps 25"]),
        (["--num-checkpoints", "1"], ["train.num_checkpoints", "found 1"]),
        (["--d-model", "30"], ["d_model must be a multiple of 2 num_heads", "found d_model 30, num_heads 4"]),
        (["--dtype", "float16"], ["'float32' or 'float64'", "float16"]),
        (["--num-seeds", "0"], ["at least one seed", "found 0"]),
        (["--device", "nonsense"], ["the device must exist here"]),
        (["--jobs", "0"], ["--jobs must be at least 1"]),
        (["--stepz", "3"], ["--stepz", "--steps", "valuelens pretrain-lm --help"]),
    ],
)
def test_bad_options_are_refused_in_one_line(pretrained, tmp_path, options, parts):
    assert_refused(pretrained("--out", tmp_path / "run", *options), *parts)
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_output_is_refused(pretrained, tmp_path):
    (tmp_path / "file").write_text("")
    assert_refused(pretrained("--out", tmp_path / "file" / "run", *SMALL), "must be writable")


def test_an_imported_task_is_said_and_its_prints_stay_off_stdout(pretrained, tmp_path, monkeypatch):
    (tmp_path / "counting.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    code, out, err = pretrained("--out", tmp_path / "run", "--task", "counting:Count", *SMALL, "--json")
    assert code == 0
    assert json.loads(out)["imported_from"] == str(tmp_path / "counting.py")
    said = f"valuelens: the task counting:Count was imported from {tmp_path / 'counting.py'}\n"
    assert err == f"imported\n{said}"
    outcome = pretrained("--out", tmp_path / "sized", "--task", "counting:Count", "--num-pairs", "2")
    assert_refused(outcome, "a task must be made by Count(num_pairs=2)", "TypeError")


def test_the_help_shows_the_defaults_of_the_configuration():
    hints = inspect.get_annotations(cli.pretrain_lm)
    config = LMRunConfig()
    shown = {"task": config.corpus.task, "shuffled": config.corpus.shuffled}
    shown |= {**config.model.model_dump(), **config.train.model_dump()}
    shown |= {**find_task("addition").sizes, **find_task("label-copy").sizes}
    del shown["seed"]
    for key, value in shown.items():
        assert hints[key].__metadata__[0].show_default.split(";")[0] == str(value), key
    assert set(SIZES) <= set(shown)
    for key, value in find_task("modular-sum").sizes.items():
        assert hints[key].__metadata__[0].show_default.split("; ")[1] == f"{value} for modular-sum"


def test_an_interrupt_leaves_a_series_that_goes_on(pretrained, tmp_path, monkeypatch):
    (tmp_path / "stopping.py").write_text(CODE.replace("calls = None", "calls = 0"))
    monkeypatch.syspath_prepend(tmp_path)
    asked = ["--task", "stopping:Count", *SMALL]
    code, out, err = pretrained("--out", tmp_path / "run", *asked)
    assert (code, out) == (130, "")
    kept = f"1 checkpoint up to step 20 is kept in {tmp_path / 'run'}"
    again = shlex.join(["valuelens", "pretrain-lm", "--out", str(tmp_path / "run"), *asked])
    assert err == f"imported\nvaluelens: interrupted; {kept}; to go on: {again}\n"
    folders = [path.name for path in (tmp_path / "run").iterdir()]
    assert sorted(folders) == ["config.json", "step-00000020"]
    for name in ("run", "whole"):
        assert pretrained("--out", tmp_path / name, *asked)[0] == 0
    weights = [tmp_path / name / "step-00000024" / "model.safetensors" for name in ("run", "whole")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
