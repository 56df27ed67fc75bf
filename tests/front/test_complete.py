"""What shells complete: by their own protocol, quickly, and never behind what the library knows."""

import os
import subprocess
import sys
from typing import get_args

import pytest

from valuelens._complete import CHOICES, LM_PRECISIONS, PRECISIONS, models, question_names, questions
from valuelens.analyses import ANALYSES, RUN_ANALYSES
from valuelens.analyses import _costate_config as costate_config
from valuelens.analyses.impact import _config as impact_config
from valuelens.analyses.impact._workers import Engine
from valuelens.models.icrl import _config as icrl_config
from valuelens.models.icrl import _tasks as icrl_tasks
from valuelens.models.lm import GenerateConfig
from valuelens.models.lm import _load as lm_load
from valuelens.models.lm import _named_tasks as lm_tasks

CODE = (
    "import sys; from valuelens.cli import main\n"
    "sys.argv = ['valuelens']\n"
    "try: main()\n"
    "except SystemExit: pass\n"
    "heavy = {'torch', 'transformers', 'numpy'} & set(sys.modules)\n"  # typer itself takes pydantic
    "print('heavy:', *sorted(heavy), file=sys.stderr)"
)


def completed(shell: str, line: str, *, code: str = CODE) -> list[str]:
    """What a shell is offered for an unfinished line."""
    words = line.split(" ")
    asked = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    environment = {**os.environ, **asked, "_VALUELENS_COMPLETE": f"complete_{shell}"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == "heavy:\n"
    return done.stdout.split()


def test_bash_completes_verbs_options_and_values():
    assert completed("bash", "valuelens pretrain-") == ["pretrain-lm"]
    assert completed("bash", "valuelens analyze run --only slots,d") == [
        "slots,distance",
        "slots,diagonality",
    ]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_complete_too(shell):
    assert "transformer" in " ".join(completed(shell, "valuelens pretrain --arch tr"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_ask(shell):
    code = CODE.replace(
        "['valuelens']", f"['valuelens']; import os; os.environ['_VALUELENS_COMPLETE'] = 'source_{shell}'"
    )
    script = " ".join(completed(shell, "valuelens ", code=code))
    assert "_VALUELENS_COMPLETE=complete_" in script
    if shell == "bash":
        assert "-o default" in script  # files, where nothing is offered


def test_names_are_those_of_the_library():
    literals = {
        "--features": icrl_config.Features,
        "--arch": icrl_config.Arch,
        "--weights": icrl_config.Weights,
        "--loss": icrl_config.Loss,
        "--normalization": icrl_config.ModelConfig.model_fields["normalization"].annotation,
        "--objective": costate_config.Objective,
        "--positions": costate_config.Positions,
        "--loss-type": costate_config.LossType,
        "--scale-rewards": costate_config.Scale,
        "--baseline": costate_config.Baseline,
        "--signal": impact_config.Signal,
        "--headroom": impact_config.Headroom,
        "--recipe": impact_config.Recipe,
        "--engine": Engine,
    }
    for option, literal in literals.items():
        assert set(CHOICES[option]) == set(get_args(literal)), option
    assert set(CHOICES["--env"]) == set(icrl_tasks.ENVIRONMENTS)
    assert set(CHOICES["--task"]) == set(lm_tasks._OURS)
    assert set(LM_PRECISIONS) == set(lm_load.DTYPES)
    assert set(PRECISIONS) == set(get_args(icrl_config.TrainConfig.model_fields["dtype"].annotation))
    for value in CHOICES["--completion-ends"]:
        assert GenerateConfig(completion_ends=value).completion_ends == value
    others = {"--layers", "--revisions", "--device", "--env", "--task", "--completion-ends"}
    assert set(CHOICES) == set(literals) | others


def test_questions_are_those_of_the_library():
    assert question_names()[: len(ANALYSES) + len(RUN_ANALYSES)] == [*ANALYSES, *RUN_ANALYSES]
    assert questions("slots,sl") == []  # asked for already
    assert questions("neu,slo") == ["neu,slots"]


def test_models_are_those_of_the_cache_unless_a_path_is_meant(tmp_path, monkeypatch):
    (tmp_path / "hub" / "models--org--small").mkdir(parents=True)
    (tmp_path / "original").mkdir()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    assert models("org/") == ["org/small"]
    assert models("org") == ["org/small"]
    assert models("orig") == []
    (tmp_path / "organ").mkdir()
    assert models("org") == []
