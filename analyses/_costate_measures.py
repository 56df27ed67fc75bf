"""What is kept of costates while they are taken, a micro-batch at a time: sums, and the start states whole.

Shape legend: `rollout` rows, `group` prompts, `layer` those asked for, `state` k: after k sampled tokens, `d_model`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from valuelens.analyses._request import Progress
from valuelens.models.lm import LanguageModel
from valuelens.probe import (
    Costates,
    Objective,
    Positions,
    Sequences,
    costate_batches,
    locality,
    own_token_batches,
)

_ROUNDING = 1e-12
"""Of squared costates: what is left of them below it is no spread."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """Which costates of a model are taken.

    Attributes:
        language_model: It.
        batch: Rollouts, those of a group together.
        group: Number of each rollout's group, 0, 1, ... in order.
        objective: What is maximised, linear in `scale`.
        scale: What the costates of each rollout are multiplied by.
        layers, positions, micro_batch: As in `CostateConfig`.
    """

    language_model: LanguageModel
    batch: Sequences
    group: Sequence[int]
    objective: Objective
    scale: Float[Tensor, " rollout"]
    layers: Sequence[int]
    positions: Positions
    micro_batch: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Costates, summed up.

    Attributes:
        layers: Asked for.
        valid: Whether a rollout has a state.
        squares: |lambda|^2.
        own_squares: The same of the part that comes from the state's own token; none of prompt positions.
        inner: <own part, lambda>.
        start: lambda at the state that a group shares, before it is scaled; none of prompt positions.
        mean_square: |mean over the group|^2.
        trace: Of the group's covariance, with n - 1.
        count: Rollouts of the group that have the state.
    """

    layers: tuple[int, ...]
    valid: Bool[Tensor, "rollout state"]
    squares: Float[Tensor, "rollout layer state"]
    own_squares: Float[Tensor, "rollout layer state"] | None
    inner: Float[Tensor, "rollout layer state"] | None
    start: Float[Tensor, "rollout layer d_model"] | None
    mean_square: Float[Tensor, "group layer state"]
    trace: Float[Tensor, "group layer state"]
    count: Float[Tensor, "group state"]


def measured(request: Request, progress: Progress | None = None) -> Measured:
    """Take the costates of all rollouts, micro-batch by micro-batch.

    What is kept of a rollout is its start state and a few numbers a state, so that memory grows with the vocabulary
    and the length of a micro-batch and not with the number of rollouts.

    Args:
        request: Model, rollouts and objective.
        progress: Called after each micro-batch.
    """
    local = request.positions == "completion"
    shape = (len(request.group), len(request.layers), _width(request))
    squares, own_squares, inner = (torch.zeros(shape, dtype=torch.float64) for _ in range(3))
    start: list[Tensor] = []
    groups, row = _GroupSums(shape[1:], max(request.group) + 1), 0
    model, valid = request.language_model.model, torch.zeros(shape[0], shape[2], dtype=torch.bool)
    asked = (model, request.batch, request.objective)
    every = costate_batches(
        *asked, layers=request.layers, micro_batch=request.micro_batch, positions=request.positions
    )
    alone: Iterable[Costates | None] = (
        own_token_batches(*asked, layers=request.layers, micro_batch=request.micro_batch)
        if local
        else repeat(None)
    )
    for found, own_part in zip(every, alone, strict=False):
        rows = slice(row, row + len(found.values))
        scale = request.scale[rows].double()[:, None, None]
        costates = found.values.double().cpu()
        states = costates.shape[2]
        valid[rows, :states] = found.valid.cpu()
        squares[rows, :, :states] = scale.square() * costates.square().sum(-1)
        if own_part is not None:
            own = own_part.values.double().cpu()
            own_squares[rows, :, :states] = scale.square() * own.square().sum(-1)
            inner[rows, :, :states] = scale.square() * locality(own_part, found).own.cpu()
            start.append(costates[:, :, 0])
        groups.add(
            scale[..., None] * costates, squares[rows, :, :states], found.valid.cpu(), request.group[rows]
        )
        row = rows.stop
        if progress:
            progress("costates", row, shape[0])
    return Measured(
        layers=tuple(request.layers),
        valid=valid,
        squares=squares,
        own_squares=own_squares if local else None,
        inner=inner if local else None,
        start=torch.cat(start) if local else None,
        **groups.moments(),
    )


def _width(request: Request) -> int:
    batch = request.batch
    return (
        batch.valid.shape[1]
        if request.positions == "completion"
        else max(1, int(batch.prompt_length.max()) - 1)
    )


class _GroupSums:
    """Sums over the rollouts of each group; a group is closed, and its vectors forgotten, when the next one begins."""

    def __init__(self, shape: tuple[int, ...], groups: int) -> None:
        layers, states = shape
        self.mean_square = torch.zeros(groups, layers, states, dtype=torch.float64)
        self.trace = torch.zeros_like(self.mean_square)
        self.count = torch.zeros(groups, states, dtype=torch.float64)
        self._open: int | None = None
        self._total = self._square = torch.zeros(())

    def add(
        self,
        costates: Float[Tensor, "rollout layer state d_model"],
        squares: Float[Tensor, "rollout layer state"],
        valid: Bool[Tensor, "rollout state"],
        group: Sequence[int],
    ) -> None:
        """Add rollouts, those of a group one after another, with their squared norms."""
        states = costates.shape[2]
        for each in dict.fromkeys(group):
            mine = torch.tensor([one == each for one in group])
            if each != self._open:
                self._close()
                layers, width = self.mean_square.shape[1:]
                self._open, self._total = (
                    each,
                    torch.zeros(layers, width, costates.shape[3], dtype=torch.float64),
                )
                self._square = torch.zeros(layers, width, dtype=torch.float64)
            self._total[:, :states] += costates[mine].sum(0)
            self._square[:, :states] += squares[mine].sum(0)
            self.count[each, :states] += valid[mine].sum(0)

    def moments(self) -> dict[str, Tensor]:
        """Squared norm of the mean and trace of the covariance of each group, and how many rollouts they are of."""
        self._close()
        return {"mean_square": self.mean_square, "trace": self.trace, "count": self.count}

    def _close(self) -> None:
        if self._open is None:
            return
        count = self.count[self._open]
        mean = self._total / count.clamp(min=1)[:, None]
        self.mean_square[self._open] = mean.square().sum(-1)
        spread = self._square - count * self.mean_square[self._open]
        spread = torch.where(spread > _ROUNDING * self._square, spread, 0.0)
        self.trace[self._open] = spread / (count - 1).clamp(min=1)
