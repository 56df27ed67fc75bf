"""Every rule fitted to every layer on one half of the tasks, and its predictions on the other (theory A13).

Shape legend: `rule` one of `ALGORITHMS`, `layer` L, `batch` held-out tasks, `pos` columns of a context.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from valuelens.analyses._observation import Observation
from valuelens.models.icrl import Context
from valuelens.probe import (
    RULES,
    Rule,
    RuleFit,
    Run,
    UpdateData,
    fit_any_signs,
    fit_rule,
    fit_run,
    misfit,
    run_rule,
    searched_part,
    unexplained,
    with_kernel,
)

ALGORITHMS = tuple(dict.fromkeys(rule.name for rule in RULES.values()))
"""What a verdict may name."""

NEGLIGIBLE = 1e-12
"""Of the largest layer's squared update: below it a layer does nothing (our definition)."""

SIGNS = 1e-4
"""What the right signs may cost a rule, as a share of the squared update, above what it leaves (our definition)."""

SLIGHT = 0.01
"""Of the squared values: rules need not be right about smaller squared updates to the same share (our definition)."""

FARTHEST = 2.5
"""Of the way to its target a rule may go in one layer (our definition); beyond 2 the values diverge."""

_SEARCHED = 32
_REFITTED, _BETTER = 1e-9, 0.95
_RIGHT, _AFRESH = 0.01, (0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerScores:
    """Predictions of all algorithms on held-out tasks, from the network's own values before each layer.

    Attributes:
        fits: By algorithm and layer, each layer in the form that fits it best; layers that do nothing carry on the
            fit of the layer before.
        updates: What the layers did.
        predicted: What every rule foretold.
        unsigned: What it would have foretold with weights of any signs.
        active: Layers that do something.
        values: Squared values after every layer.
    """

    fits: tuple[tuple[RuleFit, ...], ...]
    updates: Float[Tensor, "layer batch shown"]
    predicted: Float[Tensor, "rule layer batch shown"]
    unsigned: Float[Tensor, "rule layer batch shown"]
    active: Bool[Tensor, "layer"]
    values: Float[Tensor, "layer"]

    @property
    def sizes(self) -> Float[Tensor, "layer"]:
        """Squared updates, or a hundredth of the squared values where a layer hardly moves them (our definition)."""
        return torch.maximum(self.updates.square().sum((1, 2)), SLIGHT * self.values)

    @property
    def residuals(self) -> Float[Tensor, "rule layer batch"]:
        """Squared updates that a rule leaves unexplained."""
        return (self.predicted - self.updates).square().sum(-1)

    @property
    def signed(self) -> Bool[Tensor, "rule layer"]:
        """Whether the signs that make a rule this algorithm cost no more than the noise, and its steps are steps."""
        free = (self.unsigned - self.updates).square().sum((2, 3)) / self.sizes
        return (self.errors.nan_to_num(0) <= 2 * free + SIGNS) & self.steps

    @property
    def steps(self) -> Bool[Tensor, "rule layer"]:
        """Whether a rule that approaches a bootstrapped target goes at most `FARTHEST` of the way in one layer.

        With longer steps the difference of two nearly equal values imitates anything.
        """
        far = [
            [fit.rule.approaches and -float(fit.weights[-1]) > FARTHEST for fit in row] for row in self.fits
        ]
        if self.errors.shape[1] == 1:
            far = [[any(row)] for row in far]
        moved = self.values.roll(1) > 0  # before anything has moved the own value is 0, and so is its term
        moved[0] = len(moved) == 1
        return ~(torch.tensor(far) & moved)

    @property
    def errors(self) -> Float[Tensor, "rule layer"]:
        """What a rule leaves unexplained as a share of the layer's size; NaN where it does nothing."""
        shares = self.residuals.sum(-1) / self.sizes
        return torch.where(self.active, shares, torch.nan)


def layer_data(seen: Observation, layer: int, tasks: slice) -> UpdateData:
    """One layer on some tasks, as a rule sees it."""
    return UpdateData(
        features=seen.context.features[tasks],
        rewards=seen.context.rewards[tasks],
        values=seen.values[layer, tasks],
        update=seen.updates[layer, tasks],
        gamma=seen.context.gamma,
    )


def layer_scores(seen: Observation) -> LayerScores:
    """Fit on the first half of the tasks, predict on the second.

    Each layer starts from the layer before; then layers are tried with the shapes of all others, which tied layers
    share.

    Args:
        seen: The values of a network.
    """
    half, layers = len(seen.context.states) // 2, range(len(seen.updates))
    first, second = slice(0, half), slice(half, None)
    size = seen.updates[:, second].square().sum((1, 2))
    active = size > NEGLIGIBLE * size.max()
    fitting = [layer_data(seen, layer, first) for layer in layers]
    held_out = [layer_data(seen, layer, second) for layer in layers]
    forms = _refitted([_fits(rule, fitting, active) for rule in RULES.values()], fitting, active)
    fits = tuple(_best_forms(name, forms, fitting) for name in ALGORITHMS)
    free = tuple(
        tuple(fit_any_signs(fit, data) for fit, data in zip(row, fitting, strict=True)) for row in fits
    )
    return LayerScores(
        fits=fits,
        updates=seen.updates[:, second],
        predicted=_predicted(fits, held_out),
        unsigned=_predicted(free, held_out),
        active=active,
        values=seen.values[1:, second].square().sum((1, 2)),
    )


def _best_forms(
    name: str, forms: list[tuple[RuleFit, ...]], fitting: list[UpdateData]
) -> tuple[RuleFit, ...]:
    """Of every layer the form of an algorithm that fits it best."""
    own = [row for row in forms if row[0].rule.name == name]
    if len(own) == 1:
        return own[0]
    return tuple(
        min((row[layer] for row in own), key=lambda fit: float(unexplained(fit, data).sum()))
        for layer, data in enumerate(fitting)
    )


def _predicted(fits: tuple[tuple[RuleFit, ...], ...], held_out: list[UpdateData]) -> Tensor:
    return torch.stack(
        [torch.stack([fit.predicted(data) for fit, data in zip(row, held_out, strict=True)]) for row in fits]
    )


def returned_scores(seen: Observation) -> tuple[LayerScores, tuple[Run, ...]]:
    """Fit rules that run with shared parameters to the returned values alone, as if these were one layer.

    Args:
        seen: From `observe_returned`.
    """
    half = len(seen.context.states) // 2
    first, second = slice(0, min(half, _SEARCHED)), slice(half, None)
    fitting, held_out = (whole_data(seen.context, part) for part in (first, second))
    last = seen.values[-1, first]
    forms = [fit_run(rule, fitting, last) for rule in RULES.values()]
    runs = tuple(
        min((run for run in forms if run.fits[0].rule.name == name), key=lambda run: run.cost)
        for name in ALGORITHMS
    )
    shown = seen.values.shape[-1]
    predicted = torch.stack([run_rule(run.fits, held_out)[None, :, -shown:] for run in runs])
    scores = LayerScores(
        fits=tuple(run.fits for run in runs),
        updates=seen.updates[:, second],
        predicted=predicted,
        unsigned=predicted,
        active=torch.ones(1, dtype=torch.bool),
        values=seen.values[1:, second].square().sum((1, 2)),
    )
    return scores, runs


def rolled(fits: tuple[RuleFit, ...], context: Context) -> Float[Tensor, "batch pos"]:
    """The last values of a fitted rule that runs by itself from v = 0.

    Args:
        fits: One a layer.
        context: Any prompts.
    """
    return run_rule(fits, whole_data(context, slice(None)))


def whole_data(context: Context, tasks: slice) -> UpdateData:
    """Features and rewards of some tasks, for rules that run by themselves from v = 0."""
    empty = torch.zeros_like(context.features[tasks, :, 0])
    return UpdateData(
        features=context.features[tasks],
        rewards=context.rewards[tasks],
        values=empty,
        update=empty,
        gamma=context.gamma,
    )


def _fits(rule: Rule, fitting: list[UpdateData], active: Tensor) -> tuple[RuleFit, ...]:
    rows: list[RuleFit] = []
    for layer, data in enumerate(fitting):
        if rows and not bool(active[layer]):
            rows.append(rows[-1])
        else:
            rows.append(fit_rule(rule, data, starts=[rows[-1].shape] if rows else []))
    return tuple(rows)


def _refitted(
    forms: list[tuple[RuleFit, ...]], fitting: list[UpdateData], active: Tensor
) -> list[tuple[RuleFit, ...]]:
    """Softmax kernels whose search ended badly: where a kernel of another layer or rule explains more, from there."""
    kernels = [row for row in forms if "A" in row[0].rule.reads]
    return [_from_others(row, kernels, fitting, active) if row in kernels else row for row in forms]


def _from_others(
    row: tuple[RuleFit, ...], kernels: list[tuple[RuleFit, ...]], fitting: list[UpdateData], active: Tensor
) -> tuple[RuleFit, ...]:
    better = list(row)
    for layer, data in enumerate(fitting):
        few, fit = searched_part(data), row[layer]
        own = misfit(fit.rule, few, fit.shape)
        if own < _REFITTED or not bool(active[layer]):
            continue
        pool = [each.shape for each in row] + [with_kernel(fit, other[layer].shape) for other in kernels]
        left = [misfit(fit.rule, few, shape) for shape in pool]
        best = min(range(len(pool)), key=left.__getitem__)
        if left[best] < _BETTER * own:
            better[layer] = fit_rule(fit.rule, data, starts=[pool[best]])
    return _afresh(better, fitting, active)


def _afresh(row: list[RuleFit], fitting: list[UpdateData], active: Tensor) -> tuple[RuleFit, ...]:
    """Where a rule is right in most layers, the others are searched once more, from several even kernels."""
    left = [misfit(fit.rule, searched_part(data), fit.shape) for fit, data in zip(row, fitting, strict=True)]
    wrong = [layer for layer, each in enumerate(left) if each > _RIGHT and bool(active[layer])]
    if 2 * len(wrong) > int(active.sum()):
        return tuple(row)
    for layer in wrong:
        fit, d = row[layer], fitting[layer].features.shape[-1]
        eye = torch.eye(d, dtype=fit.shape.dtype).flatten()
        starts = [fit.shape, *(with_kernel(fit, c * eye) for c in _AFRESH)]
        row[layer] = fit_rule(fit.rule, fitting[layer], starts=starts)
    return tuple(row)
