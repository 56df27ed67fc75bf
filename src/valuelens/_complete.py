"""What a shell completes behind options: names that are known without importing what they name.

Paths are left to the shell, which completes them where nothing is offered here.
"""

import ast
import os
from collections.abc import Callable
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

CHOICES: dict[str, tuple[str, ...]] = {
    "--env": ("boyan", "loop", "garnet", "cartpole"),
    "--features": ("sphere", "uniform", "one-hot"),
    "--arch": ("tsm", "dual", "linear", "transformer"),
    "--weights": ("restricted", "full", "factored"),
    "--normalization": ("layer", "rms"),
    "--loss": ("td", "neu", "monte-carlo", "true-value"),
    "--task": ("label-copy", "modular-sum", "addition"),
    "--objective": ("surrogate", "reward"),
    "--layers": ("0,L//2,3L//4", "all"),
    "--positions": ("completion", "prompt"),
    "--loss-type": ("none", "grpo", "bnpo", "dapo", "dr_grpo"),
    "--scale-rewards": ("none", "group", "batch"),
    "--baseline": ("group-mean", "leave-one-out"),
    "--completion-ends": ("auto", "yes", "no"),
    "--signal": ("auto", "subtractive", "usable", "update-aligned"),
    "--headroom": ("tilt", "shortfall", "best-of-k"),
    "--recipe": ("default", "fast", "long"),
    "--engine": ("joblib", "dask"),
    "--revisions": ("all", "every:10"),
    "--device": ("cpu", "cuda", "mps"),
}
"""Values of an option, in the order of its help."""

OPEN = ("--env", "--task", "--layers", "--revisions", "--device")
"""Options that take other values too."""

PRECISIONS = ("float32", "float64")
LM_PRECISIONS = ("float32", "bfloat16", "float64")

Completer = Callable[[str], list[str]]


def choices(name: str) -> Completer:
    """Offers the values of an option.

    Args:
        name: With its dashes.
    """
    return named(CHOICES[name])


def named(names: tuple[str, ...]) -> Completer:
    """Offers names.

    Args:
        names: All there are.
    """

    def offered(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return offered


def questions(incomplete: str) -> list[str]:
    """Names that `--only` takes, the last of those that commas separate.

    Args:
        incomplete: What was typed so far.
    """
    *before, last = incomplete.split(",")
    lead = "".join(f"{name}," for name in before)
    names = [name for name in question_names() if name not in before]
    return [f"{lead}{name}" for name in names if name.startswith(last)]


def models(incomplete: str) -> list[str]:
    """Models of the hub that lie in its cache, unless a path is meant.

    Args:
        incomplete: What was typed so far.
    """
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or Path(home, "hub")).expanduser()
    here = Path(incomplete).expanduser()
    near = here.parent.glob(f"{here.name}*") if here.parent.is_dir() else ()
    if any(True for _ in near):
        return []
    found = [each.name.removeprefix("models--").replace("--", "/") for each in cache.glob("models--*")]
    return sorted(name for name in found if name.startswith(incomplete))


def question_names() -> list[str]:
    """Ours, read from the source of their register (importing it would import torch), and those of other packages."""
    spec = find_spec("valuelens.analyses")
    register = Path(spec.origin if spec and spec.origin else "").with_name("_questions.py")
    names: list[str] = []
    for node in ast.parse(register.read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="_OURS" | "RUN_ANALYSES")], value=ast.Tuple(elts=values)):
                names += [str(each.value) for each in values if isinstance(each, ast.Constant)]
    return [*names, *sorted(entry_points(group="valuelens.analyses").names)]
