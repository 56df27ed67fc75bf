"""The questions of a ranking, one of one checkpoint each, as a worker process answers them: plain data in and out."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch

from valuelens.analyses._costate_run import RolloutSource, rollouts_of
from valuelens.analyses.impact._config import Loading, ScoreConfig
from valuelens.analyses.impact._gain import GainConfig, gain, token_passes
from valuelens.analyses.impact._members import Member
from valuelens.analyses.impact._score import score
from valuelens.models import InputError
from valuelens.models.icrl import one_thread
from valuelens.models.lm import (
    LanguageModel,
    LMCorpusConfig,
    held_out_loss,
    load_language_model,
    pretraining_task,
)

_HELD_OUT_TEXTS = 256
_HELD_OUT_SEED = 2**32 - 1
"""Seeds texts that no training draws; torch reads 32 bits of a seed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What is asked of one checkpoint.

    Attributes:
        member: The checkpoint.
        sha256: Of its files.
        loading: How it is loaded.
        source: Its rollouts, or the task that they are sampled for.
        corpus: What it was pretrained on, where that is known.
        reward_range: Least and largest reward of the whole series, where no task declares them.
    """

    member: Member
    sha256: str
    loading: Loading
    source: RolloutSource
    corpus: Mapping[str, Any] | None = None
    reward_range: tuple[float, float] | None = None


def scored(asked: Asked, config: ScoreConfig) -> dict[str, Any]:
    """The scores of a checkpoint and its architecture.

    Args:
        asked: The checkpoint and its rollouts.
        config: How it is scored.

    Raises:
        InputError: It cannot be loaded, sampled or scored.
    """
    started = time.monotonic()
    with one_thread():
        model = _loaded(asked)
        rollouts = rollouts_of(model, asked.source)
        numbers = score(
            model,
            rollouts,
            config,
            held_out_loss=_held_out_loss(model, asked.corpus),
            reward_range=asked.reward_range,
        )
    vocabulary = sorted((model.tokenizer.get_vocab() if model.tokenizer else {}).items())
    shape = {
        "family": model.family,
        "layers": model.num_layers,
        "width": model.d_model,
        "vocabulary": model.vocab_size,
        "words": hashlib.sha256(repr(vocabulary).encode()).hexdigest()[:16],
    }
    run = token_passes(
        GainConfig().training, fmean(map(len, rollouts.prompt_ids)), fmean(map(len, rollouts.completion_ids))
    )
    return {
        "scores": numbers,
        "architecture": shape,
        "token_passes_of_a_run": run,
        "seconds": time.monotonic() - started,
    }


def gained(asked: Asked, config: GainConfig) -> dict[str, Any]:
    """The gain of one RL run from a checkpoint.

    Args:
        asked: The checkpoint and its task.
        config: Recipe, seed, and whether temporal credit is cut.

    Raises:
        InputError: There is no task, or the run fails.
    """
    if asked.source.task is None:
        raise InputError("RL needs a task to draw prompts of", "found rollouts only", "option --task")
    with one_thread():
        found = gain(_loaded(asked), asked.source.task.task, config)
    return {
        "reward_before": found.reward_before,
        "reward_after": found.reward_after,
        "curve": list(found.curve),
    }


def rewarded(asked: Asked) -> dict[str, Any]:
    """Least and largest reward of a checkpoint's rollouts.

    Args:
        asked: The checkpoint and its rollouts.

    Raises:
        InputError: They cannot be read, or hold no rewards.
    """
    with one_thread():
        found = rollouts_of(_loaded(asked), asked.source)
    if not found.rewards:
        raise InputError("rollouts must hold rewards", "found none", asked.source.files)
    return {"low": min(found.rewards), "high": max(found.rewards)}


def _loaded(asked: Asked) -> LanguageModel:
    member, loading = asked.member, asked.loading
    return load_language_model(
        member.source,
        revision=member.revision,
        base=loading.base,
        dtype=loading.dtype,
        device=loading.device,
    )


def _held_out_loss(model: LanguageModel, corpus: Mapping[str, Any] | None) -> float | None:
    if corpus is None:
        return None
    config = LMCorpusConfig.model_validate(corpus)
    task = pretraining_task(config.task, **config.sizes)
    generator = torch.Generator().manual_seed(_HELD_OUT_SEED)
    return held_out_loss(model, task.corpus(_HELD_OUT_TEXTS, config.shuffled, generator), ends=task.ends)
