"""A model's values of all states as a function of its weights: the ground that NEU is a landscape over.

A point is what the values depend on, whatever it was parameterised by: the matrices A, V (and V_target) of softmax TD,
one a layer or one for all, restricted to the entries that the model's form has; for other architectures their
parameters. Two points can be mixed, so there are segments and planes between them.

Shape legend: `batch` tasks, `state` S, `layer` L or 1 if tied, `D` slots.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._subject import Subject, has_free_slots
from valuelens.models.icrl import (
    ContextStatistics,
    SoftmaxTD,
    context_statistics,
    has_state_form,
    population_statistics,
    state_form_iterates,
)
from valuelens.probe import ThetaStarDistance, bellman_residual, mstde, neu, softmax_gauge

Point = Mapping[str, Tensor]
Inputs = tuple[Tensor, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chain:
    """What the expected update of a value function depends on besides the function: each task's P, r, mu and gamma."""

    P: Float[Tensor, "batch state state"]
    r: Float[Tensor, "batch state"]
    mu: Float[Tensor, "batch state"]
    gamma: float

    def residual(self, values: Float[Tensor, "batch state"]) -> Float[Tensor, "batch state"]:
        """mu (r + gamma P v - v), the expected update; values of the first tasks will do."""
        k = len(values)
        return self.mu[:k] * bellman_residual(values, self.P[:k], self.r[:k], self.gamma)

    def neu(self, values: Float[Tensor, "batch state"]) -> Float[Tensor, "batch"]:
        """Squared norm of the expected update of each task."""
        k = len(values)
        return neu(values, self.P[:k], self.r[:k], self.mu[:k], self.gamma)

    def mstde(self, values: Float[Tensor, "batch state"]) -> Float[Tensor, "batch"]:
        """Mean squared TD error of each task."""
        k = len(values)
        return mstde(values, self.P[:k], self.r[:k], self.mu[:k], self.gamma)


def chain_of(subject: Subject) -> Chain:
    """The chains of the subject's tasks."""
    mrp = subject.mrp
    return Chain(P=mrp.P, r=mrp.r, mu=mrp.stationary, gamma=mrp.gamma)


@dataclass(frozen=True, kw_only=True, slots=True)
class Landscape:
    """Values of all states as a function of the weights, on fixed contexts.

    Attributes:
        values_of: Of a point and of the inputs of any tasks.
        inputs: Of all tasks; the first axis is the task.
    """

    values_of: Callable[[Point, Inputs], Float[Tensor, "batch state"]]
    inputs: Inputs

    def values(self, point: Point) -> Float[Tensor, "batch state"]:
        """Values at a point."""
        return self.values_of(point, self.inputs)

    def first(self, num_tasks: int) -> "Landscape":
        """The landscape over the first tasks."""
        return Landscape(values_of=self.values_of, inputs=tuple(each[:num_tasks] for each in self.inputs))


def landscape(subject: Subject) -> Landscape:
    """The landscape over the subject's contexts.

    Args:
        subject: Any value learner; where the state form is exact it is used, elsewhere the hooked model.
    """
    model, mrp = subject.model, subject.mrp
    if has_state_form(model):
        return _state_form(subject, context_statistics(mrp, subject.context.states))
    prompt, num_queries = model.prompt(subject.context, mrp.features), 1 + mrp.num_states
    if isinstance(model, SoftmaxTD):
        support, run = model.support(), model.run

        def from_matrices(point: Point, inputs: Inputs) -> Tensor:
            full = {name: (x * support[name]).expand(model.num_layers, -1, -1) for name, x in point.items()}
            return run(inputs[0], full, num_queries)[:, 1:]

        return Landscape(values_of=from_matrices, inputs=(prompt,))

    def from_parameters(point: Point, inputs: Inputs) -> Tensor:
        read: Tensor = torch.func.functional_call(model, dict(point), (inputs[0], num_queries))
        return read[:, 1:]

    return Landscape(values_of=from_parameters, inputs=(prompt,))


def population_landscape(subject: Subject) -> Landscape:
    """The landscape in the limit of endless contexts, where the state form is exact.

    Args:
        subject: With a model for which `has_state_form`.
    """
    return _state_form(subject, population_statistics(subject.mrp))


def own_point(subject: Subject, weights: ThetaStarDistance | None = None) -> Point:
    """Where the checkpoint stands, in the gauge of theta* as far as one is known (theory A8).

    The softmax gauge is projected out of A and the target slot gets scale 1: the same function, so that gradients and
    distances do not depend on which of its copies was trained. Free two-head models keep their wider gauge.

    Args:
        subject: Any value learner.
        weights: Distance of a `SoftmaxTD` model to theta*.
    """
    model = subject.model
    if not isinstance(model, SoftmaxTD) or weights is None:
        return {name: parameter.detach() for name, parameter in model.named_parameters()}
    layers = 1 if model.tied else model.num_layers
    point = {name: matrix[:layers].detach().clone() for name, matrix in model.matrices().items()}
    if has_free_slots(model):
        return point
    d, scale = model.feature_dim, weights.target_scale
    point["A"][:, :d] = _visible(subject) @ point["A"][:, :d]
    if "V_target" in point:
        point["V_target"] /= scale
        for name in ("V", "V_target"):
            point[name][..., -2] *= scale
    return point


def star_point(subject: Subject, weights: ThetaStarDistance, alpha: float | None = None) -> Point:
    """theta* in the same gauge, with the checkpoint's sharpness c and, unless it is given, its alpha.

    Args:
        subject: With a `SoftmaxTD` model.
        weights: Its distance to theta*.
        alpha: Step size.
    """
    c, steps = star_scales(subject, weights)
    steps = steps if alpha is None else torch.full_like(steps, alpha)
    star = {name: torch.zeros_like(x) for name, x in own_point(subject, weights).items()}
    d = subject.context.features.shape[-1]
    star["A"][:, :d, :d] = c[:, None, None] * _visible(subject)
    row = steps[:, None] * steps.new_tensor([1.0, 1.0, -1.0])
    star["V"][:, -1, -3:] = row
    if "V_target" in star:
        star["V_target"][:, -2, -3:] = row
    return star


def star_scales(
    subject: Subject, weights: ThetaStarDistance
) -> tuple[Float[Tensor, "layer"], Float[Tensor, "layer"]]:
    """The fitted c and alpha of theta*, one a layer or one if tied; 1 where not positive or unidentified.

    Args:
        subject: With a `SoftmaxTD` model.
        weights: Its distance to theta*.
    """
    model = subject.model
    free = isinstance(model, SoftmaxTD) and has_free_slots(model)
    count = 1 if getattr(model, "tied", False) else model.num_layers
    scales = [x[:count] for x in (weights.sharpness, weights.step_size)]
    c, alpha = (torch.where((x > 0) & (not free), x, torch.ones_like(x)) for x in scales)
    return c, alpha


def mixed(first: Point, second: Point, share: float) -> Point:
    """(1 - share) first + share second."""
    return {name: torch.lerp(x, second[name], share) for name, x in first.items()}


def moved(point: Point, *directions: tuple[float, Point]) -> Point:
    """A point plus so much of each direction."""
    return {
        name: x + sum((t * direction[name] for t, direction in directions), torch.zeros_like(x))
        for name, x in point.items()
    }


def inner(first: Point, second: Point) -> float:
    """Inner product over all entries."""
    return float(sum((x * second[name]).sum() for name, x in first.items()))


def random_direction(subject: Subject, generator: torch.Generator, like: Point) -> Point:
    """A random direction of norm 1 within the entries that the model's form has.

    Args:
        subject: With a `SoftmaxTD` model.
        generator: Draws it.
        like: A point of that model.
    """
    model = subject.model
    if not isinstance(model, SoftmaxTD):
        raise TypeError(f"random_direction needs SoftmaxTD; found {type(model).__name__}")
    support = model.support()
    drawn = {
        name: support[name] * torch.empty_like(x).normal_(generator=generator) for name, x in like.items()
    }
    return {name: x / inner(drawn, drawn) ** 0.5 for name, x in drawn.items()}


def _state_form(subject: Subject, statistics: ContextStatistics) -> Landscape:
    d, gamma, num_layers = subject.mrp.features.shape[-1], subject.context.gamma, subject.model.num_layers

    def values_of(point: Point, inputs: Inputs) -> Tensor:
        features, log_counts, transitions, rewards, query = inputs
        context = ContextStatistics(
            features=features, log_counts=log_counts, transitions=transitions, rewards=rewards, query=query
        )
        A, w = point["A"][:, :d, :d], point["V"][:, -1, -3:]
        return state_form_iterates(A, w, context, gamma=gamma, num_layers=num_layers)[-1]

    s = statistics
    return Landscape(
        values_of=values_of, inputs=(s.features, s.log_counts, s.transitions, s.rewards, s.query)
    )


def _visible(subject: Subject) -> Tensor:
    """The projection onto what softmax can see of a source: I, or I - u0 u0' / u0'u0."""
    x = subject.context.features
    gauge, eye = softmax_gauge(x), torch.eye(x.shape[-1], dtype=x.dtype)
    return eye if gauge is None else eye - torch.outer(gauge, gauge) / gauge.square().sum()
