"""Load a language model of any kind that MODEL names, or say in one line why not."""

import io
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, PretrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING,
)
from transformers.utils import logging

from valuelens.models._devices import device as existing_device
from valuelens.models._errors import InputError, did_you_mean, told
from valuelens.models.lm._language_model import LanguageModel
from valuelens.models.lm._merged import base_of, merged
from valuelens.models.lm._sources import CONFIG, Source, located, read_config
from valuelens.models.lm._tokenizer import check_tokenizer, load_tokenizer
from valuelens.models.lm._weights import check_finite, check_keys, weight_files, weights_hash

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
Progress = Callable[[int, int], None]
"""Called as progress(done, all)."""

_CAUSAL = "MODEL must be a decoder-only language model"
_DEQUANTISED = (68, 79)
"""Of loading a GGUF file: percent of its time before its tensors are read, and after (a model of 135 M parameters)."""

_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def load_language_model(
    source: str | Path,
    *,
    revision: str | None = None,
    base: str | Path | None = None,
    dtype: str = "float32",
    device: str = "cpu",
    progress: Progress | None = None,
) -> LanguageModel:
    """A causal language model with its tokenizer, frozen, in evaluation mode and in the precision asked for.

    Weights come from safetensors or GGUF, or from `.bin` through weights-only loading; code never comes from a
    checkpoint. Everything that transformers would only warn of, such as weights drawn at random, is refused.

    Args:
        source: A Hugging Face folder; `name` or `name@revision` on the hub, whose cache is enough where it holds it;
            the folder of a PEFT adapter, which is merged; a GGUF file, which is dequantised.
        revision: Branch, tag or commit on the hub.
        base: What an adapter was trained on, where its own configuration does not say or is wrong.
        dtype: float32, bfloat16 or float64.
        device: As torch names it.
        progress: Called as progress(tensors done, all); of a GGUF file in percent of the time.

    Raises:
        InputError: In one line: there is no such model or revision, it is of another kind, not whole, not finite,
            or its tokenizer is another model's.
    """
    if dtype not in DTYPES:
        found_name = f"found {dtype!r}{did_you_mean(dtype, DTYPES)}"
        raise InputError(f"the dtype must be one of {', '.join(DTYPES)}", found_name, "option --dtype")
    place, found = existing_device(device), located(source, revision)
    if base is not None and found.kind != "adapter":
        raise InputError(
            "only an adapter has a base", f"found {base} for a model that is whole", "option --base"
        )
    wanted = DTYPES[dtype]
    with (_dequantised if found.kind == "gguf" else _counted)(progress):
        language_model = _adapted(found, base, wanted) if found.kind == "adapter" else _whole(found, wanted)
    model: Any = language_model.model
    model.to(place).eval().requires_grad_(False)
    return language_model


def _whole(source: Source, dtype: torch.dtype) -> LanguageModel:
    files = (
        [source.folder / source.file] if source.file is not None else weight_files(source.folder, source.kind)
    )
    with _quiet():
        model, report = _loaded(source, dtype)
        check_keys(report, source.name)
        tokenizer = load_tokenizer(source.folder, source.file)
    check_finite(model, source.name)
    if tokenizer is not None:
        check_tokenizer(tokenizer, model, source.name)
    return LanguageModel(
        model=model,
        tokenizer=tokenizer,
        name=source.name,
        family=str(model.config.model_type),
        sha256=weights_hash(files),
        origin={"kind": source.kind, "revision": source.revision, "commit": source.commit},
    )


def _adapted(source: Source, base: str | Path | None, dtype: torch.dtype) -> LanguageModel:
    """Merged in float32 at least, and rounded once."""
    files = weight_files(source.folder, source.kind)
    below = located(base_of(source.folder) if base is None else base)
    if below.kind == "adapter":
        raise InputError("the base of an adapter must be a whole model", "found an adapter", below.name)
    whole = _whole(below, max(dtype, torch.float32, key=lambda each: each.itemsize))
    with _quiet():
        model: Any = merged(whole.model, source.folder)
        model.to(dtype)
        tokenizer = load_tokenizer(source.folder)
    check_finite(model, source.name)
    if tokenizer is not None:
        check_tokenizer(tokenizer, model, source.name)
    return LanguageModel(
        model=model,
        tokenizer=tokenizer or whole.tokenizer,
        name=source.name,
        family=whole.family,
        sha256=weights_hash(files),
        origin={
            **{"kind": source.kind, "revision": source.revision, "commit": source.commit},
            "base": {"name": whole.name, "sha256": whole.sha256, **whole.origin},
        },
    )


def _loaded(source: Source, dtype: torch.dtype) -> tuple[PreTrainedModel, dict[str, Any]]:
    asked: dict[str, Any] = {**_LOCAL, "dtype": dtype, "output_loading_info": True}
    if source.kind == "gguf":
        _check_gguf(source)
        asked["gguf_file"] = source.file
    else:
        asked |= {
            "config": _config(source.folder),
            "ignore_mismatched_sizes": True,
        }  # `check_keys` refuses them
    with told("the model must load", source.name):
        answer: Any = AutoModelForCausalLM.from_pretrained(source.folder, **asked)
    return answer[0], answer[1]


def _check_gguf(source: Source) -> None:
    missing = [name for name in ("gguf", "accelerate") if find_spec(name) is None]
    if missing:
        found = f"found that {missing[0]} is not installed: pip install 'valuelens[gguf]'"
        raise InputError("a GGUF file needs gguf and accelerate", found, source.name)


def _config(folder: Path) -> PretrainedConfig:
    """The configuration, if a causal language model can be made of it without code from the folder."""
    where, written = str(folder / CONFIG), read_config(folder / CONFIG)
    if "auto_map" in written and written["model_type"] not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        found = f"found a model of its own code ({written['model_type']})"
        raise InputError("code is never taken from a checkpoint", found, where)
    with told("transformers must know this kind of model", where):
        config: PretrainedConfig = AutoConfig.from_pretrained(folder, **_LOCAL)
    if config.is_encoder_decoder:
        raise InputError(_CAUSAL, f"found an encoder-decoder ({config.model_type})", where)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise InputError(_CAUSAL, f"found {config.model_type}, which has no such head", where)
    heads = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
    if other := [name for name in config.architectures or () if name not in heads]:
        raise InputError(_CAUSAL, f"found {other[0]}", where)
    if type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False):
        raise InputError(_CAUSAL, f"found {config.model_type}, whose attention looks ahead", where)
    if not all(hasattr(layer, "batch_select_indices") for layer in DynamicCache(config=config).layers):
        found = f"found {config.model_type}, which keeps a running state instead"
        raise InputError("every layer of MODEL must attend to the tokens before", found, where)
    if getattr(config, "quantization_config", None) is not None:
        found = (
            f"found {dict(written.get('quantization_config') or {}).get('quant_method', 'quantised weights')}"
        )
        raise InputError("weights must be floating point (GGUF files are dequantised)", found, where)
    return config


@contextmanager
def _counted(progress: Progress | None) -> Iterator[None]:
    """Tell what transformers would show in a bar."""
    if progress is None:
        yield
        return
    before = logging.set_tqdm_hook(lambda _, args, kwargs: _Steps(progress, *args, **kwargs))
    try:
        yield
    finally:
        logging.set_tqdm_hook(before)


@contextmanager
def _dequantised(progress: Progress | None) -> Iterator[None]:
    """The same for a GGUF file: its tensors are counted, between two long parts in which nothing can be."""
    if progress is None:
        yield
        return
    from transformers import modeling_gguf_pytorch_utils

    reader: Any = modeling_gguf_pytorch_utils
    begin, end = _DEQUANTISED
    bar, before = reader.tqdm, logging.set_tqdm_hook(lambda _, args, kwargs: _Steps(_silent, *args, **kwargs))
    reader.tqdm = partial(_Steps, lambda done, whole: progress(begin + (end - begin) * done // whole, 100))
    try:
        yield
    finally:
        reader.tqdm = bar  # it asks no hook
        logging.set_tqdm_hook(before)


def _silent(*_: object) -> None: ...


class _Steps:
    """In the place of a bar: goes through what it is given, and counts."""

    def __init__(self, progress: Progress, steps: Iterable[Any] = (), **_: Any) -> None:
        self.progress, self.steps = progress, list(steps)

    def __iter__(self) -> Iterator[Any]:
        for done, step in enumerate(self.steps):
            self.progress(done, len(self.steps))
            yield step

    def __enter__(self) -> "_Steps":
        return self

    def __exit__(self, *_: object) -> None:
        return

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_, **__: None


@contextmanager
def _quiet() -> Iterator[None]:
    """No bars, load reports and warnings of deprecated names from below: what matters is raised."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
