"""Costates at the start state that each group shares: their mean, their noise, and the same with advantages permuted.

Shape legend: `rollout` rows, `group` prompts, `layer`, `d_model`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from valuelens.probe import Baseline, CostateStatistics, costate_moments, costate_statistics

PERMUTED = "advantages permuted within groups"
"""Name of the control: everything is kept but the link between a completion and its advantage."""

NOT_PERMUTED = "no advantages of whole completions, in groups of more than two, to permute"
"""Why there is none."""

_PERMUTATIONS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupMeans:
    """Costates at the start states.

    Attributes:
        layers: Of the statistics.
        own: As measured.
        permuted: The same under permuted advantages, some times; empty where costates are not advantages times
            something.
    """

    layers: tuple[int, ...]
    own: CostateStatistics
    permuted: tuple[CostateStatistics, ...]

    def at(self, layer: int, groups: Sequence[int]) -> "GroupMeans":
        """One layer of some groups.

        Args:
            layer: One of `layers`.
            groups: Their numbers.
        """
        place = self.layers.index(layer)
        return GroupMeans(
            layers=(layer,),
            own=_part(self.own, place, groups),
            permuted=tuple(_part(each, place, groups) for each in self.permuted),
        )

    def permuted_ratio(self, place: int) -> float | None:
        """Signal-to-noise under permuted advantages, over all groups and permutations; none without any, or any noise.

        Args:
            place: Of the layer in `layers`.
        """
        if not self.permuted:
            return None
        signal = sum(float(each.squared_norm[:, place].sum()) for each in self.permuted)
        noise = sum(float(each.covariance_trace[:, place].sum()) for each in self.permuted)
        return signal / noise if noise > 0 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Starts:
    """Costates at the start states, one a rollout, before they are scaled.

    Attributes:
        costates: They.
        scale: Of each rollout.
        group: 0, 1, ..., rows of a group together.
        layers: Of the second axis.
        baseline: That ties the rollouts of a group; none where none does, or where nothing is corrected.
    """

    costates: Float[Tensor, "rollout layer d_model"]
    scale: Float[Tensor, " rollout"]
    group: Int[Tensor, " rollout"]
    layers: tuple[int, ...]
    baseline: Baseline | None


def group_means(starts: Starts, generator: torch.Generator | None) -> GroupMeans:
    """Means, noise and controls of scaled costates.

    Args:
        starts: Costates and scales.
        generator: Of the permutations of scales within groups; without one there are none, nor for groups of two,
            whose only other order gives the same up to its sign.
    """
    permuted = []
    largest = int(torch.bincount(starts.group).max())
    for _ in range(_PERMUTATIONS if generator is not None and largest > 2 else 0):
        places = torch.rand(len(starts.group), generator=generator, dtype=torch.float64)
        permuted.append(_statistics(starts, starts.scale[(starts.group + places).argsort()]))
    return GroupMeans(layers=starts.layers, own=_statistics(starts, starts.scale), permuted=tuple(permuted))


def _statistics(starts: Starts, scale: Float[Tensor, " rollout"]) -> CostateStatistics:
    moments = costate_moments(
        scale[:, None, None] * starts.costates, starts.group, int(starts.group.max()) + 1
    )
    return costate_statistics(moments, baseline=starts.baseline)


def _part(whole: CostateStatistics, place: int, groups: Sequence[int]) -> CostateStatistics:
    chosen = list(groups)
    return CostateStatistics(
        mean=whole.mean[chosen, place : place + 1],
        standard_error=whole.standard_error[chosen, place : place + 1],
        squared_norm=whole.squared_norm[chosen, place : place + 1],
        covariance_trace=whole.covariance_trace[chosen, place : place + 1],
    )
