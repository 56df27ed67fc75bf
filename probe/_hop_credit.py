"""What credit by hop says: the share of each hop, and how far hop 0, what training sees, is from the relaxed sum.

All of it is relaxed: a small gap here says nothing of the discrete value gradient (theory B4).

Shape legend: `batch` rollouts, `hop` k = 0, 1, ..., `layer` those asked for, `state` k = 0..T-1, `d_model` width of the
residual stream.

Source: theory B3; shares are our definition.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields

import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor

from valuelens.probe._hops import Hops
from valuelens.probe._shown import Measured


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class HopCredit(Measured):
    """Inner products of hops with their sum Lambda, 0 where a rollout has no such state; they add up over states.

    Pool any states by adding these up first: a quotient of sums weighs a state by its credit.

    Attributes:
        along: <lambda^(k), Lambda>.
        direct: <lambda^(0), lambda^(0)>.
        missing: <Lambda - lambda^(0), the same>.
        whole: <Lambda, Lambda>.
        valid: Whether a rollout has the state.
    """

    along: Float[Tensor, "batch hop layer state"]
    direct: Float[Tensor, "batch layer state"]
    missing: Float[Tensor, "batch layer state"]
    whole: Float[Tensor, "batch layer state"]
    valid: Bool[Tensor, "batch state"]

    @property
    def shares(self) -> Float[Tensor, "hop layer"]:
        """<lambda^(k), Lambda> / <Lambda, Lambda> over all states: signed, and 1 in sum over hops."""
        return self.along.sum((0, 3)) / self.whole.sum((0, 2))

    @property
    def gap(self) -> Float[Tensor, " layer"]:
        """|| Lambda - lambda^(0) || / || Lambda ||, both norms over all completion states: the relaxed gap."""
        return (self.missing.sum((0, 2)) / self.whole.sum((0, 2))).sqrt()

    @property
    def cosine(self) -> Float[Tensor, " layer"]:
        """Of hop 0 with the sum, as vectors over all states."""
        direct, whole = self.direct.sum((0, 2)), self.whole.sum((0, 2))
        return self.along[:, 0].sum((0, 2)) / (direct * whole).sqrt()

    @property
    def shares_by_state(self) -> Float[Tensor, "hop layer state"]:
        """Shares over rollouts alone; not a number where no rollout has credit at the state."""
        return self.along.sum(0) / self.whole.sum(0)

    @property
    def gap_by_state(self) -> Float[Tensor, "layer state"]:
        """The gap over rollouts alone, relative to the sum at this state."""
        return (self.missing.sum(0) / self.whole.sum(0)).sqrt()

    @property
    def cosine_by_state(self) -> Float[Tensor, "layer state"]:
        """The cosine over rollouts alone."""
        return self.along[:, 0].sum(0) / (self.direct.sum(0) * self.whole.sum(0)).sqrt()


def hop_credit(hops: Hops) -> HopCredit:
    """Inner products of one micro-batch, in float64.

    Args:
        hops: Of `hop_batches`.
    """
    values = hops.values.double()
    whole, direct = values.sum(1), values[:, 0]
    return HopCredit(
        along=einsum(values, whole, "b hop layer state d, b layer state d -> b hop layer state"),
        direct=direct.square().sum(-1),
        missing=(whole - direct).square().sum(-1),
        whole=whole.square().sum(-1),
        valid=hops.valid,
    )


def joined_credit(parts: Iterable[HopCredit]) -> HopCredit:
    """Several micro-batches as one, in order; fewer hops or states are filled up by zeros.

    Args:
        parts: Of the same layers, at least one.
    """
    found = list(parts)
    hops = max(part.along.shape[1] for part in found)
    states = max(part.valid.shape[1] for part in found)
    pad = torch.nn.functional.pad
    joined = {
        field.name: [pad(getattr(part, field.name), (0, states - part.valid.shape[1])) for part in found]
        for field in fields(HopCredit)
    }
    joined["along"] = [pad(along, (0, 0, 0, 0, 0, hops - along.shape[1])) for along in joined["along"]]
    return HopCredit(**{name: torch.cat(each) for name, each in joined.items()})
