"""Pretraining objectives on batches of fresh tasks, through whichever engine computes the values.

A sample is tau = (S_0..S_n); the transition S = S_n, R = r(S_n) (not in the prompt), S' = S_{n+1};
tau' = (S_1..S_{n+1}) (theory A6, our definition).

Shape legend: `batch` tasks, `state` S, `pos` columns.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from valuelens.models.icrl._config import Loss
from valuelens.models.icrl._learner import ValueLearner
from valuelens.models.icrl._mrp import MarkovRewardProcess, context_of
from valuelens.models.icrl._softmax_td import SoftmaxTD
from valuelens.models.icrl._state_form import (
    ContextStatistics,
    context_statistics,
    has_state_form,
    state_form_values,
)

MONTE_CARLO_STEPS = 40
"""Further steps in a `monte-carlo` return (theory A6, our definition)."""

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompted:
    """Contexts as prompt matrices: what the hooked model reads; queries are all states if wanted, else only S_n."""

    prompt: Float[Tensor, "batch pos D"]
    num_queries: int


Prepared = Prompted | ContextStatistics


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Everything that a step needs, prepared for many steps at once.

    Attributes:
        context: tau.
        successor: tau', only for the `td` loss.
        target: R (td), the discounted return from S_n (monte-carlo) or v_pi(S_n) (true-value, neu).
        true_value: v_pi(S_n), for the log.
        constant: mean(R) / (1 - gamma), the predictor that sees no state.
        chain: P, r and mu, only for the `neu` loss.
    """

    context: Prepared
    successor: Prepared | None
    target: Float[Tensor, "batch"]
    true_value: Float[Tensor, "batch"]
    constant: Float[Tensor, "batch"]
    chain: "Chain | None"


@dataclass(frozen=True, kw_only=True, slots=True)
class Chain:
    """P, r and mu of each task."""

    P: Float[Tensor, "batch state state"]
    r: Float[Tensor, "batch state"]
    mu: Float[Tensor, "batch state"]


def horizon(loss: Loss, context_length: int) -> int:
    """Transitions that a trajectory needs: n for the prompt, 1 for the sample, 40 more for a return."""
    return context_length + (1 + MONTE_CARLO_STEPS if loss == "monte-carlo" else 1)


def prepare(
    model: ValueLearner,
    loss: Loss,
    context_length: int,
    mrp: MarkovRewardProcess,
    states: Int[Tensor, "batch time"],
) -> Batch:
    """Turn sampled trajectories into a batch for a loss.

    Args:
        model: Decides the engine: the state form where it is exact, the hooked model elsewhere.
        loss: Objective.
        context_length: n.
        mrp: Tasks.
        states: S_0.. of each trajectory, `horizon` transitions.
    """
    n = context_length
    value = mrp.value
    context = context_of(mrp, states)
    true_value = value.gather(1, states[:, n : n + 1])[:, 0]
    if loss == "td":
        target = mrp.r.gather(1, states[:, n : n + 1])[:, 0]
    elif loss == "monte-carlo":
        discount = mrp.gamma ** torch.arange(MONTE_CARLO_STEPS, dtype=value.dtype)
        target = context.rewards[:, n : n + MONTE_CARLO_STEPS] @ discount
    else:
        target = true_value
    everywhere = loss == "neu"
    return Batch(
        context=_prepared(model, mrp, states[:, : n + 1], everywhere=everywhere),
        successor=_prepared(model, mrp, states[:, 1 : n + 2], everywhere=False) if loss == "td" else None,
        target=target,
        true_value=true_value,
        constant=context.rewards[:, :n].mean(-1) / (1 - mrp.gamma),
        chain=Chain(P=mrp.P, r=mrp.r, mu=mrp.stationary) if everywhere else None,
    )


def loss_and_value(
    model: ValueLearner, loss: Loss, batch: Batch
) -> tuple[Float[Tensor, ""], Float[Tensor, "batch"]]:
    """The loss and the values at S_n.

    `td`: mean (R + gamma sg(v(S'|tau')) - v(S|tau))^2. `monte-carlo`, `true-value`: mean squared error to the
    target. `neu`: mean || D_mu (r + gamma P v - v) ||^2 over tasks and contexts with the norm inside the average,
    nothing detached (theory A6, our definition).

    Args:
        model: Value learner.
        loss: Objective.
        batch: From `prepare` with the same loss.
    """
    if batch.chain is not None:
        values, at_query = _all_values(model, batch.context)
        chain = batch.chain
        residual = chain.r + model.gamma * torch.einsum("bst,bt->bs", chain.P, values) - values
        return (chain.mu * residual).square().sum(-1).mean(), at_query
    value, target = _query_value(model, batch.context), batch.target
    if batch.successor is not None:
        with torch.no_grad():
            target = target + model.gamma * _query_value(model, batch.successor)
    return (target - value).square().mean(), value


def rows(batch: _T, part: slice) -> _T:
    """Some tasks of a batch: every tensor in it, sliced along its first axis."""
    return mapped(batch, lambda tensor: tensor[part])


def mapped(batch: _T, function: Callable[[Tensor], Tensor]) -> _T:
    """A batch with a function applied to every tensor in it."""
    if isinstance(batch, Tensor):
        return function(batch)  # type: ignore[return-value]
    if is_dataclass(batch) and not isinstance(batch, type):
        changed = {field.name: mapped(getattr(batch, field.name), function) for field in fields(batch)}
        return replace(batch, **changed)
    return batch


def _prepared(model: ValueLearner, mrp: MarkovRewardProcess, states: Tensor, *, everywhere: bool) -> Prepared:
    if has_state_form(model):
        return context_statistics(mrp, states)
    queries = mrp.features if everywhere else None
    num_queries = 1 + mrp.num_states if everywhere else 1
    return Prompted(prompt=model.prompt(context_of(mrp, states), queries), num_queries=num_queries)


def _query_value(model: ValueLearner, context: Prepared) -> Tensor:
    if isinstance(context, Prompted):
        values: Tensor = model(context.prompt, context.num_queries)
        return values[:, 0]
    return _state_values(model, context).gather(1, context.query[:, None])[:, 0]


def _all_values(model: ValueLearner, context: Prepared) -> tuple[Tensor, Tensor]:
    if isinstance(context, Prompted):
        values: Tensor = model(context.prompt, context.num_queries)
        return values[:, 1:], values[:, 0]
    values = _state_values(model, context)
    return values, values.gather(1, context.query[:, None])[:, 0]


def _state_values(model: ValueLearner, context: ContextStatistics) -> Tensor:
    if not isinstance(model, SoftmaxTD):
        raise TypeError(f"the state form needs SoftmaxTD; found {type(model).__name__}")
    return state_form_values(model, context)
