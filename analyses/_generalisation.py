"""Does a model evaluate states on tasks unlike those that it was trained on, without retraining?

Shape legend: `batch` tasks, `pos` columns of a context, `state` S.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._question import Phrase, Question
from valuelens.analyses._result import Control, Finding, Result
from valuelens.analyses._shifts import Shift, shifts
from valuelens.analyses._subject import FEW, Subject, evaluation_stream, mean_square_ratio, part_of
from valuelens.models import InputError
from valuelens.models.icrl import (
    CartPolePool,
    Context,
    MarkovRewardProcess,
    ValueLearner,
    at_states,
    cart_pole_pool,
    context_of,
    task_sampler,
)
from valuelens.probe import (
    constant_value,
    inner_product_scores,
    lstd,
    softmax_td_states,
    state_kernel_from_scores,
)

RIVALS = ("LSTD", "LSTD that knows the states", "theta*")
"""What every finding stands beside, on the same contexts and against the same constant predictor."""

RIDGE = 1e-3
"""Of LSTD: hardly regularised; larger ones shrink its values, and did worse on tasks of a seed kept for the choice."""

_CHUNK = 32
"""Tasks that are read at once: long contexts need n x n attention for each."""


def generalisation(subject: Subject) -> Result:
    """Value errors under each shift of the tasks, as multiples of the constant predictor's on the same contexts.

    `generalisation` with `of` = `query`: mean squared value error at S_n; with `of` = `context`: pooled over the n+1
    columns. Both are divided by the error of the constant predictor mean(R) / (1 - gamma) on those contexts, so below
    1 is better than seeing no state (our definition). Controls on the same contexts: LSTD on the features; LSTD on
    one-hot states, which the model does not see (both with ridge 0.001); and softmax TD from theta* with alpha = c = 1
    and as many steps as the model has layers. `generalises_to` names the shifts under which the interval over whole
    contexts lies below 1.

    Cart-poles are a pool of 64, simulated for 100,000 steps each; their cells are not Markov.

    Args:
        subject: Model and its own tasks, which are the reference; another reward scale is asked of the same tasks,
            every other shift of as many tasks from the same evaluation stream.
    """
    asked, skipped = shifts(subject.task, subject.model)
    findings, better = [], {}
    for shift in asked:
        try:
            under, better[shift.name] = _under(shift, subject)
        except InputError as error:
            why = str(error)
            skipped.append({"what": f"generalisation to {shift.name}", "why": why})
        else:
            findings += under
    findings.append(_summary(better))
    return Result(kind="in-context-rl", findings=tuple(findings), skipped=tuple(skipped))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sample:
    """Tasks of a shift, and the squared errors of a predictor on them."""

    mrp: MarkovRewardProcess
    context: Context

    def errors(self, values: Float[Tensor, "batch state"]) -> dict[str, Float[Tensor, "batch"]]:
        """Of values at all states: at the query, and summed over the columns of a context."""
        return self._of(at_states(values, self.context.states))

    def constant(self) -> dict[str, Float[Tensor, "batch"]]:
        """Of the predictor that sees no state."""
        same = constant_value(self.context.rewards, gamma=self.context.gamma)
        return self._of(same[:, None].expand(self.context.states.shape))

    def _of(self, values: Float[Tensor, "batch pos"]) -> dict[str, Float[Tensor, "batch"]]:
        square = (values - at_states(self.mrp.value, self.context.states)).square()
        return {"query": square[:, -1], "context": square.sum(-1)}


def _under(shift: Shift, subject: Subject) -> tuple[list[Finding], list[bool]]:
    """The findings of a shift, and whether model and rivals are better than the constant predictor there."""
    sample = _drawn(shift, subject)
    own = sample.errors(_values(subject.model, sample))
    rivals = [sample.errors(values) for values in _rivals(sample, subject.model.num_layers)]
    constant, seed = sample.constant(), subject.seed
    findings = [
        _finding(
            {"shift": shift.name, "of": of}, own[of], constant[of], [rival[of] for rival in rivals], seed
        )
        for of in constant
    ]
    return findings, [_better(errors["context"], constant["context"], seed) for errors in (own, *rivals)]


def _better(errors: Tensor, constant: Tensor, seed: int) -> bool:
    interval = mean_square_ratio(errors, constant, seed)[1]
    return interval is not None and interval[1] < 1


def _drawn(shift: Shift, subject: Subject) -> _Sample:
    mrp, states = subject.mrp, subject.context.states
    if shift.task != subject.task:
        generator = evaluation_stream(subject.seed)
        pool = _pool(subject.seed) if shift.task.env == "cartpole" else None
        sampler, dtype = task_sampler(shift.task, generator, pool), mrp.r.dtype
        mrp, states = sampler.sample(subject.num_tasks, shift.task.context_length, generator, dtype)
    mrp = replace(mrp, r=shift.reward_scale * mrp.r)
    return _Sample(mrp=mrp, context=context_of(mrp, states))


@lru_cache(maxsize=1)
def _pool(seed: int) -> CartPolePool:
    """The cart-poles of a seed, kept because simulating them takes a second or two."""
    return cart_pole_pool(evaluation_stream(seed))


def _values(model: ValueLearner, sample: _Sample) -> Float[Tensor, "batch state"]:
    """The model's values of all states, read through extra query columns.

    Raises:
        InputError: They overflow, or the model cannot read such contexts.
    """
    features, context = sample.mrp.features, sample.context
    parts = []
    for rows in torch.arange(len(features)).split(_CHUNK):
        part = part_of(context, rows)
        with torch.no_grad():
            prompt = model.prompt(part, features[rows])
            parts.append(model(prompt, num_queries=1 + features.shape[1])[:, 1:])
    values = torch.cat(parts)
    if lost := int((~values.square().sum(-1).isfinite()).sum()):
        found = f"found overflow on {lost} of {len(values)}"
        raise InputError("the model's values must be finite on every task", found, "read-out")
    return values


def _rivals(sample: _Sample, num_layers: int) -> list[Float[Tensor, "batch state"]]:
    x, context = sample.mrp.features, sample.context
    n, gamma = context.num_transitions, context.gamma
    linear, tabular = (
        lstd(columns, context.rewards, gamma=gamma, ridge=RIDGE)[:, n + 1 :]
        for columns in (torch.cat([context.features, x], dim=1), _one_hot(sample))
    )
    kernel = state_kernel_from_scores(inner_product_scores(x, x), context.states, context.rewards)
    star = softmax_td_states(torch.zeros_like(sample.mrp.r), kernel, gamma=gamma, num_layers=num_layers)[-1]
    return [linear, tabular, star]


def _one_hot(sample: _Sample) -> Float[Tensor, "batch pos state"]:
    """The states of the columns, then every state, as features that tell all of them apart."""
    states, S = sample.context.states, sample.mrp.num_states
    every = torch.arange(S).expand(len(states), S)
    return torch.nn.functional.one_hot(torch.cat([states, every], dim=1), S).to(sample.mrp.r)


def _finding(
    index: dict[str, int | str], own: Tensor, constant: Tensor, rivals: list[Tensor], seed: int
) -> Finding:
    estimate, interval = mean_square_ratio(own, constant, seed)
    beside = [float(rival.sum() / constant.sum()) for rival in rivals]
    return Finding(
        name="generalisation",
        estimate=estimate,
        unit="1",
        n=len(own),
        definition="choice",
        index=index,
        interval=interval,
        control=Control(name=", ".join(RIVALS), estimate=[*beside]),
        reasons={} if interval else {"interval": FEW},
    )


def _summary(better: Mapping[str, list[bool]]) -> Finding:
    def names(predictor: int) -> str:
        held = [shift for shift, which in better.items() if which[predictor]]
        return ", ".join(held) or "none of them"

    return Finding(
        name="generalises_to",
        estimate=names(0),
        unit="shifts",
        n=len(better),
        definition="choice",
        control=Control(name=RIVALS[0], estimate=names(1)),
        reasons={"interval": "a list of names; each shift has its own interval"},
    )


QUESTION = Question(
    name="generalisation",
    ask=generalisation,
    tenths=50,
    title="Other tasks, without retraining",
    introduction="Does the model still evaluate states on tasks that differ in one way from those of its "
    "training? Errors are multiples of the constant predictor's on the same contexts, so below 1 is better than seeing "
    "no state.",
    last_only=True,
    phrases={
        "generalises_to": Phrase(
            noun="the list of tasks on which the model beats the constant predictor",
            text="Without retraining the model is better than the constant predictor (95 % interval over whole "
            "contexts below 1) on: {x}",
            beside="{name} is better on: {c}",
            sampled="kinds of tasks",
        ),
        "generalisation": Phrase(
            noun="the value error {of} on {shift} against that of the constant predictor",
            text="On {shift}, without retraining, the squared value error {of} is {x} times that of the constant "
            "predictor",
            beside="on the same contexts {c}",
        ),
    },
)
