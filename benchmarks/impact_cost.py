"""What scoring a checkpoint costs beside one default GRPO run from it: token passes and processor seconds.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/impact_cost.py

writes `impact_cost.md` beside it. Label copying at sizes that no protocol has, with more labels to write than hops are
followed, so that every hop is paid for. 32 prompts x 16 rollouts are sampled and scored with each signal; the run is
the default recipe, 40 steps x 8 prompts x 16 rollouts, without its held-out evaluation. Seconds are those of one
process and one thread, all of it measured in turns, so that ratios hold on a busy machine.
"""

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers.utils import logging

from valuelens.analyses.impact import RECIPES, ScoreConfig, grpo_loss, score, token_passes
from valuelens.models import lm
from valuelens.probe import Sampling

SIZES = {"num_items": 10, "num_labels": 5, "num_pairs": 7}
CHECKPOINTS, STEPS, ROUNDS = 3, 600, 3
SIGNALS: dict[str, tuple[ScoreConfig, float]] = {
    "update-aligned (always taken)": (ScoreConfig(signal="update-aligned"), 0.25),
    "usable": (ScoreConfig(signal="usable"), 0.25),
    "subtractive (5 hops)": (ScoreConfig(signal="subtractive"), 0.5),
    "subtractive, no hop left out": (ScoreConfig(signal="subtractive", tolerance=0.0), 0.5),
    "every variant": (ScoreConfig(every_variant=True), math.nan),
}
"""With the share of a run that each may cost; all of them together are the default of no ranking."""


def series(folder: Path) -> list[lm.LanguageModel]:
    """A small series, at random, in the middle and late."""
    corpus = {"task": "label-copy", "sizes": SIZES, "shuffled": 0.2}
    train = {"steps": STEPS, "num_checkpoints": CHECKPOINTS}
    lm.pretrain_lm(lm.lm_run_config({"corpus": corpus, "train": train}, where="benchmark"), folder)
    return [lm.load_language_model(path) for path in lm.series(folder)]


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of one call, and what it gave."""
    started = time.process_time()
    found = work()
    return time.process_time() - started, found


def scored(model: lm.LanguageModel, task: lm.Task, config: ScoreConfig) -> dict[str, float]:
    """Sampled, then scored."""
    return score(model, lm.generate(model, task, lm.GenerateConfig()), config)


def rows(models: list[lm.LanguageModel], task: lm.Task) -> list[tuple[str, ...]]:
    """A line for each signal: the dearest checkpoint in passes, the median of all measurements in seconds."""
    times: dict[str, list[float]] = {name: [] for name in ("run", *SIGNALS)}
    tokens: dict[str, list[float]] = {name: [] for name in SIGNALS}
    for _ in range(ROUNDS):
        for model in models:
            run = lambda model=model: lm.grpo(model, task, RECIPES["default"], grpo_loss(Sampling()))  # noqa: E731
            times["run"].append(seconds(run)[0])
            for name, (config, _) in SIGNALS.items():
                spent, found = seconds(lambda model=model, config=config: scored(model, task, config))
                times[name].append(spent)
                tokens[name].append(found["token_passes"])
    whole = token_passes(RECIPES["default"], 2 * SIZES["num_pairs"] + 1, SIZES["num_pairs"])
    own = median(times["run"])
    lines = [("one default GRPO run", f"{whole:,.0f}", "1.00", "", f"{own:.2f}", "1.00")]
    for name, (_, allowed) in SIGNALS.items():
        dearest, spent = max(tokens[name]), median(times[name])
        ratios = (
            f"{dearest / whole:.2f}",
            "" if math.isnan(allowed) else f"{allowed:.2f}",
            f"{spent:.2f}",
            f"{spent / own:.2f}",
        )
        lines.append((name, f"{dearest:,.0f}", *ratios))
    return lines


def main() -> None:
    """Measure, write the page."""
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        models = series(Path(folder) / "series")
        lines = rows(models, lm.task_named("label-copy", **SIZES))
    head = ("", "token passes", "of the run", "may be", "seconds", "of the run")
    found = "\n".join("| " + " | ".join(line) + " |" for line in (head, ("---",) * len(head), *lines))
    sizes = ", ".join(f"{value} {name.removeprefix('num_')}" for name, value in SIZES.items())
    page = f"""# What a score costs

`OMP_NUM_THREADS=1 .venv/bin/python benchmarks/impact_cost.py`, torch {torch.__version__}; one thread, processor
seconds.

Label copying with {sizes}; {CHECKPOINTS} checkpoints of {STEPS:,} pretraining steps, 2 layers, width 64.
A score is 32 prompts x 16 rollouts, sampled and measured; the run is 40 steps x 8 prompts x 16 rollouts, without its
held-out evaluation. A token costs 1 forward, 2 backward (to activations alone too) and 1 to sample, where a prompt is
read once for its group. Passes are of the dearest checkpoint, seconds medians of {ROUNDS} rounds over all checkpoints.

{found}

One pass back over the parameters for each rollout serves `update-aligned` and the gradient's norm: within a group, raw
and GRPO's advantages differ by one factor. `usable` adds one to the activations, `subtractive` one forward and one
back for each hop.
"""
    Path(__file__).with_suffix(".md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
