"""Findings of the question `opaque`: decodability, selectivity, increments, patch responses, heads.

Shape legend: `batch` tasks.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._opaque_quantities import Decoded, Sums
from valuelens.analyses._result import Control, Finding, Scalar
from valuelens.analyses._subject import FEW
from valuelens.probe import mean_interval, ratio_interval

Index = dict[str, int | str]

OTHER, UNTRAINED = "another context", "an untrained network"
"""What selectivity is against."""

EXACT = 1e-12
"""Shares of squares below it are rounding, which has no interval."""


def layer_name(depth: int) -> int | str:
    """Index of a stream: the embedding, then after each block."""
    return depth - 1 if depth else "embedding"


def pooled_features(found: list[Decoded]) -> dict[tuple[str, str], list[Decoded]]:
    """Decoded quantities by name and rule; the coordinates of features stand under one name."""
    groups: dict[tuple[str, str], list[Decoded]] = {}
    for each in found:
        groups.setdefault((each.quantity.name, each.quantity.rule), []).append(each)
    return groups


def index_of(depth: int, group: list[Decoded]) -> Index:
    """Where a finding on decoded quantities stands."""
    quantity = group[0].quantity
    index: Index = {"layer": layer_name(depth), "quantity": quantity.name}
    if quantity.rule:
        index |= {"rule": quantity.rule, "iterate": group[0].iterate}
    return index


def decodability(depth: int, group: list[Decoded], seed: int) -> Finding:
    """R^2 of held-out contexts, beside those of probes taught the labels of another context, and shuffled ones."""
    sums, other, shuffled = (
        added([getattr(each, which) for each in group]) for which in ("sums", "other", "shuffled")
    )
    beside: list[Scalar] = [r2(other), r2(shuffled)]
    control = (f"labels of {OTHER}, shuffled labels", beside)
    return explained("decodability", index_of(depth, group), sums, control, seed)


def selectivity(depth: int, group: list[Decoded], controls: dict[str, Sums], seed: int) -> list[Finding]:
    """R^2 minus that of each control, with the interval over tasks."""
    found = []
    residual, total = added([each.sums for each in group])
    for against, sums in controls.items():
        lost = sums[0] / sums[1].mean() - residual / total.mean()
        interval = mean_interval(lost, seed=seed)
        found.append(
            Finding(
                name="selectivity",
                estimate=float(lost.mean()),
                unit="R^2",
                n=len(total),
                definition="choice",
                index=index_of(depth, group) | {"against": against},
                interval=interval,
                control=Control(name=f"R^2 of {against}", estimate=r2(sums)),
                reasons={} if interval else {"interval": FEW},
            )
        )
    return found


def explained(
    name: str, index: Index, sums: Sums, control: tuple[str, Scalar | list[Scalar]], seed: int
) -> Finding:
    """1 - residual / total, with its interval over tasks."""
    share = ratio_interval(*sums, seed=seed) if r2(sums) < 1 - EXACT else None
    return Finding(
        name=name,
        estimate=r2(sums),
        unit="R^2",
        n=len(sums[0]),
        definition="choice",
        index=index,
        interval=share and (1 - share[1], 1 - share[0]),
        control=Control(name=control[0], estimate=control[1]),
        reasons={} if share else {"interval": "exact to rounding" if r2(sums) >= 1 - EXACT else FEW},
    )


def patch_gap(index: Index, sums: tuple[Sums, list[tuple[str, Sums]]], seed: int) -> Finding:
    """|| measured - predicted || / || predicted ||, pooled over tasks, beside the same for other directions."""
    own, controls = sums
    share = ratio_interval(*own, seed=seed)
    return Finding(
        name="patch_response",
        estimate=math.sqrt(share_of(own)),
        unit="norm of the predicted response",
        n=len(own[0]),
        definition="choice",
        index=index,
        interval=share and (math.sqrt(share[0]), math.sqrt(share[1])),
        control=Control(
            name=", ".join(name for name, _ in controls),
            estimate=[math.sqrt(share_of(each)) for _, each in controls],
        ),
        reasons={} if share else {"interval": FEW},
    )


def no_patch(index: Index, why: str) -> Finding:
    """A layer without patches."""
    return Finding(
        name="patch_response",
        estimate=None,
        unit="norm of the predicted response",
        n=0,
        definition="choice",
        index=index,
        reasons={"estimate": why, "interval": why, "control": why},
    )


def agreement(
    index: Index,
    shared: Float[Tensor, "batch"],
    controls: list[tuple[str, Float[Tensor, "batch"]]],
    seed: int,
) -> Finding:
    """Attention that a head shares with the kernel of the rule, mean over columns and tasks."""
    interval = mean_interval(shared, seed=seed)
    return Finding(
        name="head_agreement",
        estimate=float(shared.mean()),
        unit="shared attention",
        n=len(shared),
        definition="choice",
        index=index,
        interval=interval,
        control=Control(
            name=", ".join(name for name, _ in controls),
            estimate=[float(each.mean()) for _, each in controls],
        ),
        reasons={} if interval else {"interval": FEW},
    )


def added(sums: list[Sums]) -> Sums:
    """Sums of squares of several quantities together."""
    residual, total = (torch.stack(each).sum(0) for each in zip(*sums, strict=True))
    return residual, total


def share_of(sums: Sums) -> float:
    """First squares as a share of the second, pooled over tasks."""
    return float(sums[0].sum() / sums[1].sum())


def r2(sums: Sums) -> float:
    """1 minus the residual's share of the total."""
    return 1 - share_of(sums)
