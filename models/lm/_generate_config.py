"""How rollouts are sampled: sizes, temperature and what is cut from the distribution."""

import math
from dataclasses import dataclass
from typing import Literal

from valuelens.models._errors import InputError

CompletionEnds = Literal["auto", "yes", "no"]

_SEEDS = 2**63


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateConfig:
    """How rollouts are sampled.

    Attributes:
        num_prompts: Groups.
        num_generations: Rollouts of a group; at least 2.
        max_completion_length: Tokens after which a completion is cut; the task's own if none.
        temperature: Divides the logits; above 0.
        top_k: Only the k likeliest tokens; 0 for all.
        top_p: Only the likeliest tokens that together hold this probability; 1 for all.
        batch_size: Rollouts sampled side by side, which bounds memory and changes nothing else.
        seed: Decides prompts and samples.
        completion_ends: Whether the end-of-sequence token ends a completion; `auto` for what the task says.

    Raises:
        InputError: A number out of its range.
    """

    num_prompts: int = 32
    num_generations: int = 16
    max_completion_length: int | None = 64
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    batch_size: int = 64
    seed: int = 0
    completion_ends: CompletionEnds = "auto"

    def __post_init__(self) -> None:
        least = {
            "num_prompts": 1,
            "num_generations": 2,
            "max_completion_length": 1,
            "batch_size": 1,
            "top_k": 0,
            "seed": 0,
        }
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and value < bound:
                why = " (n_group = 1 has no baseline)" if name == "num_generations" else ""
                raise InputError(f"{name} must be at least {bound}{why}", f"found {value}", _option(name))
        if self.seed >= _SEEDS:
            raise InputError(f"seed must lie in 0..{_SEEDS - 1}", f"found {self.seed}", _option("seed"))
        if not 0 < self.temperature < math.inf:
            raise InputError(
                "temperature must be above 0", f"found {self.temperature}", _option("temperature")
            )
        if not 0 < self.top_p <= 1:
            raise InputError("top_p must lie in (0, 1]", f"found {self.top_p}", _option("top_p"))


def _option(name: str) -> str:
    return f"option --{name.replace('_', '-')}"
