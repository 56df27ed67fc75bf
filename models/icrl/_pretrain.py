"""RL-pretraining of in-context value learners, exactly resumable.

Tasks are drawn in blocks of `_BLOCK` steps, so that a checkpoint is (weights, optimiser, generator state at the
start of the block, log); the same seed gives the same bits however often the run was interrupted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from valuelens.models._files import clear_temporaries
from valuelens.models._runs import (
    Progress,
    claim,
    diverged,
    optimiser_tensors,
    read_json,
    restore_optimiser,
    train_seeds,
    write_metrics,
)
from valuelens.models._threads import one_thread
from valuelens.models.icrl._build import build
from valuelens.models.icrl._checkpoint import (
    CheckpointPath,
    checkpoint_folder,
    checkpoint_paths,
    load,
    read_tensors,
    save_checkpoint,
)
from valuelens.models.icrl._config import RunConfig, load_config
from valuelens.models.icrl._learner import ValueLearner
from valuelens.models.icrl._losses import Batch, horizon, loss_and_value, mapped, prepare, rows
from valuelens.models.icrl._tasks import resolve_task, task_sampler

_BLOCK = 16
_LOGGED = 200
_COLUMNS = ("step", "loss", "gradient_norm", "msve", "msve_constant", "mean_square_value")


def checkpoint_steps(steps: int, num_checkpoints: int) -> list[int]:
    """Log-spaced checkpoint steps from 0 to the last; fewer than asked where they would coincide.

    Args:
        steps: Optimiser steps of the run.
        num_checkpoints: How many, step 0 and the last among them.

    Example:
        >>> checkpoint_steps(1000, 5)
        [0, 1, 10, 100, 1000]
    """
    spaced = (
        np.geomspace(1, steps, num_checkpoints - 1).round().astype(int) if num_checkpoints > 2 else [steps]
    )
    return [0, *sorted({int(step) for step in spaced})]


def pretrain(
    config: RunConfig,
    out: str | Path,
    *,
    num_seeds: int = 1,
    jobs: int = 1,
    device: str = "cpu",
    progress: Progress | None = None,
) -> list[CheckpointPath]:
    """Train one model for each of the seeds seed, seed+1, ... into a run folder, or continue what is there.

    Args:
        config: Task, model and training.
        out: Run folder; results of the same configuration are continued.
        num_seeds: Models to train.
        jobs: Processes, one thread each.
        device: Where the model is; tasks are drawn on the CPU, so that they are the same everywhere.
        progress: Called as progress(steps, seed), with several processes a few times a second.

    Returns:
        The last checkpoint of each seed.

    Raises:
        InputError: `out` holds results of another configuration or cannot be written; the loss is not finite.
    """
    config, out = config.model_copy(update={"task": resolve_task(config.task)}), Path(out)
    claim(out, {"num_seeds": num_seeds, **config.model_dump()}, _described)
    seeds = range(config.train.seed, config.train.seed + num_seeds)
    runs = [out if num_seeds == 1 else out / f"seed-{seed}" for seed in seeds]
    configs = [
        config.model_copy(update={"train": config.train.model_copy(update={"seed": seed})}) for seed in seeds
    ]
    train_seeds(_train, dict(zip(runs, configs, strict=True)), device=device, jobs=jobs, progress=progress)
    last = {each.seed: each for each in checkpoint_paths(out)}
    states = {seed: read_tensors(each.path / "state.safetensors") for seed, each in last.items()}
    write_metrics(out, {seed: state["log"] for seed, state in states.items()}, _COLUMNS)
    return [last[seed] for seed in seeds]


@dataclass(slots=True)
class _Loop:
    """A run in progress: what a checkpoint must hold."""

    model: ValueLearner
    optimiser: torch.optim.Adam
    generator: torch.Generator
    block_start: Tensor
    log: list[list[float]]
    step: int = 0


def _train(config: RunConfig, run: Path, device: str, progress: Progress | None) -> int:
    with one_thread():
        _advance(config, run, device, progress)
    return config.train.seed


def _advance(config: RunConfig, run: Path, device: str, progress: Progress | None) -> None:
    train = config.train
    loop, block_of = _start(config, run, device)
    wanted = set(checkpoint_steps(train.steps, train.num_checkpoints))
    every = max(1, train.steps // _LOGGED)
    block: Batch | None = None
    if progress:
        progress(loop.step, train.seed)
    while loop.step < train.steps:
        if block is None or loop.step % _BLOCK == 0:
            loop.generator.set_state(loop.block_start)
            block = block_of(loop.generator)
        offset = loop.step % _BLOCK * train.batch_size
        loop.step += 1
        logged = loop.step % every == 0 or loop.step == train.steps
        _update(loop, config, rows(block, slice(offset, offset + train.batch_size)), logged=logged)
        if loop.step % _BLOCK == 0:
            loop.block_start = loop.generator.get_state()
        if loop.step in wanted:
            _save(config, run, loop)
        if progress:
            progress(1, train.seed)


def _start(config: RunConfig, run: Path, device: str) -> tuple[_Loop, Callable[[torch.Generator], Batch]]:
    train, n, dtype = config.train, config.task.context_length, getattr(torch, config.train.dtype)
    generator = torch.Generator().manual_seed(train.seed)
    sampler = task_sampler(config.task, generator)
    model = build(config.model, config.task, generator).to(dtype)
    clear_temporaries(run / "checkpoints")
    done = checkpoint_paths(run)
    if done:
        model = load(done[-1].path)
    model = model.to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=train.learning_rate, fused=True)
    loop = _Loop(model, optimiser, generator, generator.get_state(), [])
    if done:
        _restore(loop, read_tensors(done[-1].path / "state.safetensors"), done[-1].step)
    else:
        _save(config, run, loop)

    def block_of(generator: torch.Generator) -> Batch:
        length = horizon(train.loss, n)
        mrp, states = sampler.sample(_BLOCK * train.batch_size, length, generator, dtype)
        return mapped(prepare(model, train.loss, n, mrp, states), lambda tensor: tensor.to(device))

    return loop, block_of


def _update(loop: _Loop, config: RunConfig, batch: Batch, *, logged: bool) -> None:
    loop.optimiser.zero_grad(set_to_none=True)
    loss, value = loss_and_value(loop.model, config.train.loss, batch)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(loop.model.parameters(), config.train.clip_norm)
    loop.optimiser.step()
    if logged:
        _log(loop, batch, loss, norm, value)


def _log(loop: _Loop, batch: Batch, loss: Tensor, norm: Tensor, value: Tensor) -> None:
    errors = [(predictor - batch.true_value).square().mean() for predictor in (value, batch.constant)]
    row = torch.stack([loss, norm, *errors, batch.true_value.square().mean()]).tolist()
    if not np.isfinite(row).all():
        raise diverged(loop.step, f"loss {row[0]}")
    loop.log.append([float(loop.step), *row])


def _save(config: RunConfig, run: Path, loop: _Loop) -> None:
    if not all(bool(parameter.isfinite().all()) for parameter in loop.model.parameters()):
        raise diverged(loop.step, "NaN or infinite weights")
    state = {
        "generator": loop.block_start,
        "log": torch.tensor(loop.log, dtype=torch.float64).view(-1, len(_COLUMNS)),
        **optimiser_tensors(loop.model, loop.optimiser),
    }
    save_checkpoint(checkpoint_folder(run, loop.step), loop.model, config, step=loop.step, state=state)


def _restore(loop: _Loop, state: dict[str, Tensor], step: int) -> None:
    loop.step, loop.block_start, loop.log = step, state["generator"], state["log"].tolist()
    restore_optimiser(loop.model, loop.optimiser, state)


def _described(path: Path) -> dict[str, Any]:
    theirs = load_config(path).model_dump()
    return {"num_seeds": read_json(path, ()).get("num_seeds", 1), **theirs}
