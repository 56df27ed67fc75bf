"""Series: bit-for-bit resume, plain transformers, the loss against a loop, several seeds, and refusals."""

import os
import shutil
import signal
import subprocess
import sys

import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from valuelens.models import InputError
from valuelens.models.lm import (
    Addition,
    LMCorpusConfig,
    LMModelConfig,
    LMRunConfig,
    LMTrainConfig,
    load_lm_config,
    pretrain_lm,
    series_steps,
    task_named,
)

SMALL = LMModelConfig(num_layers=1, d_model=8, num_heads=2)
SHORT = LMTrainConfig(steps=36, batch_size=4, num_checkpoints=4)
STEPS = series_steps(36, 4)
FILES = {
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "state.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}


def config(task="addition", sizes=None, model=SMALL, **train):
    return LMRunConfig(
        corpus=LMCorpusConfig(task=task, sizes=sizes or {}), model=model, train=SHORT.model_copy(update=train)
    )


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """A series that nobody disturbed, on texts of different lengths."""
    series = tmp_path_factory.mktemp("series") / "run"
    pretrain_lm(config(), series)
    return series


def contents(run):
    """The bytes of every file of a series but metrics.parquet, whose bytes are its writer's business."""
    files = [path for path in run.rglob("*") if path.is_file() and path.name != "metrics.parquet"]
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def assert_same_series(run, expected):
    assert contents(run).keys() == contents(expected).keys()
    assert [name for name, content in contents(expected).items() if contents(run)[name] != content] == []
    assert_frame_equal(
        *(pd.read_parquet(each / "metrics.parquet") for each in (run, expected)), check_exact=True
    )
    assert sorted(path.name for path in run.iterdir()) == sorted(path.name for path in expected.iterdir())


def test_a_series_holds_what_the_contract_says(uninterrupted):
    folders = [f"step-{step:08d}" for step in STEPS]
    assert STEPS[0] == 20
    assert sorted(path.name for path in uninterrupted.iterdir()) == [
        "config.json",
        "metrics.parquet",
        *folders,
    ]
    for folder in folders:
        assert {path.name for path in (uninterrupted / folder).iterdir()} == FILES
    metrics = pd.read_parquet(uninterrupted / "metrics.parquet")
    assert list(metrics.columns) == ["step", "loss", "learning_rate", "seed"]
    assert metrics.step.tolist() == list(range(1, 37))
    assert (set(metrics.learning_rate), set(metrics.seed)) == ({0.001}, {0})
    assert not metrics.isna().any().any()
    resolved = LMCorpusConfig(task="addition", sizes={"num_digits": 2})
    assert load_lm_config(uninterrupted / "config.json").corpus == resolved


def test_plain_transformers_loads_every_checkpoint(uninterrupted):
    for step in STEPS:
        folder = uninterrupted / f"step-{step:08d}"
        model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
        assert isinstance(model, LlamaForCausalLM)
        assert model.config.vocab_size == len(tokenizer) == 2 + len(Addition().vocabulary)
        assert model.config.num_hidden_layers == 1
        assert (model.config.eos_token_id, model.config.pad_token_id) == (1, 0)
        batch = tokenizer(["1 2 + 3 4 =", "1 + 2 ="], padding=True, return_tensors="pt")
        found = model.generate(**batch, max_new_tokens=3, do_sample=False)
        assert found.shape[0] == 2
        for name, tensor in load_file(folder / "model.safetensors").items():
            assert torch.equal(tensor, model.state_dict()[name])


def test_the_loss_is_that_of_all_tokens_and_the_end_and_no_padding(tmp_path):
    """Text by text, without any padding; weights that a tiny rate leaves where they began."""
    (last,) = pretrain_lm(config(learning_rate=1e-30, dtype="float64"), tmp_path / "run")
    logged = pd.read_parquet(tmp_path / "run" / "metrics.parquet").loss[:3]
    model = AutoModelForCausalLM.from_pretrained(last, dtype=torch.float64)
    tokenizer, generator = AutoTokenizer.from_pretrained(last), torch.Generator().manual_seed(0)
    for loss in logged:
        texts = Addition().corpus(4, 0.2, generator)
        assert len({len(text) for text in texts}) > 1
        total, count = 0.0, 0
        for text in texts:
            ids = [*tokenizer(text).input_ids, tokenizer.eos_token_id]
            log_p = model(torch.tensor([ids[:-1]])).logits[0].detach().log_softmax(-1)
            total -= sum(float(log_p[k, token]) for k, token in enumerate(ids[1:]))
            count += len(ids) - 1
        assert loss == pytest.approx(total / count, abs=2e-6)


def test_a_text_that_ends_by_its_length_has_no_end(tmp_path):
    sizes = {"num_items": 3, "num_labels": 2, "num_pairs": 2}
    (last,) = pretrain_lm(config("label-copy", sizes, learning_rate=1e-30), tmp_path / "run")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(last), AutoTokenizer.from_pretrained(last)
    texts = task_named("label-copy", **sizes).corpus(4, 0.2, torch.Generator().manual_seed(0))
    ids = tokenizer(texts, return_tensors="pt").input_ids
    assert ids.shape == (4, 7)
    expected = model(ids, labels=ids).loss.item()
    assert pd.read_parquet(tmp_path / "run" / "metrics.parquet").loss[0] == pytest.approx(expected, abs=1e-5)


def killed_copy(source, target, step):
    """A series as a kill in the middle of the write behind the checkpoint of `step` leaves it."""
    target.mkdir()
    shutil.copy(source / "config.json", target)
    for each in STEPS:
        if each <= step:
            shutil.copytree(source / f"step-{each:08d}", target / f"step-{each:08d}")
    half = target / ".valuelens-tmp-1-new-step-00000999"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    (target / ".valuelens-tmp-1-new-metrics.parquet").write_bytes(b"PAR1")


@pytest.mark.parametrize("step", [0, *STEPS])
def test_resume_from_every_checkpoint_is_the_uninterrupted_series(uninterrupted, tmp_path, step):
    killed_copy(uninterrupted, tmp_path / "run", step)
    last = pretrain_lm(config(), tmp_path / "run")
    assert last == [tmp_path / "run" / "step-00000036"]
    assert_same_series(tmp_path / "run", uninterrupted)


KILLER = """
import os, signal, sys
from pathlib import Path

import pyarrow.parquet, torch._dynamo  # once, before the forks
from valuelens.models.lm import load_lm_config, pretrain_lm

def run_and_die(folder, fatal):
    config, count = load_lm_config(folder / "config.json"), 0
    replace, write = os.replace, Path.write_bytes

    def last_event():
        nonlocal count
        count += 1
        return count == fatal

    def written(path, data):
        last = last_event()
        write(path, data[: len(data) // 2] if last else data)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)

    def replaced(*paths):
        if last_event():
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*paths)

    os.replace, Path.write_bytes = replaced, written
    pretrain_lm(config, folder / str(fatal))

for event in sys.argv[2:]:
    child = os.fork()
    if child == 0:
        run_and_die(Path(sys.argv[1]), int(event))
        os._exit(0)
    print(os.waitpid(child, 0)[1])
"""

# What a series of 4 checkpoints does to the disk, in order: config.json is renamed (1); of each checkpoint the state
# is written, then the folder is renamed (2 and 3, ..., 8 and 9); then metrics.parquet is renamed (10).
FATAL = {1: 0, 2: 0, 5: 1, 8: 3, 10: 4}


@pytest.mark.slow
def test_a_killed_series_leaves_whole_files_and_goes_on_bit_for_bit(uninterrupted, tmp_path):
    shutil.copy(uninterrupted / "config.json", tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", KILLER, str(tmp_path), *map(str, FATAL)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert list(map(int, done.stdout.split())) == [signal.SIGKILL] * len(FATAL)
    for event, saved in FATAL.items():
        run = tmp_path / str(event)
        assert len([path for path in run.iterdir() if path.name.startswith(".valuelens-tmp-")]) == 1
        whole = sorted(path.name for path in run.glob("step-*"))
        assert whole == [f"step-{step:08d}" for step in STEPS[:saved]]
        assert all({path.name for path in (run / name).iterdir()} == FILES for name in whole)
        pretrain_lm(config(), run)
        assert_same_series(run, uninterrupted)


def test_several_seeds_are_single_series(uninterrupted, tmp_path):
    last = pretrain_lm(config(), tmp_path / "many", num_seeds=2)
    assert [path.parent.name for path in last] == ["seed-0", "seed-1"]
    assert sorted(path.name for path in (tmp_path / "many").iterdir()) == [
        "config.json",
        "metrics.parquet",
        "seed-0",
        "seed-1",
    ]
    single = contents(uninterrupted)
    del single["config.json"]
    assert contents(tmp_path / "many" / "seed-0") == single
    assert contents(tmp_path / "many" / "seed-1") != single
    metrics = pd.read_parquet(tmp_path / "many" / "metrics.parquet")
    assert metrics.groupby("seed").size().to_dict() == {0: 36, 1: 36}
    shutil.copytree(tmp_path / "many", tmp_path / "killed")
    shutil.rmtree(tmp_path / "killed" / "seed-1" / "step-00000036")
    (tmp_path / "killed" / "seed-1" / ".valuelens-tmp-1-new-step-00000036").mkdir()
    pretrain_lm(config(), tmp_path / "killed", num_seeds=2)
    assert_same_series(tmp_path / "killed", tmp_path / "many")
    names = [
        sorted(path.name for path in (tmp_path / each / "seed-1").iterdir()) for each in ("killed", "many")
    ]
    assert names[0] == names[1]


def test_progress_counts_every_step_once_and_global_state_stays(tmp_path):
    before, done, during = torch.random.get_rng_state(), [], set()

    def progress(steps, seed):
        done.append(steps)
        during.add(torch.get_num_threads())

    torch.set_num_threads(2)
    try:
        pretrain_lm(config(), tmp_path / "run", progress=progress)
        assert (during, torch.get_num_threads()) == ({1}, 2)
    finally:
        torch.set_num_threads(1)
    assert sum(done) == 36
    assert torch.equal(torch.random.get_rng_state(), before)


def test_nothing_is_said_on_stdout_or_stderr(tmp_path, capfd):
    pretrain_lm(config(), tmp_path / "run")
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_labels_are_learnt(tmp_path):
    """From chance to copying; six pairs take some 200 steps."""
    sizes = {"num_items": 4, "num_labels": 8, "num_pairs": 3}
    asked = config("label-copy", sizes, LMModelConfig(), steps=160, batch_size=32, learning_rate=0.002)
    pretrain_lm(asked, tmp_path / "run")
    task = task_named("label-copy", **sizes)
    prompts = task.prompts(64, torch.Generator().manual_seed(99))
    rewards = []
    for step in (20, 160):
        folder = tmp_path / "run" / f"step-{step:08d}"
        model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
        ids = tokenizer([prompt.text for prompt in prompts], return_tensors="pt").input_ids
        found = model.generate(ids, max_new_tokens=3, min_new_tokens=3, do_sample=False)[:, ids.shape[1] :]
        pairs = zip(prompts, tokenizer.batch_decode(found), strict=True)
        rewards.append(sum(task.reward(*pair) for pair in pairs) / 64)
    assert rewards[0] < 0.4
    assert rewards[1] > 0.9


OTHERS = {
    "task": (config("label-copy"), "corpus.task must be 'label-copy'; found 'addition';"),
    "size": (config(sizes={"num_digits": 3}), "corpus.sizes.num_digits must be 3; found 2;"),
    "heads": (config(model=SMALL.model_copy(update={"num_heads": 1})), "model.num_heads must be 1; found 2;"),
    "rate": (config(learning_rate=0.5), "train.learning_rate must be 0.5; found 0.001;"),
    "seed": (config(seed=1), "train.seed must be 1; found 0;"),
}


@pytest.mark.parametrize(("other", "message"), OTHERS.values(), ids=OTHERS)
def test_another_configuration_is_refused_by_its_first_key(uninterrupted, other, message):
    before = contents(uninterrupted)
    with pytest.raises(InputError) as caught:
        pretrain_lm(other, uninterrupted)
    where = f"{uninterrupted / 'config.json'} (--overwrite starts afresh)"
    assert str(caught.value) == f"results of the same configuration are continued: {message} {where}"
    assert contents(uninterrupted) == before


def test_another_number_of_seeds_and_foreign_files_are_refused(uninterrupted, tmp_path):
    with pytest.raises(InputError, match="num_seeds must be 2; found 1;"):
        pretrain_lm(config(), uninterrupted, num_seeds=2)
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="the output must be a new folder or a run; found other files; "):
        pretrain_lm(config(), tmp_path)


@pytest.mark.parametrize("steps", [36, 4000])
def test_a_diverging_series_stops_and_what_is_saved_is_finite(tmp_path, steps):
    """With 4,000 steps only every twentieth is logged, and checkpoints lie between."""
    with pytest.raises(InputError) as caught:
        pretrain_lm(config(learning_rate=1e38, steps=steps), tmp_path / "run")
    assert str(caught.value).startswith("training must stay finite; found ")
    assert str(caught.value).endswith("; option --learning-rate")
    for path in (tmp_path / "run").glob("step-*"):
        assert all(bool(tensor.isfinite().all()) for tensor in load_file(path / "model.safetensors").values())
