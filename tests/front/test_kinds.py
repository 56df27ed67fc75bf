"""A path of the wrong kind: the first refusal holds a command line that takes it."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from valuelens import _doctor
from valuelens import _doctor_machine as machine
from valuelens._kinds import refuse_occupied, refuse_other
from valuelens.models import InputError
from valuelens.models.lm import LMRunConfig

MADE: dict[str, dict[str, object]] = {
    "run": {"model": {}, "task": {}, "train": {}, "num_seeds": 1},
    "run/checkpoints/step-00000000": {"model": {}, "task": {}, "train": {}, "step": 0},
    "run/checkpoints/step-00000020": {"model": {}, "task": {}, "train": {}, "step": 20},
    "series": {**LMRunConfig().model_dump(), "num_seeds": 1},
    "series/step-00000020": {"model_type": "llama"},
    "series/step-00000600": {"model_type": "llama"},
    "seeds": {**LMRunConfig().model_dump(), "num_seeds": 2},
    "seeds/seed-0/step-00000020": {"model_type": "llama"},
    "trainer": {"model_type": "gpt2"},
    "trainer/checkpoint-5": {"model_type": "gpt2"},
    "old/checkpoint-5": {"model_type": "gpt2"},
}
"""What a folder's `config.json` says; those of one checkpoint hold weights too."""

PATHS = {
    **{"run": "run", "checkpoint": "run/checkpoints/step-00000020", "checkpoints": "run/checkpoints"},
    **{"series": "series", "seeds": "seeds", "model": "series/step-00000600", "trainer": "trainer"},
    **{"old": "old", "result": "made/a", "result.json": "made/a/result.json", "page": "made/a/report.html"},
    **{"demo": ".", "results": "made", "empty": "empty", "notes": "notes", "missing": "nowhere"},
}

MEANT = {
    "analyze": {
        **{"checkpoints": "analyze run", "series": "impact series", "seeds": "impact seeds"},
        **{"model": "costates series/step-00000600", "trainer": "impact trainer --task addition"},
        **{"old": "impact old --task addition", "demo": "analyze run"},
    },
    "costates": {
        **{"run": "analyze run", "checkpoint": "analyze run/checkpoints/step-00000020"},
        **{"checkpoints": "analyze run", "series": "costates series/step-00000600"},
        **{"seeds": "costates seeds/seed-0/step-00000020"},
        **{"old": "costates old/checkpoint-5 --task addition", "demo": "costates trainer"},
    },
    "impact": {
        **{"run": "analyze run", "checkpoint": "analyze run/checkpoints/step-00000020"},
        **{"checkpoints": "analyze run", "demo": "impact old"},
    },
    "report": {
        **{"run": "analyze run --out results/run", "checkpoints": "analyze run --out results/run"},
        "checkpoint": "analyze run/checkpoints/step-00000020 --out results/step-00000020",
        "series": "impact series --out results/series",
        "seeds": "impact seeds --out results/seeds",
        "model": "costates series/step-00000600 --out results/step-00000600",
        "trainer": "impact trainer --task addition --out results/trainer",
        "old": "impact old --task addition --out results/old",
        **dict.fromkeys(("result.json", "page"), "report made/a"),
        **{"demo": "impact old --task addition --out results/old", "results": "report made/a made/b"},
    },
    "doctor": {
        **{"run": "doctor run/checkpoints/step-00000020", "series": "doctor series/step-00000600"},
        **{"checkpoints": "doctor run/checkpoints/step-00000020", "old": "doctor old/checkpoint-5"},
        **{"seeds": "doctor seeds/seed-0/step-00000020", "demo": "doctor trainer"},
    },
}
"""What each verb says of what it does not take; what it takes, and what only the library can judge, is not here."""

TAKEN = {
    "analyze": {"run", "checkpoint"},
    "costates": {"model", "trainer"},
    "impact": {"series", "seeds", "model", "trainer", "old"},
    "report": {"result"},
    "doctor": {"checkpoint", "model", "trainer"},
}


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """One path of each kind, as far as it is told by."""
    folder = tmp_path_factory.mktemp("kinds")
    for name, config in MADE.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(json.dumps(config))
        if re.search(r"-\d+$", name):
            (folder / name / "model.safetensors").touch()
    for name in ("made/a", "made/b"):
        (folder / name).mkdir(parents=True)
        (folder / name / "result.json").write_text("{}")
    (folder / "made" / "a" / "report.html").touch()
    (folder / "empty").mkdir()
    (folder / "notes").mkdir()
    (folder / "notes" / "mine.txt").touch()
    return folder


@pytest.fixture
def here(zoo, monkeypatch):
    monkeypatch.chdir(zoo)
    return zoo


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize("verb", MEANT)
def test_a_refusal_holds_a_command_that_is_not_refused(here, verb, kind):
    path = PATHS[kind]
    if kind in TAKEN[verb] or kind == "missing":  # the library finds a name that is near, or the hub
        refuse_other(verb, path)
        return
    with pytest.raises(InputError) as caught:
        refuse_other(verb, path)
    said = str(caught.value)
    assert said.startswith(f"{verb} takes ")
    assert said.endswith(f"; {path}")
    if kind in ("empty", "notes"):
        assert {"empty": "found an empty folder", "notes": "found none"}[kind] in said
        return
    meant = MEANT[verb].get(kind, "report made/a")
    (command,) = re.findall(r"`(.*)`", said)
    assert command == f"valuelens {meant}"
    _, verb_meant, *arguments = shlex.split(command)
    options = arguments.index("--task") if "--task" in arguments else len(arguments)
    options = min(options, arguments.index("--out") if "--out" in arguments else options)
    refuse_other(verb_meant, *arguments[:options])


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize(
    ("verb", "own"), [("pretrain", {"run"}), ("pretrain-lm", {"series", "seeds", "old"})]
)
def test_a_training_is_not_written_into_something_else(here, verb, own, kind):
    path = Path(PATHS[kind])
    known = {"run", "checkpoint", "checkpoints", "series", "seeds", "model", "trainer", "old", "result"}
    if kind not in known - own - ({"trainer"} if verb == "pretrain-lm" else set()):
        refuse_occupied(verb, path)
        return
    afresh = "" if kind in ("checkpoint", "checkpoints", "model") else "; --overwrite removes it"
    end = re.escape(f"; option --out {path} (name another folder{afresh})") + "$"
    with pytest.raises(
        InputError, match=r"the output must be a new folder or a (run|series); found .*" + end
    ):
        refuse_occupied(verb, path)


def test_every_verb_asks(valuelens, zoo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(zoo, tmp_path, dirs_exist_ok=True)
    before = sorted(tmp_path.rglob("*"))
    for arguments, said in (
        (("analyze", "series"), "`valuelens impact series`"),
        (("costates", "run"), "`valuelens analyze run`"),
        (("impact", "series", "run"), "`valuelens analyze run`"),
        (("report", "made/a", "run"), "`valuelens analyze run --out results/run`"),
        (("pretrain", "--out", "run/checkpoints/step-00000020"), "found an in-context value learner"),
        (("pretrain-lm", "--out", "run"), "found a run of in-context value learners"),
        (("analyze", "no such"), "must exist"),
    ):
        code, out, err = valuelens(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert said in err
    assert sorted(tmp_path.rglob("*")) == before
    monkeypatch.setattr(machine, "LOOKS", {})
    check = _doctor.checks("series")[-1]
    assert check.state == "broken"
    assert "`valuelens doctor series/step-00000600`" in check.found


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("analyze run/config.json", "analyze run"),
        ("costates run/config.json", "analyze run"),
        ("report run/config.json", "analyze run --out results/run"),
        (
            "report run/checkpoints/step-00000020/config.json",
            "analyze run/checkpoints/step-00000020 --out results/step-00000020",
        ),
        ("doctor run/config.json", "doctor run/checkpoints/step-00000020"),
        ("analyze series/config.json", "impact series"),
        ("impact series/config.json", "impact series"),
        ("costates series/step-00000600/model.safetensors", "costates series/step-00000600"),
        ("doctor series/step-00000600/config.json", "doctor series/step-00000600"),
    ],
)
def test_a_file_is_told_by_its_folder(here, typed, meant):
    with pytest.raises(InputError) as caught:
        refuse_other(*typed.split())
    said = str(caught.value)
    assert "; found a file of a" in said
    assert f": `valuelens {meant}`" in said
    verb, path = meant.split()[:2]
    refuse_other(verb, path)


def test_the_weights_of_a_checkpoint_and_a_gguf_file_are_taken(here, tmp_path):
    refuse_other("analyze", "run/checkpoints/step-00000020/model.safetensors")
    (tmp_path / "one.gguf").touch()
    refuse_other("costates", tmp_path / "one.gguf")


def test_a_device_is_no_folder():
    refuse_other("analyze", "/dev/null")  # left to the library, as a file is
    with pytest.raises(InputError, match="report takes folders of results; found the file null; /dev/null"):
        refuse_other("report", "/dev/null")


def test_what_may_not_be_read_hides_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "b" / "result.json").touch()
    is_file = Path.is_file

    def refused(path):
        if path.parent.name == "a":
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refused)
    with pytest.raises(InputError, match="inside there is `valuelens report b`"):
        refuse_other("report", ".")


def test_a_path_with_a_space_is_quoted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my run").mkdir()
    (tmp_path / "my run" / "config.json").write_text(json.dumps(MADE["run"]))
    with pytest.raises(InputError, match="`valuelens analyze 'my run'`; my run"):
        refuse_other("impact", "my run")
