"""Does GRPO teach a mid-series checkpoint to copy labels? Writes `grpo.md` and `grpo.svg` beside this file.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/grpo.py [--out runs/lm] [--jobs 2]

Fixed before any run: the checkpoint (number 7 of 14 of the default series of `pretrain-lm`, seed 0), the recipe (the
default, but 160 steps), RL seeds 0 to 4, and the rule: a seed passes whose held-out reward after 160 steps is .9 or
more. Other learning rates are run as well, as no part of the claim.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed
from transformers.utils import logging

from valuelens.analyses.impact import (
    RECIPES,
    GainConfig,
    gain,
    grpo_loss,
    held_out_reward,
    token_passes,
)
from valuelens.analyses.report._style import blank, named_line, styled, svg_text
from valuelens.models import lm

CORPUS: dict[str, Any] = {"task": "label-copy"}
"""The defaults: 12 items, 6 labels, 6 pairs, 20 % shuffled."""

NUMBER = 7
SEEDS = range(5)
STEPS, GOAL = 160, 0.9
RATES = (RECIPES["default"].learning_rate, 3e-4, 1e-3)
"""The first is the claim's."""

WINDOW = 8
"""Steps whose mean reward makes a point of a curve."""

Run = dict[str, Any]


def checkpoint(out: Path) -> Path:
    """The mid-series checkpoint, trained where it is not there yet."""
    config = lm.lm_run_config({"corpus": CORPUS}, where="benchmark")
    lm.pretrain_lm(config, out)
    return lm.series(out)[NUMBER - 1]


def learned(path: Path, rate: float, seed: int) -> Run:
    """One run of 160 steps, with the reward on held-out prompts before and after."""
    torch.set_num_threads(1)
    language_model, task = quiet(path)
    held_out, training = GainConfig(), replace(RECIPES["default"], learning_rate=rate, steps=STEPS, seed=seed)
    started = time.process_time()
    run = lm.grpo(language_model, task, training, grpo_loss(held_out.sampling))
    seconds = time.process_time() - started
    return {
        "rate": rate,
        "seed": seed,
        "before": held_out_reward(language_model, task, held_out),
        "after": held_out_reward(run.language_model, task, held_out),
        "curve": run.rewards,
        "idle": sum(run.zero_variance) / (STEPS * training.num_prompts),
        "seconds": seconds,
    }


def cost(path: Path) -> pd.DataFrame:
    """Seconds and token passes of a gain, for each recipe, with and without the cut."""
    torch.set_num_threads(1)
    language_model, task = quiet(path)
    example = lm.generate(language_model, task, lm.GenerateConfig(num_prompts=8))
    prompt, completion = (
        float(np.mean([len(tokens) for tokens in rows]))
        for rows in (example.prompt_ids, example.completion_ids)
    )
    rows = []
    for recipe, training in RECIPES.items():
        row: Run = {"recipe": recipe, "steps": training.steps, "learning rate": f"{training.learning_rate:g}"}
        for cut in (False, True):
            started = time.process_time()
            found = gain(language_model, task, GainConfig(recipe=recipe, cut=cut))
            row["seconds, cut" if cut else "seconds"] = f"{time.process_time() - started:.1f}"
            row["gain, cut" if cut else "gain"] = f"{found.gain:+.3f}"
        rows.append(row | {"token passes": f"{token_passes(training, prompt, completion):,.0f}"})
    return pd.DataFrame(rows)


def quiet(path: Path) -> tuple[lm.LanguageModel, lm.Task]:
    """The checkpoint and its task."""
    logging.disable_progress_bar()
    sizes = CORPUS.get("sizes", {})
    return lm.load_language_model(path), lm.task_named(CORPUS["task"], **sizes)


def smoothed(curve: tuple[float, ...]) -> pd.Series:
    """Mean of the last steps; step 1 is the first."""
    rewards = pd.Series(curve, index=range(1, len(curve) + 1))
    return rewards.rolling(WINDOW).mean().dropna()


def reached(curve: tuple[float, ...]) -> str:
    """The first step at which the smoothed curve is at the goal."""
    there = smoothed(curve)
    return str(there[there >= GOAL].index[0]) if bool((there >= GOAL).any()) else "-"


def rows_of(runs: list[Run]) -> pd.DataFrame:
    """A row for each run."""
    return pd.DataFrame(
        {
            "learning rate": [f"{run['rate']:g}" for run in runs],
            "RL seed": [run["seed"] for run in runs],
            "held-out reward before": [f"{run['before']:.3f}" for run in runs],
            f"after {STEPS} steps": [f"{run['after']:.3f}" for run in runs],
            f"curve at {GOAL:g} from step": [reached(run["curve"]) for run in runs],
            "groups without variance": [f"{100 * run['idle']:.0f} %" for run in runs],
            "processor seconds": [f"{run['seconds']:.1f}" for run in runs],
        }
    )


def draw(runs: list[Run], path: Path) -> None:
    """Learning curves, a panel for each learning rate, a line for each seed."""
    with styled():
        figure = blank(8.4, 3.0)
        axes = figure.subplots(1, len(RATES), sharey=True)
        for ax, rate in zip(axes, RATES, strict=True):
            for run in runs:
                if run["rate"] == rate:
                    ax.plot(smoothed(run["curve"]), label=f"seed {run['seed']}")
            claim = "the default" if rate == RATES[0] else "no part of the claim"
            ax.set(xlabel="step", title=f"{rate:g} ({claim})", ylim=(0, 1.02))
            named_line(ax, GOAL, f"{GOAL:g}")
        axes[0].set(ylabel=f"reward, mean of {WINDOW} steps")
        axes[-1].legend(loc="lower right")
        path.write_text(svg_text(figure), encoding="utf-8")


def verdict(runs: list[Run]) -> str:
    """How many seeds pass, of the claim and at other rates."""
    passed = {rate: sum(run["after"] >= GOAL for run in runs if run["rate"] == rate) for rate in RATES}
    of = len(SEEDS)
    ours = f"**{passed[RATES[0]]} of {of} seeds** are at {GOAL:g} or more after {STEPS} steps of the default recipe."
    others = ", ".join(f"{passed[rate]} of {of} at {rate:g}" for rate in RATES[1:])
    start = f"They start at {runs[0]['before']:.3f}, so this asks for little; the curves say more."
    return f"{ours} {start}\nOther learning rates, no part of the claim: {others}."


def main() -> None:
    """Pretrain, run, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/lm"))
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    path, file = checkpoint(given.out / f"{CORPUS['task']}-0"), Path(__file__)
    work = [delayed(learned)(path, rate, seed) for rate in RATES for seed in SEEDS]
    runs: list[Run] = Parallel(n_jobs=given.jobs, verbose=5)(work)
    draw(runs, file.with_suffix(".svg"))
    language_model, task = quiet(path)
    page = f"""# GRPO from a mid-series checkpoint of label copying

`OMP_NUM_THREADS=1 .venv/bin/python benchmarks/grpo.py`, torch {torch.__version__}, one thread a process, float32.

`{path.name}` (number {NUMBER} of 14) of the default series of `pretrain-lm`, seed 0, 20 % shuffled:
{language_model.num_layers} layers, width {language_model.d_model}, {task}.
The default recipe, but {STEPS} steps: 8 prompts x 16 rollouts a step, Adam {RATES[0]:g}.
A seed passes whose reward on 128 held-out prompts x 4 completions, sampled at temperature 1, is {GOAL:g} or more after
the last step. All of this was fixed before any run.

{verdict(runs)}

![Learning curves](grpo.svg)

Points are means of {WINDOW} steps, over the rollouts that the steps were taken on.

{rows_of(runs).to_markdown(index=False, disable_numparse=True)}

## Cost of a gain

From the same checkpoint, RL seed 0, {len(RECIPES)} recipes, processor seconds with held-out reward before and after:
on a busy machine about twice those of an idle core.
Token passes are those of the run: forward 1, backward 2, sampling 1 a token, a prompt read once for its 16 rollouts.

{cost(path).to_markdown(index=False, disable_numparse=True)}
"""
    file.with_suffix(".md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
