"""Runs: bit-for-bit resume from every checkpoint and after real kills, several seeds, and refusals."""

import json
import os
import shutil
import signal
import subprocess
import sys
from itertools import pairwise

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from valuelens.models import InputError
from valuelens.models.icrl import (
    ModelConfig,
    RunConfig,
    TaskConfig,
    TrainConfig,
    checkpoint_folder,
    checkpoint_paths,
    checkpoint_steps,
    load,
    pretrain,
)

STEPS = checkpoint_steps(200, 8)
TASK = TaskConfig(num_states=4, feature_dim=2, context_length=6, gamma=0.6)
MODELS = {
    "tsm": ModelConfig(num_layers=2),
    "transformer": ModelConfig(arch="transformer", num_layers=1, num_heads=2, d_model=8),
}
SHORT = TrainConfig(steps=20, batch_size=4, num_checkpoints=3)
both_models = pytest.mark.parametrize("model", MODELS)


def config(model="tsm", **train):
    return RunConfig(
        task=TASK,
        model=MODELS[model],
        train=TrainConfig(steps=200, batch_size=8, num_checkpoints=8).model_copy(update=train),
    )


def short(**train):
    return RunConfig(task=TASK, model=MODELS["tsm"], train=SHORT.model_copy(update=train))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Runs of 200 steps that nobody disturbed, by model."""
    runs = {}
    for model in MODELS:
        runs[model] = tmp_path_factory.mktemp(model) / "run"
        pretrain(config(model), runs[model])
    return runs


def contents(run):
    """The bytes of every file of a run but metrics.parquet, whose bytes are its writer's business."""
    files = [path for path in run.rglob("*") if path.is_file() and path.name != "metrics.parquet"]
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def assert_same_run(run, expected):
    assert contents(run).keys() == contents(expected).keys()
    differing = [name for name, content in contents(expected).items() if contents(run)[name] != content]
    assert differing == []
    metrics = [pd.read_parquet(each / "metrics.parquet") for each in (run, expected)]
    assert_frame_equal(*metrics, check_exact=True)
    assert sorted(path.name for path in run.iterdir()) == sorted(path.name for path in expected.iterdir())


def killed_copy(source, target, step):
    """A run as a kill in the middle of the write behind the checkpoint of `step` leaves it."""
    (target / "checkpoints").mkdir(parents=True)
    shutil.copy(source / "config.json", target)
    for each in checkpoint_paths(source):
        if each.step <= step:
            shutil.copytree(each.path, target / "checkpoints" / each.name)
    half = target / "checkpoints" / ".valuelens-tmp-1-new-step-00000999"
    half.mkdir()
    weights = checkpoint_folder(source, step) / "model.safetensors"
    (half / "model.safetensors").write_bytes(weights.read_bytes()[:40])
    (target / ".valuelens-tmp-1-new-metrics.parquet").write_bytes(b"PAR1")


@both_models
@pytest.mark.parametrize("step", STEPS)
def test_resume_from_every_checkpoint_is_the_uninterrupted_run(uninterrupted, tmp_path, model, step):
    killed_copy(uninterrupted[model], tmp_path / "run", step)
    last = pretrain(config(model), tmp_path / "run")
    assert [each.step for each in last] == [200]
    assert_same_run(tmp_path / "run", uninterrupted[model])


def test_resume_at_the_edge_of_a_block_of_tasks(tmp_path):
    edge = config(steps=64, num_checkpoints=5)
    pretrain(edge, tmp_path / "whole")
    killed_copy(tmp_path / "whole", tmp_path / "run", 16)
    pretrain(edge, tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


KILLER = """
import os, signal, sys
from pathlib import Path

import pyarrow.parquet, torch._dynamo  # once, before the forks
from valuelens.models.icrl import load_config, pretrain

def run_and_die(folder, fatal):
    config, count = load_config(folder / "config.json"), 0
    replace, writers = os.replace, {"write_bytes": Path.write_bytes, "write_text": Path.write_text}

    def last_event():
        nonlocal count
        count += 1
        return count == fatal

    def dying(write):
        def written(path, data, *args, **options):
            last = last_event()
            write(path, data[: len(data) // 2] if last else data, *args, **options)
            if last:
                os.kill(os.getpid(), signal.SIGKILL)
        return written

    def replaced(*paths):
        if last_event():
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*paths)

    os.replace = replaced
    for name, write in writers.items():
        setattr(Path, name, dying(write))
    pretrain(config, folder / str(fatal))

for argument in sys.argv[1:]:
    folder, event = argument.rsplit("/", 1)
    child = os.fork()
    if child == 0:
        run_and_die(Path(folder), int(event))
        os._exit(0)
    print(os.waitpid(child, 0)[1])
"""

# What a run of 8 checkpoints does to the disk, in order: config.json is written and renamed (1, 2); of each
# checkpoint config, weights and state are written, then the folder is renamed (3 to 6, ..., 31 to 34); then
# metrics.parquet is renamed (35). A kill comes half-way through a write, or before a rename.
FATAL = {"tsm": (1, 2, 4, 6, 25, 33, 35), "transformer": (5, 24, 34)}


@pytest.fixture(scope="module")
def killed(uninterrupted, tmp_path_factory):
    """Folders of runs that died of SIGKILL in their n-th event, named n, by model."""
    folders = {model: tmp_path_factory.mktemp(f"killed-{model}") for model in MODELS}
    for model, folder in folders.items():
        shutil.copy(uninterrupted[model] / "config.json", folder)
    runs = [str(folders[model] / str(event)) for model, events in FATAL.items() for event in events]
    done = subprocess.run(
        [sys.executable, "-c", KILLER, *runs],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert list(map(int, done.stdout.split())) == [signal.SIGKILL] * len(runs)
    return folders


@pytest.mark.slow
@pytest.mark.parametrize(("model", "event"), [(model, event) for model in FATAL for event in FATAL[model]])
def test_resume_after_a_kill_in_the_middle_of_a_write_is_the_uninterrupted_run(
    uninterrupted, killed, model, event
):
    run = killed[model] / str(event)
    leftovers = [path for path in run.rglob("*") if path.name.startswith(".valuelens-tmp-")]
    assert len(leftovers) == 1
    assert len(checkpoint_paths(run)) == max(event - 3, 0) // 4
    pretrain(config(model), run)
    assert_same_run(run, uninterrupted[model])


@both_models
def test_a_finished_run_is_left_as_it_is(uninterrupted, tmp_path, model):
    shutil.copytree(uninterrupted[model], tmp_path / "run")
    pretrain(config(model), tmp_path / "run")
    assert_same_run(tmp_path / "run", uninterrupted[model])


@both_models
def test_a_run_holds_what_the_contract_says(uninterrupted, model):
    run = uninterrupted[model]
    assert sorted(path.name for path in run.iterdir()) == ["checkpoints", "config.json", "metrics.parquet"]
    assert [each.step for each in checkpoint_paths(run)] == STEPS
    for each in checkpoint_paths(run):
        files = sorted(path.name for path in each.path.iterdir())
        assert files == ["config.json", "model.safetensors", "state.safetensors"]
        described = json.loads((each.path / "config.json").read_text())
        assert described == {"step": each.step, **config(model).model_dump()}
    metrics = pd.read_parquet(run / "metrics.parquet")
    columns = ["step", "loss", "gradient_norm", "msve", "msve_constant", "mean_square_value", "seed"]
    assert list(metrics.columns) == columns
    assert metrics.step.tolist() == list(range(1, 201))
    assert set(metrics.seed) == {0}
    assert not metrics.isna().any().any()


@both_models
def test_no_task_comes_twice(uninterrupted, model):
    """The constant predictor's error depends on the tasks alone."""
    metrics = pd.read_parquet(uninterrupted[model] / "metrics.parquet")
    assert metrics.msve_constant.is_unique


@both_models
def test_training_learns(uninterrupted, model):
    metrics = pd.read_parquet(uninterrupted[model] / "metrics.parquet")
    assert metrics.msve[-50:].mean() < 0.8 * metrics.msve[:20].mean()


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        pretrain(short(seed=seed), tmp_path / name)
    assert_same_run(tmp_path / "a", tmp_path / "b")
    weights = [load(checkpoint_folder(tmp_path / name, 20)).w for name in ("a", "c")]
    assert not torch.equal(*weights)


def assert_seeds_are_single_runs(tmp_path, jobs):
    last = pretrain(short(seed=3), tmp_path / "many", num_seeds=2, jobs=jobs)
    assert [(each.seed, each.step) for each in last] == [(3, 20), (4, 20)]
    folders = sorted(path.name for path in (tmp_path / "many").iterdir())
    assert folders == ["config.json", "metrics.parquet", "seed-3", "seed-4"]
    frames = []
    for seed in (3, 4):
        pretrain(short(seed=seed), tmp_path / str(seed))
        single, one = contents(tmp_path / str(seed)), contents(tmp_path / "many" / f"seed-{seed}")
        del single["config.json"]
        assert one == single
        frames.append(pd.read_parquet(tmp_path / str(seed) / "metrics.parquet"))
    metrics = pd.read_parquet(tmp_path / "many" / "metrics.parquet")
    assert_frame_equal(metrics, pd.concat(frames, ignore_index=True), check_exact=True)


def test_several_seeds_are_single_runs_bit_for_bit(tmp_path):
    assert_seeds_are_single_runs(tmp_path, jobs=1)


@pytest.mark.slow
def test_several_processes_change_nothing(tmp_path):
    assert_seeds_are_single_runs(tmp_path, jobs=2)
    with pytest.raises(InputError, match=r"training must stay finite; found .+; option --learning-rate"):
        pretrain(short(learning_rate=1e30), tmp_path / "diverging", num_seeds=2, jobs=2)


def test_several_seeds_resume(tmp_path):
    pretrain(short(), tmp_path / "run", num_seeds=2)
    shutil.copytree(tmp_path / "run", tmp_path / "killed")
    shutil.rmtree(checkpoint_folder(tmp_path / "killed" / "seed-0", 20))
    shutil.rmtree(tmp_path / "killed" / "seed-1")
    pretrain(short(), tmp_path / "killed", num_seeds=2)
    assert_same_run(tmp_path / "killed", tmp_path / "run")


def test_progress_counts_every_step_of_every_seed_once(tmp_path):
    done = {0: 0, 1: 0}

    def progress(steps, seed):
        done[seed] += steps

    pretrain(short(), tmp_path / "run", num_seeds=2, progress=progress)
    assert done == {0: 20, 1: 20}
    shutil.rmtree(checkpoint_folder(tmp_path / "run" / "seed-1", 20))
    pretrain(short(), tmp_path / "run", num_seeds=2, progress=progress)
    assert done == {0: 40, 1: 40}


def test_it_runs_on_one_thread_and_leaves_global_state_as_it_was(tmp_path):
    before, during = torch.random.get_rng_state(), set()
    torch.set_num_threads(2)
    try:
        pretrain(short(), tmp_path / "run", progress=lambda *_: during.add(torch.get_num_threads()))
        assert (during, torch.get_num_threads()) == ({1}, 2)
    finally:
        torch.set_num_threads(1)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_double_precision_on_request(tmp_path):
    (last,) = pretrain(short(dtype="float64"), tmp_path / "run")
    assert load(last.path).w.dtype == torch.float64


@given(st.integers(1, 5000), st.integers(2, 40))
def test_checkpoint_steps_run_from_0_to_the_last(steps, num_checkpoints):
    found = checkpoint_steps(steps, num_checkpoints)
    assert (found[0], found[-1]) == (0, steps)
    assert found == sorted(set(found))
    assert len(found) <= num_checkpoints
    ratios = [b / a for a, b in pairwise(found) if a > 100]
    assert not ratios or max(ratios) < 1.05 * min(ratios)


def refusal(run_config, out, **options):
    """The one line with which a run is refused; nothing that was there may change."""
    before = contents(out.parent)
    with pytest.raises(InputError) as caught:
        pretrain(run_config, out, **options)
    assert contents(out.parent) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = tmp_path_factory.mktemp("finished") / "run"
    pretrain(short(), run)
    return run


def changed(section, **values):
    parts = short().model_dump()
    return RunConfig.model_validate({**parts, section: {**parts[section], **values}})


OTHERS = {
    "gamma": (changed("task", gamma=0.9), "task.gamma must be 0.9; found 0.6;"),
    "layers": (changed("model", num_layers=3), "model.num_layers must be 3; found 2;"),
    "rate": (changed("train", learning_rate=0.5), "train.learning_rate must be 0.5; found 0.01;"),
    "first of two": (
        changed("model", tied=False).model_copy(update={"train": SHORT.model_copy(update={"steps": 30})}),
        "model.tied must be False; found True;",
    ),
}


@pytest.mark.parametrize(("other", "message"), OTHERS.values(), ids=OTHERS)
def test_another_configuration_is_refused_by_its_first_key(finished, other, message):
    told = refusal(other, finished)
    where = f"{finished / 'config.json'} (--overwrite starts afresh)"
    assert told == f"results of the same configuration are continued: {message} {where}"


def test_another_number_of_seeds_is_refused(finished):
    assert "num_seeds must be 2; found 1;" in refusal(short(), finished, num_seeds=2)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    expected = "the output must be a new folder or a run; found other files; "
    assert refusal(short(), tmp_path / "out") == f"{expected}{tmp_path / 'out'} (name another folder)"
    (tmp_path / "file").write_text("mine")
    assert refusal(short(), tmp_path / "file").startswith(expected)


@pytest.mark.parametrize("content", ["", "[1]", '{"task": '])
def test_a_broken_config_is_refused(tmp_path, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "config.json").write_text(content)
    assert refusal(short(), tmp_path / "out").startswith("config.json must ")


def test_a_place_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    told = refusal(short(), tmp_path / "file" / "run")
    assert told.startswith("the output must be writable; found ")
    assert told.endswith(f"; {tmp_path / 'file' / 'run' / 'config.json'}")


@pytest.mark.parametrize("steps", [2, 20, 3000])
def test_a_diverging_run_stops_and_every_checkpoint_of_it_loads(tmp_path, steps):
    """With 3,000 steps only every fifteenth is logged, and checkpoints lie between."""
    with pytest.raises(InputError) as caught:
        pretrain(short(learning_rate=1e30, steps=steps, num_checkpoints=20), tmp_path / "run")
    told = str(caught.value)
    assert told.startswith("training must stay finite; found ")
    assert told.endswith("; option --learning-rate")
    assert "\n" not in told
    paths = checkpoint_paths(tmp_path / "run")
    assert paths[0].step == 0
    for each in paths:
        load(each.path)
