"""Relaxed and discrete gap of hop 0 against entropy, on label-copying checkpoints that we train (theory B4).

Writes `discrete_gap.md` and `discrete_gap.svg` beside it.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/discrete_gap.py

Fixed before any gap was looked at: task, model, seeds 0 to 2, prompts, and which checkpoints are taken: of each series,
for each of five entropies, the one whose mean entropy is nearest in logarithm.
"""

import argparse
import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from valuelens.models.lm import (
    LabelCopy,
    LanguageModel,
    LMCorpusConfig,
    LMModelConfig,
    LMRunConfig,
    LMTrainConfig,
    Prompt,
    load_language_model,
    pretrain_lm,
    series,
)
from valuelens.probe import (
    Relaxation,
    Sequences,
    TargetProbability,
    continuations,
    enumerated_value_gradient,
    hop_batches,
    token_scores,
)

SEEDS = (0, 1, 2)
ENTROPIES = (1.5, 1.0, 0.45, 0.15, 0.03)
PROMPTS, SIZES = 8, {"num_items": 3, "num_labels": 3, "num_pairs": 3}
MODEL = LMModelConfig(num_layers=3, d_model=32, num_heads=4)
STEPS, CHECKPOINTS, RATE = 600, 40, 0.002
LAYERS = (0, 1, 2)
THEORY = (
    (1.51, 0.138, 0.141, 0.118),
    (0.97, 0.36, 0.34, 0.46),
    (0.45, 0.39, 0.39, 1.02),
    (0.16, 0.13, 0.34, 0.58),
)
THEORY += ((0.034, 0.01, 0.37, 0.69), (0.002, 0.0, 0.50, 0.71))
"""Of 16 random nets: entropy, relaxed gap, discrete gap of hop 0, error of the relaxed sum."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gaps:
    """Of one checkpoint, a layer each.

    Attributes:
        relaxed: |sum of hops - hop 0| / |sum of hops|.
        discrete: |dV/dh - hop 0| / |dV/dh|.
        error: |sum of hops - dV/dh| / |dV/dh|.
    """

    relaxed: list[float]
    discrete: list[float]
    error: list[float]


def trained(folder: Path) -> dict[int, list[Path]]:
    """A series of checkpoints for each seed."""
    config = LMRunConfig(
        corpus=LMCorpusConfig(task="label-copy", shuffled=0.0, sizes=SIZES),
        model=MODEL,
        train=LMTrainConfig(steps=STEPS, num_checkpoints=CHECKPOINTS, learning_rate=RATE, seed=SEEDS[0]),
    )
    pretrain_lm(config, folder, num_seeds=len(SEEDS))
    return {seed: series(folder / f"seed-{seed}") for seed in SEEDS}


def enumerated(language_model: LanguageModel) -> Iterator[tuple[Sequences, TargetProbability]]:
    """Every continuation of each prompt, and the probability of its right labels."""
    tokenizer: Any = language_model.tokenizer
    prompts: list[Prompt] = LabelCopy(**SIZES).prompts(PROMPTS, torch.Generator().manual_seed(7))
    for prompt in prompts:
        ids, answer = (
            tokenizer(text, add_special_tokens=False).input_ids for text in (prompt.text, prompt.answer)
        )
        every = continuations(ids, vocabulary=len(tokenizer), horizon=len(answer))
        yield every, TargetProbability(targets=torch.tensor([answer]))


def entropy(language_model: LanguageModel) -> float:
    """Expected entropy of the policy, in nats, mean over states and prompts."""
    found = []
    for every, _ in enumerated(language_model):
        scores = token_scores(language_model.model, every, micro_batch=1024)
        weight = scores.log_prob.double().sum(-1).exp()
        found.append(float((weight * scores.entropy.double().mean(-1)).sum()))
    return sum(found) / len(found)


def nearest(entropies: list[float]) -> list[int]:
    """The checkpoint of each of `ENTROPIES`."""
    return [
        min(range(len(entropies)), key=lambda at: abs(math.log(entropies[at] / wanted)))
        for wanted in ENTROPIES
    ]


def gaps(language_model: LanguageModel) -> tuple[Gaps, Gaps]:
    """At the start state, expectations over all continuations: norms pooled over prompts, and the median prompt."""
    model, parts = language_model.model, []
    for every, reward in enumerated(language_model):
        truth = enumerated_value_gradient(model, every, reward.values, layers=LAYERS)
        (hops,) = hop_batches(
            model,
            every,
            reward,
            layers=LAYERS,
            relaxation=Relaxation(max_hops=every.valid.shape[1], tolerance=0.0),
            micro_batch=len(every.input_ids),
        )
        weight = truth.log_prob.double().exp()
        discrete = truth.values.double()
        direct, relaxed = (
            torch.einsum("b,bld->ld", weight, each[:, :, 0].double())
            for each in (hops.values[:, 0], hops.relaxed)
        )
        five = (relaxed - direct, relaxed, discrete - direct, discrete, relaxed - discrete)
        parts.append(torch.stack([part.square().sum(-1) for part in five]))
    each = torch.stack(parts).sqrt()
    return ratios(each.square().sum(0).sqrt()[None]), ratios(each)


def ratios(norms: Tensor) -> Gaps:
    """Medians over the first axis of ratios of norms [prompt part layer], parts as in `gaps`."""
    found = [norms[:, top] / norms[:, bottom] for top, bottom in ((0, 1), (2, 3), (4, 3))]
    middle = [each.quantile(0.5, dim=0).tolist() for each in found]
    return Gaps(relaxed=middle[0], discrete=middle[1], error=middle[2])


Row = tuple[int, str, float, Gaps]
"""Seed, checkpoint, entropy and gaps."""


def measured(folder: Path) -> tuple[list[Row], list[Row]]:
    """Pooled and of the median prompt, the entropies of `ENTROPIES` in turn for each seed."""
    pooled, middle = [], []
    for seed, checkpoints in trained(folder).items():
        entropies = [entropy(load_language_model(path)) for path in checkpoints]
        for at in nearest(entropies):
            both = gaps(load_language_model(checkpoints[at]))
            for rows, found in zip((pooled, middle), both, strict=True):
                rows.append((seed, checkpoints[at].name, entropies[at], found))
    return pooled, middle


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def spread(values: list[float]) -> str:
    """Median and range."""
    return f"{median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def summary(found: list[Row], layer: int) -> list[tuple[str, ...]]:
    """A row for each entropy: medians and ranges over seeds, beside theory's numbers."""
    rows = []
    for place, wanted in enumerate(ENTROPIES):
        mine = found[place :: len(ENTROPIES)]
        columns = [
            [getattr(each[3], name)[layer] for each in mine] for name in ("relaxed", "discrete", "error")
        ]
        nearby = min(THEORY, key=lambda row: abs(math.log(row[0] / wanted)))
        beside = f"{nearby[0]:g}: " + " / ".join(f"{each:g}" for each in nearby[1:])
        rows.append((spread([each[2] for each in mine]), *map(spread, columns), beside))
    return rows


def claims(found: list[Row], layer: int) -> str:
    """What theory B4 says, and whether each of these checkpoints agrees."""
    first, last = found[0 :: len(ENTROPIES)], found[len(ENTROPIES) - 1 :: len(ENTROPIES)]
    pairs = list(zip(first, last, strict=True))
    closes = sum(b[3].relaxed[layer] < a[3].relaxed[layer] for a, b in pairs)
    stays = sum(b[3].discrete[layer] >= a[3].discrete[layer] for a, b in pairs)
    worse = sum(each[3].error[layer] > each[3].discrete[layer] for each in last)
    return "\n".join(
        (
            f"* The relaxed gap is smaller at the lowest entropy than at the highest: {closes} of {len(pairs)} seeds.",
            f"* The discrete gap of hop 0 is not: {stays} of {len(pairs)} seeds.",
            "* At the lowest entropy the relaxed sum is further from the truth than hop 0 alone: "
            f"{worse} of {len(pairs)} seeds.",
        )
    )


def draw(found: list[Row], layer: int, file: Path) -> None:
    """The three curves against entropy, a point for each checkpoint, a line through the medians."""
    plt.rcParams["svg.hashsalt"] = "valuelens"
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    names = {
        "relaxed": "relaxed gap of hop 0",
        "discrete": "discrete gap of hop 0",
        "error": "relaxed sum against the truth",
    }
    count = len(ENTROPIES)
    middle = [median(each[2] for each in found[place::count]) for place in range(count)]
    for mark, (name, label) in zip("os^", names.items(), strict=True):
        values = [getattr(each[3], name)[layer] for each in found]
        (line,) = axes.plot(middle, [median(values[place::count]) for place in range(count)], label=label)
        axes.plot([each[2] for each in found], values, mark, color=line.get_color(), alpha=0.6)
    axes.set(xscale="log", xlabel="entropy of the policy (nats)", ylabel="relative gap", ylim=(0, None))
    axes.legend(frameon=False)
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    """Train, measure, write the page."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        found, middle = measured(Path(folder))
    layer = MODEL.num_layers // 2
    file = Path(__file__)
    draw(found, layer, file.with_suffix(".svg"))
    head = ("entropy", "relaxed gap", "discrete gap of hop 0", "error of the relaxed sum")
    every = [
        (
            *(str(seed), name, f"{nats:.3f}", str(at)),
            *(f"{getattr(gap, each)[place]:.3f}" for each in ("relaxed", "discrete", "error")),
        )
        for seed, name, nats, gap in found
        for place, at in enumerate(LAYERS)
    ]
    page = f"""# Relaxed and discrete gap of a differentiable reward, on trained models

`OMP_NUM_THREADS=1 .venv/bin/python benchmarks/discrete_gap.py`, torch {torch.__version__}, one thread, float32;
{time.process_time() - started:.0f} processor seconds.

Label copying with 3 items, 3 labels, 3 pairs; nothing in the corpus is shuffled, so that training takes entropy down.
Llamas of {MODEL.num_layers} layers, width {MODEL.d_model}, {MODEL.num_heads} heads; {STEPS} steps at {RATE}; seeds 0-2.
Objective `reward`: mean probability of the right labels. At the start state of {PROMPTS} prompts, expectations over all
729 continuations; norms pooled over prompts. Rule, fixed before any gap was looked at: of the {CHECKPOINTS} log-spaced
checkpoints of a series, for each of the entropies {", ".join(map(str, ENTROPIES))} the one nearest in logarithm.

* relaxed gap: |relaxed sum - hop 0| / |relaxed sum|
* discrete gap of hop 0: |dV/dh - hop 0| / |dV/dh|, dV/dh enumerated
* error of the relaxed sum: |relaxed sum - dV/dh| / |dV/dh|

## Layer {layer} of {MODEL.num_layers}: median over seeds (least to greatest)

{table((*head, "theory B4, random nets"), summary(found, layer))}

![Three gaps against entropy](discrete_gap.svg)

{claims(found, layer)}

## The same of the median prompt

Added after the table above had been seen, so no part of the rule: single prompts can make most of a pooled gap, and
theory's numbers are medians (over nets).

{table((*head, "theory B4, random nets"), summary(middle, layer))}

{claims(middle, layer)}

## Every checkpoint and layer, pooled over prompts

{table(("seed", "checkpoint", "entropy", "layer", *head[1:]), every)}
"""
    file.with_suffix(".md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
