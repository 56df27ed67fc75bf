"""Costates from a model and where its rollouts come from, resumable: what the command line asks."""

import time
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

from valuelens.analyses._costate_config import CostateConfig, chosen_layers
from valuelens.analyses._costates import Said, costates
from valuelens.analyses._request import Progress, finished, measured
from valuelens.analyses._result import Result, save_result
from valuelens.models import InputError
from valuelens.models.icrl import content_hash, one_thread
from valuelens.models.lm import (
    GenerateConfig,
    LanguageModel,
    NamedTask,
    ReadConfig,
    Rollouts,
    generate,
    read_rollouts,
    rollout_files,
)
from valuelens.probe import Sampling


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutSource:
    """Where rollouts come from: a task, for which they are sampled, or files.

    Attributes:
        task: Sampled for; none where files are read.
        generate: Sizes, sampling and seed. Its temperature, top-k and top-p hold for files too.
        files: A parquet file, a pattern, or TRL's output folder; empty where a task is sampled.
        reward_targets: Column of the right tokens.
        longest: Tokens at which the completions of files were cut, where that is known.
    """

    task: NamedTask | None = None
    generate: GenerateConfig = field(default_factory=GenerateConfig)
    files: str = ""
    reward_targets: str | None = None
    longest: int | None = None

    def __post_init__(self) -> None:
        """Refuse none and both."""
        if (self.task is None) == (not self.files):
            found = "found both" if self.files else "found neither"
            raise InputError(
                "rollouts come from --task or from --rollouts", found, "options --task, --rollouts"
            )

    @property
    def sampling(self) -> Sampling:
        """How tokens were, or will be, drawn."""
        asked = self.generate
        return Sampling(temperature=asked.temperature, top_k=asked.top_k, top_p=asked.top_p)


def costate_run(
    language_model: LanguageModel,
    source: RolloutSource,
    config: CostateConfig | None = None,
    *,
    out: str | Path | None = None,
    said: Said | None = None,
    progress: Progress | None = None,
) -> Result:
    """Sample or read rollouts, take their costates, and keep the result.

    Args:
        language_model: Measured.
        source: Where rollouts come from.
        config: Objective, layers and update; its sampling is that of `source`.
        out: Result folder; one of the same request is read again.
        said: Called with the diagnosis before any costate is taken.
        progress: Called as progress(what, done, total).

    Raises:
        InputError: As `costates`, `generate` and `read_rollouts`; or `out` holds another result.
    """
    started, out = time.monotonic(), None if out is None else Path(out)
    config = replace(config or CostateConfig(), sampling=source.sampling)
    chosen_layers(config.layers, language_model.num_layers)  # refused before anything is sampled
    asked = _asked(language_model, source, config)
    if out is not None and (result := finished(out, asked)):
        return result
    with one_thread():
        rollouts = rollouts_of(language_model, source, progress)
        task = source.task.task if source.task else None
        result = costates(language_model, rollouts, config, task=task, said=said, progress=progress)
    mask = str(result.provenance["mask"])
    result = replace(result, provenance={**result.provenance, **measured(asked, started, mask=mask)})
    if out is not None:
        save_result(result, out)
    return result


def rollouts_of(
    language_model: LanguageModel, source: RolloutSource, progress: Progress | None = None
) -> Rollouts:
    """Sample the rollouts of a model, or read them.

    Args:
        language_model: Samples, or has the tokenizer and vocabulary of the files.
        source: Where they come from.
        progress: Called as progress("rollouts", tokens done, most there can be) where they are sampled.

    Raises:
        InputError: As `generate` and `read_rollouts`.
    """
    if source.task is not None:
        told = None if progress is None else partial(progress, "rollouts")
        return generate(language_model, source.task.task, source.generate, progress=told)
    config = ReadConfig(
        vocabulary=int(language_model.model.config.get_text_config().vocab_size),
        context_window=language_model.context_window,
        reward_targets=source.reward_targets,
        completion_ends=source.generate.completion_ends,
        max_completion_length=source.longest,
    )
    return read_rollouts(source.files, language_model.tokenizer, config)


def _asked(language_model: LanguageModel, source: RolloutSource, config: CostateConfig) -> dict[str, object]:
    """The request as it stands in the provenance: two that agree in everything have the same answer."""
    asked = asdict(config)
    if config.objective == "surrogate":
        asked.pop("micro_batch")  # hops are followed in each micro-batch as far as it needs
    return {
        "checkpoints": {"model": language_model.sha256},
        **rollouts_asked(source),
        **asked,
        "dtype": str(language_model.model.dtype).removeprefix("torch."),
        "device": str(language_model.device),
    }


def rollouts_asked(source: RolloutSource) -> dict[str, object]:
    """What decides the rollouts, as plain data: contents of files, not their names alone.

    Args:
        source: Where they come from.

    Raises:
        InputError: There are no such files.
    """
    rollouts: dict[str, object] = (
        {
            "task": source.task.name,
            "sizes": source.task.sizes,
            "sha256": source.task.file and content_hash(source.task.file),
        }
        if source.task
        else {"files": {str(path): content_hash(path) for path in rollout_files(source.files)}}
    )
    how = asdict(source.generate)
    how.pop("batch_size")  # changes nothing
    return {
        "rollouts": rollouts,
        "reward_targets": source.reward_targets,
        "longest": source.longest,
        "generate": how,
    }
