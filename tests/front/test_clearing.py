"""What is cleared is ours, all of it: a folder that holds anything else is left as it was."""

import errno
import json
import shutil
from pathlib import Path

import pytest

from valuelens._clearing import clear, refuse_foreign
from valuelens.models import InputError
from valuelens.models.icrl import RunConfig
from valuelens.models.lm import LMRunConfig

RUN, SERIES = (config().model_dump_json() for config in (RunConfig, LMRunConfig))
RESULT = json.dumps({"schema": {"name": "valuelens.result", "version": 1}})
HUGGING = json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"})
KEY = "0123456789abcdef" * 2

OURS = {
    "run": {"config.json": RUN, "metrics.parquet": "", "checkpoints/step-00000000/model.safetensors": ""},
    "seeds": {"config.json": RUN, "seed-0/checkpoints/step-00000000/config.json": ""},
    "series": {"config.json": SERIES, "step-00000100/config.json": HUGGING},
    "result": {"result.json": RESULT, "figures/thesis.svg": "", "tables/t.csv": "", "report.pdf": ""},
    "unfinished": {f"cache/{KEY}/result.json": "", "tables/gains.parquet": "", "arrays.safetensors": ""},
    "killed": {f"cache/{KEY}.json": "", "cache/.valuelens-tmp-1-old-x": "", ".valuelens-tmp-1-new-y": ""},
}

FOREIGN = {
    "a thesis": {"figures/thesis.svg": "", "tables/t.csv": "", "cache/x": "", "config.json": "{}"},
    "a model": {"config.json": HUGGING, "model.safetensors": ""},
    "a configuration": {"config.json": json.dumps({"model": "resnet", "task": "cifar", "train": {"lr": 1}})},
    "another result": {"result.json": json.dumps({"schema": "mine"}), "figures/a.svg": ""},
    "a list": {"result.json": "[1]"},
    "tables": {"tables/t.csv": ""},
    "a cache": {"cache/wheels/x": ""},
    "a file called tables": {"tables": ""},
    "a run with a note": {"config.json": RUN, "checkpoints/step-00000000/config.json": "", "notes.txt": ""},
    "a result beside a model": {"result.json": RESULT, "config.json": HUGGING},
    "a run with steps of something else": {"config.json": RUN, "step-00000100/x": ""},
}


def filled(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def paths(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


@pytest.mark.parametrize("files", OURS.values(), ids=OURS)
def test_what_is_ours_is_cleared(tmp_path: Path, files: dict[str, str]) -> None:
    refuse_foreign(filled(tmp_path, files))
    assert paths(tmp_path)
    clear(tmp_path)
    assert paths(tmp_path) == []


@pytest.mark.parametrize("files", FOREIGN.values(), ids=FOREIGN)
def test_a_folder_with_anything_else_is_left_as_it_was(tmp_path: Path, files: dict[str, str]) -> None:
    """The sound folder beside it too: all are looked at before one is touched."""
    sound, mine = filled(tmp_path / "sound", OURS["run"]), filled(tmp_path / "mine", files)
    before = paths(tmp_path)
    must = "a folder to clear must hold a run, a series or a result, and nothing else; found other files: "
    for refuse in (lambda: clear(sound, mine), lambda: refuse_foreign(mine)):
        with pytest.raises(InputError, match=must) as caught:
            refuse()
        assert str(caught.value).endswith(f"; {mine}")
        assert paths(tmp_path) == before


def test_what_is_not_there_and_what_is_empty_is_clear(tmp_path: Path) -> None:
    clear(tmp_path / "nothing", tmp_path)
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("kind", ["series", "result"])
def test_an_interrupted_clearing_can_be_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    filled(tmp_path, OURS[kind])
    monkeypatch.setattr(Path, "unlink", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        clear(tmp_path)
    monkeypatch.undo()
    clear(tmp_path)
    assert paths(tmp_path) == []


def test_what_cannot_be_removed_is_told_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its folder is another's; the system itself names no more than the last part."""
    filled(tmp_path, OURS["result"])

    def refused(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path.name)

    monkeypatch.setattr(shutil, "rmtree", refused)
    with pytest.raises(InputError) as caught:
        clear(tmp_path)
    path = str(caught.value).rpartition("; ")[2]
    assert str(caught.value) == f"what is cleared must be writable; found Permission denied; {path}"
    assert Path(path).parent == tmp_path
    assert (tmp_path / "result.json").exists()


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_link_is_removed_and_not_what_it_points_to(tmp_path: Path) -> None:
    filled(tmp_path / "elsewhere", {"step-00000000/model.safetensors": ""})
    run = filled(tmp_path / "run", {"config.json": RUN})
    (run / "checkpoints").symlink_to(tmp_path / "elsewhere")
    clear(run)
    assert paths(run) == []
    assert (tmp_path / "elsewhere" / "step-00000000" / "model.safetensors").exists()
