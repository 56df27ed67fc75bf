"""Results whose reports are opened in a browser and looked at as pictures; `conftest.py` and a benchmark read this."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch

from valuelens.analyses import ANALYSES, Result, load_result, merged, subject, verdict
from valuelens.models.icrl import ModelConfig, RunConfig, TaskConfig, build

FIXTURES = Path(__file__).parents[2] / "fixtures"
HOSTILE = ('<b>1 & "two"</b>', "תוצאה <3 & נקודה", "a <script>1</script> title, " + "word after word, " * 8)
VALUES = ("value_lens", "msve_ratio", "msve_vs_constant", "context_msve_vs_constant", "within_chain_r2")
SMALL = ("slots", "distance", "diagonality", "convergence")
"""Identify alone takes ten seconds of 60 layers."""
Make = Callable[..., Result]


@cache
def default() -> Result:
    """A real analysis of a default run: three checkpoints in full, and the training."""
    return load_result(FIXTURES / "default")


@cache
def untrained(num_layers: int = 10, asked: tuple[str, ...] = SMALL) -> Result:
    """A model as it is drawn, by so many questions on 8 tasks."""
    settings = ModelConfig(num_layers=num_layers)
    run = RunConfig(model=settings).model_dump()
    studied = subject(
        build(settings, TaskConfig(), torch.Generator().manual_seed(0)), TaskConfig(), num_tasks=8
    )
    whole = merged(
        [ANALYSES[name].ask(studied) for name in asked],
        provenance={"config": run, "versions": {"torch": "2"}},
    )
    return replace(whole, verdict=verdict(whole))


def alone(result: Result) -> Result:
    """The same with its values alone; every other question could not be answered."""
    kept = tuple(finding for finding in result.findings if finding.name in VALUES)
    why = "it failed: the weights hold <nan> & no number"
    lost = tuple(
        {"what": f"{name} of seed-0/step-00002000", "why": why} for name in ANALYSES if name != "slots"
    )
    arrays = {name: array for name, array in result.arrays.items() if "lens" in name or "slots" in name}
    left = replace(result, findings=kept, arrays=arrays, tables={}, skipped=lost)
    return replace(left, verdict=verdict(left))


def bare(result: Result) -> Result:
    """The same, of which nothing can be drawn."""
    return replace(result, arrays={}, tables={})


def cases(made: Make, ranked: Make) -> Mapping[str, Callable[[], dict[str, Result]]]:
    """Results by title, by case.

    Args:
        made: Makes simulated results on a language model.
        ranked: Makes simulated rankings.
    """
    return {
        "default": lambda: {"default": default()},
        "untrained": lambda: {"untrained": untrained()},
        "all but one failed": lambda: {"alone": alone(default())},
        "1 layer": lambda: {"1 layer": untrained(1)},
        "60 layers": lambda: {"60 layers": untrained(60)},
        "LM of 30 layers": lambda: {"LM": made(objective="reward", enumerated=True)},
        "ranking": lambda: {"ranking": ranked(2, checkpoints=8, seeds=2)},
        "two": lambda: {"before": bare(untrained()), "after": bare(default())},
        "four": lambda: {f"seed {k}": bare(made((0, 15), groups=8 + 8 * k)) for k in range(4)},
        "names": lambda: dict(zip(HOSTILE, hostile(made, ranked), strict=True)),
    }


def hostile(made: Make, ranked: Make) -> tuple[Result, ...]:
    """Prompts and checkpoints with < & " and right-to-left text: all of 31 layers, and groups that are flat."""
    named = ranked(1, checkpoints=6, seeds=1, named=True)
    return made(tuple(range(31)), groups=5), named, made(flat=1.0)
