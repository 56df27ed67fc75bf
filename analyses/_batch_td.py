"""Linear attention beside linear batch TD, by the measures of arXiv 2405.13861 (theory A11).

Shape legend: `batch` tasks, `state` S, `feature` d, `layer` L, `D` = 2d+1 slots.
"""

import math
from collections.abc import Mapping
from functools import partial

import torch
from jaxtyping import Float
from scipy.optimize import minimize_scalar
from torch import Tensor

from valuelens.analyses._result import Array, Control, Finding, Result
from valuelens.analyses._subject import Subject, layer_indices
from valuelens.models.icrl import LinearAttention, linear_attention_from_matrices
from valuelens.probe import (
    batch_td_weight,
    implicit_weight,
    implicit_weight_similarity,
    matrix_entries,
    mean_interval,
    query_gradients,
    sensitivity_similarity,
    value_difference,
)

_STILL = "not defined: the values of the model, or of batch TD at its step size, stay zero on some task"
_RANDOM = "random P and Q of the same norms"
_DRAWN = 64
"""Tasks whose values are kept for the figure."""
_RATIO = 2**0.125
_FACTORS = [_RATIO**power for power in range(-32, 25)]
"""Of the fitted step sizes, from 1/16 to 8; 1 is among them."""
_UNITS = {
    "value_difference": "squared value",
    "implicit_weight_similarity": "1",
    "sensitivity_similarity": "1",
}
_ENTRIES = {
    "P": "P[2d, 2d], mean |entry| of the rest",
    "Q": "tr Q[:d, :d], tr Q[:d, d:2d], mean |entry| outside these diagonals",
}


def beside_batch_td(subject: Subject, model: LinearAttention, step_size: Float[Tensor, "layer"]) -> Result:
    """Value difference, similarity of implicit weights and of sensitivities, and the entries of P and Q.

    The reference is batch TD with the step sizes fitted to the weights, times the one factor that brings its values
    nearest to the model's (our definition; its public code trains one step size for all layers by the TD loss
    instead). Values are those of every state of a task as the query.

    Args:
        subject: Whose tasks.
        model: Its linear attention.
        step_size: alpha of each layer, fitted to its P and Q.
    """
    values = _state_values(subject, model)
    nearest = _nearest(subject, values, step_size)
    td = _batch_td(subject, nearest)
    blind = _random_like(model, subject.seed)
    own, random = (_measures(subject, each, td) for each in (model, blind))
    findings = [_finding(subject, name, own[name], random[name]) for name in _UNITS]
    td_values = subject.mrp.features @ td[..., None]
    arrays = {
        "state_values": Array(axes="batch state", values=values[:_DRAWN]),
        "batch_td_values": Array(axes="batch state", values=td_values[:_DRAWN, :, 0]),
        "batch_td_step_size": Array(axes="layer", values=nearest),
    }
    return Result(kind="in-context-rl", findings=(*findings, *_entries(subject, model, blind)), arrays=arrays)


def _batch_td(subject: Subject, step_size: Float[Tensor, "layer"]) -> Float[Tensor, "batch feature"]:
    context = subject.context
    return batch_td_weight(context.features, context.rewards, gamma=context.gamma, step_sizes=step_size)


def _nearest(
    subject: Subject, values: Float[Tensor, "batch state"], step_size: Float[Tensor, "layer"]
) -> Float[Tensor, "layer"]:
    """The step sizes times the factor of either sign with the least value difference: the best of a grid, refined."""
    features, stationary = subject.mrp.features, subject.mrp.stationary

    def difference(factor: float) -> float:
        td = features @ _batch_td(subject, factor * step_size)[..., None]
        return float(value_difference(values, td[..., 0], stationary).mean())

    best = min((sign * size for size in _FACTORS for sign in (1, -1)), key=difference)
    near = sorted((best / _RATIO, best * _RATIO))
    refined = minimize_scalar(difference, bounds=near, method="bounded", options={"xatol": 1e-10})
    factor = float(refined.x) if refined.fun < difference(best) else best
    return factor * step_size


def _measures(
    subject: Subject, model: LinearAttention, td: Float[Tensor, "batch feature"]
) -> dict[str, Tensor]:
    """Each measure for each task."""
    context, features, stationary = subject.context, subject.mrp.features, subject.mrp.stationary
    values, td_values = _state_values(subject, model), (features @ td[..., None])[..., 0]
    gradients = query_gradients(partial(model.values, context), features)
    weight = implicit_weight(values, features, stationary)
    return {
        "value_difference": value_difference(values, td_values, stationary),
        "implicit_weight_similarity": implicit_weight_similarity(weight, td),
        # Batch TD is linear in the query: its gradient is its weight, the same at every state.
        "sensitivity_similarity": sensitivity_similarity(
            gradients, td[:, None].expand_as(features), stationary
        ),
    }


def _state_values(subject: Subject, model: LinearAttention) -> Float[Tensor, "batch state"]:
    with torch.no_grad():
        return model.values(subject.context, subject.mrp.features)


def _finding(subject: Subject, name: str, own: Tensor, random: Tensor) -> Finding:
    estimate, control = float(own.mean()), float(random.mean())
    interval = mean_interval(own, seed=subject.seed)
    reasons = {}
    if not math.isfinite(estimate):
        reasons["estimate"] = _STILL
    if not math.isfinite(control):
        reasons["control"] = _STILL
    if interval is None:
        reasons["interval"] = "not defined: the tasks do not differ" if "estimate" not in reasons else _STILL
    return Finding(
        name=name,
        estimate=estimate,
        unit=_UNITS[name],
        n=subject.num_tasks,
        definition="choice",
        interval=interval,
        control=Control(name=_RANDOM, estimate=control),
        reasons=reasons,
    )


def _entries(subject: Subject, model: LinearAttention, blind: LinearAttention) -> list[Finding]:
    own, random = (_by_matrix(each) for each in (model, blind))
    return [
        Finding(
            name="sparsity",
            estimate=own[matrix][layer].tolist(),
            unit=unit,
            n=0,
            definition="choice",
            index={**index, "matrix": matrix},
            control=Control(name=_RANDOM, estimate=random[matrix][layer].tolist()),
            reasons={"interval": "a property of the weights, nothing is sampled"},
        )
        for index, layer in layer_indices(subject)
        for matrix, unit in _ENTRIES.items()
    ]


def _by_matrix(model: LinearAttention) -> Mapping[str, Tensor]:
    return dict(zip(_ENTRIES, matrix_entries(model.P.detach(), model.Q.detach()), strict=True))


def _random_like(model: LinearAttention, seed: int) -> LinearAttention:
    """Gaussian P and Q with the Frobenius norms of the model's, layer by layer; tied where it is tied."""
    generator = torch.Generator().manual_seed(seed)
    sets = 1 if model.tied else model.num_layers
    P, Q = (_gaussian_like(x[:sets].detach(), generator) for x in (model.P, model.Q))
    return linear_attention_from_matrices(
        P, Q, gamma=model.gamma, num_layers=model.num_layers, tied=model.tied
    )


def _gaussian_like(
    matrix: Float[Tensor, "layer D D"], generator: torch.Generator
) -> Float[Tensor, "layer D D"]:
    noise = torch.randn(matrix.shape, generator=generator, dtype=matrix.dtype)
    norms = torch.linalg.matrix_norm(matrix, keepdim=True) / torch.linalg.matrix_norm(noise, keepdim=True)
    scaled: Tensor = noise * norms
    return scaled
