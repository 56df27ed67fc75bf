"""How diagonal is the kernel, and does the map contract? The numbers of theory A5.

Shape legend: `layer` L, `batch` tasks, `state` S, `query key` columns.
"""

from dataclasses import replace

import torch
from einops import reduce
from torch import Tensor

from valuelens.analyses._question import Phrase, Question
from valuelens.analyses._result import Array, Finding, Result
from valuelens.analyses._subject import (
    Subject,
    has_free_slots,
    layer_indices,
    population_layer,
    share,
    state_summary,
    task_mean,
    weights_of,
)
from valuelens.models.icrl import LinearAttention, SoftmaxTD
from valuelens.probe import (
    TD_WEIGHTS,
    StateKernel,
    assumption_margin,
    attention_patterns,
    contraction_norm,
    coverage,
    kernel_diagonality,
    spectral_radius,
)

_EVEN, _TD = "even attention", "the same kernel with w = (1, 1, -1)"
_MEASURES = {"contraction_norm": contraction_norm, "spectral_radius": spectral_radius}
_ROUNDING = 1e-9


def diagonality(subject: Subject) -> Result:
    """Empirical and population kernel diagonality, coverage, and contraction with the model's own w.

    Empirical numbers are taken over states visited among S_0..S_{n-1}; norm and radius leave out contexts whose S_n
    never was a source, which `closed_share` counts. Control of the diagonal: a kernel that attends evenly to the same
    sources. How often Assumption 5.1 holds stands next to how often the population map contracts, by norm and by
    radius: the assumption is sufficient, not necessary.

    Args:
        subject: Model and tasks; linear attention has no normalised kernel and is skipped.
    """
    if isinstance(subject.model, LinearAttention):
        why = "linear attention has no normalised kernel"
        return Result(kind="in-context-rl", skipped=({"what": "diagonality", "why": why},))
    patterns = attention_patterns(subject.model, subject.model.prompt(subject.context))
    findings = _coverage(subject, patterns)
    if isinstance(subject.model, SoftmaxTD):
        return _softmax(subject, subject.model, patterns, findings)
    for layer in range(patterns.shape[0]):
        for head in range(patterns.shape[2]):
            index: dict[str, int | str] = {"layer": layer, "head": head}
            findings += _empirical(subject, patterns[layer, :, head], index)[:1]
    return Result(kind="in-context-rl", findings=tuple(findings))


def _softmax(subject: Subject, model: SoftmaxTD, patterns: Tensor, findings: list[Finding]) -> Result:
    weights = weights_of(subject)
    population_rows, empirical_rows = [], []
    for index, layer in layer_indices(subject, of_attention=True):
        findings += _empirical(subject, patterns[layer], index)
        population = population_layer(subject, layer)
        findings += _population(subject, population.M_hat, index)
        kernel = state_summary(subject, patterns[layer])
        if bool(weights.w_identified[layer].all()) and not has_free_slots(model):
            findings += _contraction(subject, kernel, weights.w[layer], index)
            findings += _contracting(subject, population, weights.w[layer], index)
        population_rows.append(population.M_hat.diagonal(dim1=-2, dim2=-1))
        diagonal = kernel.M_hat.diagonal(dim1=-2, dim2=-1)
        empirical_rows.append(diagonal.where(kernel.visited, torch.nan))
    example = state_summary(subject, patterns[-1]).M_hat[0]
    arrays = {
        "population_diagonal": Array(axes="layer task state", values=torch.stack(population_rows)),
        "empirical_diagonal": Array(axes="layer task state", values=torch.stack(empirical_rows)),
        "stationary": Array(axes="task state", values=subject.mrp.stationary),
        "example_kernel": Array(axes="state state", values=example),
    }
    return Result(kind="in-context-rl", findings=tuple(findings), arrays=arrays)


def _coverage(subject: Subject, patterns: Tensor) -> list[Finding]:
    first = patterns[0] if patterns.ndim == 4 else reduce(patterns[0], "b head q k -> b q k", "mean")
    kernel = state_summary(subject, first)
    covered = coverage(kernel)
    every, closed = (covered == 1).to(covered.dtype), kernel.closed.to(covered.dtype)
    return [
        replace(
            _within(task_mean(subject, "coverage", covered, ("contexts that visit every state", every))),
            unit="share of states",
        ),
        share(subject, "closed_share", closed, ("contexts that visit every state", every)),
    ]


def _empirical(subject: Subject, pattern: Tensor, index: dict[str, int | str]) -> list[Finding]:
    kernel, even = state_summary(subject, pattern), state_summary(subject, torch.ones_like(pattern))
    own = kernel_diagonality(kernel.M_hat, kernel.visited)
    control = kernel_diagonality(even.M_hat, even.visited)
    shares = (
        ("kernel_diagonal_mean", own.mean, control.mean),
        ("kernel_diagonal_min", own.min, control.min),
    )
    return [
        _within(task_mean(subject, name, each, (_EVEN, beside), definition="audit", index=index))
        for name, each, beside in shares
    ]


def _within(found: Finding) -> Finding:
    """A mean of shares, its interval cut to what is possible."""
    limits = found.interval
    return replace(found, interval=limits and (max(limits[0], 0.0), min(limits[1], 1.0)))


def _population(subject: Subject, kernel: Tensor, index: dict[str, int | str]) -> list[Finding]:
    mu = subject.mrp.stationary
    own = kernel_diagonality(kernel)
    gamma, even = subject.context.gamma, mu.min(-1).values
    margin, even_margin = assumption_margin(kernel, gamma), even - (1 + gamma) / 2
    holds, even_holds = ((each > 0).to(mu.dtype) for each in (margin, even_margin))
    return [
        *(
            _within(task_mean(subject, name, each, (_EVEN, control), definition="audit", index=index))
            for name, each, control in (
                ("population_diagonal_mean", own.mean, mu.mean(-1)),
                ("population_diagonal_min", own.min, even),
            )
        ),
        task_mean(
            subject, "assumption_margin", margin, (_EVEN, even_margin), definition="audit", index=index
        ),
        share(subject, "assumption_share", holds, (_EVEN, even_holds), definition="audit", index=index),
    ]


def _contraction(
    subject: Subject, kernel: StateKernel, w: Tensor, index: dict[str, int | str]
) -> list[Finding]:
    gamma, kept = subject.context.gamma, kernel.closed
    found = []
    for name, measure in _MEASURES.items():
        own, td = (measure(kernel, gamma=gamma, w=each)[kept] for each in (w, TD_WEIGHTS.to(w)))
        found.append(task_mean(subject, name, own, (_TD, td), index=index))
    return found


def _contracting(
    subject: Subject, population: StateKernel, w: Tensor, index: dict[str, int | str]
) -> list[Finding]:
    """How often the population map of one layer contracts, next to how often Assumption 5.1 holds."""
    gamma, found = subject.context.gamma, []
    for name, measure in _MEASURES.items():
        own, td = (
            (measure(population, gamma=gamma, w=each) < 1 - _ROUNDING).to(w.dtype)
            for each in (w, TD_WEIGHTS.to(w))
        )
        place = {**index, "by": name.replace("_", " ").replace("contraction", "infinity")}
        found.append(share(subject, "contraction_share", own, (_TD, td), index=place))
    return found


def _margin(x: float) -> str:
    return f": on average the assumption {'holds' if x > 0 else 'does not hold'} (it is sufficient, not necessary)"


def _norm(x: float) -> str:
    return ", and below 1 an update contracts" if x < 1 else ", which above 1 says nothing about contraction"


def radius(x: float) -> str:
    """What a spectral radius means."""
    return ", and below 1 they vanish" if x < 1 else ", and from 1 on they need not vanish"


QUESTION = Question(
    name="diagonality",
    section="kernel",
    ask=diagonality,
    title="Kernel diagonality",
    introduction="How much does a state attend to itself, and does the update contract? The control is a kernel that "
    "attends evenly.",
    phrases={
        "kernel_diagonal_mean": Phrase(
            noun="{whose} share of attention that a visited state gives to itself",
            text="{inside}a visited state gives on average {x} of its attention to its own columns",
            beside="{name} would give {c}",
        ),
        "kernel_diagonal_min": Phrase(
            noun="{whose} smallest share of attention that a visited state gives to itself",
            text="{inside}the visited state that attends least to its own columns gives them {x}",
            beside="{name} would give {c}",
        ),
        "population_diagonal_mean": Phrase(
            noun="{whose} share of attention that a state gives to itself in very long contexts",
            text="{inside}a state would give on average {x} of its attention to itself in very long contexts",
            beside="{name} would give {c}",
        ),
        "population_diagonal_min": Phrase(
            noun="{whose} smallest share of attention that a state gives to itself in very long contexts",
            text="{inside}the state that attends least to itself would give itself {x} in very long contexts",
            beside="{name} would give {c}",
        ),
        "coverage": Phrase(
            noun="the share of states that a context visits",
            text="A context visits on average {x} of the states",
            beside="{c} of the contexts visit every state",
        ),
        "contraction_norm": Phrase(
            noun="{whose} infinity norm of one update",
            text="{inside}one update stretches differences between value functions by a factor of at most {x} on "
            "average",
            beside="{name} has {c}",
            sampled="contexts whose last state was a source",
            comment=_norm,
        ),
        "spectral_radius": Phrase(
            noun="{whose} spectral radius of the update",
            text="{inside}the update, repeated without end, scales differences between value functions by {x} a step "
            "on average",
            beside="{name} has {c}",
            sampled="contexts whose last state was a source",
            comment=radius,
        ),
        "assumption_margin": Phrase(
            noun="{whose} margin in Assumption 5.1",
            text="{inside}the smallest population diagonal minus the (1 + gamma) / 2 of Assumption 5.1 is {x}",
            beside="{name} has {c}",
            comment=_margin,
        ),
        "closed_share": Phrase(
            noun="the share of contexts whose last state is one of their sources",
            text="The share of contexts whose last state is also one of their sources is {x}; the others are left out "
            "of norm, radius and contraction",
            beside="{c} of the contexts visit every state",
        ),
        "assumption_share": Phrase(
            noun="the share of tasks on which Assumption 5.1 holds",
            text="{inside}the share of tasks on which Assumption 5.1 holds is {x}",
            beside="with {name} it is {c}",
        ),
        "contraction_share": Phrase(
            noun="the share of tasks on which the update contracts in very long contexts",
            text="{inside}the share of tasks on which the update contracts in very long contexts, by its {by}, is {x}",
            beside="with {name} it is {c}",
        ),
    },
)
