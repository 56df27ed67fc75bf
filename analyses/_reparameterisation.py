"""Which TD rule reproduces each layer's value updates? Weight-space and function-space fits (theory A9 i, ii).

Shape legend: `layer` L, `batch` tasks, `pos` the n+1 columns of a context.
"""

import torch
from torch import Tensor

from valuelens.analyses._question import Phrase, Question
from valuelens.analyses._result import Array, Control, Finding, Result
from valuelens.analyses._subject import Subject, mean_square_ratio
from valuelens.models.icrl import SoftmaxTD
from valuelens.probe import (
    LayerFit,
    UpdateData,
    fit_layer,
    fit_weights,
    predicted_update,
    update_r2,
    update_r2_sums,
    value_slots,
)

_EMPTY = 1e-12


def reparameterisation(subject: Subject) -> Result:
    """Fit (w, A) of the single-head + temporal-shift form on one half of the tasks, score R^2 on the other.

    `fit: weights` takes A's feature block from the weights and w by least squares on the fitting half;
    `fit: function` uses value slots only, as if the weights were unknown, and starts each layer from the one before.
    Control: the same fit with rewards exchanged between contexts. R^2 is about zero update, so a layer that predicts
    nothing scores 0.

    Args:
        subject: With a softmax-TD model; others have no value slots of this form and are skipped.
    """
    if not isinstance(subject.model, SoftmaxTD):
        why = "it needs softmax-TD value slots; opaque and linear models have none"
        return Result(kind="in-context-rl", skipped=({"what": "reparameterisation", "why": why},))
    findings: list[Finding] = []
    rows = []
    before: Tensor | None = None
    for layer, (fitting, held_out, exchanged) in enumerate(_layers(subject)):
        d = held_out.features.shape[-1]
        block = subject.model.A[layer, :d, :d].detach().double()
        fits = {"weights": fit_weights(fitting, block), "function": fit_layer(fitting, start=before)}
        before = fits["function"].A
        for name, fit in fits.items():
            findings.append(_finding(subject, {"layer": layer, "fit": name}, fit, held_out, exchanged))
        rows.append(_row(fits["function"], held_out))
    arrays = {
        "fitted_w": Array(axes="layer 3", values=torch.stack([w for w, _, _ in rows])),
        "fitted_A": Array(axes="layer feature feature", values=torch.stack([A for _, A, _ in rows])),
        "residual_by_column": Array(axes="layer pos", values=torch.stack([r for _, _, r in rows])),
    }
    return Result(kind="in-context-rl", findings=tuple(findings), arrays=arrays)


def _layers(subject: Subject) -> list[tuple[UpdateData, UpdateData, UpdateData]]:
    """Fitting half, held-out half, and the held-out half with exchanged rewards, for each layer; always float64."""
    context = subject.context
    slots = value_slots(subject.model, subject.model.prompt(context)).double()
    values = torch.cat([torch.zeros_like(slots[:1]), slots])
    half = subject.num_tasks // 2

    def data(layer: int, part: slice, rewards: Tensor) -> UpdateData:
        return UpdateData(
            features=context.features[part].double(),
            rewards=rewards[part].double(),
            values=values[layer, part],
            update=(values[layer + 1] - values[layer])[part],
            gamma=context.gamma,
        )

    first, second = slice(0, half), slice(half, None)
    exchanged = context.rewards.roll(1, dims=0)
    return [
        (
            data(layer, first, context.rewards),
            data(layer, second, context.rewards),
            data(layer, second, exchanged),
        )
        for layer in range(len(slots))
    ]


def _finding(
    subject: Subject, index: dict[str, int | str], fit: LayerFit, held_out: UpdateData, exchanged: UpdateData
) -> Finding:
    residual, total = update_r2_sums(held_out, fit)
    if float(total.sum()) < _EMPTY:
        reasons = {
            "estimate": "the layer does not move the values",
            "interval": "no estimate",
            "control": "no estimate",
        }
        return Finding(
            name="reparameterisation_r2",
            estimate=None,
            unit="1",
            n=0,
            definition="derived",
            index=index,
            reasons=reasons,
        )
    unexplained, limits = mean_square_ratio(residual, total, subject.seed)
    return Finding(
        name="reparameterisation_r2",
        estimate=1 - unexplained,
        unit="1",
        n=len(total),
        definition="derived",
        index=index,
        interval=limits and (1 - limits[1], 1 - limits[0]),
        control=Control(name="exchanged rewards", estimate=update_r2(exchanged, fit)),
        reasons={} if limits else {"interval": "too few tasks, or no spread between them"},
    )


def _row(fit: LayerFit, held_out: UpdateData) -> tuple[Tensor, Tensor, Tensor]:
    residual = held_out.update - predicted_update(held_out, fit)
    return fit.w, fit.A, residual.square().mean(0).sqrt()


def _no_change(x: float) -> str:
    return ", worse than predicting no change at all" if x < 0 else ""


QUESTION = Question(
    name="reparameterisation",
    section="rule",
    ask=reparameterisation,
    tenths=5,
    title="TD rule fitted",
    introduction="Does weighted softmax TD reproduce what each layer does to the values? With three free weights a "
    "layer it is fitted on one half of the tasks and scored on the other; with one step size a layer, the rule of "
    "theta*, that step is fitted to the weights and the attention is the layer's own.",
    phrases={
        "reparameterisation_r2": Phrase(
            noun="{whose} share of value updates that weighted softmax TD with three free weights explains, fitted "
            "{fit},",
            text="Softmax TD with three free weights, fitted {fit}, explains {x} of {whose} value updates on held-out "
            "tasks",
            beside="with {name} it explains {c}",
            worse="with {name} its squared error is {times} times that of no update",
            comment=_no_change,
        ),
        "functional_distance": Phrase(
            noun="{whose} distance between its values and those of TD with one fitted step size a layer",
            text="{after}, the values differ from those of TD with one fitted step size a layer by {x} of their rms",
            beside="{name} differs by {c}",
        ),
        "value_difference": Phrase(
            noun="the squared difference between the values of the model and of batch TD",
            text="Over the states of a task the values differ from those of batch TD at the nearest step sizes by {x} "
            "in the mean square",
            beside="with {name} they differ by {c}",
        ),
        "implicit_weight_similarity": Phrase(
            noun="the cosine between the weight that explains the model's values best and that of batch TD",
            text="The linear weight that explains the values of a task best has cosine {x} with that of batch TD",
            beside="with {name} it has {c}",
        ),
        "sensitivity_similarity": Phrase(
            noun="the cosine between the gradients of the model and of batch TD by the query",
            text="The gradient of a value by its query features has cosine {x} with that of batch TD",
            beside="with {name} it has {c}",
        ),
    },
)
