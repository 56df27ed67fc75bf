"""NEU and MSTDE along a segment, over two planes, and against depth: the arrays that the figures are drawn from.

Shape legend: `step` along a line, `along across` a plane, `curve` context lengths, `depth` layers 0..60.
"""

import torch
from torch import Tensor

from valuelens.analyses._landscape import (
    Chain,
    Landscape,
    Point,
    inner,
    mixed,
    moved,
    random_direction,
)
from valuelens.analyses._result import Array
from valuelens.analyses._subject import Subject, evaluation_stream, first_tasks
from valuelens.models.icrl import (
    ContextStatistics,
    SoftmaxTD,
    context_statistics,
    has_state_form,
    population_statistics,
    rollout,
    state_form_iterates,
)

_LONG = 2
LENGTHS = (30, 100, 300, 1000)
"""Context lengths of the curves against depth; endless contexts follow, as length 0."""
DEPTH = 60
_SAME = 1e-18
"""Squared distance, relative to that of theta*, below which the checkpoint is theta*."""
_SEGMENT_STEPS, _PLANE_STEPS, _TASKS = 21, 13, 64
"""Tasks of the planes and curves: the first ones."""
_COARSE_STEPS, _FEW_TASKS = 9, 16
"""Of the planes where only the hooked model is exact, which is ten times slower."""


def segment_arrays(chain: Chain, grounds: tuple[Landscape, ...], own: Point, star: Point) -> dict[str, Array]:
    """NEU and MSTDE on the segment from theta* (share 0) to the checkpoint (share 1).

    Args:
        chain: Of all tasks.
        grounds: Over the subject's contexts and, if there is one, over endless ones.
        own: The checkpoint.
        star: theta* in the same gauge.
    """
    shares = torch.linspace(0, 1, _SEGMENT_STEPS, dtype=torch.float64)
    arrays = {"neu_segment_share": Array(axes="step", values=shares)}
    for name, ground in zip(("neu_segment", "neu_segment_endless"), grounds, strict=False):
        rows = [_measures(chain, ground.values(mixed(star, own, float(share)))) for share in shares]
        arrays[name] = Array(axes="step quantity", values=torch.stack(rows))
    return arrays


def plane_arrays(
    subject: Subject, chain: Chain, ground: Landscape, own: Point, star: Point
) -> dict[str, Array]:
    """NEU and MSTDE over two planes through theta*.

    `checkpoint`: along the way to the checkpoint (1 is there), across it a random direction in the same unit.
    `discount`: step size as a multiple of the fitted alpha, and effective discount.

    Args:
        subject: Whose checkpoint.
        chain: Of all tasks.
        ground: Over the subject's contexts.
        own: The checkpoint.
        star: theta* in the same gauge.
    """
    fast = has_state_form(subject.model)
    steps, ground = _PLANE_STEPS if fast else _COARSE_STEPS, ground.first(_TASKS if fast else _FEW_TASKS)
    along = torch.linspace(-0.5, 1.5, steps, dtype=torch.float64)
    across = torch.linspace(-1, 1, steps, dtype=torch.float64)
    way, aside = _directions(subject, own, star)

    def over(grid: list[list[Point]]) -> Array:
        rows = [[_measures(chain, ground.values(point)) for point in row] for row in grid]
        return Array(axes="along across quantity", values=torch.stack([torch.stack(row) for row in rows]))

    grid = [[moved(star, (float(a), way), (float(b), aside)) for b in across] for a in along]
    arrays = {
        "neu_plane_checkpoint": over(grid),
        "neu_plane_checkpoint_axes": Array(axes="axis step", values=torch.stack([along, across])),
    }
    if chain.gamma > 0:
        multiples = 1 + across * 0.875
        discounts = chain.gamma + across * min(chain.gamma, 1 - chain.gamma)
        grid = [[_with_w(star, float(m), float(g) / chain.gamma) for g in discounts] for m in multiples]
        arrays["neu_plane_discount"] = over(grid)
        arrays["neu_plane_discount_axes"] = Array(
            axes="axis step", values=torch.stack([multiples, discounts])
        )
    return arrays


def depth_arrays(subject: Subject, chain: Chain, sharpness: float, alpha: float) -> dict[str, Array]:
    """NEU of theta* against depth for several context lengths and for endless contexts: the order of limits.

    Contexts are fresh, drawn from P itself, and a long one begins with the shorter ones. Where layers are tied and the
    state form is exact, the checkpoint's own curve over endless contexts is there too.

    Args:
        subject: Whose tasks; the first ones.
        chain: Of all tasks.
        sharpness: c of theta*.
        alpha: Its step size.
    """
    mrp = first_tasks(subject.mrp, _TASKS)
    states = rollout(mrp, max(LENGTHS), evaluation_stream(subject.seed, _LONG))
    endless = population_statistics(mrp)
    contexts = [*(context_statistics(mrp, states[:, : n + 1]) for n in LENGTHS), endless]
    A = sharpness * torch.eye(mrp.features.shape[-1], dtype=mrp.P.dtype)[None]
    w = alpha * torch.tensor([[1.0, 1.0, -1.0]], dtype=mrp.P.dtype)
    curves = torch.stack([_curve(chain, A, w, context) for context in contexts])
    arrays = {
        "neu_depth": Array(axes="curve depth", values=curves),
        "neu_depth_lengths": Array(axes="curve", values=torch.tensor([*LENGTHS, 0])),
    }
    model = subject.model
    if isinstance(model, SoftmaxTD) and has_state_form(model) and model.tied:
        own = _curve(chain, model.A_features.detach(), model.get_parameter("w").detach(), endless)
        arrays["neu_depth_checkpoint"] = Array(axes="depth", values=own)
    return arrays


def _curve(chain: Chain, A: Tensor, w: Tensor, context: ContextStatistics) -> Tensor:
    values = state_form_iterates(A, w, context, gamma=chain.gamma, num_layers=DEPTH)
    return torch.stack([chain.neu(each).mean() for each in values])


def _measures(chain: Chain, values: Tensor) -> Tensor:
    return torch.stack([chain.neu(values).mean(), chain.mstde(values).mean()])


def _directions(subject: Subject, own: Point, star: Point) -> tuple[Point, Point]:
    """From theta* to the checkpoint, and a random direction at right angles to it, both of the same norm."""
    generator = torch.Generator().manual_seed(subject.seed)
    way = moved(own, (-1.0, star))
    if inner(way, way) <= _SAME * inner(star, star):
        way = random_direction(subject, generator, star)
    norm = inner(way, way) ** 0.5
    drawn = random_direction(subject, generator, star)
    aside = moved(drawn, (-inner(drawn, way) / norm**2, way))
    length = inner(aside, aside) ** 0.5
    return way, {name: x * (norm / length) for name, x in aside.items()}


def _with_w(star: Point, multiple: float, kappa: float) -> Point:
    """theta* with w = multiple alpha (1, kappa, -1): the effective discount is kappa gamma."""
    changed = {name: x.clone() for name, x in star.items()}
    for name in changed.keys() - {"A"}:
        changed[name] *= multiple
        changed[name][..., -2] *= kappa
    return changed
