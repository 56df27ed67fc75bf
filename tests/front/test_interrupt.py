"""Ctrl-C: one line that says what is kept, and the command that goes on."""

import gc
import multiprocessing
import shlex
import signal
import sys
import threading
import time

import pytest
from joblib import Parallel, delayed

import valuelens as vl
from valuelens import _doctor, _interrupt, _main, _verbs
from valuelens._interrupt import Interrupted, answers, checkpoints, command, interruptible, nothing, parts
from valuelens.models import deaf


def made(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("") if path.suffix else path.mkdir()
    return folder


def told(monkeypatch, arguments, kept, why="nothing is kept yet", *, cleared=False):
    monkeypatch.setattr(sys, "argv", ["valuelens", *arguments])
    with pytest.raises(Interrupted) as stop, interruptible(kept, why) as keeper:  # noqa: PT012
        keeper.cleared = cleared
        raise KeyboardInterrupt
    return str(stop.value)


def test_what_is_kept_and_the_same_command(monkeypatch, tmp_path):
    run = made(tmp_path / "my run", "checkpoints/step-00000001", "checkpoints/step-00001000", "config.json")
    line = told(monkeypatch, ["pretrain", "--out", str(run)], lambda: checkpoints(run))
    kept, again = line.split("; to go on: ")
    assert kept == f"interrupted; 2 checkpoints up to step 1,000 are kept in {run}"
    assert shlex.split(again) == ["valuelens", "pretrain", "--out", str(run)]


def test_where_nothing_is_kept_it_says_so(monkeypatch, tmp_path):
    line = told(monkeypatch, ["costates", "m"], nothing, "nothing is kept: costates are taken in one go")
    assert line == (
        "interrupted; nothing is kept: costates are taken in one go; to start again: valuelens costates m"
    )
    assert checkpoints(tmp_path) == answers(tmp_path) == answers(None) == parts(tmp_path / "no") == ""


def test_overwrite_is_left_out_once_it_is_done_and_kept_before(monkeypatch, tmp_path):
    out = made(tmp_path, "cache/one.json", "cache/two.json", "cache/.valuelens-tmp-1.json")
    asked = ["analyze", "run", "--overwrite", "--out", str(out)]
    line = told(monkeypatch, asked, lambda: answers(out), cleared=True)
    assert (
        line == f"interrupted; 2 answers are kept in {out}/cache; to go on: valuelens analyze run --out {out}"
    )
    line = told(monkeypatch, asked, lambda: answers(out))
    assert line == (
        f"interrupted; nothing is kept yet; to start again: valuelens analyze run --overwrite --out {out}"
    )


def test_a_result_whose_page_is_missing_and_the_parts_of_a_demo(tmp_path):
    demo = made(
        tmp_path, "tied/checkpoints/step-00000016", "tied-results/result.json", "other-results/cache/a.json"
    )
    assert parts(demo) == (
        f"1 answer is kept in {demo}/other-results/cache, 1 checkpoint up to step 16 is kept in {demo}/tied, "
        f"the result is kept in {demo}/tied-results, its figures and its report are not all written"
    )


def test_the_program_is_named_as_it_was_called(tmp_path):
    assert command(["valuelens", "demo", "--out", "a b"]) == "valuelens demo --out 'a b'"
    assert command(["/elsewhere/valuelens", "demo"]) == "/elsewhere/valuelens demo"


def test_a_signal_is_heard_and_the_handler_is_put_back():
    before, hook = signal.getsignal(signal.SIGINT), threading.excepthook
    with pytest.raises(Interrupted), interruptible(nothing):
        signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), threading.excepthook) == (before, hook)


def test_what_a_process_had_half_written_is_removed_and_nothing_of_others(tmp_path):
    """It is killed in the midst of a checkpoint: it does not hear Ctrl-C, and cannot clear up itself."""
    there, gone = tmp_path / "run" / ".valuelens-tmp-1-00-new-config.json", []
    with pytest.raises(Interrupted), interruptible(nothing, out=tmp_path):  # noqa: PT012
        worker = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
        worker.start()
        gone = [
            tmp_path / "run" / f".valuelens-tmp-{worker.pid}-00-new-{name}" for name in ("step", "a.json")
        ]
        made(gone[0], "model.safetensors")
        made(tmp_path / "run", there.name, gone[1].name)
        signal.raise_signal(signal.SIGINT)
    assert worker.exitcode == -signal.SIGKILL
    assert list((tmp_path / "run").iterdir()) == [there]


@pytest.mark.slow
def test_the_next_call_finds_processes_that_are_alive():
    """In a notebook it may come at once."""
    calls = [delayed(abs)(-1)] * 2
    assert Parallel(n_jobs=2)(calls) == [1, 1]
    with pytest.raises(Interrupted), interruptible(nothing):
        signal.raise_signal(signal.SIGINT)
    assert Parallel(n_jobs=2)(calls) == [1, 1]


def test_work_that_is_thrown_away_is_not_bemoaned():
    """As it is when Ctrl-C came while the processes started, and nobody has asked for an outcome yet."""
    with pytest.raises(Interrupted), interruptible(nothing), deaf():  # noqa: PT012
        outcomes = Parallel(n_jobs=2, backend="threading", return_as="generator")(
            [delayed(time.sleep)(0.1)] * 2
        )
        signal.raise_signal(signal.SIGINT)
    outcomes.close()
    gc.collect()


def test_other_errors_pass():
    with pytest.raises(ValueError, match="other"), interruptible(nothing):
        raise ValueError("other")
    assert not issubclass(Interrupted, KeyboardInterrupt)  # typer would take it
    assert _interrupt.nothing() == ""


@pytest.mark.parametrize("verb", ["demo", "doctor"])
def test_ctrl_c_in_a_call_from_python_is_pythons_own(monkeypatch, tmp_path, verb):
    """Whoever calls catches it as such; the command line would be told how to go on."""

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_verbs, "_demo_results", stopped)
    monkeypatch.setattr(_doctor.machine, "LOOKS", {"threads": stopped})
    with pytest.raises(KeyboardInterrupt) as stop:
        getattr(vl, verb)(*([tmp_path] if verb == "demo" else []))
    assert type(stop.value) is KeyboardInterrupt


def test_ctrl_c_while_the_command_line_is_imported_is_one_line(capsys, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "valuelens.cli")
    monkeypatch.setattr("builtins.__import__", stopped)
    with pytest.raises(SystemExit) as stop:
        _main.main()
    monkeypatch.undo()
    assert stop.value.code == 130
    assert capsys.readouterr() == ("", "valuelens: interrupted; nothing was begun\n")


def test_the_command_is_the_command_line(monkeypatch):
    monkeypatch.setattr("valuelens.cli.main", lambda: sys.exit(7))
    with pytest.raises(SystemExit) as stop:
        _main.main()
    assert stop.value.code == 7
