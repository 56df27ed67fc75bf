"""Pretrain the three tasks on seeds 0-4 and write `lm_series.md` beside this file.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/lm_series.py --out runs/lm [--jobs 2] [--task label-copy ...]

Series and answers are kept, so an interrupted call goes on. Each checkpoint answers 512 fresh prompts, once
greedily and once sampled at temperature 1, through plain transformers.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from joblib import Parallel, delayed
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from valuelens.models import lm

SEEDS = range(5)
PROMPTS = 512
UNTOUCHED = 1_000_000
"""Added to a seed, it seeds prompts that no training drew."""

CHANCE = {
    "label-copy": lambda task: 1 / task.num_labels,
    "modular-sum": lambda task: 1 / task.num_labels,
    "addition": lambda task: 1 / (2 * 10**task.num_digits - 1),
}
"""Expected reward of an answer drawn uniformly among all answers that the task could have."""


def config(task: str, seed: int) -> lm.LMRunConfig:
    """The defaults of `pretrain-lm`."""
    return lm.lm_run_config({"corpus": {"task": task}, "train": {"seed": seed}}, where="benchmark")


def series(task: str, seed: int, out: Path) -> pd.DataFrame:
    """Train one series and let every checkpoint answer."""
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    folder, answers = out / f"{task}-{seed}", out / f"{task}-{seed}.parquet"
    if answers.exists():
        return pd.read_parquet(answers)
    clock = out / f"{task}-{seed}.seconds"
    started = time.process_time()
    lm.pretrain_lm(config(task, seed), folder)
    if not clock.exists():
        clock.write_text(str(time.process_time() - started), encoding="utf-8")
    log = pd.read_parquet(folder / "metrics.parquet")
    rows = []
    for path in sorted(folder.glob("step-*")):
        step = int(path.name.removeprefix("step-"))
        loss = log[log.step <= step].tail(5).loss.mean()
        rows.append({"step": step, "loss": loss, **rewards(path, task, seed)})
    seconds = float(clock.read_text(encoding="utf-8"))
    table = pd.DataFrame(rows).assign(task=task, seed=seed, seconds=seconds)
    table.to_parquet(answers)
    return table


def rewards(path: Path, task: str, seed: int) -> dict[str, float]:
    """Mean reward of a checkpoint's answers."""
    named = lm.task_named(task)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(path), AutoTokenizer.from_pretrained(path)
    prompts = named.prompts(PROMPTS, torch.Generator().manual_seed(UNTOUCHED + seed))
    batch = tokenizer([prompt.text for prompt in prompts], return_tensors="pt", padding=True)
    lengths = {"max_new_tokens": named.completion_length}
    if not named.ends:
        lengths["min_new_tokens"] = named.completion_length
    found = {}
    for name, sampling in {
        "greedy": {"do_sample": False},
        "sampled": {"do_sample": True, "top_k": 0},
    }.items():
        torch.manual_seed(seed)
        ids = model.generate(**batch, **lengths, **sampling)[:, batch["input_ids"].shape[1] :]
        texts = lm.decoded(tokenizer, ids.tolist(), named)
        given = [named.reward(*pair) for pair in zip(prompts, texts, strict=True)]
        found[name] = sum(given) / PROMPTS
    return found


def page(table: pd.DataFrame) -> str:
    """A section for each task: medians over seeds, and the spread of the sampled reward."""
    parts = []
    for task, rows in table.groupby("task", sort=False):
        named: Any = lm.find_task(str(task))
        sizes = ", ".join(f"{key} {value}" for key, value in named.sizes.items())
        each = rows.groupby("seed").seconds.first()
        lines = ["| step | loss | greedy | sampled | sampled, each seed |", "|---|---|---|---|---|"]
        for step, at in rows.groupby("step"):
            spread = " ".join(f"{x:.3f}" for x in at.sampled)
            cells = [step, *(f"{at[key].median():.3f}" for key in ("loss", "greedy", "sampled")), spread]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
        parts.append(
            f"## {task}\n\n{sizes}; shuffled {config(str(task), 0).corpus.shuffled}. Chance: "
            f"{CHANCE[str(task)](named.task):.3f}. Processor time of a series: "
            f"{', '.join(f'{x:.0f}' for x in each)} s.\n\n" + "\n".join(lines) + "\n"
        )
    return "\n".join(parts)


def main() -> None:
    """Train, answer, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/lm"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--task", nargs="*", default=list(CHANCE))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    work = [delayed(series)(task, seed, given.out) for task in given.task for seed in SEEDS]
    table = pd.concat(Parallel(n_jobs=given.jobs, verbose=5)(work))
    (Path(__file__).parent / "lm_series.md").write_text(
        "# Series of `pretrain-lm` at the defaults, seeds 0-4\n\n"
        f"Command: `python benchmarks/lm_series.py`, one thread a process. {PROMPTS} fresh prompts a checkpoint; "
        "medians over seeds. Loss: nats a token, over prompt and answer, mean of the last five logged steps up to the "
        "checkpoint (a prompt cannot be foretold, so it stays far from 0). Chance: the expected reward of an answer "
        "drawn uniformly among the possible ones.\n\n" + page(table),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
