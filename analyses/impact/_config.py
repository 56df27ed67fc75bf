"""What decides a ranking of checkpoints: how they are scored, and how the RL that the scores foretell is run."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from valuelens.models import InputError, did_you_mean
from valuelens.probe import Sampling

Signal = Literal["auto", "subtractive", "usable", "update-aligned"]
Headroom = Literal["tilt", "shortfall", "best-of-k"]
Recipe = Literal["default", "fast", "long"]

BETA = 5.0
"""Of the tilt, in units of 1 / reward range (our definition)."""

SERIES_LEAST = 3
"""Checkpoints that a ranking needs before anything is correlated."""

RIVALS = (
    *("reward", "reward_std", "best_of_k", "pass_at_k", "entropy", "gradient_norm"),
    *("signal", "headroom", "held_out_loss"),
)
"""One-line predictors on the same rollouts (theory B6); all but the held-out loss are expected to rise with gain."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreConfig:
    """How a checkpoint is scored, besides its rollouts.

    Attributes:
        signal: Variant of the signal; `auto` is `subtractive` where the reward is differentiable, else `usable`.
        headroom: Variant of the headroom.
        beta: Of the tilt, in units of 1 / reward range.
        layer: Expression in L, the number of layers, at which costates are taken.
        k: Of best-of-k and pass@k; fewer where a group is smaller.
        max_hops: Sampled tokens that credit is followed across (`subtractive`).
        tolerance: Share of the sum over hops that may be left out.
        sampling: Temperature, top-k and top-p that the completions were sampled with.
        micro_batch: Rollouts a pass.
        every_variant: Take all signals, not the chosen one alone (`update-aligned` is always taken).
        seed: Of splits and intervals.
    """

    signal: Signal = "auto"
    headroom: Headroom = "tilt"
    beta: float = BETA
    layer: str = "L//2"
    k: int = 8
    max_hops: int = 5
    tolerance: float = 0.01
    sampling: Sampling = field(default_factory=Sampling)
    micro_batch: int = 64
    every_variant: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what is not offered."""
        for option, value, offered in (
            ("--signal", self.signal, get_args(Signal)),
            ("--headroom", self.headroom, get_args(Headroom)),
        ):
            if value not in offered:
                found = f"found {value!r}{did_you_mean(value, offered)}"
                raise InputError(f"{option} takes {', '.join(offered)}", found, f"option {option}")
        for option, number, least in (
            ("--micro-batch", self.micro_batch, 1),
            ("--max-hops", self.max_hops, 0),
            ("--tolerance", self.tolerance, 0),
            ("k", self.k, 1),
        ):
            if not least <= number < math.inf:
                raise InputError(f"{option} must be at least {least}", f"found {number}", f"option {option}")
        if not 0 < self.beta < math.inf:
            raise InputError("--beta must be above 0", f"found {self.beta}", "option --beta")


@dataclass(frozen=True, kw_only=True, slots=True)
class Loading:
    """How every checkpoint is loaded.

    Attributes:
        base: What an adapter was trained on, where it does not say so itself.
        dtype: Of the weights.
        device: Where to compute.
    """

    base: str | None = None
    dtype: str = "float32"
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True, slots=True)
class ImpactConfig:
    """What decides a ranking, besides the checkpoints and where their rollouts come from.

    Attributes:
        score: How a checkpoint is scored.
        recipe: Of the RL whose gains are realised.
        rl_seeds: RL runs from a checkpoint: seed, seed+1, ...; 0 for scores alone.
        cut: Run each also with temporal credit cut.
        gains: File of realised gains, in place of RL runs of ours.
        loading: How checkpoints are loaded.
        seed: Decides everything random.
    """

    score: ScoreConfig = field(default_factory=ScoreConfig)
    recipe: Recipe = "default"
    rl_seeds: int = 3
    cut: bool = True
    gains: Path | None = None
    loading: Loading = field(default_factory=Loading)
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what is not offered."""
        if self.rl_seeds < 0:
            raise InputError("--rl-seeds must be at least 0", f"found {self.rl_seeds}", "option --rl-seeds")
        if self.recipe not in get_args(Recipe):
            offered = ", ".join(get_args(Recipe))
            found = f"found {self.recipe!r}{did_you_mean(self.recipe, get_args(Recipe))}"
            raise InputError(f"--recipe takes {offered}", found, "option --recipe")
