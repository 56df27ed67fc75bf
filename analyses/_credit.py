"""How does credit for the read-out flow back through depth? Costates against their recursion (theory A10).

Shape legend: `iterate` 0..L, `layer` L, `batch` tasks, `state` S.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._question import Phrase, Question
from valuelens.analyses._result import Array, Control, Finding, Result
from valuelens.analyses._subject import FEW, Subject, has_free_slots, state_summary, weights_of
from valuelens.models.icrl import SoftmaxTD
from valuelens.probe import (
    ThetaStarDistance,
    adjoint_step,
    attention_patterns,
    by_state,
    column_costates,
    mean_interval,
    read_out_gradients,
    relative_gap,
    value_iteration_matrix,
)

Matrices = Float[Tensor, "layer batch state state"]

_EMPTY = "unidentified: memories are empty at the input, so w_T and w_C of the first untied layer were never trained"
_MIXED = "a free model with two heads may mix its slots (theory A8): neither w nor the costate of a value is identified"
_EXACT = 1e-9
_ROUNDING = "an exact identity: what is left is rounding"
_FADED = "not defined: the read-out hardly depends on the values before this layer (costates below 1e-9)"
_FLOOR = 1e-9
"""Contexts whose costate has a smaller norm are left out: the rest is rounding."""
_SHOWN = 0
"""The task whose costates are drawn: the first, whatever they look like."""


def credit(subject: Subject) -> Result:
    """`credit_adjoint_gap`, per layer: || T' lambda_{l+1} - lambda_l || / || lambda_l || over states, mean over tasks.

    T = I + w_C M_hat + gamma w_T P_hat with the model's own w (an identity, to rounding, where A reads features only
    and both heads agree; measured elsewhere), and with w = (alpha, alpha, -alpha) as fitted. Controls: the current
    memory's gradient alone in place of the costate; the matrix T of another context. Contexts whose costate has faded
    below 1e-9 are left out, and n counts the rest.

    Args:
        subject: Model and tasks; other architectures have no such slots and are skipped.
    """
    model = subject.model
    if not isinstance(model, SoftmaxTD):
        return _skipped("only softmax TD has value slots and a kernel over states whose adjoint this is")
    if has_free_slots(model):
        return _skipped(_MIXED)
    weights = weights_of(subject)
    costates, current = _costates(subject, model, weights)
    steps = _steps(subject, model, weights)
    findings = []
    for layer in range(model.num_layers):
        kept = costates[layer].norm(dim=-1) > _FLOOR
        before, after = costates[layer, kept], costates[layer + 1, kept]
        own, fitted, other = (
            relative_gap(adjoint_step(after, step[kept]), before)
            for step in (steps[0][layer], steps[1][layer], steps[1][layer].roll(1, dims=0))
        )
        alone = relative_gap(current[layer, kept], before)
        findings += [
            _gap(subject, layer, "own", own, ("the gradient by current memory alone", alone)),
            _gap(subject, layer, "fitted", fitted, ("the update of another context", other)),
        ]
    arrays = {
        "example_costates": Array(axes="layer+1 state", values=costates[:, _SHOWN]),
        "example_costates_fitted": Array(
            axes="layer+1 state", values=_backwards(costates, steps[1])[:, _SHOWN]
        ),
    }
    return Result(kind="in-context-rl", findings=tuple(findings), arrays=arrays)


def _costates(subject: Subject, model: SoftmaxTD, weights: ThetaStarDistance) -> tuple[Tensor, Tensor]:
    """Costates of the states before every layer and after the last, and what the current memory alone gives."""
    gradients = read_out_gradients(model, model.prompt(subject.context))
    columns = column_costates(gradients, gamma=subject.context.gamma, target_scale=weights.target_scale)
    states, size = subject.context.states, subject.mrp.num_states
    return by_state(columns, states, size), by_state(gradients[..., -1], states, size)


def _steps(subject: Subject, model: SoftmaxTD, weights: ThetaStarDistance) -> tuple[Matrices, Matrices]:
    """I + w_C M_hat + gamma w_T P_hat of every layer, with the model's own w and with the fitted one."""
    rows = model.V[:, -1, -3:].detach()
    own = rows * rows.new_tensor([1.0, weights.target_scale, 1.0])
    fitted = weights.step_size[:, None] * rows.new_tensor([1.0, 1.0, -1.0])
    w_T, w_C = weights.w_identified[:, 1:].unbind(-1)
    known = (w_T | (subject.context.gamma == 0)) & w_C
    fitted = torch.where(known[:, None], fitted, torch.nan)
    patterns = attention_patterns(model, model.prompt(subject.context))
    kernels = [state_summary(subject, pattern) for pattern in patterns]
    own_steps, fitted_steps = (
        torch.stack(
            [
                value_iteration_matrix(kernel, gamma=subject.context.gamma, w=row)
                for kernel, row in zip(kernels, w, strict=True)
            ]
        )
        for w in (own, fitted)
    )
    return own_steps, fitted_steps


def _backwards(costates: Float[Tensor, "iterate batch state"], steps: Matrices) -> Tensor:
    """The recursion run from the read-out down to the input, never corrected by what was measured."""
    found = [costates[-1]]
    for step in steps.flip(0):
        found.append(adjoint_step(found[-1], step))
    return torch.stack(found[::-1])


def _gap(subject: Subject, layer: int, weights: str, gap: Tensor, beside: tuple[str, Tensor]) -> Finding:
    exact = bool((gap < _EXACT).all())
    interval = None if exact else mean_interval(gap, seed=subject.seed)
    why = _FADED if not len(gap) else _EMPTY if bool(gap.isnan().any()) else None
    reasons = {} if interval else {"interval": why or (_ROUNDING if exact else FEW)}
    if why is not None:
        reasons |= {"estimate": why, "control": "not applicable: the estimate is not there"}
    return Finding(
        name="credit_adjoint_gap",
        estimate=float(gap.mean()),
        unit="norm of the costate",
        n=len(gap),
        definition="derived",
        index={"layer": layer, "weights": weights},
        interval=interval,
        control=Control(name=beside[0], estimate=float(beside[1].mean())),
        reasons=reasons,
    )


def _skipped(why: str) -> Result:
    return Result(kind="in-context-rl", skipped=({"what": "credit", "why": why},))


def _adjoint(x: float) -> str:
    return ", which is rounding" if x < 1e-9 else ""


QUESTION = Question(
    name="credit",
    ask=credit,
    title="Credit through depth",
    introduction="How does the value that a state holds before a layer act on the read-out? Measured by gradients, and "
    "compared with the recursion that softmax TD implies: the update's matrix, transposed, layer by layer.",
    phrases={
        "credit_adjoint_gap": Phrase(
            noun="{whose} credit, passed back with the {weights},",
            text="{inside}the credit of each state, passed back with the {weights}, misses the measured one by {x} "
            "of its norm",
            beside="{name} misses it by {c}",
            sampled="contexts whose credit has not faded",
            comment=_adjoint,
        ),
    },
)
