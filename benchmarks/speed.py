"""Speed of pretraining as ratios within one run; writes `speed.md` beside this file.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/speed.py

At 4 features, 10 states, n = 30, 3 layers, 64 prompts a step, one thread.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from transformer_lens.hook_points import HookPoint

from valuelens.models import icrl

_ROUNDS = 5


def verb(*options: str) -> float:
    """Prompts a second of `valuelens pretrain` itself, generator, logging and checkpoints included."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", "from valuelens.cli import main; main()", "pretrain", "--json"]
        command += ["--out", f"{folder}/run", "--num-layers", "3", "--steps", "3000", "--jobs", "1", *options]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return float(json.loads(done.stdout)["prompts_per_second"])


def step_time(model: icrl.ValueLearner, batch: icrl.Batch, repeats: int = 60) -> float:
    """Median seconds of one step (loss, gradient, Adam) on a prepared batch."""
    optimiser = torch.optim.Adam(model.parameters(), lr=0.0, fused=True)
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        optimiser.zero_grad(set_to_none=True)
        icrl.loss_and_value(model, "td", batch)[0].backward()
        optimiser.step()
        times.append(time.perf_counter() - started)
    return median(times)


def hook_cost() -> float:
    """Time of a step with idle hooks / of the same step with every hook point replaced by nothing."""
    config = icrl.run_config(
        {"model": {"num_layers": 3, "weights": "full", "tied": False}, "task": {}, "train": {}}, where=""
    )
    generator = torch.Generator().manual_seed(0)
    sampler = icrl.task_sampler(config.task, generator)
    mrp, states = sampler.sample(64, 31, generator)
    hooked, bare = (icrl.build(config.model, config.task, generator) for _ in range(2))
    batch = icrl.prepare(hooked, "td", 30, mrp, states)
    _strip(bare)
    ratios = []
    for _ in range(_ROUNDS * 3):
        ratios.append(step_time(hooked, batch) / step_time(bare, batch))
    return median(ratios)


def _strip(module: torch.nn.Module) -> None:
    for name, child in list(module.named_children()):
        if isinstance(child, HookPoint):
            delattr(module, name)
            object.__setattr__(module, name, _nothing)
        else:
            _strip(child)


def _nothing(x: torch.Tensor) -> torch.Tensor:
    return x


def hooked_engine() -> float:
    """Step time of the state form / of the hooked n x n model on the same restricted weights and tasks."""
    config = icrl.run_config({"model": {"num_layers": 3}, "task": {}, "train": {}}, where="")
    generator = torch.Generator().manual_seed(0)
    mrp, states = icrl.task_sampler(config.task, generator).sample(64, 31, generator)
    model = icrl.build(config.model, config.task, generator)
    state_form = icrl.prepare(model, "td", 30, mrp, states)
    full = icrl.ModelConfig(num_layers=3, weights="full")
    prompts = icrl.prepare(icrl.build(full, config.task, generator), "td", 30, mrp, states)
    return median(step_time(model, prompts) / step_time(model, state_form) for _ in range(_ROUNDS))


def help_time() -> float:
    """Fastest of ten `valuelens --help`, in seconds."""
    command = [str(Path(sys.executable).with_name("valuelens")), "--help"]

    def once() -> float:
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - started

    return min(once() for _ in range(10))


def main() -> None:
    """Measure and write the page."""
    torch.set_num_threads(1)
    rates: dict[str, Callable[[], float]] = {
        "tied restricted (state form)": lambda: verb(),
        "tied restricted, `dual` (hooked model)": lambda: verb("--arch", "dual"),
        "tied full (hooked model)": lambda: verb("--weights", "full"),
        "untied full (hooked model)": lambda: verb("--weights", "full", "--untied"),
    }
    found = {name: median(measure() for _ in range(3)) for name, measure in rates.items()}
    first = found["tied restricted (state form)"]
    rows = [f"| {name} | {rate:,.0f} | {rate / first:.2f} |" for name, rate in found.items()]
    page = [
        "# Speed of `valuelens pretrain`",
        "",
        "Command: `OMP_NUM_THREADS=1 python benchmarks/speed.py`.",
        "4 features, 10 states, n = 30, 3 layers,",
        "64 prompts a step, 3,000 steps, one thread; generator, logging and checkpoints included;",
        "median of 3 whole runs.",
        "",
        "| model | prompts a second | of the first row |",
        "|---|---|---|",
        *rows,
        "",
        f"One training step of the hooked n x n model takes {hooked_engine():.2f} times one of the state form "
        "(same weights, same tasks; the loss and gradients agree to 1e-10, see `tests/models/test_losses.py`).",
        "",
        f"Idle hooks: a step of the hooked model (untied full) takes {hook_cost():.3f} times the same step with every",
        "hook point removed.",
        "",
        f"`valuelens --help`: {help_time():.2f} s (fastest of ten).",
        "",
    ]
    Path(__file__).with_name("speed.md").write_text("\n".join(page), encoding="utf-8")


if __name__ == "__main__":
    main()
