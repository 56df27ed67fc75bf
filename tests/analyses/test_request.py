"""What is asked of an analysis: another request than the one that a folder answers is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from valuelens.analyses import AnalysisConfig, Question, Result, _analyze, analyze
from valuelens.analyses._questions import Installed
from valuelens.models import InputError
from valuelens.models.icrl import RunConfig, build, save_checkpoint

QUICK = AnalysisConfig(num_tasks=8, only=("slots", "distance"))
CONFIG = RunConfig.model_validate(
    {"task": {"num_states": 5, "context_length": 10}, "model": {"num_layers": 2}}
)


def checkpoint(folder: Path, seed: int = 0) -> Path:
    learner = build(CONFIG.model, CONFIG.task, torch.Generator().manual_seed(seed))
    save_checkpoint(folder / "model", learner, CONFIG, step=0)
    return folder / "model"


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"num_tasks": 9}, "num_tasks must be 9; found 8"),
        ({"seed": 1}, "seed must be 1; found 0"),
        ({"dtype": "float32"}, "dtype must be 'float32'; found 'float64'"),
        ({"only": ("slots",)}, r"only must be \['slots'\]; found \['slots', 'distance'\]"),
    ],
)
def test_another_request_is_refused(tmp_path: Path, other: dict[str, object], told: str) -> None:
    path, out = checkpoint(tmp_path), tmp_path / "out"
    analyze(path, QUICK, out=out)
    with pytest.raises(InputError, match=f"a result of the same request is continued: {told}.*--overwrite"):
        analyze(path, replace(QUICK, **other), out=out)


def test_other_weights_are_refused(tmp_path: Path) -> None:
    path, out = checkpoint(tmp_path), tmp_path / "out"
    analyze(path, QUICK, out=out)
    shutil.rmtree(path)
    checkpoint(tmp_path, seed=1)
    with pytest.raises(
        InputError, match=r"continued: checkpoints\.model must be '[0-9a-f]{64}'; found '[0-9a-f]{64}'"
    ):
        analyze(path, QUICK, out=out)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"package": "mine 0.2"}, r"installed\.mine\.package must be 'mine 0\.2'; found 'mine 0\.1'"),
        ({"file": "changed.py"}, r"installed\.mine\.sha256 must be '[0-9a-f]{64}'; found '[0-9a-f]{64}'"),
    ],
)
def test_another_code_of_an_installed_question_is_another_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, str], told: str
) -> None:
    """Neither the result nor the answer in the cache is taken for that of the new code."""
    path, out, asked = checkpoint(tmp_path), tmp_path / "out", []

    def ask(_: object) -> Result:
        asked.append(1)
        return Result(kind="in-context-rl")

    mine = Question(name="mine", ask=ask, title="Mine", introduction="Is it?", phrases={})
    for name in ("mine.py", "changed.py"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    code = Installed(question=mine, code="mine:Q", package="mine 0.1", file=tmp_path / "mine.py")
    monkeypatch.setattr(_analyze, "question", lambda _: mine)
    monkeypatch.setattr(_analyze, "installed_names", lambda: ("mine",))
    monkeypatch.setattr(_analyze, "installed", lambda _: code)
    config = AnalysisConfig(num_tasks=8, only=("mine",))
    for _ in range(2):
        analyze(path, config, out=out)
    assert len(asked) == 1
    changed = {key: tmp_path / value if key == "file" else value for key, value in other.items()}
    monkeypatch.setattr(_analyze, "installed", lambda _: replace(code, **changed))
    with pytest.raises(InputError, match=f"a result of the same request is continued: {told}"):
        analyze(path, config, out=out)
    (out / "result.json").unlink()
    analyze(path, config, out=out)
    assert len(asked) == 2


def test_a_result_without_its_request_is_refused(tmp_path: Path) -> None:
    path, out = checkpoint(tmp_path), tmp_path / "out"
    analyze(path, QUICK, out=out)
    data = json.loads((out / "result.json").read_text(encoding="utf-8"))
    data["provenance"] = {}
    (out / "result.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(InputError, match=r"continued: checkpoints\.model must be .*; found None"):
        analyze(path, QUICK, out=out)


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    path, out = checkpoint(tmp_path), tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("dear", encoding="utf-8")
    with pytest.raises(InputError, match="must be a new folder or a result; found other files"):
        analyze(path, QUICK, out=out)
    assert [each.name for each in out.iterdir()] == ["thesis.tex"]


def test_two_tasks_are_the_least() -> None:
    with pytest.raises(InputError, match="num_tasks must be at least 2; found 1; option --num-tasks"):
        AnalysisConfig(num_tasks=1)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_is_one_that_generators_take(seed: int) -> None:
    with pytest.raises(InputError, match=f"the seed must lie in 0.*; found {seed}; option --seed"):
        AnalysisConfig(seed=seed)


def test_there_must_be_something(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a checkpoint or run folder must exist; found nothing"):
        analyze(tmp_path / "nowhere", QUICK)
    with pytest.raises(InputError, match=r"a checkpoint has a model\.safetensors; found none"):
        analyze(tmp_path, QUICK)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "distnace",
            r"--only takes slots, .* on a single checkpoint; found 'distnace' \(did you mean distance\?\)",
        ),
        ("emergence", r"on a single checkpoint; found 'emergence'"),
        ("", r"found ''; option --only"),
    ],
)
def test_unknown_questions_are_refused(tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        analyze(checkpoint(tmp_path), AnalysisConfig(num_tasks=4, only=("slots", name)))
