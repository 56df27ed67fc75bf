"""From which checkpoint should RL start? Follows `impact_protocol.toml` and writes `impact.md` and its figures.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/impact.py --out runs/impact [--jobs 2]   # series, scores, gains
    .venv/bin/python benchmarks/impact.py --out runs/impact --page                          # the page, from its file

The first call pretrains the series that are missing, answers every question that `runs/impact/cache` does not hold yet,
and writes `impact_results.json` beside this file; the second inserts its numbers into the page. An interrupted call
goes on.
"""

import argparse
import itertools
import json
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from impact_page import write_page

from valuelens.analyses import RolloutSource
from valuelens.analyses.impact import (
    Execution,
    ImpactConfig,
    ScoreConfig,
    Workers,
    impact_result,
    impact_run,
    members,
)
from valuelens.models import lm
from valuelens.probe import student_interval

HERE = Path(__file__).parent
PROTOCOL = HERE / "impact_protocol.toml"
RESULTS = HERE / "impact_results.json"
ORDER = ("default", "fast", "long")


def protocol() -> dict[str, Any]:
    """The committed plan."""
    return tomllib.loads(PROTOCOL.read_text(encoding="utf-8"))


def protocol_commit() -> str:
    """The commit that the plan was last changed at; refuses one that is not committed."""
    git = ["git", "-C", str(HERE)]
    changed = subprocess.run(
        [*git, "status", "--porcelain", str(PROTOCOL)], capture_output=True, text=True, check=True
    )
    if changed.stdout:
        raise SystemExit(f"{PROTOCOL} must be committed before a gain is computed")
    log = [*git, "log", "-1", "--format=%H", "--", str(PROTOCOL)]
    return subprocess.run(log, capture_output=True, text=True, check=True).stdout.strip()


def corpora(plan: Mapping[str, Any]) -> Iterator[tuple[str, lm.LMRunConfig]]:
    """Each series by name, with its configuration."""
    for seed, task in itertools.product(plan["series"]["seeds"], plan["series"]["task"]):
        for shuffled in task["shuffled"]:
            parts = {"corpus": {"task": task["name"], "shuffled": shuffled}, "train": {"seed": seed}}
            yield f"{task['name']}-{shuffled}-{seed}", lm.lm_run_config(parts, where=str(PROTOCOL))


def realised(plan: Mapping[str, Any], out: Path, jobs: int) -> dict[str, pd.DataFrame]:
    """Scores, gains and curves of every series and recipe."""
    parts: dict[str, list[pd.DataFrame]] = {"scores": [], "gains": [], "curves": []}
    by_task: dict[str, list[str]] = {}
    for name, config in corpora(plan):
        lm.pretrain_lm(config, out / "series" / name)  # at once where it is there
        by_task.setdefault(config.corpus.task, []).append(name)
    for recipe, (task, names) in itertools.product(ORDER, by_task.items()):
        asked = plan["gains"][recipe]
        chosen = names if asked["series"] == "all" else [each for each in names if each in asked["series"]]
        if not chosen:
            continue
        found = members([str(out / "series" / each) for each in chosen])
        scores = plan["scores"]
        rollouts = {key: scores[key] for key in ("num_prompts", "num_generations", "seed")}
        source = RolloutSource(task=lm.find_task(task), generate=lm.GenerateConfig(**rollouts))
        result = impact_run(
            found,
            source,
            ImpactConfig(
                score=ScoreConfig(
                    signal=scores["signal"],
                    headroom=scores["headroom"],
                    beta=scores["beta"],
                    every_variant=True,
                    seed=scores["seed"],
                ),
                recipe=recipe,
                rl_seeds=len(asked["rl_seeds"]),
                cut=asked["cut"],
                seed=asked["rl_seeds"][0],
            ),
            execution=Execution(workers=Workers(jobs=jobs), warn=print, cache=out / "cache"),
            progress=lambda what, done, total: print(f"{what}: {done} of {total}", flush=True),
        )
        if result.skipped:
            raise SystemExit(f"nothing may be left out: {result.skipped}")
        if recipe == "default":
            parts["scores"].append(result.tables["scores"])
        parts["gains"].append(result.tables["gains"])
        parts["curves"].append(result.tables["curves"])
    return {name: pd.concat(tables, ignore_index=True) for name, tables in parts.items()}


def summary(commit: str, tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """Everything that the page says, as data."""
    config = ScoreConfig(signal="auto", every_variant=True)
    result = impact_result(tables["scores"], tables["gains"], tables["curves"], config)
    addition = {name: table[table.series.str.startswith("addition")] for name, table in tables.items()}
    untouched = impact_result(addition["scores"], addition["gains"], addition["curves"], config)
    return {
        "protocol_commit": commit,
        "verdict": result.verdict,
        "judgement": rows(shown(result.tables["judgement"])),
        "addition": rows(untouched.tables["judgement"].query("series == 'pooled'")),
        "checkpoints": rows(by_checkpoint(tables)),
        "credit": rows(credit(tables["gains"])),
    }


def shown(judgement: pd.DataFrame) -> pd.DataFrame:
    """What the page says: all that is pooled, and of single series the correlations with gain and the regret."""
    pooled = judgement.series == "pooled"
    ranks = (judgement.statistic == "spearman") & (judgement.target == "gain")
    return judgement[pooled | ((judgement.recipe == "default") & (ranks | (judgement.statistic == "regret")))]


def rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A table as JSON, with five digits behind the point, without what is not there."""
    found = json.loads(table.to_json(orient="records", double_precision=5))
    return [{key: value for key, value in row.items() if value not in (None, "")} for row in found]


def by_checkpoint(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Scores, and mean gains of every recipe, with and without credit cut."""
    gains = tables["gains"].assign(
        run=lambda t: "gain_" + t.recipe + t.cut.astype(bool).map({True: "_cut", False: ""})
    )
    wide = gains.pivot_table(index=["series", "checkpoint"], columns="run", values="gain", aggfunc="mean")
    after = gains[gains.run == "gain_default"].groupby(["series", "checkpoint"]).reward_after.mean()
    return tables["scores"].merge(wide.assign(final_reward=after).reset_index(), on=["series", "checkpoint"])


def credit(gains: pd.DataFrame) -> pd.DataFrame:
    """What attention-carried credit adds to the gain of the long recipe, paired by RL seed."""
    long = gains[gains.recipe == "long"]
    table = long.pivot_table(index=["checkpoint", "rl_seed"], columns=long.cut.astype(bool), values="gain")
    before = long.groupby("checkpoint").reward_before.mean()
    found = []
    for checkpoint, pairs in table.groupby("checkpoint"):
        difference = torch.tensor((pairs[False] - pairs[True]).to_numpy())
        low, high = student_interval(difference) or (None, None)
        found.append(
            {
                "checkpoint": checkpoint,
                "reward_before": before[checkpoint],
                "gain": pairs[False].mean(),
                "gain_cut": pairs[True].mean(),
                "credit_gain": float(difference.mean()),
                "low": low,
                "high": high,
                "each": " ".join(f"{x:.2f}" for x in difference),
            }
        )
    return pd.DataFrame(found)


def main() -> None:
    """Run, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/impact"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    if not given.page:
        commit = protocol_commit()
        tables = realised(protocol(), given.out, given.jobs)
        RESULTS.write_text(json.dumps(summary(commit, tables), indent=0) + "\n", encoding="utf-8")
    else:
        write_page(json.loads(RESULTS.read_text(encoding="utf-8")), HERE)


if __name__ == "__main__":
    main()
