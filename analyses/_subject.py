"""A checkpoint under study: the model, fresh tasks that it never trained on, and their true values.

Shape legend: `batch` tasks, `pos` the n+1 columns of a context, `state` S, `layer` L, `iterate` 0..L.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._result import Control, Definition, Finding
from valuelens.models import InputError, Shown
from valuelens.models.icrl import (
    Context,
    MarkovRewardProcess,
    SoftmaxTD,
    TaskConfig,
    ValueLearner,
    at_states,
    context_of,
    identified_entries,
    task_sampler,
)
from valuelens.probe import (
    StateKernel,
    ThetaStarDistance,
    bilinear_scores,
    constant_value,
    mean_interval,
    population_state_kernel,
    ratio_interval,
    residual_stream,
    share_interval,
    softmax_gauge,
    softmax_kernel,
    softmax_td,
    state_kernel,
    theta_star_distance,
)

FEW = "too few tasks, or no spread between them"
"""Why there is no interval."""

NONE_COUNTS = (
    "no context of this length counts: their last state never was a source, or too few states were visited"
)
"""Why there is no estimate on contexts that are too short."""

_STREAM = 0x76616C7565


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Subject(Shown):
    """One model with evaluation tasks.

    Attributes:
        model: In the precision of the measurements.
        task: Distribution that the tasks were drawn from.
        mrp: One task a context.
        context: What the model sees.
        lens: Read-out before the first and after every layer, at the query S_n and then at query columns for
            every column S_0..S_n of the context.
        seed: Of the evaluation tasks; a stream of its own, never the training stream.
    """

    model: ValueLearner
    task: TaskConfig
    mrp: MarkovRewardProcess
    context: Context
    lens: Float[Tensor, "iterate batch query"]
    seed: int

    @property
    def num_tasks(self) -> int:
        """Tasks, one context each: the n of every finding."""
        return self.context.states.shape[0]

    @property
    def truth(self) -> Float[Tensor, "batch pos"]:
        """v_pi along the context."""
        return at_states(self.mrp.value, self.context.states)

    @property
    def values(self) -> Float[Tensor, "batch pos"]:
        """The model's values of S_0..S_n, read through extra query columns."""
        return self.lens[-1, :, 1:]

    @property
    def constant(self) -> Float[Tensor, "batch"]:
        """mean(R) / (1 - gamma) of each context."""
        return constant_value(self.context.rewards, gamma=self.context.gamma)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """The model, the tasks, and how well the one does on the others."""
        task, (error, blind) = self.task, (each.mean() for each in query_errors(self)[:2])
        rows: dict[str, object] = {
            "model": f"{type(self.model).__name__}, {self.model.num_layers} layers",
            "tasks": f"{task.env}, {self.mrp.num_states} states, discount {self.context.gamma:g}",
            "contexts": f"{self.context.num_transitions} transitions",
            "mean squared value error": f"{float(error):.4g} ({float(blind):.4g} of the constant predictor)",
        }
        return f"{self.num_tasks} fresh tasks of seed {self.seed}", rows


def subject(
    model: ValueLearner,
    task: TaskConfig,
    *,
    num_tasks: int = 256,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Subject:
    """Draw evaluation tasks for a model and read it on them.

    Args:
        model: Any in-context value learner; converted to `dtype` in place.
        task: Distribution of the tasks.
        num_tasks: One context each.
        seed: Decides the tasks.
        dtype: Precision of the measurements.

    Raises:
        InputError: The model's values overflow on some task, or every query has the true value 0.
    """
    generator = evaluation_stream(seed)
    mrp, states = task_sampler(task, generator).sample(num_tasks, task.context_length, generator, dtype)
    if not bool(at_states(mrp.value, states[:, -1:]).any()):
        found = f"found 0 on all {num_tasks} tasks"
        raise InputError("some query must have a true value other than 0", found, "evaluation tasks")
    return _read(model.to(dtype).eval(), task, mrp, context_of(mrp, states), seed)


def in_float64(subject: Subject) -> Subject:
    """The same model, tasks and contexts in double precision: errors of iterates are followed down to 1e-9.

    Args:
        subject: In any precision; its model is left alone.
    """
    mrp, context = subject.mrp, subject.context
    if mrp.r.dtype == torch.float64:
        return subject
    exact = {name: getattr(mrp, name).double() for name in ("P", "r", "p0", "features")}
    seen = replace(context, features=context.features.double(), rewards=context.rewards.double())
    return _read(deepcopy(subject.model).double(), subject.task, replace(mrp, **exact), seen, subject.seed)


def _read(
    model: ValueLearner, task: TaskConfig, mrp: MarkovRewardProcess, context: Context, seed: int
) -> Subject:
    num_queries = 2 + context.num_transitions
    prompt = model.prompt(context, context.features)
    residuals = residual_stream(model, prompt, num_queries=num_queries)
    with torch.no_grad():
        lens = torch.stack([model.read_out(resid)[:, -num_queries:] for resid in residuals])
    lost = int((~lens.square().sum((0, 2)).isfinite()).sum())
    if lost:
        found = f"found overflow on {lost} of {len(context.states)}"
        raise InputError("the model's values must be finite on every evaluation task", found, "read-out")
    return Subject(model=model, task=task, mrp=mrp, context=context, lens=lens, seed=seed)


def evaluation_stream(seed: int, *purpose: int) -> torch.Generator:
    """The stream that evaluation tasks are drawn from, never the training stream of the same seed.

    Args:
        seed: Of the evaluation.
        *purpose: Numbers of another stream, for what is drawn besides the tasks.
    """
    entropy = int(np.random.SeedSequence((_STREAM, seed, *purpose)).generate_state(1, np.uint64)[0])
    return torch.Generator().manual_seed(entropy)


def weights_of(subject: Subject) -> ThetaStarDistance:
    """Distance of a softmax-TD model's weights to theta*, with its gauge and its unidentified entries fixed.

    Args:
        subject: With a `SoftmaxTD` model.
    """
    model, context = subject.model, subject.context
    if not isinstance(model, SoftmaxTD):
        raise TypeError(f"weights_of needs SoftmaxTD; found {type(model).__name__}")
    generator = torch.Generator().manual_seed(subject.seed)
    masks = identified_entries(model, model.prompt(context)[:16], generator)
    with torch.no_grad():
        return theta_star_distance(
            model.A,
            model.V,
            gamma=context.gamma,
            V_target=model.V_target,
            gauge=softmax_gauge(context.features),
            identified=(masks["A"], masks["V"]),
        )


def has_free_slots(model: SoftmaxTD) -> bool:
    """Whether w and A are unidentified: two heads with free matrices may mix their slots (theory A8)."""
    return model.arch == "dual" and model.weights != "restricted"


def td_iterates(
    subject: Subject, weights: ThetaStarDistance, context: Context | None = None
) -> Float[Tensor, "iterate batch pos"]:
    """Iterates of weighted softmax TD with the fitted (alpha, A) of each layer, from v = 0.

    Args:
        subject: With a `SoftmaxTD` model.
        weights: Its fitted step sizes.
        context: Another context than the subject's, as a control.
    """
    model, context = subject.model, context or subject.context
    if not isinstance(model, SoftmaxTD):
        raise TypeError(f"td_iterates needs SoftmaxTD; found {type(model).__name__}")
    x, d = context.features, context.features.shape[-1]
    with torch.no_grad():
        kernels = torch.stack([softmax_kernel(bilinear_scores(x, x[:, :-1], A[:d, :d])) for A in model.A])
    w = weights.step_size[:, None] * weights.step_size.new_tensor([1.0, 1.0, -1.0])
    start = torch.zeros_like(x[..., 0])
    return softmax_td(start, context.rewards, kernels, gamma=context.gamma, num_layers=model.num_layers, w=w)


def query_errors(subject: Subject) -> tuple[Tensor, Tensor, Tensor]:
    """For each task at the query: squared error of the model, of the constant predictor, and squared true value."""
    truth = subject.truth[:, -1]
    own = (subject.lens[-1, :, 0] - truth).square()
    return own, (subject.constant - truth).square(), truth.square()


def blind_distances(subject: Subject) -> Float[Tensor, "batch"]:
    """Largest error of the constant predictor over the states that each context leaves."""
    return (subject.constant[:, None] - subject.truth[:, :-1]).abs().amax(-1)


def context_errors(subject: Subject) -> tuple[Tensor, Tensor]:
    """For each task, summed over the n+1 columns: squared error of the model and of the constant predictor."""
    own = (subject.values - subject.truth).square().sum(-1)
    return own, (subject.constant[:, None] - subject.truth).square().sum(-1)


def state_summary(subject: Subject, pattern: Float[Tensor, "batch query key"]) -> StateKernel:
    """An attention pattern gathered by state, renormalised over the n sources.

    Args:
        subject: Whose contexts were attended.
        pattern: Over all columns of a context; keys that are no sources are dropped.
    """
    context = subject.context
    n = context.num_transitions
    kernel = pattern[..., :n] / pattern[..., :n].sum(-1, keepdim=True)
    return state_kernel(kernel, context.states, context.rewards, num_states=subject.mrp.num_states)


def population_layer(subject: Subject, layer: int) -> StateKernel:
    """The state kernel of a layer in the limit of endless contexts, from the features' block of its attention.

    Args:
        subject: With a `SoftmaxTD` model.
        layer: Its number.
    """
    model, mrp = subject.model, subject.mrp
    if not isinstance(model, SoftmaxTD):
        raise TypeError(f"population_layer needs SoftmaxTD; found {type(model).__name__}")
    A = model.A[layer, : model.feature_dim, : model.feature_dim].detach()
    return population_state_kernel(
        bilinear_scores(mrp.features, mrp.features, A), mrp.P, mrp.r, mrp.stationary
    )


def layer_indices(subject: Subject, *, of_attention: bool = False) -> list[tuple[dict[str, int | str], int]]:
    """Where per-layer findings stand: once for tied layers, else one for each layer.

    Args:
        subject: Whose layers.
        of_attention: Findings of the attention: tied layers differ in it unless A reads features only.
    """
    model = subject.model
    if getattr(model, "tied", False) and not (of_attention and getattr(model, "weights", "") != "restricted"):
        return [({"layer": "all"}, 0)]
    return [({"layer": layer}, layer) for layer in range(model.num_layers)]


def mean_square_ratio(
    error: Float[Tensor, "batch"], reference: Float[Tensor, "batch"], seed: int
) -> tuple[float, tuple[float, float] | None]:
    """sum(error) / sum(reference) over tasks, with its interval."""
    return float(error.sum() / reference.sum()), ratio_interval(error, reference, seed=seed)


def task_mean(
    subject: Subject,
    name: str,
    sample: Float[Tensor, "kept"],
    control: tuple[str, Float[Tensor, "against"]],
    *,
    definition: Definition = "derived",
    index: dict[str, int | str] | None = None,
) -> Finding:
    """The finding that a mean over tasks is, with its interval, beside the mean of a control.

    Args:
        subject: Whose seed the resampling takes.
        name: Of the finding.
        sample: One number for each task that counts; without any the finding says so.
        control: Its name and its numbers.
        definition: Standing of the formula.
        index: Where.
    """
    interval = mean_interval(sample, seed=subject.seed)
    known = bool(sample.isfinite().all()) and len(sample) > 0
    reasons = {} if interval else {"interval": FEW}
    if not known:
        reasons["estimate"] = NONE_COUNTS if len(sample) == 0 else "not finite on every task"
    if not bool(control[1].isfinite().all()) or len(control[1]) == 0:
        reasons["control"] = "as for the estimate" if not known else "not finite on every task"
    return Finding(
        name=name,
        estimate=float(sample.mean()) if known else None,
        unit="1",
        n=len(sample),
        definition=definition,
        index=index or {},
        interval=interval,
        control=Control(name=control[0], estimate=float(control[1].mean())),
        reasons=reasons,
    )


def share(
    subject: Subject,
    name: str,
    hits: Float[Tensor, "kept"],
    control: tuple[str, Float[Tensor, "against"]],
    *,
    definition: Definition = "derived",
    index: dict[str, int | str] | None = None,
) -> Finding:
    """`task_mean` of a property that a task has (1) or has not (0): the interval is exact, also of none and of all.

    Args:
        subject: Whose tasks.
        name: Of the finding.
        hits: 1 or 0 for each task that counts.
        control: Its name and its hits.
        definition: Standing of the formula.
        index: Where.
    """
    found = task_mean(subject, name, hits, control, definition=definition, index=index)
    interval = share_interval(int(hits.sum()), len(hits))
    reasons = {key: why for key, why in found.reasons.items() if key != "interval" or interval is None}
    return replace(found, unit="share", interval=interval, reasons=reasons)


def band(sample: Float[Tensor, "point task"], *, seed: int) -> Float[Tensor, "3 point"]:
    """Mean over tasks of every point of a curve, with the lower and upper limit of its interval (NaN without one).

    Args:
        sample: One number for each point and task.
        seed: Of the resampling.
    """
    limits = [mean_interval(row, seed=seed) or (torch.nan, torch.nan) for row in sample]
    return torch.cat([sample.mean(1)[None], sample.new_tensor(limits).mT])


def first_tasks(mrp: MarkovRewardProcess, count: int) -> MarkovRewardProcess:
    """The first tasks of a batch.

    Args:
        mrp: Tasks with one batch axis.
        count: How many; all if there are fewer.
    """
    parts = {name: getattr(mrp, name)[:count] for name in ("P", "r", "p0", "features")}
    return replace(mrp, **parts)


def part_of(context: Context, tasks: slice | Tensor) -> Context:
    """The contexts of some tasks alone.

    Args:
        context: One context a task.
        tasks: Which.
    """
    return Context(
        states=context.states[tasks],
        features=context.features[tasks],
        rewards=context.rewards[tasks],
        gamma=context.gamma,
    )


def another_context(context: Context) -> Context:
    """The same contexts with the rewards of their neighbours: a control that keeps every marginal."""
    return Context(
        states=context.states,
        features=context.features,
        rewards=context.rewards.roll(1, dims=0),
        gamma=context.gamma,
    )
