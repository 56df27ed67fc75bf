"""The verbs on language models, as the command line takes them; heavy imports wait until one runs."""

from pathlib import Path
from typing import Annotated

import typer

from valuelens._complete import LM_PRECISIONS, PRECISIONS, named
from valuelens._complete import models as hub_models
from valuelens._options import (
    Device,
    Jobs,
    Json,
    Out,
    Overwrite,
    Quiet,
    RequiredOut,
    Seed,
    choice,
    emit,
    setting,
)
from valuelens._terminal import hushed, say, say_where

RewardTargets = Annotated[
    str | None, setting("--reward-targets", "Column of right tokens: reward is their probability.", "none")
]
MaxHops = Annotated[
    int, typer.Option("--max-hops", help="Sampled tokens that credit is followed across (reward).")
]
Tolerance = Annotated[
    float, typer.Option("--tolerance", help="Share of the sum over hops that may be left out.")
]
NumItems = Annotated[int | None, setting("--num-items", "Size of the task.", "its own")]
NumLabels = Annotated[int | None, setting("--num-labels", "Size of the task.", "its own")]
NumPairs = Annotated[int | None, setting("--num-pairs", "Size of the task.", "its own")]
NumDigits = Annotated[int | None, setting("--num-digits", "Size of the task.", "its own")]
NumPrompts = Annotated[int, typer.Option("--num-prompts", help="Groups.")]
NumGenerations = Annotated[int, typer.Option("--num-generations", help="Rollouts of a group.")]
Temperature = Annotated[float, typer.Option("--temperature", help="Of the sampling.")]
TopK = Annotated[int, typer.Option("--top-k", help="Likeliest tokens sampled from; 0 for all.")]
TopP = Annotated[float, typer.Option("--top-p", help="Probability sampled from.")]
MicroBatch = Annotated[int, typer.Option("--micro-batch", help="Rollouts a pass; bounds memory.")]
CompletionEnds = Annotated[
    str, choice("--completion-ends", "Whether completions end by themselves: auto, yes, no.")
]
Base = Annotated[str | None, setting("--base", "What an adapter was trained on.", "what it says")]
Dtype = Annotated[str, choice("--dtype", "float32, bfloat16 or float64.", named(LM_PRECISIONS))]


def pretrain_lm(
    out: RequiredOut,
    task: Annotated[
        str | None,
        setting("--task", "label-copy, modular-sum, addition, or package.module:Task.", "label-copy"),
    ] = None,
    shuffled: Annotated[
        float | None,
        setting(
            "--shuffled",
            "Share of texts whose answer is shuffled (addition: wrong; modular-sum: right).",
            "0.2",
        ),
    ] = None,
    num_items: Annotated[int | None, setting("--num-items", "Items to draw from (label-copy).", "12")] = None,
    num_labels: Annotated[
        int | None,
        setting("--num-labels", "Labels to draw from; the modulus of modular-sum.", "6; 5 for modular-sum"),
    ] = None,
    num_pairs: Annotated[
        int | None, setting("--num-pairs", "Pairs in a prompt.", "6; 4 for modular-sum")
    ] = None,
    num_digits: Annotated[
        int | None, setting("--num-digits", "Most digits of a summand (addition).", "2")
    ] = None,
    num_layers: Annotated[int | None, setting("--num-layers", "Layers.", "2")] = None,
    d_model: Annotated[int | None, setting("--d-model", "Width.", "64")] = None,
    num_heads: Annotated[int | None, setting("--num-heads", "Attention heads.", "4")] = None,
    steps: Annotated[int | None, setting("--steps", "Optimiser steps.", "2500")] = None,
    batch_size: Annotated[int | None, setting("--batch-size", "Fresh texts a step.", "32")] = None,
    learning_rate: Annotated[float | None, setting("--learning-rate", "Of AdamW.", "0.001")] = None,
    num_checkpoints: Annotated[
        int | None, setting("--num-checkpoints", "Log-spaced checkpoints from step 20.", "14")
    ] = None,
    dtype: Annotated[
        str | None, setting("--dtype", "float32 or float64.", "float32", named(PRECISIONS))
    ] = None,
    num_seeds: Annotated[int, typer.Option("--num-seeds", help="Series to train: seed, seed+1, ...")] = 1,
    seed: Seed = 0,
    device: Device = "cpu",
    jobs: Jobs = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Pretrain a small language model on a task: a series of Hugging Face folders, in under a minute."""
    given = {key: value for key, value in locals().items() if value is not None}
    with hushed(quiet=quiet):
        from valuelens import _lm_verbs

        summary = _lm_verbs.pretrain_lm(given, progress=not (quiet or as_json))
    if (said := _lm_verbs.imported(summary["task"], summary["imported_from"])) and not quiet:
        say(said)
    emit(summary, _lm_verbs.pretrain_lm_lines(summary), as_json=as_json)


def costates(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Hugging Face folder, hub name or name@revision, PEFT adapter folder, or GGUF file.",
            autocompletion=hub_models,
        ),
    ],
    task: Annotated[
        str | None,
        setting(
            "--task",
            "Sample for label-copy, modular-sum, addition, or package.module:Task.",
            "that of the series MODEL belongs to",
        ),
    ] = None,
    rollouts: Annotated[
        str | None, setting("--rollouts", "Read a parquet file, a pattern, or TRL's output folder.", "none")
    ] = None,
    reward_targets: RewardTargets = None,
    objective: Annotated[
        str | None,
        setting(
            "--objective",
            "surrogate (what GRPO trains on) or reward (differentiable).",
            "surrogate; reward with --reward-targets",
        ),
    ] = None,
    layers: Annotated[
        str, choice("--layers", "Numbers or expressions in L, the number of layers; or all.")
    ] = "0,L//2,3L//4",
    positions: Annotated[
        str, choice("--positions", "completion, or prompt: the states before the shared one.")
    ] = "completion",
    max_hops: MaxHops = 5,
    tolerance: Tolerance = 0.01,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Also which heads carry credit, and (reward) the entropy bound: several times the cost.",
        ),
    ] = False,
    loss_type: Annotated[
        str, choice("--loss-type", "Factors as trained: none, grpo, bnpo, dapo, dr_grpo.")
    ] = "none",
    scale_rewards: Annotated[
        str, choice("--scale-rewards", "Divide advantages by a deviation: none, group, batch.")
    ] = "none",
    baseline: Annotated[
        str,
        choice(
            "--baseline",
            "Subtracted from rewards: group-mean or leave-one-out, n/(n-1) times it; without --loss-type and "
            "--scale-rewards that factor is put in, so both give the same.",
        ),
    ] = "group-mean",
    num_items: NumItems = None,
    num_labels: NumLabels = None,
    num_pairs: NumPairs = None,
    num_digits: NumDigits = None,
    num_prompts: NumPrompts = 32,
    num_generations: NumGenerations = 16,
    max_completion_length: Annotated[
        int | None,
        setting(
            "--max-completion-length",
            "Tokens at which completions are, or in files were, cut; dr_grpo divides by it.",
            "64; in files their longest text",
        ),
    ] = None,
    temperature: Temperature = 1.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    micro_batch: MicroBatch = 8,
    completion_ends: CompletionEnds = "auto",
    revision: Annotated[
        str | None, setting("--revision", "Branch, tag or commit on the hub.", "main")
    ] = None,
    base: Base = None,
    dtype: Dtype = "float32",
    seed: Seed = 0,
    device: Device = "cpu",
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Take the empirical costates of an RL update: its value signal, noise and locality, layer by layer.

    First it says what the rollouts can teach (why is my reward flat?).
    """
    given = {key: value for key, value in locals().items() if value is not None}
    with hushed(quiet=quiet):
        from valuelens import _lm_verbs, _tables

        result, file = _lm_verbs.costates(given, progress=not (quiet or as_json))
    emit(result.summary(), _tables.result_lines(result, quiet=quiet), as_json=as_json)
    say_where(out, quiet=quiet or as_json)
    if file and not quiet:
        say(f"the task {task} was imported from {file}")
    if lost := _lm_verbs.unusable_rollouts(result):
        say(f"skipped as unusable: {'; '.join(lost)}")
        raise typer.Exit(3)


def impact(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="SERIES_OR_MODELS...",
            help="Directories of checkpoint-N or step-N folders, models, or a hub name (see --revisions).",
            autocompletion=hub_models,
        ),
    ],
    task: Annotated[
        str | None,
        setting(
            "--task",
            "Sample for label-copy, modular-sum, addition, or package.module:Task.",
            "that of the series",
        ),
    ] = None,
    rollouts: Annotated[
        list[str] | None,
        setting(
            "--rollouts",
            "Read them instead: a path with {checkpoint} in it, or the option once for each checkpoint.",
            "none",
        ),
    ] = None,
    reward_targets: RewardTargets = None,
    signal: Annotated[str, choice("--signal", "auto, subtractive, usable or update-aligned.")] = "auto",
    headroom: Annotated[str, choice("--headroom", "tilt, shortfall or best-of-k.")] = "tilt",
    beta: Annotated[float, typer.Option("--beta", help="Of the tilt, in units of 1 / reward range.")] = 5.0,
    layer: Annotated[
        str, typer.Option("--layer", help="Of the signal: a number or an expression in L.")
    ] = "L//2",
    recipe: Annotated[
        str,
        choice("--recipe", "Of RL: default, fast (three times the rate, half the steps), or long."),
    ] = "default",
    rl_seeds: Annotated[
        int, typer.Option("--rl-seeds", help="RL runs from each checkpoint; 0 for scores alone.")
    ] = 3,
    gains: Annotated[
        Path | None,
        setting("--gains", "Your gains: csv, parquet, or a folder of TRL's trainer_state.json.", "run RL"),
    ] = None,
    revisions: Annotated[
        str | None, setting("--revisions", "Of a hub name: a,b or every:10 or all.", "the named one")
    ] = None,
    evict: Annotated[
        bool, typer.Option("--evict", help="Remove each hub revision from the cache once it is done.")
    ] = False,
    engine: Annotated[str, choice("--engine", "joblib, or dask for several machines.")] = "joblib",
    scheduler: Annotated[
        str | None, setting("--scheduler", "Address of a Dask scheduler.", "a cluster of this machine")
    ] = None,
    max_hops: MaxHops = 5,
    tolerance: Tolerance = 0.01,
    num_items: NumItems = None,
    num_labels: NumLabels = None,
    num_pairs: NumPairs = None,
    num_digits: NumDigits = None,
    num_prompts: NumPrompts = 32,
    num_generations: NumGenerations = 16,
    max_completion_length: Annotated[
        int | None,
        setting("--max-completion-length", "Tokens at which completions are, or in files were, cut.", "64"),
    ] = None,
    temperature: Temperature = 1.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    micro_batch: MicroBatch = 64,
    completion_ends: CompletionEnds = "auto",
    base: Base = None,
    dtype: Dtype = "float32",
    seed: Seed = 0,
    device: Device = "cpu",
    jobs: Jobs = None,
    out: Out = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """From which checkpoint should RL start? Score a series by signal x headroom, beside rivals and realised gains.

    The score is our definition of it (theory B6); whether it beats one line of code is what the verdict says.
    """
    given = {key: value for key, value in locals().items() if value is not None}
    with hushed(quiet=quiet):
        from valuelens import _impact_verbs

        result = _impact_verbs.impact(given, progress=not (quiet or as_json))
    emit(result.summary(), _impact_verbs.impact_lines(result, quiet=quiet), as_json=as_json, strong=-1)
    say_where(out, quiet=quiet or as_json)
    if lost := [f"{each['what']}: {each['why']}" for each in result.skipped if "input" in each]:
        say(f"skipped as unusable: {'; '.join(lost)}")
        raise typer.Exit(3)
