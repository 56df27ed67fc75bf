"""How often does a 95 % interval hold the truth? Writes `coverage.md` beside this file.

    .venv/bin/python benchmarks/coverage.py --out runs/coverage [--jobs 2]

Each replicate is a whole analysis of the default model (seed 0, last checkpoint) on tasks of its own: what users get.
The truth is the same analysis on many more tasks. Replicates are kept and continued.
"""

import argparse
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
import torch
from joblib import Parallel, delayed
from scipy.stats import binomtest

from valuelens.analyses import ANALYSES, Finding, subject
from valuelens.models import icrl

NUM_TASKS, REPLICATES, CHUNK = 256, 1000, 25
TRUTH_TASKS, TRUTH_PARTS, FIRST_TRUTH_SEED = 2048, 32, 1_000_000
QUESTIONS = ("slots", "diagonality", "convergence", "neu", "credit")


def estimates(checkpoint: Path, question: str, seed: int, num_tasks: int) -> list[dict[str, Any]]:
    """One row for each finding that has a number, from an analysis as users call it."""
    torch.set_num_threads(1)
    task = icrl.load_config(checkpoint / "config.json").task
    studied = subject(icrl.load(checkpoint), task, num_tasks=num_tasks, seed=seed)
    return [
        {"name": _name(finding), "seed": seed, "estimate": finding.estimate, **_limits(finding)}
        for finding in ANALYSES[question].ask(studied).findings
        if isinstance(finding.estimate, float)
    ]


def chunk(checkpoint: Path, question: str, seeds: range, num_tasks: int, out: Path) -> pd.DataFrame:
    """A question on tasks of some seeds, read where it was kept."""
    path = out / f"{question}-{num_tasks}-{seeds.start}.parquet"
    if not path.exists():
        rows = [row for seed in seeds for row in estimates(checkpoint, question, seed, num_tasks)]
        pd.DataFrame(rows).to_parquet(path)
    return pd.read_parquet(path)


def page(replicates: pd.DataFrame, truth: pd.DataFrame) -> str:
    """A line an estimate: the truth, the share of intervals that hold it, and how sure that share is."""
    exact = truth.groupby("name").estimate.mean()
    error = truth.groupby("name").estimate.sem()
    lines = []
    for name, runs in replicates.dropna(subset=["low"]).groupby("name", sort=False):
        held = (runs.low <= exact[name]) & (exact[name] <= runs.high)
        limits = binomtest(int(held.sum()), len(runs)).proportion_ci()
        lines.append(
            {
                "estimate": name,
                "truth": f"{exact[name]:.4g} ± {error[name]:.1g}",
                "mean of the estimates": f"{runs.estimate.mean():.4g}",
                "half width": f"{((runs.high - runs.low) / 2).median():.2g}",
                "intervals": len(runs),
                "covered": f"**{100 * held.mean():.1f} %** ({100 * limits.low:.1f} to {100 * limits.high:.1f})",
                "too low / too high": f"{100 * fmean(runs.high < exact[name]):.1f} / "
                f"{100 * fmean(runs.low > exact[name]):.1f} %",
            }
        )
    return pd.DataFrame(lines).to_markdown(index=False, disable_numparse=True)


def summary(replicates: pd.DataFrame, truth: pd.DataFrame) -> str:
    """How many estimates that vary are covered in 93 to 97 %, and which are not."""
    exact = truth.groupby("name").estimate.mean()
    known = replicates.dropna(subset=["low"])
    known = known[known.groupby("name").estimate.transform("std") > 0]
    held = (known.low <= known.name.map(exact)) & (known.name.map(exact) <= known.high)
    covered = held.groupby(known.name, sort=False).mean()
    outside = covered[(covered.round(3) < 0.93) | (covered.round(3) > 0.97)]
    named = ", ".join(f"{name} {100 * share:.1f} %" for name, share in outside.items())
    return f"Of {len(covered)} estimates {len(covered) - len(outside)} are covered in 93 to 97 %; not: {named}.\n\n"


def _name(finding: Finding) -> str:
    return " ".join(
        [finding.name, *(f"{key} {value}" for key, value in finding.index.items() if value != "all")]
    )


def _limits(finding: Finding) -> dict[str, float]:
    low, high = finding.interval or (float("nan"), float("nan"))
    return {"low": low, "high": high}


def main() -> None:
    """Repeat, compare, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/coverage"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--replicates", type=int, default=REPLICATES)
    parser.add_argument("--questions", nargs="+", default=QUESTIONS)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    checkpoint = icrl.pretrain(icrl.RunConfig(), asked.out / "run")[0].path
    starts = [range(s, min(s + CHUNK, asked.replicates)) for s in range(0, asked.replicates, CHUNK)]
    truths = [range(FIRST_TRUTH_SEED + part, FIRST_TRUTH_SEED + part + 1) for part in range(TRUTH_PARTS)]
    work = [(seeds, NUM_TASKS) for seeds in starts] + [(seeds, TRUTH_TASKS) for seeds in truths]
    parts = Parallel(n_jobs=asked.jobs, verbose=5)(
        delayed(chunk)(checkpoint, question, seeds, num_tasks, asked.out)
        for question in asked.questions
        for seeds, num_tasks in work
    )
    frame = pd.concat(parts)
    is_truth = frame.seed >= FIRST_TRUTH_SEED
    replicates, truth = frame[~is_truth], frame[is_truth]
    (Path(__file__).parent / "coverage.md").write_text(
        "# Do the intervals cover?\n\n"
        f"Command: `python benchmarks/coverage.py`. {asked.replicates:,} analyses of the default model (seed 0, last "
        f"checkpoint), each on {NUM_TASKS} tasks of its own; truth: mean of {TRUTH_PARTS} analyses on {TRUTH_TASKS:,} "
        "tasks each. 95 %, resampling tasks: studentised bootstrap; BCa for slopes and for `neu_parameter`; exact "
        "binomial intervals for shares, which cover more where a share is 0 or 1. In brackets the exact binomial "
        "interval of what was covered. Not here: R2 of the fitted rule, which is 1 for this model, and generalisation, "
        "whose ratios are those of the first rows on other tasks.\n\n"
        + summary(replicates, truth)
        + page(replicates, truth)
        + "\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
