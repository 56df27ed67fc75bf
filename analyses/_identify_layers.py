"""Every rule fitted to every layer on one half of the tasks, and its predictions on the other (theory A9).

Shape legend: `rule` the forms of `RULES`, `layer` L, `batch` held-out tasks, `pos` columns of a context.
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
    fit_rule,
    fit_run,
    fit_weights_of,
    misfit,
    run_rule,
    searched_part,
    weight_spread,
)

NEGLIGIBLE = 1e-12
"""Of the largest layer's squared update: below it a layer does nothing (our definition)."""

_SMALL = 1e-3
_SEARCHED = 32
_REFITTED = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerScores:
    """Predictions of all rules on held-out tasks, from the network's own values before each layer.

    Attributes:
        fits: By rule and layer; layers that do nothing carry on the fit of the layer before.
        updates: What the layers did.
        predicted: What every rule foretold.
        unsigned: What it would have foretold with weights of any signs.
        valid: Whether the weights that make a rule this algorithm are more than nothing.
        active: Layers that do something.
    """

    fits: tuple[tuple[RuleFit, ...], ...]
    updates: Float[Tensor, "layer batch shown"]
    predicted: Float[Tensor, "rule layer batch shown"]
    unsigned: Float[Tensor, "rule layer batch shown"]
    valid: Bool[Tensor, "rule layer"]
    active: Bool[Tensor, "layer"]

    @property
    def totals(self) -> Float[Tensor, "layer batch"]:
        """Squared updates."""
        return self.updates.square().sum(-1)

    @property
    def residuals(self) -> Float[Tensor, "rule layer batch"]:
        """Squared updates that a rule leaves unexplained."""
        return (self.predicted - self.updates).square().sum(-1)

    @property
    def errors(self) -> Float[Tensor, "rule layer"]:
        """Shares of the squared update of a layer that a rule leaves unexplained; NaN where it does nothing."""
        shares = self.residuals.sum(-1) / self.totals.sum(-1)
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
    fits = tuple(_fits(rule, fitting, active) for rule in RULES.values())
    free = tuple(
        tuple(
            fit_weights_of(fit.rule, data, fit.shape, signed=False)
            for fit, data in zip(row, fitting, strict=True)
        )
        for row in fits
    )
    return LayerScores(
        fits=fits,
        updates=seen.updates[:, second],
        predicted=_predicted(fits, held_out),
        unsigned=_predicted(free, held_out),
        valid=torch.tensor(
            [[_counts(fit, data) for fit, data in zip(row, fitting, strict=True)] for row in fits]
        ),
        active=active,
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
    runs = tuple(fit_run(rule, fitting, seen.values[-1, first]) for rule in RULES.values())
    shown = seen.values.shape[-1]
    predicted = torch.stack([run_rule(run.fits, held_out)[None, :, -shown:] for run in runs])
    scores = LayerScores(
        fits=tuple(run.fits for run in runs),
        updates=seen.updates[:, second],
        predicted=predicted,
        unsigned=predicted,
        valid=torch.ones(len(runs), 1, dtype=torch.bool),
        active=torch.ones(1, dtype=torch.bool),
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
    return tuple(_refitted(rule, rows, fitting, active) if "A" in rule.reads else rows)


def _refitted(rule: Rule, rows: list[RuleFit], fitting: list[UpdateData], active: Tensor) -> list[RuleFit]:
    """Layers that another layer's shape would explain better are searched again from there."""
    shapes = [row.shape for row in rows]
    for layer, data in enumerate(fitting):
        few = searched_part(data)
        own = misfit(rule, few, rows[layer].shape)
        if own < _REFITTED or not bool(active[layer]):
            continue
        others = [misfit(rule, few, shape) for shape in shapes]
        best = min(range(len(shapes)), key=others.__getitem__)
        if others[best] < own:
            rows[layer] = fit_rule(rule, data, starts=[shapes[best]])
    return rows


def _counts(fit: RuleFit, data: UpdateData) -> bool:
    """Whether the weights of reward and of current value are not nothing where they have an effect."""
    if not fit.rule.corrects:
        return True
    size = fit.weights.abs()
    nothing = (size < _SMALL * size.max()) & weight_spread(fit, data).identified
    return not bool(nothing[0] or nothing[-1])
