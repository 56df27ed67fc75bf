"""What every verb promises: one line for a mistake, nothing but the answer in --json, quiet when asked, and Ctrl-C."""

import json
import os
import re
import shlex
import signal
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from valuelens import _doctor, _impact_verbs, _lm_verbs, _verbs, cli
from valuelens._clearing import refuse_foreign
from valuelens.analyses import Result
from valuelens.models.icrl import RunConfig, pretrain, run_config
from valuelens.models.lm import lm_run_config, pretrain_lm

FEW = ("--num-prompts", "2", "--num-generations", "8")
SMALL = ("--num-layers", "2", "--steps", "20", "--batch-size", "8", "--num-checkpoints", "3")
SMALL_LM = shlex.split("--num-layers 1 --d-model 8 --steps 24 --batch-size 4 --num-checkpoints 3")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A run, a series of label copying, and rollouts, all small; made once."""
    folder = tmp_path_factory.mktemp("home")
    train = {"steps": 20, "batch_size": 8, "num_checkpoints": 3}
    pretrain(
        run_config({"task": {}, "model": {"num_layers": 2}, "train": train}, where="test"), folder / "run"
    )
    sizes = {"num_items": 2, "num_labels": 2, "num_pairs": 2}
    parts = {
        "corpus": {"sizes": sizes},
        "model": {"num_layers": 2, "d_model": 16},
        "train": {"steps": 40, "num_checkpoints": 2},
    }
    pretrain_lm(lm_run_config(parts, where="test"), folder / "series")
    rows = {"prompt_ids": [[2, 4, 6]] * 2, "completion_ids": [[4, 5], [5, 4]], "reward": [0.0, 1.0]}
    pd.DataFrame({**rows, "gold": [[4, 4]] * 2}).to_parquet(folder / "rollouts.parquet")
    return folder


@pytest.fixture
def valuelens(capfd, monkeypatch, home):
    """Exit code, stdout and stderr of `valuelens ARGUMENTS` in the folder of the fixtures, in this process."""
    monkeypatch.chdir(home)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["valuelens", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capfd.readouterr()
        return int(stop.value.code or 0), printed.out, printed.err

    return run


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ("pretrian", "pretrain"),
        ("impcat series", "impact"),
        ("pretrain --out x --stepz 3", "--steps"),
        ("costates series/step-00000040 --max-hop 3", "--max-hops"),
        ("pretrain --out x --arch transfomer", "transformer"),
        ("pretrain --out x --loss montecarlo", "monte-carlo"),
        ("pretrain --out x --features spher", "sphere"),
        ("pretrain --out x --weights factord", "factored"),
        ("pretrain --out x --env bojan", "boyan"),
        ("pretrain --out x --env rollouts.safetensors", None),
        ("pretrain --out x --dtype float46", "float64"),
        ("pretrain-lm --out x --task labl-copy", "label-copy"),
        ("analyze run --only slot", "slots"),
        ("analyze rnu", "run"),
        ("analyze run/checkpoints/stpe-00000020", "run/checkpoints/step-00000020"),
        ("costates series/stpe-00000040", "series/step-00000040"),
        ("costates series@stpe-00000040", "series/step-00000040"),
        ("costates series@step-00000040", "series/step-00000040"),
        ("costates series/step-00000040 --task label-cpoy", "label-copy"),
        ("costates series/step-00000040 --rollouts rolouts.parquet", "rollouts.parquet"),
        ("costates series/step-00000040 --rollouts rollouts.parquet --reward-targets glod", "gold"),
        ("costates series/step-00000040 --objective surogate", "surrogate"),
        ("costates series/step-00000040 --baseline groupmean", "group-mean"),
        ("costates series/step-00000040 --loss-type drgrpo", "dr_grpo"),
        ("costates series/step-00000040 --dtype bflaot16", "bfloat16"),
        ("impact sereis", "series"),
        ("impact series --signal usabel", "usable"),
        ("impact series --headroom best-of-n", "best-of-k"),
        ("impact series --recipe fsat", "fast"),
        ("impact series --engine daks", "dask"),
        ("impact series --gains rollout.parquet", "rollouts.parquet"),
        ("report rnu", "run"),
        ("report run", None),
        ("doctor rnu", None),
    ],
)
def test_what_is_mistyped_is_told_in_one_line_with_what_was_meant(valuelens, monkeypatch, arguments, meant):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(_doctor.machine, "LOOKS", {})
    code, out, err = valuelens(*shlex.split(arguments), *(("--json",) if arguments == "doctor rnu" else ()))
    assert code == 2
    if arguments.startswith("doctor"):
        assert "did you mean run?" in json.loads(out)["checks"][-1]["found"]
        return
    assert out == ""
    assert err.startswith("valuelens: error: ")
    assert err.count("\n") == 1
    if meant:
        assert "id you mean" in err
        assert meant in err.split("id you mean")[1]
    assert not Path("x").exists()


def everywhere(monkeypatch, bar):
    """Another bar for every verb."""
    for module in (_verbs, _lm_verbs, _impact_verbs, _doctor):
        monkeypatch.setattr(module, "bar", bar)


@pytest.mark.parametrize(
    "arguments",
    [
        ("pretrain", "--out", "{new}", *SMALL),
        ("analyze", "run/checkpoints/step-00000020", "--num-tasks", "4", "--only", "slots"),
        ("pretrain-lm", "--out", "{new}", *SMALL_LM),
        ("costates", "series/step-00000040", *FEW),
        (
            "impact",
            "series",
            "--num-prompts",
            "2",
            "--num-generations",
            "4",
            "--jobs",
            "1",
            "--rl-seeds",
            "0",
        ),
        ("report", "{result}", "--out", "{new}.html"),
        ("demo", "--out", "{new}"),
        ("doctor",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_json_is_alone_and_quiet_is_silent_though_libraries_speak(
    undrawn, valuelens, monkeypatch, tmp_path, arguments
):
    if "{result}" in arguments:
        asked = ("analyze", "run/checkpoints/step-00000020", "--num-tasks", "4", "--only", "slots")
        assert valuelens(*asked, "--out", tmp_path / "result", "--quiet")[0] == 0
    everywhere(monkeypatch, _speaking)
    monkeypatch.setattr(_verbs, "_demo_results", _one_result)
    monkeypatch.setattr(_doctor.machine, "LOOKS", {"one": lambda: "well"})
    told = [each.format(new=tmp_path / "new", result=tmp_path / "result") for each in arguments]
    code, out, err = valuelens(*told, "--json")
    assert code == 0, err
    assert isinstance(json.loads(out), dict)
    assert "a library speaks" in err
    assert "and prints" in err
    assert "\x1b" not in err + out
    code, out, err = valuelens(*told, "--quiet")
    assert code == 0
    assert "a library speaks" not in err + out
    assert "Traceback" not in err
    assert [line for line in err.splitlines() if line != "and prints"] == []


@contextmanager
def _speaking(what, *, show):
    """In the place of a bar: a library that warns, as it would outside these tests, and one that prints."""
    if warnings.filters[0][0] != "ignore":
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("a library speaks", UserWarning, stacklevel=1)
    print("and prints")
    yield lambda *_: None


def _one_result(out, seed, workers, told):
    result = Result(kind="in-context-rl", verdict="V.")
    return {name: (name, result, []) for name in ("tied", "untied-full", "label-copy")}


def _stopping(after: str, times: int = 1):
    """In the place of a bar: a real Ctrl-C once something has been told so many times."""
    seen = 0

    @contextmanager
    def bar(what, *, show):
        def told(doing, done, total):
            nonlocal seen
            seen += doing.startswith(after)
            if seen == times:
                seen += 1
                signal.raise_signal(signal.SIGINT)

        yield told

    return bar


def _contents(folder: Path) -> dict[str, object]:
    """Every file that is the same whenever and however often it was made; safetensors does not sort its metadata."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        data = path.read_bytes() if path.suffix in (".safetensors", ".parquet") else b""
        if path.suffix == ".safetensors":
            start = 8 + int.from_bytes(data[:8], "little")
            found[str(path.relative_to(folder))] = (json.loads(data[8:start]), data[start:])
        elif data:
            found[str(path.relative_to(folder))] = data
    return found


@pytest.fixture
def undrawn(monkeypatch):
    """Figures and reports take seconds, and others test them."""
    for module in (_verbs, _lm_verbs, _impact_verbs):
        monkeypatch.setattr(module, "drawn", lambda results, out, told: told("drawing figures", 1, 1))
    monkeypatch.setattr(_verbs, "write_report", lambda results, out, **_: out)


@pytest.mark.parametrize(
    ("arguments", "after", "times", "kept"),
    [
        (("pretrain", *SMALL), "seed", 12, r"2 checkpoints up to step 1 are kept in \S+"),
        (("pretrain", *SMALL, "--overwrite"), "seed", 12, r"2 checkpoints up to step 1 are kept in \S+"),
        (("pretrain-lm", *SMALL_LM), "seed", 22, r"1 checkpoint up to step 20 is kept in \S+"),
        (
            ("analyze", "run/checkpoints/step-00000020", "--num-tasks", "4", "--only", "slots,distance"),
            *("slots", 1, r"1 answer is kept in \S+/cache"),
        ),
        (
            (
                "impact",
                "series",
                "--num-prompts",
                "2",
                "--num-generations",
                "4",
                "--jobs",
                "1",
                "--rl-seeds",
                "0",
            ),
            *("score", 1, r"1 answer is kept in \S+/cache"),
        ),
        (("costates", "series/step-00000040", *FEW), "drawing", 1, r"the result is kept in \S+"),
    ],
)
def test_what_ctrl_c_leaves_goes_on_to_the_same_bits(
    undrawn, valuelens, monkeypatch, tmp_path, arguments, after, times, kept
):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    everywhere(monkeypatch, _stopping(after, times))
    code, out, err = valuelens(*arguments, "--out", stopped)
    assert (code, out) == (130, "")
    line = err.splitlines()[-1]
    assert re.match(f"valuelens: interrupted; {kept}", line), err
    assert "Traceback" not in err
    assert not [path for path in stopped.rglob(".valuelens-tmp-*")]
    program, *again = shlex.split(line.split("; to go on: ")[1])
    assert program == "valuelens"
    assert again == [str(each) for each in (*arguments, "--out", stopped) if each != "--overwrite"]
    before = {path: path.stat().st_mtime_ns for path in stopped.rglob("*.safetensors") if path.name[0] == "m"}
    assert valuelens(*again)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before  # nothing is made twice
    assert valuelens(*arguments, "--out", whole)[0] == 0
    assert _contents(stopped) == _contents(whole)


@pytest.mark.parametrize(
    ("arguments", "after", "why"),
    [
        (
            ("costates", "series/step-00000040", *FEW),
            "costates",
            "nothing is kept: costates are taken in one go",
        ),
        (
            ("analyze", "run/checkpoints/step-00000020", "--num-tasks", "4", "--only", "slots"),
            *("slots", "nothing is kept without --out"),
        ),
        (
            (
                "impact",
                "series",
                "--num-prompts",
                "2",
                "--num-generations",
                "4",
                "--jobs",
                "1",
                "--rl-seeds",
                "0",
            ),
            *("score", "nothing is kept without --out"),
        ),
        (("report", "nowhere"), "reading", "an older report is kept as it was, if there is one"),
        (("doctor",), "threads", "a look at the machine keeps nothing"),
    ],
)
def test_where_nothing_is_kept_ctrl_c_says_so(valuelens, monkeypatch, arguments, after, why):
    everywhere(monkeypatch, _stopping(after))
    code, out, err = valuelens(*arguments)
    assert (code, out) == (130, "")
    again = shlex.join(["valuelens", *arguments])
    expected = f"interrupted; {why}; to start again: {again}"
    assert err.splitlines()[-1] == f"valuelens: {expected}"


@pytest.mark.parametrize(
    "arguments",
    [
        ("pretrain", "--env", "nowhere.safetensors"),
        ("pretrain", "--jobs", "0"),
        ("pretrain-lm", "--jobs", "0"),
        ("analyze", "nowhere"),
        ("analyze", "run", "--only", "slot"),
        ("analyze", "run", "--adapter", "nowhere:it"),
        ("impact", "series", "--gains", "nowhere.csv"),
        ("impact", "series", "--task", "nonsense"),
        ("impact", "series", "--rollouts", "nowhere.parquet"),
        ("demo", "--jobs", "0"),
        ("demo", "--seed", "-5"),
    ],
)
def test_overwrite_removes_nothing_for_a_request_that_cannot_be_met(valuelens, tmp_path, arguments):
    run, result = RunConfig().model_dump_json(), '{"schema": {"name": "valuelens.result"}}'
    kept = {tmp_path / "out" / "result.json": result, tmp_path / "out" / "figures": None}
    if arguments[0] == "demo":
        kept = {tmp_path / "out" / "tied" / "config.json": run}
    for path, text in kept.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text) if text else path.mkdir()
    refuse_foreign(next(iter(kept)).parent)  # it is ours: nothing but the request stands in the way
    code, out, err = valuelens(*arguments, "--out", tmp_path / "out", "--overwrite")
    assert (code, out) == (2, ""), err
    assert all(path.exists() for path in kept)


@pytest.mark.parametrize(
    "arguments",
    [
        ("pretrain", *SMALL),
        ("pretrain-lm", *SMALL_LM),
        ("analyze", "run", "--only", "slots"),
        ("costates", "series/step-00000040", *FEW),
        ("impact", "series", *FEW, "--rl-seeds", "0"),
        ("demo",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_overwrite_touches_no_folder_that_holds_other_things(valuelens, monkeypatch, tmp_path, arguments):
    monkeypatch.setattr(_verbs, "_demo_results", _one_result)
    mine = tmp_path / "out" / ("tied" if arguments[0] == "demo" else "")
    names = ["figures/thesis.svg", "tables/t.csv", "cache/x", "config.json", "thesis.tex"]
    for name in names:
        (mine / name).parent.mkdir(parents=True, exist_ok=True)
        (mine / name).write_text("{}")
    code, out, err = valuelens(*arguments, "--out", tmp_path / "out", "--overwrite")
    assert (code, out) == (2, ""), err
    assert f"and nothing else; found other files: cache, config.json, figures; {mine}" in err
    assert all((mine / name).exists() for name in names)


@pytest.mark.parametrize(
    "arguments",
    [
        ("pretrain", *SMALL),
        ("pretrain-lm", *SMALL_LM),
        ("analyze", "run"),
        ("costates", "series/step-00000040"),
        ("impact", "series"),
        ("demo",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_folder_that_cannot_be_written_is_named_as_it_was_typed(valuelens, tmp_path, arguments):
    (tmp_path / "file").write_text("mine")
    code, out, err = valuelens(*arguments, "--out", tmp_path / "file" / "x")
    assert (code, out) == (2, "")
    must = "valuelens: error: the output must be writable"
    assert err == f"{must}; found the file {tmp_path / 'file'}; option --out {tmp_path / 'file' / 'x'}\n"


def test_a_folder_without_permission_is_named_too(valuelens, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    code, _, err = valuelens("pretrain", "--out", tmp_path / "x")
    assert (code, err.split("; ")[1]) == (2, f"found that {tmp_path} is not")
