"""valuelens: mechanistic interpretability for transformers trained with reinforcement learning.

The names that most sessions start with, imported when they are first used: `import valuelens` stays quick.
"""

import sys
import warnings
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

# In a notebook: libraries' bars are plain text where there is no ipywidgets, silently.
if "ipykernel" in sys.modules:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_module("tqdm.autonotebook")

if TYPE_CHECKING:
    from valuelens._front import clear as clear
    from valuelens._front import demo as demo
    from valuelens._front import doctor as doctor
    from valuelens._front import questions as questions
    from valuelens.analyses import AnalysisConfig as AnalysisConfig
    from valuelens.analyses import CostateConfig as CostateConfig
    from valuelens.analyses import RolloutSource as RolloutSource
    from valuelens.analyses import Update as Update
    from valuelens.analyses import analyze as analyze
    from valuelens.analyses import costate_run as costate_run
    from valuelens.analyses import costates as costates
    from valuelens.analyses import load_result as load_result
    from valuelens.analyses import subject as subject
    from valuelens.analyses.impact import Execution as Execution
    from valuelens.analyses.impact import ImpactConfig as ImpactConfig
    from valuelens.analyses.impact import Loading as Loading
    from valuelens.analyses.impact import ScoreConfig as ScoreConfig
    from valuelens.analyses.impact import Workers as Workers
    from valuelens.analyses.impact import impact_run as impact_run
    from valuelens.analyses.impact import members as members
    from valuelens.analyses.report import save_figures as save_figures
    from valuelens.analyses.report import write_pdf as write_pdf
    from valuelens.analyses.report import write_report as write_report
    from valuelens.models import InputError as InputError
    from valuelens.models import ablated as ablated
    from valuelens.models import patched as patched
    from valuelens.models.icrl import load as load
    from valuelens.models.icrl import pretrain as pretrain
    from valuelens.models.icrl import run_config as run_config
    from valuelens.models.icrl import theta_star as theta_star
    from valuelens.models.lm import GenerateConfig as GenerateConfig
    from valuelens.models.lm import ReadConfig as ReadConfig
    from valuelens.models.lm import find_task as find_task
    from valuelens.models.lm import generate as generate
    from valuelens.models.lm import lm_run_config as lm_run_config
    from valuelens.models.lm import load_language_model as load_language_model
    from valuelens.models.lm import pretrain_lm as pretrain_lm
    from valuelens.models.lm import read_rollouts as read_rollouts
    from valuelens.models.lm import task_named as task_named
    from valuelens.probe import Sampling as Sampling
    from valuelens.probe import value_slots as value_slots

__version__ = version("valuelens")

_HOMES = {
    "AnalysisConfig": "valuelens.analyses",
    "CostateConfig": "valuelens.analyses",
    "Execution": "valuelens.analyses.impact",
    "GenerateConfig": "valuelens.models.lm",
    "ImpactConfig": "valuelens.analyses.impact",
    "InputError": "valuelens.models",
    "Loading": "valuelens.analyses.impact",
    "ReadConfig": "valuelens.models.lm",
    "RolloutSource": "valuelens.analyses",
    "Sampling": "valuelens.probe",
    "ScoreConfig": "valuelens.analyses.impact",
    "Update": "valuelens.analyses",
    "Workers": "valuelens.analyses.impact",
    "ablated": "valuelens.models",
    "analyze": "valuelens.analyses",
    "clear": "valuelens._front",
    "costate_run": "valuelens.analyses",
    "costates": "valuelens.analyses",
    "demo": "valuelens._front",
    "doctor": "valuelens._front",
    "find_task": "valuelens.models.lm",
    "generate": "valuelens.models.lm",
    "impact_run": "valuelens.analyses.impact",
    "lm_run_config": "valuelens.models.lm",
    "load": "valuelens.models.icrl",
    "load_language_model": "valuelens.models.lm",
    "load_result": "valuelens.analyses",
    "members": "valuelens.analyses.impact",
    "patched": "valuelens.models",
    "pretrain": "valuelens.models.icrl",
    "pretrain_lm": "valuelens.models.lm",
    "questions": "valuelens._front",
    "read_rollouts": "valuelens.models.lm",
    "run_config": "valuelens.models.icrl",
    "save_figures": "valuelens.analyses.report",
    "subject": "valuelens.analyses",
    "task_named": "valuelens.models.lm",
    "theta_star": "valuelens.models.icrl",
    "value_slots": "valuelens.probe",
    "write_pdf": "valuelens.analyses.report",
    "write_report": "valuelens.analyses.report",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    """Import a curated name from its home."""
    if name not in _HOMES:
        raise AttributeError(f"module 'valuelens' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
