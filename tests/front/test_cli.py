"""The command line as a user meets it: exit codes, one line on stderr, nothing half-written."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from valuelens import cli
from valuelens.analyses.report._notes import INTRODUCTIONS
from valuelens.models.icrl import RunConfig

SMALL = ["--num-layers", "2", "--steps", "20", "--batch-size", "8", "--num-checkpoints", "3"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A small run, made once."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    runner = CliRunner()
    done = runner.invoke(cli.app, ["pretrain", "--out", str(folder), *SMALL], catch_exceptions=False)
    assert done.exit_code == 0
    return folder


def checkpoint(run: Path) -> Path:
    return run / "checkpoints" / "step-00000020"


def copy_of(run: Path, to: Path, config: dict | None = None) -> Path:
    """A checkpoint to be spoilt."""
    to.mkdir()
    described = json.loads((checkpoint(run) / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(config or described))
    (to / "model.safetensors").write_bytes((checkpoint(run) / "model.safetensors").read_bytes())
    return to


def assert_goes_on(shares: list[tuple[str, float]], what: str, *, least: int) -> None:
    """Progress never falls back, and a part of it is told several times."""
    done = [share for _, share in shares]
    assert done == sorted(done)
    assert 0.75 < done[-1] <= 1
    assert len({share for doing, share in shares if doing == what}) >= least
    shares.clear()


def assert_refused(outcome: tuple[int, str, str], *parts: str) -> None:
    code, out, err = outcome
    assert code == 2, err
    assert out == ""
    assert err.startswith("valuelens: error: ")
    assert err.count("\n") == 1
    assert err.count("; ") >= 2
    for part in parts:
        assert part in err


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--gamma", "1.2"], ["gamma", "1.2"]),
        (["--gamma", "-0.1"], ["gamma", "-0.1"]),
        (["--context-length", "0"], ["context_length", "found 0"]),
        (["--arch", "lstm"], ["'tsm', 'dual', 'linear' or 'transformer'", "lstm"]),
        (["--arch", "linear", "--weights", "factored"], ["restricted or full"]),
        (["--env", "bojan"], ["did you mean boyan?"]),
        (["--env", "nowhere.safetensors"], ["nowhere.safetensors"]),
        (["--steps", "0"], ["steps", "found 0"]),
        (["--steps", "many"], ["--steps", "integer"]),
        (["--stepz", "3"], ["--stepz", "--steps"]),
        (["--num-seeds", "0"], ["at least one seed"]),
        (["--jobs", "0"], ["--jobs must be at least 1"]),
        (["--device", "nonsense"], ["the device must exist here"]),
        (["--dtype", "float16"], ["dtype", "float16"]),
    ],
)
def test_bad_options_of_pretrain_are_refused_in_one_line(valuelens, tmp_path, options, parts):
    assert_refused(valuelens("pretrain", "--out", tmp_path / "run", *options), *parts)
    assert list(tmp_path.iterdir()) == []


def test_a_chain_whose_row_does_not_sum_to_one_is_refused_with_its_row(valuelens, tmp_path):
    P = torch.full((3, 3), 1 / 3)
    P[1, 2] = 0.9
    save_file({"P": P, "r": torch.zeros(3), "p0": torch.full((3,), 1 / 3)}, tmp_path / "chain.safetensors")
    outcome = valuelens("pretrain", "--out", tmp_path / "run", "--env", tmp_path / "chain.safetensors")
    assert_refused(outcome, "sum to 1", "row 1", "chain.safetensors")
    assert not (tmp_path / "run").exists()


def test_an_unwritable_output_is_refused(valuelens, tmp_path):
    (tmp_path / "file").write_text("")
    assert_refused(valuelens("pretrain", "--out", tmp_path / "file" / "run", *SMALL), "must be writable")
    assert (tmp_path / "file").read_text() == ""


def test_another_configuration_is_refused_and_overwrite_starts_afresh(valuelens, tmp_path):
    assert valuelens("pretrain", "--out", tmp_path / "run", *SMALL)[0] == 0
    (tmp_path / "run" / "notes.txt").write_text("mine")
    outcome = valuelens("pretrain", "--out", tmp_path / "run", *SMALL, "--gamma", "0.6")
    assert_refused(outcome, "task.gamma must be 0.6", "found 0.5", "--overwrite")
    assert valuelens("pretrain", "--out", tmp_path / "run", *SMALL)[0] == 0
    code, _, err = valuelens("pretrain", "--out", tmp_path / "run", *SMALL, "--gamma", "0.6", "--overwrite")
    assert code == 2
    assert "other files: notes.txt" in err  # a foreign file is never deleted, nor mixed with a new run
    assert (tmp_path / "run" / "checkpoints").is_dir()
    (tmp_path / "run" / "notes.txt").unlink()
    assert valuelens("pretrain", "--out", tmp_path / "run", *SMALL, "--gamma", "0.6", "--overwrite")[0] == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["task"]["gamma"] == 0.6


def test_json_is_alone_on_stdout(valuelens, trained, tmp_path):
    code, out, err = valuelens("pretrain", "--out", tmp_path / "run", *SMALL, "--json")
    assert (code, err) == (0, "")
    assert set(json.loads(out)) >= {"run", "checkpoints", "seconds", "prompts_per_second"}
    code, out, err = valuelens(
        "analyze", checkpoint(trained), "--num-tasks", "16", "--only", "slots", "--json"
    )
    assert (code, err) == (0, "")
    assert json.loads(out)["schema"] == {"name": "valuelens.result", "version": 1}


@pytest.mark.parametrize(
    ("spoil", "parts"),
    [
        (lambda f: (f / "model.safetensors").unlink(), ["model.safetensors", "found none"]),
        (lambda f: (f / "config.json").unlink(), ["config.json", "found none"]),
        (lambda f: (f / "config.json").write_text("{"), ["readable JSON"]),
        (lambda f: _cut(f / "model.safetensors"), ["readable and whole"]),
        (lambda f: save_file({"other": torch.ones(2)}, f / "model.safetensors"), ["found"]),
        (lambda f: _edit(f, lambda w: w[..., :-1].contiguous()), ["shape"]),
        (lambda f: _edit(f, lambda w: w.int()), ["floating point"]),
        (lambda f: _edit(f, lambda w: w * torch.nan), ["finite"]),
        (lambda f: _config(f, "model", "colour", "red"), ["unknown key model.colour"]),
        (lambda f: _config(f, "task", "gamma", 1.0), ["gamma", "1.0"]),
        (lambda f: _config(f, "task", "context_length", 0), ["context_length"]),
    ],
)
def test_a_spoilt_checkpoint_is_refused_in_one_line(valuelens, trained, tmp_path, spoil, parts):
    folder = copy_of(trained, tmp_path / "spoilt")
    spoil(folder)
    before = sorted(folder.iterdir())
    assert_refused(
        valuelens("analyze", folder, "--out", tmp_path / "out", "--num-tasks", "8"), "spoilt", *parts
    )
    assert sorted(folder.iterdir()) == before
    assert not (tmp_path / "out").exists()


def test_pickled_code_is_never_run(valuelens, trained, tmp_path):
    folder = copy_of(trained, tmp_path / "pickled")
    (folder / "model.safetensors").unlink()
    torch.save({"A_features": _Trap(tmp_path / "sprung")}, folder / "model.pt")
    assert_refused(valuelens("analyze", folder, "--num-tasks", "8"), "weights only", "model.pt")
    assert not (tmp_path / "sprung").exists()


class _Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["analyze", "nowhere"], ["must exist", "nowhere"]),
        (["analyze"], ["CKPT_OR_RUN"]),
        (["frobnicate"], ["frobnicate"]),
        (["report", "nowhere"], ["result.json", "nowhere"]),
        (["report", "nowhere", "--out", "."], ["names its HTML file", "--out report.html", "option --out ."]),
        (["report", "nowhere", "--out", "a.pdf"], ["names its HTML file", "--out a.html --pdf writes both"]),
        (["analyze", "w.pt", "--adapter", "mine"], ["package.module:Name", "found 'mine'", "--adapter"]),
        (["analyze", "w.pt", "--adapter", "nowhere.mine:Net"], ["on PYTHONPATH", "found no nowhere;"]),
        (["analyze", "w.pt", "--adapter", "json:Net"], ["json must have Net", "found no such name"]),
        (["analyze", "w.pt", "--adapter", "json:loads"], ["TypeError", "adapter json:loads, w.pt"]),
        (["analyze", "w.pt", "--adapter", "pathlib:Path"], ["Network", "found PosixPath without module"]),
        (["analyze", "w.pt", "--adapter", "json:loads", "--only", "slots"], ["identify", "found 'slots'"]),
        (["analyze", "w.pt", "--adapter", "json:loads", "--dtype", "float32"], ["float64", "--dtype"]),
        (["analyze", "--adapter", "json:loads"], ["CKPT_OR_RUN"]),
    ],
)
def test_other_bad_input_is_refused_in_one_line(valuelens, tmp_path, monkeypatch, arguments, parts):
    monkeypatch.chdir(tmp_path)
    assert_refused(valuelens(*arguments), *parts)
    assert list(tmp_path.iterdir()) == []


def test_a_mistyped_question_gets_a_suggestion(valuelens, trained):
    outcome = valuelens("analyze", checkpoint(trained), "--only", "distence")
    assert_refused(outcome, "did you mean distance?")


def test_analyze_prints_verdict_and_table_and_writes_nothing_without_out(
    valuelens, trained, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, out, _ = valuelens("analyze", checkpoint(trained), "--num-tasks", "16", "--only", "slots, distance")
    assert code == 0
    assert "weight_cosine" in out
    assert "constant predictor" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_run_is_analysed_and_reported(valuelens, trained, tmp_path, monkeypatch, shares):
    out = tmp_path / "results"
    status, _, said = valuelens("analyze", trained, "--num-tasks", "16", "--out", out, "--jobs", "1")
    assert status == 0
    assert_goes_on(shares, "drawing figures", least=6)
    assert said.endswith(f"valuelens: the report is at {out / 'report.html'}\n")
    assert {"result.json", "arrays.safetensors", "tables", "figures", "report.html"} <= {
        p.name for p in out.iterdir()
    }
    assert any((out / "figures").glob("*.svg"))
    assert valuelens("report", out, "--out", tmp_path / "new" / "report.html")[0] == 0
    assert_goes_on(shares, "drawing figures", least=6)
    assert "<html" in (tmp_path / "new" / "report.html").read_text()
    shutil.copytree(out, tmp_path / "again")
    own = (out / "report.html").read_bytes()
    monkeypatch.chdir(tmp_path)
    assert valuelens("report", out, tmp_path / "again")[1] == "The report is at comparison.html\n"
    assert (out / "report.html").read_bytes() == own
    outcome = valuelens("analyze", trained, "--num-tasks", "17", "--out", out)
    assert_refused(outcome, "num_tasks must be 17", "found 16")


def test_the_questions_are_listed(valuelens):
    code, out, _ = valuelens("analyze", "--list")
    names = ["slots", "distance", "reparameterisation", "diagonality", "convergence", "neu"]
    asked = [*names, "identify", "opaque", "credit", "generalisation", "emergence"]
    assert code == 0
    lines = [line.split(maxsplit=1) for line in out.splitlines()]
    assert [name for name, _ in lines] == asked  # `awk '{print $1}'` takes them apart
    assert all(re.fullmatch(r".*\?( \(on a run\))?", sentence) for _, sentence in lines)
    assert lines[0][1] == "Does the model evaluate states?"
    assert INTRODUCTIONS["training"].startswith(lines[-1][1].removesuffix(" (on a run)"))
    assert json.loads(valuelens("analyze", "--list", "--json")[1]) == {"questions": asked}


def test_version_and_help(valuelens):
    assert re.fullmatch(r"valuelens \d+\.\d+\.\d+\n", valuelens("--version")[1])
    code, out, _ = valuelens("--help")
    assert code == 0
    for verb in ("pretrain", "analyze", "report", "demo", "doctor"):
        assert verb in out


def test_the_help_shows_the_defaults_of_the_configuration():
    command = next(c for c in cli.app.registered_commands if c.callback and c.callback.__name__ == "pretrain")
    hints = command.callback.__annotations__
    for part in RunConfig().model_dump().values():
        for key, value in part.items():
            if key == "seed" or isinstance(value, bool):
                continue
            shown = hints[key].__metadata__[0].show_default
            assert shown.split(";")[0] == str(value), key


def test_the_help_imports_neither_torch_nor_transformer_lens():
    code = (
        "import sys; from valuelens.cli import main\n"
        "sys.argv = ['valuelens', '--help']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'transformer_lens', 'numpy', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")


@pytest.mark.slow
def test_ctrl_c_ends_every_process_and_leaves_a_run_that_goes_on(tmp_path):
    """As a terminal sends it: to all processes of the group at once."""
    asked = ["pretrain", "--out", str(tmp_path / "run"), "--num-layers", "2", "--steps", "100000"]
    asked += ["--num-checkpoints", "12", "--num-seeds", "2", "--jobs", "2"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from valuelens.cli import main; main()", *asked],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    first = [tmp_path / "run" / f"seed-{seed}" / "checkpoints" / "step-00000001" for seed in (0, 1)]
    while not all(path.exists() for path in first):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    last = err.splitlines()[-1]
    assert [line for line in err.splitlines()[:-1] if "valuelens: pretrain: " not in line] == []
    kept = r"\d+ checkpoints up to step [0-9,]+ are kept in \S+"
    assert re.fullmatch(rf"valuelens: interrupted; {kept}; to go on: valuelens pretrain --out .+", last)
    assert not list(tmp_path.rglob(".valuelens-tmp-*"))
    deadline = time.monotonic() + 20
    while _group(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _group(process.pid) == []


def _group(number: int) -> list[int]:
    """Processes of a group that are alive."""
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, group = each.read_text().rsplit(")", 1)[1].split()[:3]
            found += [int(each.parent.name)] if int(group) == number and state != "Z" else []
    return found


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def _edit(folder: Path, change) -> None:
    weights = load_file(folder / "model.safetensors")
    first = sorted(weights)[0]
    save_file({**weights, first: change(weights[first])}, folder / "model.safetensors")


def _config(folder: Path, part: str, key: str, value) -> None:
    data = json.loads((folder / "config.json").read_text())
    data[part][key] = value
    (folder / "config.json").write_text(json.dumps(data))


def test_a_corrupt_checkpoint_of_a_run_exits_3(trained, tmp_path, valuelens):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    (checkpoint(run) / "model.safetensors").write_bytes(b"cut")
    asked = ["analyze", run, "--out", tmp_path / "out", "--num-tasks", "4", "--only", "slots,emergence"]
    for _ in range(2):  # the second call reads the finished result
        code, out, err = valuelens(*asked)
        assert code == 3
        assert "skipped: every question of seed-0/step-00000020: a weight file must be readable" in out
        where, lost = err.splitlines()
        assert where == f"valuelens: the report is at {tmp_path / 'out' / 'report.html'}"
        assert lost.startswith(
            "valuelens: skipped as unusable: a weight file must be readable and whole; found "
        )
    assert (tmp_path / "out" / "report.html").exists()
    assert json.loads((tmp_path / "out" / "result.json").read_text())["skipped"][0]["input"].endswith("20")
