"""What is asked of the costates of a language model, and which layers that is."""

import math
import re
from dataclasses import dataclass, field
from typing import Literal, get_args

from valuelens.models import InputError, did_you_mean
from valuelens.probe import Baseline, LossType, Positions, Sampling, Scale, unsupported

Objective = Literal["surrogate", "reward"]

DEFAULT_LAYERS = ("0", "L//2", "3L//4")
"""Our definition (theory B2): the embedding, the middle, and three quarters of the way."""

_SEEDS = 2**63

_LAYER = re.compile(r"(?:(?P<times>\d*)L(?://(?P<by>[1-9]\d*))?(?:-(?P<less>\d+))?|(?P<number>\d+))")


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """The update whose costates are asked for: how a reward becomes the weight of a token.

    Attributes:
        baseline: What is subtracted from a reward.
        scale_rewards: What an advantage is divided by: nothing, or the standard deviation of its group or of the batch.
        loss_type: `none` for sum_i Adv_i sum_k log pi, the definition; else the factors of that loss as it is trained.
        max_completion_length: The length that `dr_grpo` divides by; the longest completion if 0.
    """

    baseline: Baseline = "group-mean"
    scale_rewards: Scale = "none"
    loss_type: LossType = "none"
    max_completion_length: int = 0

    @property
    def as_defined(self) -> bool:
        """Whether costates are those of the definition: no factor of a loss, no scale."""
        return self.loss_type == "none" and self.scale_rewards == "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class CostateConfig:
    """What decides the answer, besides model and rollouts.

    Attributes:
        objective: `surrogate` (what GRPO trains on) or `reward` (a differentiable reward); they are never mixed.
        layers: Numbers, or expressions in the number of layers L (`L//2`, `3L//4`, `L-1`); L is after the final norm.
        positions: States of the completion, or the earlier positions of the prompt, which are never averaged with them.
        update: How rewards become weights of tokens (objective `surrogate`).
        sampling: Temperature, top-k and top-p that the completions were sampled with.
        micro_batch: Rollouts a pass: bounds memory. It changes no answer but how many hops are followed.
        max_hops: Sampled tokens that credit is followed across, at most (objective `reward`).
        tolerance: What may be left out of the sum over hops, by its estimate.
        full: Also ask which heads carry credit and, of a differentiable reward, what entropy bounds: several times
            the cost.
        enumerate_up_to: Continuations of a prompt that are enumerated, where there are not more, for the true gradient.
        seed: Of permutations and intervals.
    """

    objective: Objective = "surrogate"
    layers: tuple[str, ...] = DEFAULT_LAYERS
    positions: Positions = "completion"
    update: Update = field(default_factory=Update)
    sampling: Sampling = field(default_factory=Sampling)
    micro_batch: int = 8
    max_hops: int = 5
    tolerance: float = 0.01
    full: bool = False
    enumerate_up_to: int = 4096
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what is not offered."""
        for option, value, offered in (
            ("--objective", self.objective, get_args(Objective)),
            ("--positions", self.positions, get_args(Positions)),
            ("--baseline", self.update.baseline, get_args(Baseline)),
            ("--scale-rewards", self.update.scale_rewards, get_args(Scale)),
            ("--loss-type", self.update.loss_type, get_args(LossType)),
        ):
            if value not in offered:
                why = unsupported({"loss_type": value}) if option == "--loss-type" else {}
                hint = "".join(f" ({each})" for each in why.values()) or did_you_mean(value, offered)
                found = f"found {value!r}{hint}"
                raise InputError(f"{option} takes {', '.join(offered)}", found, f"option {option}")
        for option, number, least in (
            ("--micro-batch", self.micro_batch, 1),
            ("--max-hops", self.max_hops, 0),
            ("--tolerance", self.tolerance, 0),
            ("--top-k", self.sampling.top_k, 0),
            ("--max-completion-length", self.update.max_completion_length, 0),
        ):
            if not least <= number < math.inf:
                raise InputError(f"{option} must be at least {least}", f"found {number}", f"option {option}")
        if not 0 <= self.seed < _SEEDS:
            raise InputError(f"the seed must lie in 0..{_SEEDS - 1}", f"found {self.seed}", "option --seed")
        if not self.sampling.temperature > 0:
            found = f"found {self.sampling.temperature}"
            raise InputError("the temperature must be above 0", found, "option --temperature")
        if not 0 < self.sampling.top_p <= 1:
            raise InputError("top-p must lie in (0, 1]", f"found {self.sampling.top_p}", "option --top-p")


def chosen_layers(expressions: tuple[str, ...], num_layers: int) -> list[int]:
    """Layers in increasing order, each once.

    Args:
        expressions: Numbers or expressions in L, or `all`.
        num_layers: L.

    Raises:
        InputError: An expression cannot be read, or names no layer of the model.

    Example:
        >>> chosen_layers(("0", "L//2", "3L//4", "L-1"), 2)
        [0, 1]
    """
    if expressions == ("all",):
        return list(range(num_layers))
    layers = set()
    for expression in expressions:
        found = _LAYER.fullmatch(expression.replace(" ", ""))
        if found is None:
            must = "a layer is a number or an expression in L such as L//2, 3L//4 or L-1"
            raise InputError(must, f"found {expression!r}", "option --layers")
        layer = (
            int(found["number"])
            if found["number"]
            else int(found["times"] or 1) * num_layers // int(found["by"] or 1) - int(found["less"] or 0)
        )
        if not 0 <= layer <= num_layers:
            must = f"a layer must lie in 0..{num_layers} ({num_layers} is after the final norm)"
            raise InputError(
                must,
                f"found {expression}" + (f" = {layer}" if expression != str(layer) else ""),
                "option --layers",
            )
        layers.add(layer)
    if not layers:
        raise InputError("there must be a layer", "found none", "option --layers")
    return sorted(layers)
