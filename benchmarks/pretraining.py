"""Train every architecture on seeds 0-4 and write `arch.md` and `defaults.md` beside this file.

    .venv/bin/python benchmarks/pretraining.py --out runs/benchmark [--jobs 2]

Runs are kept and continued, so an interrupted call goes on. Judged on 1,024 fresh tasks that no run trained on.
"""

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch
from joblib import Parallel, delayed

from valuelens.analyses import measurements, subject
from valuelens.models import icrl

SEEDS = range(5)
NUM_TASKS = 1024
_SLOT = [
    {"arch": arch, "weights": weights, "tied": tied, "num_layers": 10 if tied and arch != "linear" else 3}
    for arch, kinds in {
        "tsm": ("restricted", "full", "factored"),
        "dual": ("restricted", "full", "factored"),
        "linear": ("restricted", "full"),
    }.items()
    for weights in kinds
    for tied in (True, False)
]
MODELS: list[dict[str, Any]] = [
    *_SLOT,
    *({**model, "representable": True} for model in _SLOT if model["arch"] == "linear"),
    {"arch": "transformer"},
    {"arch": "transformer", "positions": False},
    {"arch": "transformer", "causal": True},
]


def name_of(model: dict[str, Any]) -> str:
    """A folder name that tells the model."""
    return "-".join(
        str(value) if not isinstance(value, bool) else f"{key}_{value}" for key, value in model.items()
    )


def row(model: dict[str, Any], seed: int, out: Path) -> dict[str, Any]:
    """Train one model and measure it at step 0 and at the end."""
    torch.set_num_threads(1)
    task = {key: value for key, value in model.items() if key == "representable"}
    parts = {"task": task, "model": {key: value for key, value in model.items() if key not in task}}
    config = icrl.run_config({**parts, "train": {"seed": seed}}, where="benchmark")
    run = out / name_of(model) / f"seed-{seed}"
    clock = run / "seconds.txt"
    started = time.process_time()
    last = icrl.pretrain(config, run)[0] if not clock.exists() else icrl.checkpoint_paths(run)[-1]
    if not clock.exists():
        clock.write_text(str(time.process_time() - started), encoding="utf-8")
    first = icrl.checkpoint_paths(run)[0]
    start, end = (
        measurements(subject(icrl.load(each.path), config.task, num_tasks=NUM_TASKS))
        for each in (first, last)
    )
    described = {
        **config.model.model_dump(),
        "representable": config.task.representable,
        "steps": config.train.steps,
        "seed": seed,
    }
    times = {"seconds": float(clock.read_text(encoding="utf-8"))}
    tripled = {"diagonal_start": start.get("kernel_diagonal_mean", float("nan"))}
    return {"name": name_of(model), **described, **times, **tripled, **end}


def arch_page(table: pd.DataFrame) -> str:
    """One line a model: medians, and every seed."""
    head = [
        "architecture",
        "weights",
        "layers",
        "steps",
        "seconds",
        "msve_vs_constant",
        "seeds 0-4",
        "the same over contexts",
        "seeds 0-4",
        "within_chain_r2",
        "seeds 0-4",
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for _, runs in table.groupby("name", sort=False):
        each = runs.iloc[0]
        cells = [
            _architecture(each),
            "-" if each.arch == "transformer" else each.weights,
            _layers(each),
            each.steps,
        ]
        cells += [f"{median(runs.seconds):.0f}"]
        for column in ("msve_vs_constant", "context_msve_vs_constant", "within_chain_r2"):
            cells += [f"**{median(runs[column]):.3f}**", " ".join(f"{x:.3f}" for x in runs[column])]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)


def remarks(table: pd.DataFrame) -> str:
    """What the table does not say by itself."""
    lost = table[(table.within_chain_r2 < 0.5) & (table.arch != "linear")]
    named = ", ".join(f"{name} seed {seed}" for name, seed in zip(lost["name"], lost["seed"], strict=True))
    transformer, blind = (
        median(table[table.name == name_of(model)].msve_vs_constant)
        for model in ({"arch": "transformer"}, {"arch": "transformer", "positions": False})
    )
    return (
        "The query S_n may be a state that its context never left, so errors there have heavy tails; pooled over the "
        "columns of a context they say more. Linear attention cannot represent the values of 10 states in 4 features; "
        "on representable tasks they are linear in the features. "
        f"Runs that did not learn (within-chain R2 below .5): {named or 'none'}. Median error at the query of the "
        f"standard transformer and of its set-only control, which cannot see which state follows which: "
        f"{transformer:.3f} and {blind:.3f} of the constant predictor's; what successors add is the difference, "
        f"{blind - transformer:+.3f}."
    )


def defaults_page(table: pd.DataFrame) -> str:
    """What the issue asks of the default model, seed by seed."""
    runs = table[table.name == name_of(MODELS[0])]
    columns = {
        "signs ++-": runs.signs.map({1.0: "yes", 0.0: "no"}),
        "w_R, w_T, w_C": [f"{r.w_R:.2f}, {r.w_T:.2f}, {r.w_C:.2f}" for r in runs.itertuples()],
        "cosine": runs.weight_cosine.map("{:.4f}".format),
        "effective discount": runs.effective_discount.map("{:.3f}".format),
        "kernel diagonal": [
            f"{r.diagonal_start:.3f} -> {r.kernel_diagonal_mean:.3f}" for r in runs.itertuples()
        ],
        "MSVE / constant's": runs.msve_vs_constant.map("{:.3f}".format),
        "within-chain R2": runs.within_chain_r2.map("{:.3f}".format),
    }
    frame = pd.DataFrame({"seed": runs.seed.to_numpy(), **{k: list(v) for k, v in columns.items()}})
    growth = runs.kernel_diagonal_mean / runs.diagonal_start
    summary = (
        f"Median of seeds 0-4: cosine {median(runs.weight_cosine):.4f}, diagonal grows {median(growth):.1f}-fold, "
        f"MSVE {median(runs.msve_vs_constant):.3f} of the constant predictor's, "
        f"within-chain R2 {median(runs.within_chain_r2):.3f}; signs ++- on {int(runs.signs.sum())} of {len(runs)}."
    )
    head = "| " + " | ".join(frame.columns) + " |\n|" + "---|" * len(frame.columns)
    body = "\n".join("| " + " | ".join(map(str, line)) + " |" for line in frame.itertuples(index=False))
    return f"{head}\n{body}\n\n{summary}"


def _architecture(each: Any) -> str:
    if each.arch != "transformer":
        return f"{each.arch}{', representable tasks' if each.representable else ''}"
    kind = "" if each.positions else " (set-only)"
    return f"transformer{kind}{', causal' if each.causal else ''}{', RMSNorm' if each.normalization == 'rms' else ''}"


def _layers(each: Any) -> str:
    return (
        str(each.num_layers)
        if each.arch == "transformer"
        else f"{each.num_layers} {'tied' if each.tied else 'untied'}"
    )


def main() -> None:
    """Train, measure, write the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark"))
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    work = [delayed(row)(model, seed, asked.out) for model in MODELS for seed in SEEDS]
    table = pd.DataFrame(Parallel(n_jobs=asked.jobs, verbose=5)(work))
    table.to_csv(asked.out / "table.csv", index=False)
    here = Path(__file__).parent
    command = "`python benchmarks/pretraining.py`, one thread a process, two processes on 2 cores"
    (here / "arch.md").write_text(
        "# Every architecture at the defaults (sphere features, d = 4, S = 10, n = 30, gamma 0.5)\n\n"
        f"Command: {command}. MSVE at the query against the predictor mean(R) / (1 - gamma), and within-chain R2, on "
        f"{NUM_TASKS:,} fresh tasks; bold is the median of seeds 0-4, all five stand beside it. Seconds are the "
        "median processor time of the training alone.\n\n"
        + arch_page(table)
        + "\n\n"
        + remarks(table)
        + "\n",
        encoding="utf-8",
    )
    (here / "defaults.md").write_text(
        "# The default model: tied, restricted, 10 layers, seeds 0-4\n\n"
        f"Command: {command}. {NUM_TASKS:,} fresh tasks.\n\n" + defaults_page(table) + "\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
