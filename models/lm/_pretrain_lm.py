"""Pretraining of small language models: a series of Hugging Face folders, exactly resumable.

Every step draws fresh texts from one generator, so that a checkpoint is (weights, optimiser, generator, log); the
same seed gives the same bits however often the run was interrupted.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from valuelens.models._files import atomic_path, clear_temporaries
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
from valuelens.models.lm._named_tasks import pretraining_task
from valuelens.models.lm._pretraining_config import LMRunConfig, load_lm_config, series_steps
from valuelens.models.lm._task import PretrainingTask
from valuelens.models.lm._texts import CONTEXT, drawn_texts, task_tokenizer

_LOGGED = 200
_COLUMNS = ("step", "loss", "learning_rate")
_STEP = re.compile(r"step-(\d{8})")


def pretrain_lm(
    config: LMRunConfig,
    out: str | Path,
    *,
    num_seeds: int = 1,
    jobs: int = 1,
    device: str = "cpu",
    progress: Progress | None = None,
) -> list[Path]:
    """Pretrain a language model for each of the seeds seed, seed+1, ... into a series, or continue what is there.

    `OUT/step-XXXXXXXX/` (with several seeds `OUT/seed-K/step-XXXXXXXX/`) are Hugging Face folders with a tokenizer
    that plain transformers loads; `state.safetensors` in them is what an exact resume needs besides.

    Args:
        config: Corpus, model and training.
        out: Folder of the series; one of the same configuration is continued.
        num_seeds: Series to train.
        jobs: Processes, one thread each.
        device: Where the model is; texts are drawn on the CPU, so that they are the same everywhere.
        progress: Called as progress(steps, seed), with several processes a few times a second.

    Returns:
        The last checkpoint of each seed.

    Raises:
        InputError: `out` holds results of another configuration or cannot be written; the task cannot be pretrained
            on; the loss is not finite.
    """
    config, out = config.model_copy(update={"corpus": config.corpus.resolved()}), Path(out)
    task = pretraining_task(config.corpus.task, **config.corpus.sizes)
    drawn_texts(task, config, task_tokenizer(task, config), torch.Generator().manual_seed(config.train.seed))
    claim(out, {"num_seeds": num_seeds, **config.model_dump()}, _described)
    seeds = range(config.train.seed, config.train.seed + num_seeds)
    runs = {
        out if num_seeds == 1 else out / f"seed-{seed}": config.model_copy(
            update={"train": config.train.model_copy(update={"seed": seed})}
        )
        for seed in seeds
    }
    train_seeds(_train, runs, device=device, jobs=jobs, progress=progress)
    last = [_saved(run)[-1] for run in runs]
    logs = {
        seed: load_file(path / "state.safetensors")["log"] for seed, path in zip(seeds, last, strict=True)
    }
    write_metrics(out, logs, _COLUMNS)
    return last


@dataclass(slots=True)
class _Loop:
    """A series in progress: what a checkpoint must hold."""

    model: LlamaForCausalLM
    tokenizer: PreTrainedTokenizerFast
    optimiser: torch.optim.AdamW
    generator: torch.Generator
    log: list[list[float]]
    step: int = 0


def _train(config: LMRunConfig, run: Path, device: str, progress: Progress | None) -> int:
    with one_thread(), redirect_stdout(sys.stderr):  # a task may print, and stdout may be somebody's JSON
        _advance(config, run, device, progress)
    return config.train.seed


def _advance(config: LMRunConfig, run: Path, device: str, progress: Progress | None) -> None:
    train, task = config.train, pretraining_task(config.corpus.task, **config.corpus.sizes)
    loop = _start(config, task, run, device)
    wanted = set(series_steps(train.steps, train.num_checkpoints))
    every = max(1, train.steps // _LOGGED)
    if progress:
        progress(loop.step, train.seed)
    while loop.step < train.steps:
        ids = drawn_texts(task, config, loop.tokenizer, loop.generator).to(device)
        loop.step += 1
        loop.optimiser.zero_grad(set_to_none=True)
        padding = ids == loop.tokenizer.pad_token_id
        loss = loop.model(
            input_ids=ids,
            attention_mask=(~padding).long(),
            labels=ids.masked_fill(padding, -100),
            use_cache=False,
        ).loss
        loss.backward()
        loop.optimiser.step()
        if loop.step % every == 0 or loop.step == train.steps:
            _log(loop, loss)
        if loop.step in wanted:
            _save(run, loop)
        if progress:
            progress(1, train.seed)


def _start(config: LMRunConfig, task: PretrainingTask, run: Path, device: str) -> _Loop:
    train, tokenizer = config.train, task_tokenizer(task, config)
    clear_temporaries(run)
    model = _model(config, tokenizer).to(getattr(torch, train.dtype))
    done = _saved(run)
    if done:
        model.load_state_dict(load_file(done[-1] / "model.safetensors"))
    model = model.to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=train.learning_rate, fused=True)
    loop = _Loop(model, tokenizer, optimiser, torch.Generator().manual_seed(train.seed), [])
    if done:
        state = load_file(done[-1] / "state.safetensors")
        restore_optimiser(model, optimiser, state)
        loop.generator.set_state(state["generator"])
        loop.log, loop.step = state["log"].tolist(), int(state["step"])
    return loop


def _model(config: LMRunConfig, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    described = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=config.model.d_model,
        intermediate_size=4 * config.model.d_model,
        num_hidden_layers=config.model.num_layers,
        num_attention_heads=config.model.num_heads,
        max_position_embeddings=CONTEXT,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):  # transformers draws weights from the global generator only
        torch.manual_seed(config.train.seed)
        return LlamaForCausalLM(described)


def _log(loop: _Loop, loss: Tensor) -> None:
    if not np.isfinite(found := loss.item()):
        raise diverged(loop.step, f"loss {found}")
    loop.log.append([float(loop.step), found, float(loop.optimiser.param_groups[0]["lr"])])


def _save(run: Path, loop: _Loop) -> None:
    if not all(bool(parameter.isfinite().all()) for parameter in loop.model.parameters()):
        raise diverged(loop.step, "NaN or infinite weights")
    state = {
        "step": torch.tensor(loop.step),
        "generator": loop.generator.get_state(),
        "log": torch.tensor(loop.log, dtype=torch.float64).view(-1, len(_COLUMNS)),
        **optimiser_tensors(loop.model, loop.optimiser),
    }
    with atomic_path(run / f"step-{loop.step:08d}") as temporary, _no_bars():
        loop.model.save_pretrained(temporary)
        loop.tokenizer.save_pretrained(temporary)
        (temporary / "state.safetensors").write_bytes(save(state))


def _saved(run: Path) -> list[Path]:
    return sorted(path for path in run.glob("step-*") if _STEP.fullmatch(path.name) and path.is_dir())


def _described(path: Path) -> dict[str, Any]:
    theirs = load_lm_config(path).model_dump()
    return {"num_seeds": read_json(path, ()).get("num_seeds", 1), **theirs}


@contextmanager
def _no_bars() -> Iterator[None]:
    """Without the progress bars that transformers shows for a file of half a megabyte."""
    shown = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers.utils.logging.enable_progress_bar()
