"""What a network that learns values in context would have to keep in its residual stream, column by column.

Shape legend: `batch` tasks, `pos` columns S_0..S_n of a context, `inner` its columns S_1..S_{n-1}, where everything is
defined, `target` one number a column, `layer` blocks, the embedding first.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from valuelens.analyses._opaque_rules import SOFTMAX, FittedRule
from valuelens.models.icrl import Context
from valuelens.probe import Decoding, decode, decoding_sums, td_error

Sums = tuple[Float[Tensor, "batch"], Float[Tensor, "batch"]]

VALUE, TARGET, ERROR = "v_l(S_j)", "v_l(S_j+1)", "TD error of v_l"
"""Names of quantities that change with depth."""

MOVED, COPIED = "v_l(S_j), l < L", "v_l(S_j+1), l < L"
"""The same before the last step: what is patched."""

REWARD, OWN, NEXT = "R_j+1", "x(S_j)", "x(S_j+1)"
"""Names of what a TD step reads besides; features are decoded one by one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantity:
    """Something to decode: one or several candidates, of which the training contexts choose.

    Attributes:
        name: What it is.
        rule: Whose iterates the candidates are; empty if none's.
        candidates: By the iterate that they belong to; a single one under 0 if it is no iterate.
    """

    name: str
    rule: str
    candidates: Mapping[int, Float[Tensor, "batch inner"]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoded:
    """A quantity, decoded from one layer.

    Attributes:
        quantity: Which.
        iterate: The candidate that most outer folds chose on their training contexts.
        predicted: Held-out, each fold by its own choice.
        target: What should have come out, each fold by its own choice.
        sums: Residual and total squares of each task.
        other, shuffled: The same for probes that were taught the labels of another context, and shuffled ones.
        weights: The probe of `iterate` on all tasks.
        other_weights: The same, taught the labels of another context.
    """

    quantity: Quantity
    iterate: int
    predicted: Float[Tensor, "batch inner"]
    target: Float[Tensor, "batch inner"]
    sums: Sums
    other: Sums
    shuffled: Sums
    weights: Float[Tensor, "D"]
    other_weights: Float[Tensor, "D"]

    @property
    def r2(self) -> float:
        """1 minus the residual's share of the total squares."""
        return float(1 - self.sums[0].sum() / self.sums[1].sum())


def quantities(
    context: Context, truth: Float[Tensor, "batch pos"], rules: Mapping[str, FittedRule]
) -> list[Quantity]:
    """Iterates of every rule; of softmax TD also those at the successor and the TD errors; rewards and true values.

    Args:
        context: What the model saw.
        truth: v_pi along it.
        rules: Fitted.
    """
    n, gamma, rewards = context.num_transitions, context.gamma, context.rewards
    found = []
    for name, rule in rules.items():
        v = rule.iterates(context)
        found.append(_iterates(VALUE, name, v[:, :, 1:n]))
        if name == SOFTMAX:
            found.append(_iterates(TARGET, name, v[:, :, 2:]))
            if rule.steps > 1:
                found += [_iterates(MOVED, name, v[:-1, :, 1:n]), _iterates(COPIED, name, v[:-1, :, 2:])]
            errors = torch.stack([td_error(each[:, :-1], rewards, gamma, each[:, 1:]) for each in v])
            found.append(_iterates(ERROR, name, errors[:, :, 1:]))
    return [
        *found,
        *(
            Quantity(name=name, rule="", candidates={0: each})
            for name, each in (
                (REWARD, rewards[:, 1:]),
                ("R_j, one column late", rewards[:, :-1]),
                ("v_pi(S_j)", truth[:, 1:n]),
                ("v_pi(S_j+1)", truth[:, 2:]),
            )
        ),
        *(
            Quantity(name=name, rule="", candidates={0: feature})
            for name, features in ((OWN, context.features[:, 1:n]), (NEXT, context.features[:, 2:]))
            for feature in features.unbind(-1)
        ),
    ]


def as_chosen(found: list[Decoded]) -> list[Quantity]:
    """The same quantities with their chosen candidate alone, to look for them elsewhere."""
    return [
        Quantity(
            name=each.quantity.name,
            rule=each.quantity.rule,
            candidates={each.iterate: each.quantity.candidates[each.iterate]},
        )
        for each in found
    ]


def inner_columns(stream: Float[Tensor, "batch pos D"]) -> Float[Tensor, "batch inner D"]:
    """The columns S_1..S_{n-1}, each a source with a predecessor and a successor."""
    return stream[:, 1:-1]


def decoded(
    stream: Float[Tensor, "batch pos D"], wanted: list[Quantity], generator: torch.Generator
) -> list[Decoded]:
    """Decode quantities from a stream, and the same with probes of two kinds of control labels.

    Control labels, for the same columns (Hewitt and Liang's selectivity): those of another context at the same
    column, and those of all columns of all contexts shuffled.

    Args:
        stream: Of all columns S_0..S_n.
        wanted: What to look for.
        generator: Shuffles.
    """
    targets = torch.stack([each for q in wanted for each in q.candidates.values()], dim=-1)
    batch, inner, count = targets.shape
    order = torch.randperm(batch * inner, generator=generator)
    shuffled = targets.flatten(0, 1)[order].view_as(targets)
    made = decode(inner_columns(stream), torch.cat([targets, targets.roll(1, dims=0), shuffled], dim=-1))
    found, start = [], 0
    for quantity in wanted:
        columns = torch.arange(start, start + len(quantity.candidates))
        found.append(_chosen(quantity, made, columns, targets, (targets.roll(1, dims=0), shuffled), count))
        start += len(quantity.candidates)
    return found


def _chosen(
    quantity: Quantity,
    made: Decoding,
    columns: Int[Tensor, "candidate"],
    targets: Tensor,
    controls: tuple[Tensor, Tensor],
    count: int,
) -> Decoded:
    by_fold = columns[made.inner_r2[:, columns].argmax(-1)]
    column = by_fold[made.fold]
    best = int(by_fold.mode().values)

    def of_fold(table: Tensor, offset: int = 0) -> Tensor:
        index = (column + offset)[:, None, None].expand(-1, table.shape[1], 1)
        return table.gather(-1, index)[..., 0]

    predicted, target = of_fold(made.predicted), of_fold(targets)
    other, shuffled = (
        decoding_sums(of_fold(made.predicted, count * (1 + i)), of_fold(labels))
        for i, labels in enumerate(controls)
    )
    return Decoded(
        quantity=quantity,
        iterate=list(quantity.candidates)[best - int(columns[0])],
        predicted=predicted,
        target=target,
        sums=decoding_sums(predicted, target),
        other=other,
        shuffled=shuffled,
        weights=made.weights[best],
        other_weights=made.weights[best + count],
    )


def _iterates(name: str, rule: str, values: Float[Tensor, "iterate batch inner"]) -> Quantity:
    """Iterate 0 is zero everywhere, and its TD error the reward: neither says anything about the rule."""
    return Quantity(name=name, rule=rule, candidates=dict(enumerate(values[1:], start=1)))
