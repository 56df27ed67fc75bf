"""What opaque transformers decode and how patches act: planted, trained and untrained ones, seeds 0-4.

Run from the repository root with the runs of `benchmarks/pretraining.py` in place: `python benchmarks/opaque.py`.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch
from joblib import Parallel, delayed

from valuelens.analyses import Finding, opaque, subject
from valuelens.models.icrl import (
    ModelConfig,
    TaskConfig,
    ValueLearner,
    build,
    load,
    one_thread,
    planted_transformer,
)

SEEDS = range(5)
NUM_TASKS = 256
SOFTMAX = "weighted softmax TD"
QUANTITIES = ("v_l(S_j)", "v_l(S_j+1)", "TD error of v_l", "x(S_j+1)", "R_j+1", "v_pi(S_j)", "v_pi(S_j+1)")
TAUGHT = ("v_l(S_j)", "v_l(S_j+1)", "TD error of v_l", "x(S_j+1)", "R_j+1")
LAYER = 2
"""The last layer that still has one behind it."""


def planted(seed: int, runs: Path) -> ValueLearner:
    """theta* with a random step size and sharpness, hidden."""
    generator = torch.Generator().manual_seed(seed)
    alpha, c = torch.rand(2, generator=generator).tolist()
    return planted_transformer(
        feature_dim=4,
        context_length=30,
        gamma=0.5,
        alpha=0.5 + 0.7 * alpha,
        sharpness=1 + 5 * c,
        generator=generator,
    )


def trained(name: str) -> Callable[[int, Path], ValueLearner]:
    """The last checkpoint of a run."""

    def last(seed: int, runs: Path) -> ValueLearner:
        return load(sorted((runs / name / f"seed-{seed}" / "checkpoints").iterdir())[-1])

    return last


def untrained(seed: int, runs: Path) -> ValueLearner:
    """Initial parameters."""
    return build(ModelConfig(arch="transformer"), TaskConfig(), torch.Generator().manual_seed(seed))


GROUPS: dict[str, Callable[[int, Path], ValueLearner]] = {
    "planted": planted,
    "trained": trained("transformer"),
    "trained, causal": trained("transformer-causal_True"),
    "trained, set-only": trained("transformer-positions_False"),
    "untrained": untrained,
}


def rows(group: str, seed: int, runs: Path) -> list[dict[str, object]]:
    """Everything that `opaque` finds on one model."""
    with one_thread():
        result = opaque(subject(GROUPS[group](seed, runs), TaskConfig(), num_tasks=NUM_TASKS, seed=seed))
    return [{"group": group, "seed": seed, **_row(finding)} for finding in result.findings]


def _row(finding: Finding) -> dict[str, object]:
    low, high = finding.interval or (None, None)
    control = finding.control.estimate if finding.control else None
    beside = control if isinstance(control, list) else [control]
    return {
        "name": finding.name,
        **{key: str(value) for key, value in finding.index.items()},
        "text": str(finding.estimate),
        "estimate": finding.estimate if isinstance(finding.estimate, float) else None,
        "low": low,
        "high": high,
        **{f"control {i}": each for i, each in enumerate(beside)},
    }


def page(table: pd.DataFrame) -> str:
    """All tables of the page."""
    table = table.assign(rule=table.rule.fillna(SOFTMAX))
    return "\n\n".join(
        f"## {title}\n\n{note}\n\n{made.to_markdown(disable_numparse=True)}"
        for title, note, made in (
            (
                "In words",
                "`opaque_reading` of each seed. Error: squared values that the fitted rule misses on other tasks, as a "
                "share of all.",
                _words(table),
            ),
            (
                f"Decoding after layer {LAYER}",
                "R^2 on held-out contexts, median of the seeds (least to largest) / the median of the same iterates in "
                "a network of the same shape at its initial parameters. Control labels stand above.",
                _decoding(table),
            ),
            (
                "Patches",
                "|| measured - predicted || / || predicted || of the returned values, median over seeds (least to "
                "largest): 0 is exact, 1 no better than predicting no change. A dash: not decodable (R^2 below .8) on "
                "any seed, or no step behind it; where some seeds have none, their number stands beside.",
                _patches(table),
            ),
            (
                "Heads",
                "Attention on transitions shared with the kernel of the fitted softmax TD: the best head of each "
                "layer, median over seeds / even attention.",
                _heads(table),
            ),
        )
    )


def _words(table: pd.DataFrame) -> pd.DataFrame:
    found = {}
    for group, part in table.groupby("group", sort=False):
        reading = part[part.name == "opaque_reading"].text.value_counts()
        errors = part[part.name == "returned_rule_error"].groupby("rule").estimate
        found[group] = {
            "reading (seeds)": "; ".join(f"{text} ({count})" for text, count in reading.items()),
            **{f"error of {rule}": _spread(each, ".3f") for rule, each in errors},
        }
    return pd.DataFrame(found).T


def _decoding(table: pd.DataFrame) -> pd.DataFrame:
    here = table[(table.layer == str(LAYER)) & (table.rule == SOFTMAX)]
    found = {}
    for group, part in here.groupby("group", sort=False):
        line = {}
        for quantity in QUANTITIES:
            own = part[(part.name == "decodability") & (part.quantity == quantity)]
            blank = part[
                (part.name == "selectivity")
                & (part.quantity == quantity)
                & (part.against == "an untrained network")
            ]
            line[quantity] = f"{_spread(own.estimate, '.3f')} / {blank['control 0'].median():.3f}"
        found[group] = line
    return pd.DataFrame(found).T


def _patches(table: pd.DataFrame) -> pd.DataFrame:
    here = table[(table.name == "patch_response") & (table.response == "returned values")]
    found = {}
    for group, part in here.groupby("group", sort=False):
        line = {}
        for layer in ("0", "1", "2"):
            for memory in ("current", "target", "both"):
                each = part[(part.layer == layer) & (part.memory == memory)]
                line[f"layer {layer}, {memory}"] = _spread(each.estimate, ".2g")
        known = part[(part.memory == "current") & (part.layer != "0")]
        line["random direction"] = _spread(known["control 0"], ".2g")
        line["probe of another context"] = _spread(known["control 1"], ".2g")
        found[group] = line
    return pd.DataFrame(found).T


def _heads(table: pd.DataFrame) -> pd.DataFrame:
    here = table[table.name == "head_agreement"]
    best = here.groupby(["group", "seed", "layer"], sort=False)[["estimate", "control 0"]].max()
    middle = best.groupby(["group", "layer"], sort=False).median()
    return pd.DataFrame(
        {
            group: {
                f"layer {layer}": f"{line['estimate']:.2f} / {line['control 0']:.2f}"
                for (_, layer), line in part.iterrows()
            }
            for group, part in middle.groupby("group", sort=False)
        }
    ).T


def _spread(sample: pd.Series, form: str) -> str:
    known = sample.dropna()
    if known.empty:
        return "-"
    missing = len(sample) - len(known)
    words = f"{known.median():{form}} ({known.min():{form}} to {known.max():{form}})"
    return f"{words}, {missing} without" if missing else words


def criteria(table: pd.DataFrame) -> str:
    """The two numbers that planted models must reach, and chance."""
    part = table[table.group == "planted"]
    taught = part[
        (part.name == "decodability")
        & part.quantity.isin(TAUGHT)
        & part.layer.isin(["1", "2", "3"])
        & part.rule.fillna(SOFTMAX).eq(SOFTMAX)
    ]
    gaps = part[(part.name == "patch_response") & part.layer.isin(["1", "2"])].estimate
    chance = table[table.name == "decodability"]
    return (
        f"Planted, worst over seeds, layers 1-3 and {', '.join(TAUGHT)}: R^2 = {taught.estimate.min():.6f} (to be .99)."
        f" Worst patch response over seeds, layers 1 and 2, memories, returned values and next block: {gaps.max():.2g} "
        f"of the predicted change (to be .02).\n\n"
        f"Control labels, all models, layers and quantities: R^2 of labels of another context at most "
        f"{chance['control 0'].max():.4f}, of shuffled labels at most {chance['control 1'].max():.4f}."
    )


def main() -> None:
    """Measure, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/benchmark"))
    parser.add_argument("--out", type=Path, default=Path("runs/opaque.csv"))
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    work = [delayed(rows)(group, seed, asked.runs) for group in GROUPS for seed in SEEDS]
    table = pd.DataFrame([line for part in Parallel(n_jobs=asked.jobs, verbose=5)(work) for line in part])
    table.to_csv(asked.out, index=False)
    (Path(__file__).parent / "opaque.md").write_text(
        "# Opaque transformers\n\n"
        f"Command: `python benchmarks/opaque.py`. {NUM_TASKS} fresh default tasks each, of which `opaque` decodes the "
        "first 128 and patches the first 64; seeds 0-4. Planted: alpha in .5-1.2, c in 1-6 and the rotation by the "
        "seed; the others as `benchmarks/pretraining.py` trains them, or at their initial parameters. Nothing was "
        "tuned on these seeds.\n\n" + criteria(table) + "\n\n" + page(table) + "\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
