"""What `costates` and `impact` of OLMo-2 1B need, from random weights of its shape; writes `olmo2.md` beside it.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/olmo2_cost.py

Operations and memory are counted on the whole shape with tensors that hold no numbers (torch's meta device): exact, and
free of the machine. Seconds are processor seconds of one thread, measured with 1, 2 and 3 of the 16 layers in float32
and continued on the straight line through them; the point in the middle says how straight it is.
"""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from olmo2 import LetterCopy
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import Olmo2Config, Olmo2ForCausalLM

from valuelens.analyses.impact import ScoreConfig, score, token_passes
from valuelens.models.lm import GenerateConfig, GRPOConfig, generate, language_model_of, word_tokenizer

LAYERS, PARTS, ROUNDS = 16, (1, 2, 3), 3
SHAPE = {
    "vocab_size": 100352,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "max_position_embeddings": 4096,
}
ROWS, PROMPT, COMPLETION = 16, 13, 6
"""Rollouts of a pass and the tokens of each, in the task of `olmo2.py`."""
TOKENS = PROMPT + COMPLETION
CHECKPOINTS, GB = 20, 1e9
SPEEDS = {"5 T": 5e12, "50 T": 50e12, "200 T": 200e12}
"""Operations a second that are really reached."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """What one pass needs for each token of it.

    Attributes:
        forward: Operations.
        both: Operations, the backward pass too.
        kept: Bytes that wait for the backward pass.
        parameters: Of the model, not for each token.
    """

    forward: float
    both: float
    kept: float
    parameters: int


def model_of(layers: int, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Olmo2ForCausalLM:
    """Random weights of the shape, with so many layers."""
    with torch.device(device):
        made: Any = Olmo2ForCausalLM(
            Olmo2Config(num_hidden_layers=layers, pad_token_id=0, eos_token_id=1, **SHAPE)
        )
    return made.to(dtype).eval()  # type: ignore[no-any-return]


def passes(model: Any, *, train: bool) -> tuple[Callable[[], Tensor], Callable[[Tensor], object]]:
    """A forward pass, and the backward pass of costates at the middle layer, or of training."""
    model.requires_grad_(train)
    like = {"device": model.device, "dtype": model.dtype}
    embedded = torch.zeros(ROWS, TOKENS, SHAPE["hidden_size"], requires_grad=True, **like)
    mask = torch.ones(ROWS, 1, TOKENS, TOKENS, dtype=torch.bool, device=model.device).tril()
    middle: list[Tensor] = []

    def forward() -> Tensor:
        out = model(inputs_embeds=embedded, attention_mask=mask, output_hidden_states=True, use_cache=False)
        middle[:] = [out.hidden_states[len(model.model.layers) // 2]]
        return out.logits.float().log_softmax(-1)[..., 0].sum()

    def backward(value: Tensor) -> object:
        over = [each for each in model.parameters() if each.requires_grad] if train else middle
        return torch.autograd.grad(
            value, over, allow_unused=True
        )  # the embedding itself is not passed through

    return forward, backward


def counted(layers: int, *, train: bool, device: str = "meta", dtype: torch.dtype = torch.float32) -> Counted:
    """Operations and memory of a pass."""
    model: Any = model_of(layers, device, dtype)
    own = {each.untyped_storage()._cdata for each in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage.nbytes()
        return tensor

    forward, backward = passes(model, train=train)
    with (
        FlopCounterMode(display=False) as counter,
        torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x),
    ):
        value = forward()
        once = counter.get_total_flops()
        backward(value)
    tokens = ROWS * TOKENS
    return Counted(
        forward=once / tokens,
        both=counter.get_total_flops() / tokens,
        kept=sum(kept.values()) / tokens,
        parameters=sum(each.numel() for each in model.parameters()),
    )


def seconds(act: Callable[[], object]) -> float:
    """Processor seconds of the quickest of some rounds."""
    found = []
    for _ in range(ROUNDS):
        before = time.process_time()
        act()
        found.append(time.process_time() - before)
    return min(found)


def timed(layers: int) -> dict[str, float]:
    """Processor seconds a token of so many layers."""
    model = model_of(layers)
    tokens = ROWS * TOKENS
    found = {}
    for what, train in (("costates", False), ("training", True)):
        forward, backward = passes(model, train=train)
        found[what] = seconds(lambda forward=forward, backward=backward: backward(forward())) / tokens  # type: ignore[misc]
    with torch.no_grad():
        found["forward"] = seconds(forward) / tokens
    model.requires_grad_(False)
    task = LetterCopy()
    speaker = language_model_of(model, word_tokenizer(task.vocabulary, longest=64), name="random")
    asked = GenerateConfig(num_prompts=1, num_generations=ROWS, completion_ends="no")
    found["sampling"] = seconds(lambda: generate(speaker, task, asked)) / (ROWS * COMPLETION)
    del model, speaker
    gc.collect()
    return found


def line(found: dict[int, dict[str, float]], what: str) -> tuple[float, float]:
    """Seconds with all layers, and how far the middle point lies off the line, as a share of it."""
    x = np.array(PARTS)
    y = np.array([found[layers][what] for layers in PARTS])
    slope, start = np.polyfit(x, y, 1)
    fitted = start + slope * x
    return float(start + slope * LAYERS), float(np.abs(y - fitted).max() / fitted.mean())


def scoring_passes() -> tuple[float, float, int]:
    """Token passes of scoring a checkpoint with default options, without and with hops; and its rollouts.

    Counted by the tool itself on a tiny model: they do not depend on the model's size.
    """
    task = LetterCopy()
    small = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2}
    words = word_tokenizer(task.vocabulary, longest=64)
    torch.manual_seed(0)
    config = Olmo2Config(vocab_size=len(words), num_hidden_layers=2, pad_token_id=0, eos_token_id=1, **small)
    made: Any = Olmo2ForCausalLM(config)
    speaker = language_model_of(made.eval().requires_grad_(False), words, name="tiny")
    rollouts = generate(speaker, task, GenerateConfig(completion_ends="no"))
    plain, hops = (
        score(speaker, rollouts, ScoreConfig(signal=signal))["token_passes"]
        for signal in ("usable", "subtractive")
    )
    return plain, hops, len(rollouts.completion_ids)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(each) for each in row) + " |" for row in lines)


def memory_part() -> tuple[str, Counted]:
    """Memory of scoring and of RL, whole shape."""
    rows = []
    whole = {}
    for dtype, size in ((torch.float32, 4), (torch.bfloat16, 2)):
        scoring, rl = (counted(LAYERS, train=train, dtype=dtype) for train in (False, True))
        whole[size] = rl
        weights = scoring.parameters * size
        batch, step = 64 * TOKENS, 128 * TOKENS
        rows.append(
            [
                str(dtype).removeprefix("torch."),
                *(f"{value / GB:.1f} GB" for value in (weights, weights + batch * scoring.kept)),
                f"{scoring.kept / 1e6:.1f} MB, {rl.kept / 1e6:.1f} MB",
                f"{(2 * weights + batch * rl.kept) / GB:.1f} GB",
                f"{(5 * weights + step * rl.kept) / GB:.1f} GB",
            ]
        )
    head = [
        *("dtype", "weights", "costates, signal by hop: weights and a micro-batch of 64 rollouts"),
        *("kept a token (costates, training)", "scoring: also gradients of all parameters"),
        "RL: two copies, gradients, Adam, 128 rollouts",
    ]
    return table(head, rows), whole[4]


def time_part(one: Counted) -> str:
    """Seconds of a checkpoint and of an RL run."""
    found = {layers: timed(layers) for layers in PARTS}
    lines = {what: line(found, what) for what in ("forward", "costates", "training", "sampling")}
    measured = table(
        ["a token", *(f"{layers} layers" for layers in PARTS), f"{LAYERS} layers", "off the line"],
        [
            [what, *(f"{found[layers][what]:.4f} s" for layers in PARTS), f"{whole:.3f} s", f"{off:.1%}"]
            for what, (whole, off) in lines.items()
        ],
    )
    plain, hops, rollouts = scoring_passes()
    run = token_passes(GRPOConfig(), PROMPT, COMPLETION)
    reached = one.both / lines["training"][0]
    speeds = {f"{reached / 1e9:.0f} G (one core here)": reached, **SPEEDS}
    rows = []
    for what, passes_of in (
        ("scoring, no hops", plain),
        ("scoring, with hops", hops),
        ("one default RL run", run),
    ):
        work = passes_of * one.forward
        rows.append(
            [
                what,
                f"{passes_of:,.0f}",
                f"{work / 1e12:,.0f} T",
                *(span(work / each) for each in speeds.values()),
            ]
        )
    whole = CHECKPOINTS * (hops + 2 * run) * one.forward
    rows.append(
        [f"{CHECKPOINTS} checkpoints, RL once with credit and once without", "", f"{whole / 1e12:,.0f} T"]
        + [span(whole / each) for each in speeds.values()]
    )
    head = ["what", "token passes", "operations", *(f"at {name} a second" for name in speeds)]
    return f"""## Seconds of one thread

{measured}

Sampling is by the token that is sampled, {ROWS} rollouts side by side. Operations a token: forward
{one.forward / 1e9:.2f} G, forward and backward {one.both / 1e9:.2f} G, so a training pass reached {reached / 1e9:.0f} G
operations a second here.

## A checkpoint

{rollouts} rollouts of {PROMPT} + {COMPLETION} tokens; token passes as the tool counts them (forward 1, backward 2).
Seconds are operations divided by the speed at the head of the column; which of them a GPU reaches was not measured.

{table(head, rows)}
"""


def span(value: float) -> str:
    """Seconds, minutes or hours."""
    if value < 120:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.0f} h"


def main() -> None:
    """Count, measure, write."""
    torch.set_num_threads(1)
    memory, one = memory_part()
    check = [counted(2, train=True, device=device) for device in ("meta", "cpu")]
    for name in ("forward", "both", "kept", "parameters"):
        here, there = (getattr(each, name) for each in check)
        assert abs(here - there) <= 0.005 * there, (name, here, there)
    text = f"""# What OLMo-2 1B needs

`OMP_NUM_THREADS=1 .venv/bin/python benchmarks/olmo2_cost.py`, torch {torch.__version__}; random weights of the shape of
allenai/OLMo-2-0425-1B ({one.parameters / 1e9:.3f} billion parameters, {LAYERS} layers). Operations and memory are
counted on the whole shape without numbers (with two layers they agree within .5 % with a real processor); seconds are
measured with {", ".join(map(str, PARTS))} layers in float32 and continued along the straight line.

## Memory

{memory}

Kept: what waits for the backward pass, for each token of prompt and completion; buffers of single operations come on
top. Rollouts of {PROMPT} + {COMPLETION} tokens, the task of `olmo2.py`; for others multiply by their tokens.

{time_part(one)}"""
    Path(__file__).with_suffix("").with_name("olmo2.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
