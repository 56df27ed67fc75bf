"""The update over states that a checkpoint's layers make, on contexts of any length and in the limit of endless ones.

Shape legend: `layer` L, `batch` tasks, `state` S, `feature` d, `pos` columns of a context, `iterate` 0..L.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from valuelens.analyses._subject import Subject, evaluation_stream
from valuelens.models.icrl import (
    MarkovRewardProcess,
    SoftmaxTD,
    at_states,
    has_state_form,
    rollout,
)
from valuelens.probe import (
    StateKernel,
    bilinear_scores,
    population_state_kernel,
    softmax_td_states,
    state_kernel_from_scores,
)

ONE_LAYER = "a single layer meets empty memories, so its w_T and w_C have no effect (theory A8)"
"""Why one layer of softmax TD cannot be repeated."""

_TABULAR = 60.0
"""Score of a state on itself that leaves others exp(-60) of the attention: rounding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """v <- v + w_R r_hat + w_C M_hat v + gamma w_T P_hat v, with the scores of each layer (theory A4).

    Attributes:
        A: Feature block of the merged key-query matrix of each layer.
        w: (w_R, w_T, w_C) of each layer.
        gamma: Discount.
        tied: All layers are equal.
    """

    A: Float[Tensor, "layer feature feature"]
    w: Float[Tensor, "layer 3"]
    gamma: float
    tied: bool

    @property
    def num_layers(self) -> int:
        """L."""
        return len(self.A)

    @property
    def layers(self) -> list[tuple[dict[str, int | str], int]]:
        """Index and number of the layers that differ; the first of several sees v = 0 and has no fixed point."""
        if self.tied:
            return [({"layer": "all"}, self.num_layers - 1)]
        return [({"layer": layer}, layer) for layer in range(1, self.num_layers)]

    def kernels(
        self, mrp: MarkovRewardProcess, states: Int[Tensor, "batch pos"] | None = None
    ) -> list[StateKernel]:
        """The state kernel of every layer on contexts, or in the limit of endless ones.

        Args:
            mrp: One task a context.
            states: S_0..S_n of each; endless if absent.
        """
        x, mu = mrp.features, mrp.stationary
        distinct = self.A[:1] if self.tied else self.A
        made = []
        for A in distinct:
            scores = bilinear_scores(x, x, A)
            if states is None:
                made.append(population_state_kernel(scores, mrp.P, mrp.r, mu))
            else:
                made.append(kernel_of(scores, mrp, states))
        return made * self.num_layers if self.tied else made

    def iterates(
        self, kernels: Sequence[StateKernel], num_layers: int | None = None, w: Tensor | None = None
    ) -> Float[Tensor, "iterate batch state"]:
        """Values of all states after 0..num_layers layers, from 0.

        Args:
            kernels: From `kernels`.
            num_layers: More than L only if tied.
            w: Other weights than the own, for all layers.
        """
        depth = num_layers or self.num_layers
        weights = self.w if w is None else w
        weights = weights[:1].expand(depth, 3) if weights.ndim == 2 and self.tied else weights
        layers = [kernels[0]] * depth if self.tied else kernels
        start = torch.zeros_like(kernels[0].r_hat)
        return softmax_td_states(start, layers, gamma=self.gamma, num_layers=depth, w=weights)


def rule_of(subject: Subject) -> tuple[Rule | None, str]:
    """The update over states that the layers of a checkpoint are, exactly; or none, and why.

    Args:
        subject: Any model.
    """
    model = subject.model
    if not isinstance(model, SoftmaxTD):
        return None, f"{type(model).__name__} layers are no updates of a value of the state"
    if not has_state_form(model):
        why = "layers with two heads, or with full or factored weights, carry more than a value of the state"
        return (
            None,
            f"{why} (theory A4); errors against depth and context length are those of the model itself",
        )
    if model.num_layers == 1:
        return None, ONE_LAYER
    w, A = model.V[:, -1, -3:].detach(), model.A[:, : model.feature_dim, : model.feature_dim].detach()
    return Rule(A=A, w=w, gamma=subject.context.gamma, tied=model.tied), ""


def kernel_of(
    scores: Float[Tensor, "batch state state"], mrp: MarkovRewardProcess, states: Int[Tensor, "batch pos"]
) -> StateKernel:
    """`state_kernel_from_scores` of contexts of a task.

    Args:
        scores: g(dest, src) between states.
        mrp: One task a context.
        states: S_0..S_n of each.
    """
    return state_kernel_from_scores(scores, states, at_states(mrp.r, states[:, :-1]))


def tabular_kernel(mrp: MarkovRewardProcess, states: Int[Tensor, "batch pos"]) -> StateKernel:
    """The kernel of infinitely sharp one-hot attention: its fixed point is the value of the empirical chain.

    Args:
        mrp: One task a context.
        states: S_0..S_n of each.
    """
    return kernel_of(_TABULAR * torch.eye(mrp.num_states, dtype=mrp.r.dtype).expand_as(mrp.P), mrp, states)


def trajectories(subject: Subject, num_steps: int, stream: int) -> Int[Tensor, "batch pos"]:
    """Fresh trajectories of the subject's tasks, from a stream of their own.

    Args:
        subject: Whose tasks; cart-poles are followed as the chain of their cells, which is Markov.
        num_steps: Transitions.
        stream: Number of the stream.
    """
    return rollout(subject.mrp, num_steps, evaluation_stream(subject.seed, stream))
