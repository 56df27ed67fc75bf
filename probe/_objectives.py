"""The surrogate that critic-free RL trains on, the factors of its loss types, and what is not supported, by name.

Shape legend: `batch` rollouts in the order in which they were trained on, `state` k: after k tokens of the completion.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

LossType = Literal["none", "grpo", "bnpo", "dapo", "dr_grpo"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Normaliser:
    """How a trainer weighs rollouts against each other.

    Attributes:
        loss_type: As TRL names it; `none` for the plain sum that costates are defined on.
        micro_batch: N, rollouts in one backward pass of one process; all of them if none.
        accumulation: Backward passes of one optimiser step, those of all processes together.
        max_completion_length: Of `dr_grpo` only.
    """

    loss_type: LossType = "none"
    micro_batch: int | None = None
    accumulation: int = 1
    max_completion_length: int | None = None


def loss_factors(mask: Bool[Tensor, "batch state"], normaliser: Normaliser) -> Float[Tensor, " batch"]:
    """What a loss type multiplies each rollout's term of the surrogate with.

    With T_i the rollout's tokens in the mask, over an optimiser step of A backward passes of N rollouts: `grpo`
    1/(A N T_i), `bnpo` 1/(A sum of T over the pass), `dapo` 1/(sum of T over the step), `dr_grpo`
    1/(A N max_completion_length); sums of no token count as 1. A last pass or step may hold fewer rollouts.
    The sum of factor x advantage x log-probability over a step is minus the loss that TRL backpropagates in it.

    Source: theory B2; TRL 1.16 `GRPOTrainer._compute_loss`.

    Args:
        mask: Tokens that the loss counts.
        normaliser: Loss type and sizes of passes.

    Raises:
        ValueError: `dr_grpo` without `max_completion_length`, or a size below 1.

    Example:
        >>> mask = torch.tensor([[True, True], [True, False]])
        >>> loss_factors(mask, Normaliser(loss_type="grpo")), loss_factors(mask, Normaliser(loss_type="dapo"))
        (tensor([0.2500, 0.5000]), tensor([0.3333, 0.3333]))
    """
    tokens = mask.sum(1).to(torch.get_default_dtype())
    micro_batch = len(tokens) if normaliser.micro_batch is None else normaliser.micro_batch
    if min(micro_batch, normaliser.accumulation) < 1:
        found = f"found {micro_batch} and {normaliser.accumulation}"
        raise ValueError(f"micro_batch and accumulation must be at least 1; {found}; loss_factors")
    if normaliser.loss_type == "dr_grpo" and not normaliser.max_completion_length:
        raise ValueError("dr_grpo divides by max_completion_length; found none; loss_factors")
    factors = [
        _pass_factors(each, len(passes), float(sum(part.sum() for part in passes)), normaliser)
        for step in tokens.split(micro_batch * normaliser.accumulation)
        for passes in [step.split(micro_batch)]
        for each in passes
    ]
    return torch.cat(factors)


def _pass_factors(
    tokens: Float[Tensor, " batch"], passes: int, step_tokens: float, normaliser: Normaliser
) -> Float[Tensor, " batch"]:
    match normaliser.loss_type:
        case "none":
            return torch.ones_like(tokens)
        case "grpo":
            return 1 / (passes * len(tokens) * tokens.clamp(min=1))
        case "bnpo":
            return torch.full_like(tokens, 1 / (passes * max(1.0, float(tokens.sum()))))
        case "dapo":
            return torch.full_like(tokens, 1 / max(1.0, step_tokens))
        case "dr_grpo":
            return torch.full_like(
                tokens, 1 / (passes * len(tokens) * (normaliser.max_completion_length or 1))
            )


def surrogate_weights(
    advantages: Float[Tensor, " batch"] | Float[Tensor, "batch state"],
    mask: Bool[Tensor, "batch state"],
    normaliser: Normaliser | None = None,
) -> Float[Tensor, "batch state"]:
    """What the log-probability of each token is multiplied with in the surrogate: advantage x factor, 0 off the mask.

    Args:
        advantages: One for each rollout, or one for each of its tokens (PPO).
        mask: Tokens that the loss counts.
        normaliser: Loss type and sizes of passes; the plain sum if none.
    """
    factors = loss_factors(mask, normaliser or Normaliser()).to(advantages)
    of_tokens = advantages[:, None] if advantages.ndim == 1 else advantages
    return torch.where(mask, of_tokens * factors[:, None], 0.0)


def surrogate(
    log_prob: Float[Tensor, "batch state"], weights: Float[Tensor, "batch state"]
) -> Float[Tensor, ""]:
    """J = sum of weight x log-probability, the weights held fixed: the gradient of GRPO at ratio 1.

    There clipping is idle and the ratio's gradient is that of the log-probability. What is maximised: minus TRL's loss
    up to a constant. Tokens of weight 0 are not read, so that padding may hold anything.

    Source: theory B2.

    Args:
        log_prob: Of the tokens drawn, under the distribution sampled from.
        weights: Advantage x factor, 0 off the mask.

    Example:
        >>> surrogate(torch.tensor([[-1.0, -torch.inf]]), torch.tensor([[2.0, 0.0]]))
        tensor(-2.)
    """
    counted = weights != 0
    return (torch.where(counted, log_prob, 0.0) * weights.detach()).sum()


_OTHER_LOSSES = {
    "luspo": "its terms grow with the completion's length",
    "cispo": "its clipped weights multiply the log-probability; at ratio 1 it is dapo",
    "sapo": "its soft gate takes the place of clipping; at ratio 1 it is grpo",
    "vespo": "its weights are of whole sequences",
}

_UNSUPPORTED = {
    "beta": (0.0, "a KL term pulls towards a reference model that is not there"),
    "importance_sampling_level": (
        "token",
        "GSPO's sequence ratios weigh tokens by their completion's length",
    ),
    "num_iterations": (1, "after the first iteration the ratio is not 1 and clipping acts"),
    "tools": (None, "tool masks leave out tokens that the model did not draw"),
    "tool_mask": (None, "tool masks leave out tokens that the model did not draw"),
    "env_mask": (None, "tool masks leave out tokens that the model did not draw"),
    "entropy_coef": (0.0, "an entropy bonus is another objective"),
    "use_adaptive_entropy": (False, "an entropy bonus is another objective"),
    "top_entropy_quantile": (1.0, "tokens of low entropy are left out by a threshold over the batch"),
    "off_policy_mask_threshold": (None, "completions are left out by their distance from another policy"),
    "importance_sampling_ratio": (None, "ratios to the policy of the sampler weigh tokens"),
    "multi_objective_aggregation": ("sum_then_normalize", "rewards are scaled one by one"),
}


def unsupported(settings: Mapping[str, Any]) -> dict[str, str]:
    """Which of a trainer's settings make an objective that is not supported here, and why, by TRL's name.

    Settings at the value at which they do nothing are supported, and so are all that are not listed.

    Args:
        settings: Names as in TRL's `GRPOConfig`, or of columns of its inputs.

    Example:
        >>> unsupported({"beta": 0.0, "loss_type": "dapo"})
        {}
        >>> unsupported({"beta": 0.04})
        {'beta=0.04': 'a KL term pulls towards a reference model that is not there'}
    """
    found = {
        f"{name}={settings[name]}": why
        for name, (idle, why) in _UNSUPPORTED.items()
        if name in settings and settings[name] not in (idle, None)
    }
    loss_type = settings.get("loss_type", "none")
    if loss_type not in get_args(LossType):
        found[f"loss_type={loss_type}"] = _OTHER_LOSSES.get(loss_type, "it is not known here")
    return found


def refuse_unsupported(settings: Mapping[str, Any]) -> None:
    """Raise where a trainer's settings make another objective than ours, naming each in one line.

    Args:
        settings: Names as in TRL's `GRPOConfig`.

    Raises:
        ValueError: Something asked for is not supported.
    """
    found = unsupported(settings)
    if found:
        listed = ", ".join(f"{name} ({why})" for name, why in found.items())
        raise ValueError(f"the objective must be the surrogate at ratio 1; found {listed}; loss settings")
