"""Patches of decoded values in an opaque model, and how the rest of it answers.

Shape legend: `batch` tasks, `pos` columns S_0..S_n of a context, `D` width of the residual stream.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._opaque_findings import OTHER, Index, no_patch, patch_gap
from valuelens.analyses._opaque_quantities import (
    COPIED,
    MOVED,
    NEXT,
    OWN,
    REWARD,
    VALUE,
    Decoded,
    Sums,
    inner_columns,
)
from valuelens.analyses._opaque_rules import SOFTMAX, FittedRule
from valuelens.analyses._result import Array, Finding
from valuelens.models.icrl import Context, ValueLearner
from valuelens.probe import TD_WEIGHTS, memory_response, patch_directions, submodule_outputs

PATCHABLE = 0.8
"""R^2 below which there is no direction to patch along, and a decoded quantity is not held still either."""

_FAINT = f"not decodable here: R^2 below {PATCHABLE}, so there is no direction to patch along"
_NO_STEP = "the fitted rule has a single step: no value is made before its last one"
_SAME = "the same iterate is decoded one block later: no step to predict"
_CONTROLS = ("a random direction of the same norm", f"the probe of {OTHER} at the same norm")

Memories = tuple[Float[Tensor, "batch pos"], Float[Tensor, "batch pos"]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Patched:
    """All patches of one layer.

    Attributes:
        findings: The gap of each memory, for returned values and for what the next block adds.
        responses: Predicted and measured changes of returned values, current memory patched; none without a patch.
    """

    findings: list[Finding]
    responses: Array | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """A model on contexts, with the rule whose predictions are compared.

    Attributes:
        model: With residual streams.
        context: What it sees.
        rule: Fitted softmax TD.
        seed: Of random columns, signs and directions.
    """

    model: ValueLearner
    context: Context
    rule: FittedRule
    seed: int

    def run(
        self, layer: int, change: Float[Tensor, "batch pos D"]
    ) -> tuple[Float[Tensor, "batch pos"], Float[Tensor, "batch pos D"]]:
        """Returned values of S_0..S_n, read through extra queries, and the stream after the next block.

        Args:
            layer: Block after which the stream is changed, not the last one.
            change: Added at columns S_0..S_n; extra queries are left alone.
        """
        pos = change.shape[1]
        inputs = (self.model.prompt(self.context, self.context.features), 1 + pos)
        here, following = (f"blocks.{each}.hook_resid_post" for each in (layer, layer + 1))

        def add(stream: Tensor, hook: object) -> Tensor:
            return torch.cat([stream[:, :pos] + change, stream[:, pos:]], dim=1)

        with self.model.hooks(fwd_hooks=[(here, add)]):
            output, shown = submodule_outputs(self.model, inputs, [following])
        return output[:, 1:], shown[following][:, :pos]

    def predicted(self, changes: Memories, steps: int) -> Float[Tensor, "batch pos"]:
        """What the TD operator adds to current memories in some steps: also the change of untouched copies.

        An extra query for the state of a column moves as the column does, but was not patched itself.

        Args:
            changes: Of current and of target memories, at every column.
            steps: Steps that follow.
        """
        current, target = changes
        w = (self.rule.alpha * TD_WEIGHTS).to(current)
        kernel, gamma = self.rule.kernel(self.context), self.context.gamma
        return (
            memory_response(current, target[:, :-1], kernel, gamma=gamma, w=w, num_layers=steps)[-1] - current
        )


def patches(
    bench: Bench, layer: int, stream: Float[Tensor, "batch pos D"], found: tuple[list[Decoded], list[Decoded]]
) -> Patched:
    """Patch one column of every context after a block, by a standard deviation of the decoded value, up or down.

    Args:
        bench: Model, contexts and rule.
        layer: The block.
        stream: Of all columns after it.
        found: What is decoded there, and one block later.
    """
    here, later = (_named(part) for part in found)
    if MOVED not in here or here[MOVED].r2 < PATCHABLE:
        why = _NO_STEP if MOVED not in here else _FAINT
        return Patched(
            findings=[no_patch({"layer": layer, "memory": "current", "response": "returned values"}, why)]
        )
    generator = torch.Generator().manual_seed(bench.seed)
    directions = _directions(stream, found[0], generator)
    batch, pos = bench.context.states.shape
    clean = bench.run(layer, torch.zeros_like(stream[:batch]))
    column = torch.randint(2, pos - 1, (batch,), generator=generator)
    sign = 2 * torch.randint(0, 2, (batch,), generator=generator) - 1
    own = torch.nn.functional.one_hot(column, pos) * float(here[MOVED].target.std()) * sign[:, None]
    own, none = own.to(stream), torch.zeros_like(stream[:batch, :, 0])
    before = own.roll(-1, dims=1)
    findings, responses = [], None
    for memory, (current, target) in {
        "current": (own, none),
        "target": (none, before),
        "both": (own, before),
    }.items():
        index: Index = {"layer": layer, "memory": memory}
        if memory != "current" and directions[0][1] is None:
            findings.append(no_patch({**index, "response": "returned values"}, _FAINT))
            continue
        steps = bench.rule.steps - here[MOVED].iterate
        measured = [_measured(bench, layer, clean, _change((current, target), pair)) for pair in directions]
        changes = (current, bench.context.gamma * target)
        answer = bench.predicted(changes, steps)
        returned = [each[0] for each in measured]
        findings.append(_gap({**index, "response": "returned values"}, returned, answer, bench.seed))
        if memory == "current":
            responses = Array(axes="which task pos", values=torch.stack([answer, *returned[:2]]))
        if MOVED in later:
            findings.append(_next(index, bench, changes, measured, (here[MOVED], later)))
    return Patched(findings=findings, responses=responses)


def _next(
    index: Index,
    bench: Bench,
    changes: Memories,
    measured: list[tuple[Tensor, Tensor]],
    found: tuple[Decoded, dict[str, Decoded]],
) -> Finding:
    """What the next block adds to decoded values, beyond carrying the patch on."""
    here, later = found
    value = later[VALUE]
    index, steps = {**index, "response": "next block"}, value.iterate - here.iterate
    if steps < 1 or value.r2 < PATCHABLE:
        return no_patch(index, _SAME if steps < 1 else _FAINT)
    added = [(each[1] @ value.weights - changes[0])[:, :-1] for each in measured]
    return _gap(index, added, bench.predicted(changes, steps)[:, :-1], bench.seed)


def _gap(index: Index, measured: list[Tensor], predicted: Tensor, seed: int) -> Finding:
    total = predicted.square().sum(-1)
    sums: list[Sums] = [((each - predicted).square().sum(-1), total) for each in measured]
    return patch_gap(index, (sums[0], list(zip(_CONTROLS, sums[1:], strict=True))), seed)


def _measured(
    bench: Bench, layer: int, clean: tuple[Tensor, Tensor], change: Tensor
) -> tuple[Tensor, Tensor]:
    returned, following = bench.run(layer, change)
    return returned - clean[0], following - clean[1]


def _change(sizes: Memories, directions: tuple[Tensor, Tensor | None]) -> Tensor:
    change = sizes[0][..., None] * directions[0]
    # Target memory holds gamma v; its probe reads v.
    return change if directions[1] is None else change + sizes[1][..., None] * directions[1]


def _directions(
    stream: Tensor, found: list[Decoded], generator: torch.Generator
) -> list[tuple[Tensor, Tensor | None]]:
    """For current and (if decodable) target memory: the patch direction, a random one, that of another context."""
    inner, named = inner_columns(stream), _named(found)
    copied = named[COPIED].r2 >= PATCHABLE
    moved = [named[MOVED], *([named[COPIED]] if copied else [])]
    held = [each for each in found if each.quantity.name in (REWARD, OWN, NEXT) and each.r2 >= PATCHABLE]
    weights = torch.stack([each.weights for each in (*moved, *held)])
    own = patch_directions(inner, weights)[: len(moved)]
    noise = torch.randn(own.shape, generator=generator, dtype=own.dtype)
    other = torch.stack(
        [patch_directions(inner, torch.stack([each.other_weights, *weights[2:]]))[0] for each in moved]
    )
    rows = [
        own,
        *(own.norm(dim=-1, keepdim=True) * each / each.norm(dim=-1, keepdim=True) for each in (noise, other)),
    ]
    return [(row[0], row[1] if copied else None) for row in rows]


def _named(found: list[Decoded]) -> dict[str, Decoded]:
    """What belongs to softmax TD, or to no rule, by name."""
    return {each.quantity.name: each for each in found if each.quantity.rule in (SOFTMAX, "")}
