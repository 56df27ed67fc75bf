"""Change one factor of the default at a time, five seeds each, and write `ablations.md` beside this file.

    .venv/bin/python benchmarks/ablations.py --out runs/ablations [--jobs 2]

Runs are kept and continued. Judged on 1,024 fresh tasks that no run trained on, those of the row's own task.
"""

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from joblib import Parallel, delayed

from valuelens.analyses import measurements, subject
from valuelens.models import InputError, icrl

SEEDS = range(5)
NUM_TASKS = 1024
DEFAULT = "default"
ROWS: dict[str, dict[str, dict[str, Any]]] = {
    DEFAULT: {},
    "loss: neu": {"train": {"loss": "neu"}},
    "loss: monte-carlo": {"train": {"loss": "monte-carlo"}},
    "loss: true-value": {"train": {"loss": "true-value"}},
    "attention: linear": {"model": {"arch": "linear", "num_layers": 10}},
    "attention: dual": {"model": {"arch": "dual"}},
    "weights: full": {"model": {"weights": "full"}},
    "weights: factored": {"model": {"weights": "factored"}},
    "tying: untied": {"model": {"tied": False}},
    "features: uniform": {"task": {"features": "uniform"}},
    "features: one-hot": {"task": {"features": "one-hot"}},
    "features: representable": {"task": {"representable": True}},
    "gamma: 0.9": {"task": {"gamma": 0.9}},
    "layers: 3": {"model": {"num_layers": 3}},
}
COMPARED = {
    "w cosine": ("weight_cosine", ".4f"),
    "diagonal x": ("growth", ".2f"),
    "MSVE / constant's": ("msve_vs_constant", ".3f"),
    "over contexts": ("context_msve_vs_constant", ".3f"),
    "within-chain R2": ("within_chain_r2", ".3f"),
}
"""Columns of the page: what is measured, and its format."""


def row(name: str, seed: int, out: Path) -> dict[str, Any]:
    """Train one model and measure it at step 0 and at the end; a run that diverged is a row with its message."""
    torch.set_num_threads(1)
    parts = ROWS[name]
    config = icrl.run_config({**parts, "train": {**parts.get("train", {}), "seed": seed}}, where="benchmark")
    run = out / name.replace(": ", "-") / f"seed-{seed}"
    try:
        last = icrl.pretrain(config, run)[0]
        first = icrl.checkpoint_paths(run)[0]
        start, end = (
            measurements(subject(icrl.load(each.path), config.task, num_tasks=NUM_TASKS))
            for each in (first, last)
        )
    except InputError as error:
        return {"name": name, "seed": seed, "lost": str(error)}
    growth = end.get("kernel_diagonal_mean", torch.nan) / start.get("kernel_diagonal_mean", torch.nan)
    return {"name": name, "seed": seed, "growth": growth, **end}


def page(table: pd.DataFrame) -> str:
    """One line a factor: the median, all five seeds, and what differs from the default on every seed."""
    reference = table[table.name == DEFAULT]
    return pd.DataFrame(
        [_line(name, runs, reference) for name, runs in table.groupby("name", sort=False)]
    ).to_markdown(index=False, disable_numparse=True)


def _line(name: str, runs: pd.DataFrame, reference: pd.DataFrame) -> dict[str, str]:
    line = {"changed": name, "signs ++-": _signs(runs)}
    for title, (column, form) in COMPARED.items():
        line[title] = _seeds(runs, column, form)
    return {**line, "against the default": _differences(runs, reference)}


def _signs(runs: pd.DataFrame) -> str:
    known = runs.get("signs", pd.Series(dtype=float)).dropna()
    return f"{int(known.sum())} of {len(runs)}" if len(known) else "-"


def _seeds(runs: pd.DataFrame, column: str, form: str) -> str:
    if column not in runs or runs[column].isna().all():
        return "-"
    each = " ".join("lost" if pd.isna(x) else format(x, form) for x in runs[column])
    return f"**{runs[column].median():{form}}** ({each})"


def _differences(runs: pd.DataFrame, reference: pd.DataFrame) -> str:
    """What lies beyond the range of the default's seeds on every seed of a row: no test, but no chance either."""
    if runs.name.iloc[0] == DEFAULT:
        return ""
    found = []
    for title, (column, _) in COMPARED.items():
        known = runs[column].dropna()
        if len(known) == len(runs):
            higher, lower = (
                (known > reference[column].max()).all(),
                (known < reference[column].min()).all(),
            )
            found += [f"{title} {'higher' if higher else 'lower'}"] if higher or lower else []
    return "; ".join(found) or "nothing on every seed"


def main() -> None:
    """Train, measure, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/ablations"))
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    work = [delayed(row)(name, seed, asked.out) for name in ROWS for seed in SEEDS]
    table = pd.DataFrame(Parallel(n_jobs=asked.jobs, verbose=5)(work))
    table.to_csv(asked.out / "table.csv", index=False)
    lost = table.get("lost", pd.Series(dtype=str)).dropna()
    (Path(__file__).parent / "ablations.md").write_text(
        "# One factor at a time from the default\n\n"
        "Command: `python benchmarks/ablations.py`. The default: `tsm`, restricted, 10 tied layers, loss td, sphere "
        f"features (d = 4), S = 10, n = 30, gamma 0.5, 2,000 steps. {NUM_TASKS:,} fresh tasks of the row's own "
        "distribution; bold is the median of seeds 0-4, all five stand beside it. Signs: runs whose identified layers "
        "are all ++-; '-' where w or a normalised kernel is not defined. Diagonal x: mean diagonal of the attention "
        "kernel over visited states, at the end / at step 0. MSVE at the query against the predictor "
        "mean(R) / (1 - gamma) *of the same tasks*, so rows with another task or discount have another yardstick; the "
        "same pooled over the columns of a context. Last column: what lies beyond the range of the default's five "
        "seeds on all five seeds.\n\n"
        + page(table)
        + "\n"
        + "".join(f"\nLost: {table.name[i]}, seed {table.seed[i]}: {why}.\n" for i, why in lost.items()),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
