"""Linear attention beside linear batch TD, by the measures of arXiv 2405.13861 (theory A11).

Shape legend: `batch` tasks, `state` S, `feature` d, `layer` L, `D` = 2d+1 slots.
"""

import math
from collections.abc import Mapping
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._result import Array, Control, Finding, Result
from valuelens.analyses._subject import Subject, layer_indices
from valuelens.models.icrl import LinearAttention, linear_attention_from_matrices, theta_td
from valuelens.probe import (
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

    The reference is batch TD with the fitted step size of each layer (our definition; its public code trains one
    step size for all layers beside the model instead). Values are those of every state of a task as the query.

    Args:
        subject: Whose tasks.
        model: Its linear attention.
        step_size: Fitted alpha.
    """
    reference = theta_td(
        feature_dim=model.feature_dim,
        num_layers=model.num_layers,
        gamma=model.gamma,
        alpha=step_size.tolist(),
        dtype=step_size.dtype,
    )
    blind = _random_like(model, subject.seed)
    own, random = (_measures(subject, each, reference) for each in (model, blind))
    findings = [_finding(subject, name, own[name], random[name]) for name in _UNITS]
    arrays = {
        name: Array(axes="batch state", values=_state_values(subject, each)[:_DRAWN])
        for name, each in (("state_values", model), ("batch_td_values", reference))
    }
    return Result(kind="in-context-rl", findings=(*findings, *_entries(subject, model, blind)), arrays=arrays)


def _measures(subject: Subject, model: LinearAttention, reference: LinearAttention) -> dict[str, Tensor]:
    """Each measure for each task."""
    context, features, stationary = subject.context, subject.mrp.features, subject.mrp.stationary
    values, td = (_state_values(subject, each) for each in (model, reference))
    gradients, td_gradients = (
        query_gradients(partial(each.values, context), features) for each in (model, reference)
    )
    weight = implicit_weight(values, features, stationary)
    return {
        "value_difference": value_difference(values, td, stationary),
        # Batch TD is linear in the query: its gradient is its weight, the same at every state.
        "implicit_weight_similarity": implicit_weight_similarity(weight, td_gradients[:, 0]),
        "sensitivity_similarity": sensitivity_similarity(gradients, td_gradients, stationary),
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
        definition="source",
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
            definition="source",
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
