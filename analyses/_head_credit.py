"""Which heads carry credit back in time, and what is left of early costates without them.

Shape legend: `rollout` rows, `group` prompts, `layer` those asked for below L, `block` 0..L-1, `head` query heads,
`path` value and pattern.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._costate_measures import Request
from valuelens.analyses._request import Progress
from valuelens.analyses._result import Control, Finding, Result
from valuelens.probe import (
    PATHS,
    Head,
    Interval,
    ablated_heads,
    costate_batches,
    cut_heads,
    head_credit_batches,
    ratio_interval,
)

TOP = 3
"""Heads and paths named at each layer; the table holds all."""

_TENTH, _DRAWS = 10, 4
"""The top tenth of heads is ablated (at least one), and so many random sets of as many others. Our definition."""

_FEW = "too few groups, or no spread between them"

_WAYS = {"credit cut": cut_heads, "output ablated": ablated_heads}
"""Outputs stay and no credit goes back through the heads; or they give 0, which changes what the model says too."""


def head_credit(
    request: Request, index: Mapping[str, str], *, seed: int = 0, progress: Progress | None = None
) -> Result:
    """Shares of costates by head and path, the largest with intervals, and an ablation of the heads that carry most.

    The shares of a layer and its locality sum to 1 (`probe.HeadCredit`). Heads are chosen for ablation on every other
    group and judged on those in between, at the lowest layer: how much of |lambda|^2 is lost at early states, those of
    the first half of each completion, or all of a prompt. Tokens and objective stay.

    Args:
        request: Model, rollouts and objective; behind the last block there is no head, so layer L is left out.
        index: Objective and position, for the index of each finding.
        seed: Of the intervals and of the random heads.
        progress: Called after each micro-batch of the shares.

    Raises:
        ValueError: As `head_credit_batches` and `costate_batches`.
    """
    request = replace(
        request, layers=[layer for layer in request.layers if 0 <= layer < request.language_model.num_layers]
    )
    if not request.layers:
        return Result(kind="costates")
    sums = _summed(request, progress)
    findings = [
        finding for place in range(len(request.layers)) for finding in _largest(sums, place, index, seed)
    ]
    findings += _ablation(request, sums, index, seed)
    return Result(kind="costates", findings=tuple(findings), tables={"heads": _table(sums)})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sums:
    """Inner products summed over the states and rollouts of each group."""

    layers: Sequence[int]
    heads: Float[Tensor, "group layer block head path"]
    whole: Float[Tensor, "group layer"]

    @property
    def share(self) -> Float[Tensor, "layer block head path"]:
        """Of |lambda|^2."""
        return self.heads.sum(0) / self.whole.sum(0)[:, None, None, None]

    def even(self, place: int) -> float:
        """The share of a head and path if all that can carry credit to a layer carried the same."""
        share = self.share[place]
        carriers = (share.shape[0] - self.layers[place]) * share.shape[1] * share.shape[2]
        return float(share.sum()) / carriers


def _summed(request: Request, progress: Progress | None) -> _Sums:
    group, parts, row = torch.tensor(request.group), [], 0
    for found in head_credit_batches(
        request.language_model.model,
        request.batch,
        request.objective,
        layers=request.layers,
        micro_batch=request.micro_batch,
        positions=request.positions,
    ):
        parts.append((found.heads.sum(2).cpu(), found.whole.sum(2).cpu()))
        row += len(found.valid)
        if progress:
            progress("heads", row, len(group))
    scale = request.scale.double().square()
    heads, whole = (torch.cat(each) for each in zip(*parts, strict=True))
    return _Sums(
        layers=request.layers,
        heads=_per_group(scale[:, None, None, None, None] * heads, group),
        whole=_per_group(scale[:, None] * whole, group),
    )


def _per_group(values: Float[Tensor, "rollout *rest"], group: Tensor) -> Float[Tensor, "group *rest"]:
    total = torch.zeros(int(group.max()) + 1, *values.shape[1:], dtype=torch.float64)
    return total.index_add(0, group, values)


def _largest(sums: _Sums, place: int, index: Mapping[str, str], seed: int) -> Iterator[Finding]:
    """The heads and paths of one layer with the largest shares."""
    share = sums.share[place]
    order = share.flatten().argsort(descending=True)[:TOP]
    for block, head, path in torch.stack(torch.unravel_index(order, share.shape), 1).tolist():
        mine = sums.heads[:, place, block, head, path]
        interval = ratio_interval(mine, sums.whole[:, place], seed=seed)
        where = {"layer": sums.layers[place], "block": block, "head": head, "path": PATHS[path]}
        yield Finding(
            name="head_share",
            estimate=float(share[block, head, path]),
            unit="1",
            n=len(mine),
            definition="choice",
            index={**index, **where},
            interval=interval,
            control=Control(
                name="the attention path spread evenly over heads and paths", estimate=sums.even(place)
            ),
            reasons={"estimate": "all costates are zero", "control": "all costates are zero"}
            | ({} if interval else {"interval": _FEW}),
        )


def _table(sums: _Sums) -> pd.DataFrame:
    """A line for each layer, block not below it, head and path."""
    rows = [
        (layer, block, head, name, float(sums.share[place, block, head, path]))
        for place, layer in enumerate(sums.layers)
        for block in range(layer, sums.share.shape[1])
        for head in range(sums.share.shape[2])
        for path, name in enumerate(PATHS)
    ]
    return pd.DataFrame(rows, columns=["layer", "block", "head", "path", "share"])


def _ablation(request: Request, sums: _Sums, index: Mapping[str, str], seed: int) -> list[Finding]:
    """What early costates lose without the top heads, and without as many others."""
    count = len(sums.whole)
    if count < 2:
        return []
    chosen, judged = torch.arange(0, count, 2), torch.arange(1, count, 2)
    top, others = _ranked(sums, chosen)
    generator = torch.Generator().manual_seed(seed)
    sets = [
        [others[at] for at in torch.randperm(len(others), generator=generator)[: len(top)].tolist()]
        for _ in range(_DRAWS)
    ]
    plain, model = _early_squares(request, nullcontext())[judged], request.language_model.model
    at: dict[str, int | str] = {
        **index,
        "layer": request.layers[0],
        "heads": ", ".join(f"{block}.{head}" for block, head in top),
    }
    findings = []
    for way, without in _WAYS.items():
        lost = [plain - _early_squares(request, without(model, heads))[judged] for heads in (top, *sets)]
        random = torch.stack(lost[1:]).mean(0)
        where = {**at, "way": way}
        control = float(random.sum() / plain.sum())
        findings += [
            _loss("top", lost[0], plain, where, seed, control=control),
            _loss("top minus random", lost[0] - random, plain, where, seed, control=None),
        ]
    return findings


def _ranked(sums: _Sums, groups: Tensor) -> tuple[list[Head], list[Head]]:
    """The heads that carry most to the lowest layer, in some groups, and all others that could."""
    share = sums.heads[groups, 0].sum((0, 3))
    able = [
        (block, head) for block in range(sums.layers[0], share.shape[0]) for head in range(share.shape[1])
    ]
    order = sorted(able, key=lambda at: -float(share[at]))
    top = max(1, len(able) // _TENTH)
    return order[:top], order[top:]


def _early_squares(request: Request, changed: AbstractContextManager[None]) -> Float[Tensor, " group"]:
    """|lambda|^2 at early states of the lowest layer, summed over each group."""
    parts, row = [], 0
    with changed:
        for found in costate_batches(
            request.language_model.model,
            request.batch,
            request.objective,
            layers=request.layers[:1],
            micro_batch=request.micro_batch,
            positions=request.positions,
        ):
            early = found.valid
            if request.positions == "completion":
                early = early & (
                    2 * torch.arange(early.shape[1], device=early.device) < early.sum(-1, keepdim=True)
                )
            squares = found.values[:, 0].double().square().sum(-1)
            scale = request.scale[row : row + len(early)].double().square()
            parts.append(scale * (squares * early).sum(-1).cpu())
            row += len(early)
    return _per_group(torch.cat(parts), torch.tensor(request.group))


def _loss(
    what: str, lost: Tensor, whole: Tensor, at: Mapping[str, int | str], seed: int, *, control: float | None
) -> Finding:
    interval: Interval | None = ratio_interval(lost, whole, seed=seed)
    return Finding(
        name="head_ablation",
        estimate=float(lost.sum() / whole.sum()),
        unit="1",
        n=len(whole),
        definition="choice",
        index={**at, "ablated": what},
        interval=interval,
        control=None if control is None else Control(name="as many random heads", estimate=control),
        reasons={"estimate": "all early costates are zero"}
        | ({} if interval else {"interval": _FEW})
        | {"control": "a difference from the control" if control is None else "all early costates are zero"},
    )
