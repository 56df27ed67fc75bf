"""Objectives of a language model's update, as functions of the logits at the states of rollouts.

Two kinds, never mixed (theory B2): the surrogate, whose tokens are held fixed, and a differentiable reward. Your own
needs the three methods of `Objective`.

Shape legend: `batch` rollouts, `state` k = 0..T-1, `vocabulary` tokens.
"""

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from valuelens.probe._sequences import Sampling, Sequences
from valuelens.probe._token_scores import token_log_probs


@runtime_checkable
class Objective(Protocol):
    """What is maximised, one number for each rollout, as a function of the logits at its states."""

    def values(
        self, logits: Float[Tensor, "batch state vocabulary"], sequences: Sequences
    ) -> Float[Tensor, " batch"]:
        """Its value.

        Args:
            logits: At the states, as the model gives them.
            sequences: The rollouts.
        """
        ...

    def rows(self, start: int, stop: int) -> "Objective":
        """The same for some rollouts.

        Args:
            start: First.
            stop: Behind the last.
        """
        ...

    def idle(self, sequences: Sequences) -> str | None:
        """Why no gradient can come of it, in words; none if one can.

        Args:
            sequences: The rollouts.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Surrogate:
    """J_i = sum_k w_ik log pi(o_ik | o_i,<k): what critic-free RL trains on, at ratio 1.

    Its costate is an unbiased estimate of the discrete value gradient if weights are advantages against a leave-one-out
    baseline, or against the group mean times n/(n-1) (theory B2).

    Attributes:
        weights: Advantage times the loss's factor, held fixed.
        sampling: How the tokens were drawn; `token_scores` refuses tokens that were not.
    """

    weights: Float[Tensor, "batch state"]
    sampling: Sampling = field(default_factory=Sampling)

    def values(
        self, logits: Float[Tensor, "batch state vocabulary"], sequences: Sequences
    ) -> Float[Tensor, " batch"]:
        """J of each rollout.

        Args:
            logits: At the states.
            sequences: The rollouts.
        """
        weights = self.weights.detach()[:, : logits.shape[1]].to(logits)
        log_prob = token_log_probs(logits, sequences.completions, self.sampling, drawn=True)
        return torch.where(sequences.valid & (weights != 0), weights * log_prob, 0.0).sum(-1)

    def rows(self, start: int, stop: int) -> "Surrogate":
        """The same for some rollouts.

        Args:
            start: First.
            stop: Behind the last.
        """
        return Surrogate(weights=self.weights[start:stop], sampling=self.sampling)

    def idle(self, sequences: Sequences) -> str | None:
        """Why no gradient can come of it; none if one can.

        Args:
            sequences: The rollouts.
        """
        valid = sequences.valid
        weights = self.weights[:, : valid.shape[1]].to(valid.device)[valid]
        if not len(weights):
            return "all completions are empty"
        return (
            None if bool(weights.any()) else "all advantages are zero: no group has variance in its rewards"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetProbability:
    """A differentiable reward: the mean over a completion's states of p_theta(target).

    Its costate lacks the sampling path (theory B2, B3).

    Attributes:
        targets: The right token of each state; one row stands for all rollouts.
        sampling: How the tokens were drawn.
    """

    targets: Int[Tensor, "batch state"]
    sampling: Sampling = field(default_factory=Sampling)

    def values(
        self, logits: Float[Tensor, "batch state vocabulary"], sequences: Sequences
    ) -> Float[Tensor, " batch"]:
        """The reward of each rollout; 0 of an empty completion.

        Args:
            logits: At the states.
            sequences: The rollouts.
        """
        targets = self.targets[:, : logits.shape[1]].to(logits.device).expand(logits.shape[:2])
        probability = token_log_probs(logits, targets, self.sampling).exp()
        total = torch.where(sequences.valid, probability, 0.0).sum(-1)
        return total / sequences.completion_length.clamp(min=1)

    def rows(self, start: int, stop: int) -> "TargetProbability":
        """The same for some rollouts.

        Args:
            start: First.
            stop: Behind the last.
        """
        targets = self.targets if len(self.targets) == 1 else self.targets[start:stop]
        return TargetProbability(targets=targets, sampling=self.sampling)

    def idle(self, sequences: Sequences) -> str | None:
        """Why no gradient can come of it; none if one can.

        Args:
            sequences: The rollouts.
        """
        return None if bool(sequences.valid.any()) else "all completions are empty"
