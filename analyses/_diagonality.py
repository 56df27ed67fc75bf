"""How diagonal is the kernel, and does the map contract? The numbers of theory A5.

Shape legend: `layer` L, `batch` tasks, `state` S, `query key` columns.
"""

import torch
from einops import reduce
from torch import Tensor

from valuelens.analyses._result import Array, Control, Finding, Result
from valuelens.analyses._subject import Subject, has_free_slots, layer_indices, state_summary, weights_of
from valuelens.models.icrl import LinearAttention, SoftmaxTD
from valuelens.probe import (
    StateKernel,
    assumption_margin,
    attention_patterns,
    bilinear_scores,
    contraction_norm,
    coverage,
    kernel_diagonality,
    mean_interval,
    population_kernel,
    spectral_radius,
)

_Interval = tuple[float, float] | None
_FEW = "too few tasks, or no spread between them"


def diagonality(subject: Subject) -> Result:
    """Empirical and population kernel diagonality, coverage, and contraction with the model's own w.

    Empirical numbers are taken over states visited among S_0..S_{n-1}; norm and radius leave out contexts whose S_n
    never was a source. Control of the diagonal: a kernel that attends evenly to the same sources.

    Args:
        subject: Model and tasks; linear attention has no normalised kernel and is skipped.
    """
    if isinstance(subject.model, LinearAttention):
        why = "linear attention has no normalised kernel"
        return Result(kind="in-context-rl", skipped=({"what": "diagonality", "why": why},))
    patterns = attention_patterns(subject.model, subject.model.prompt(subject.context))
    findings = [_coverage(subject, patterns)]
    if isinstance(subject.model, SoftmaxTD):
        return _softmax(subject, subject.model, patterns, findings)
    for layer in range(patterns.shape[0]):
        for head in range(patterns.shape[2]):
            index: dict[str, int | str] = {"layer": layer, "head": head}
            findings += _empirical(subject, patterns[layer, :, head], index)[:1]
    return Result(kind="in-context-rl", findings=tuple(findings))


def _softmax(subject: Subject, model: SoftmaxTD, patterns: Tensor, findings: list[Finding]) -> Result:
    weights, d = weights_of(subject), subject.context.features.shape[-1]
    x, mu = subject.mrp.features, subject.mrp.stationary
    diagonals = []
    for index, layer in layer_indices(subject, of_attention=True):
        findings += _empirical(subject, patterns[layer], index)
        population = population_kernel(bilinear_scores(x, x, model.A[layer, :d, :d].detach()), mu)
        findings += _population(subject, population, index)
        if bool(weights.w_identified[layer].all()) and not has_free_slots(model):
            kernel = state_summary(subject, patterns[layer])
            findings += _contraction(subject, kernel, weights.w[layer], index)
        diagonals.append(population.diagonal(dim1=-2, dim2=-1))
    example = state_summary(subject, patterns[-1]).M_hat[0]
    arrays = {
        "population_diagonal": Array(axes="layer task state", values=torch.stack(diagonals)),
        "example_kernel": Array(axes="state state", values=example),
    }
    return Result(kind="in-context-rl", findings=tuple(findings), arrays=arrays)


def _coverage(subject: Subject, patterns: Tensor) -> Finding:
    first = patterns[0] if patterns.ndim == 4 else reduce(patterns[0], "b head q k -> b q k", "mean")
    covered = coverage(state_summary(subject, first))
    return Finding(
        name="coverage",
        estimate=float(covered.mean()),
        unit="share of states",
        n=subject.num_tasks,
        definition="derived",
        interval=mean_interval(covered, seed=subject.seed),
        control=Control(
            name="contexts that visit every state", estimate=float((covered == 1).double().mean())
        ),
        reasons={} if mean_interval(covered, seed=subject.seed) else {"interval": _FEW},
    )


def _empirical(subject: Subject, pattern: Tensor, index: dict[str, int | str]) -> list[Finding]:
    kernel, even = state_summary(subject, pattern), state_summary(subject, torch.ones_like(pattern))
    own = kernel_diagonality(kernel.M_hat, kernel.visited)
    control = kernel_diagonality(even.M_hat, even.visited)
    return [
        _task_mean("kernel_diagonal_mean", own.mean, "even attention", control.mean, subject, index),
        _task_mean("kernel_diagonal_min", own.min, "even attention", control.min, subject, index),
    ]


def _population(subject: Subject, kernel: Tensor, index: dict[str, int | str]) -> list[Finding]:
    mu = subject.mrp.stationary
    own = kernel_diagonality(kernel)
    margin = assumption_margin(kernel, subject.context.gamma)
    even = mu.min(-1).values
    return [
        _task_mean("population_diagonal_mean", own.mean, "even attention", mu.mean(-1), subject, index),
        _task_mean("population_diagonal_min", own.min, "even attention", even, subject, index),
        _task_mean(
            "assumption_margin",
            margin,
            "even attention",
            even - (1 + subject.context.gamma) / 2,
            subject,
            index,
        ),
    ]


def _contraction(
    subject: Subject, kernel: StateKernel, w: Tensor, index: dict[str, int | str]
) -> list[Finding]:
    gamma, kept = subject.context.gamma, kernel.closed
    td = w.new_tensor([1.0, 1.0, -1.0])
    if not bool(kept.any()):
        return []
    return [
        _task_mean(
            name,
            measure(kernel, gamma=gamma, w=w)[kept],
            "the same kernel with w = (1, 1, -1)",
            measure(kernel, gamma=gamma, w=td)[kept],
            subject,
            index,
        )
        for name, measure in (("contraction_norm", contraction_norm), ("spectral_radius", spectral_radius))
    ]


def _task_mean(
    name: str, sample: Tensor, control: str, against: Tensor, subject: Subject, index: dict[str, int | str]
) -> Finding:
    interval: _Interval = mean_interval(sample, seed=subject.seed)
    return Finding(
        name=name,
        estimate=float(sample.mean()),
        unit="1",
        n=len(sample),
        definition="audit" if "diagonal" in name or name == "assumption_margin" else "derived",
        index=index,
        interval=interval,
        control=Control(name=control, estimate=float(against.mean())),
        reasons={} if interval else {"interval": _FEW},
    )
