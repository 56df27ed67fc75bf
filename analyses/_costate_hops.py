"""How many sampled tokens the credit of a differentiable reward crossed, and what leaving those paths out misses."""

from collections.abc import Mapping, Sequence

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._costate_measures import Request
from valuelens.analyses._request import Progress
from valuelens.analyses._result import Finding, Result
from valuelens.probe import (
    HopCredit,
    Hops,
    Relaxation,
    hop_batches,
    hop_credit,
    joined_credit,
    ratio_interval,
)

_ALONE = "shares of one sum"
_FEW = "too few groups, or no spread between them"


def hops(
    request: Request, relaxation: Relaxation, *, seed: int = 0, progress: Progress | None = None
) -> Result:
    """Credit by hop at every layer: shares of the relaxed sum, relaxed gap, cosine of hop 0, and what is left out.

    Source: theory B3. The relaxed sum is no true gradient: `gap_discrete` says how far it is where a task is small.

    Args:
        request: Model, rollouts and a differentiable reward.
        relaxation: How tokens were drawn, and how far credit is followed.
        seed: Of the intervals.
        progress: Called after each micro-batch.
    """
    parts, squares, left, row = [], [], [], 0
    for each in hop_batches(
        request.language_model.model,
        request.batch,
        request.objective,
        layers=request.layers,
        relaxation=relaxation,
        micro_batch=request.micro_batch,
    ):
        parts.append(hop_credit(each))
        squares.append(_squares(each, relaxation.max_hops, request.batch.valid.shape[1]))
        left.append(each.remainder.double().cpu())
        row += len(each.values)
        if progress:
            progress("hops", row, len(request.group))
    credit, group = joined_credit(parts), torch.tensor(request.group)
    findings = [
        finding
        for place, layer in enumerate(request.layers)
        for finding in _findings(credit, place, group, {"objective": "reward", "layer": layer}, seed)
    ]
    findings += [
        _remainder(float(worst), len(group), {"objective": "reward", "layer": layer})
        for layer, worst in zip(request.layers, torch.stack(left).amax(0), strict=True)
    ]
    table = _table(credit, torch.stack(squares).sum(0), request.layers)
    return Result(kind="costates", findings=tuple(findings), tables={"hops": table})


def _squares(each: Hops, max_hops: int, states: int) -> Float[Tensor, "hop layer state"]:
    """|lambda^(k)|^2 summed over rollouts."""
    found = each.values.double().square().sum((0, 4)).cpu()
    missing = (0, states - found.shape[2], 0, 0, 0, max_hops + 1 - found.shape[0])
    return torch.nn.functional.pad(found, missing)


def _findings(
    credit: HopCredit, place: int, group: Tensor, index: Mapping[str, int | str], seed: int
) -> list[Finding]:
    """Those of a layer."""
    whole, missing = (_by_group(each[:, place], group) for each in (credit.whole, credit.missing))
    shares = [
        _ratio("hop_share", _by_group(along[:, place], group), whole, {**index, "hop": hop}, seed)
        for hop, along in enumerate(credit.along.unbind(1))
    ]
    gap = _ratio("gap_relaxed", missing, whole, index, seed, root=True)
    cosine = Finding(
        name="cosine",
        estimate=float(credit.cosine[place]),
        unit="1",
        n=len(whole),
        definition="derived",
        index={**index, "against": "relaxed"},
        reasons={"interval": "gap_relaxed has one", "control": _ALONE},
    )
    return [*shares, gap, cosine]


def _ratio(
    name: str,
    part: Float[Tensor, " group"],
    whole: Float[Tensor, " group"],
    index: Mapping[str, int | str],
    seed: int,
    *,
    root: bool = False,
) -> Finding:
    interval, power = ratio_interval(part, whole, seed=seed), 0.5 if root else 1.0
    return Finding(
        name=name,
        estimate=float(part.sum() / whole.sum()) ** power,
        unit="|relaxed sum|" if root else "1",
        n=len(whole),
        definition="derived" if root else "choice",
        index=index,
        interval=interval and (interval[0] ** power, interval[1] ** power),
        reasons={"control": "gap_discrete stands beside it where the task is small" if root else _ALONE}
        | ({} if interval else {"interval": _FEW}),
    )


def _remainder(worst: float, count: int, index: Mapping[str, int | str]) -> Finding:
    return Finding(
        name="remainder",
        estimate=worst,
        unit="|relaxed sum|",
        n=count,
        definition="derived",
        index=index,
        reasons={
            "estimate": "too few hops to tell what is left",
            "interval": "the largest of all micro-batches",
            "control": "an estimate of what was left out, certain only after all hops",
        },
    )


def _table(
    credit: HopCredit, squares: Float[Tensor, "hop layer state"], layers: Sequence[int]
) -> pd.DataFrame:
    """A line for each layer, hop and state: root mean square of the norm, and share of the sum at that state."""
    counted = credit.valid.sum(0).cpu()
    norm = (squares / counted.clamp(min=1)).sqrt()
    shares = credit.shares_by_state.cpu()
    rows = [
        (layer, hop, state, int(counted[state]), float(norm[hop, place, state]), float(share))
        for place, layer in enumerate(layers)
        for hop, of_hop in enumerate(shares[:, place])
        for state, share in enumerate(of_hop)
    ]
    return pd.DataFrame(rows, columns=["layer", "hop", "state", "n", "norm", "share"])


def _by_group(values: Float[Tensor, "row state"], group: Tensor) -> Float[Tensor, " group"]:
    summed = values.sum(-1).cpu()
    return summed.new_zeros(int(group.max()) + 1).index_add(0, group, summed)
