"""What limits the values: too few layers, too short a context, or the learned weights? Each is lifted in turn.

Shape legend: `batch` tasks, `state` S.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._result import Control, Finding, Result, Scalar
from valuelens.analyses._rule import Rule, kernel_of
from valuelens.analyses._subject import Subject
from valuelens.probe import (
    TD_WEIGHTS,
    deep_values,
    inner_product_scores,
    ratio_interval,
    softmax_td_states,
)

_GAIN = 0.9
"""A factor limits if lifting it leaves at most this share of the squared error, with its interval below 1."""
_STEPS, _SHARPNESS = (0.25, 0.5, 1.0), (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_DOUBLINGS = 20
NAMES = ("now", "depth", "context", "weights")
"""What the numbers of the finding stand for, in their order."""


def bottleneck(subject: Subject, rule: Rule) -> Result:
    """Which of depth, context and weights limits the values most, or none (our definition).

    Squared errors at all states, weighted by the stationary distribution, over mean squared true value: of the model
    now; with the same layer repeated 2^20 times (tied layers only); with the same weights in endless contexts; and
    with the best of 21 theta*(alpha, c), alpha in .25, .5, 1 and c in 1, 2, ..., 64, at the same context and depth.
    The bottleneck is the factor that leaves the least, if that is at most .9 of the error now and the interval of
    their ratio lies below 1.

    Args:
        subject: Whose contexts.
        rule: Its update over states.
    """
    mrp, states = subject.mrp, subject.context.states
    kernels = rule.kernels(mrp, states)
    values = {
        "now": rule.iterates(kernels)[-1],
        "context": rule.iterates(rule.kernels(mrp))[-1],
        "weights": _best(subject, rule.num_layers),
    }
    if rule.tied:
        values["depth"] = deep_values(kernels[0], gamma=rule.gamma, w=rule.w[0], doublings=_DOUBLINGS)
    errors = {name: _errors(subject, v) for name, v in values.items()}
    return Result(kind="in-context-rl", findings=(_finding(subject, rule, errors),))


def _best(subject: Subject, num_layers: int) -> Float[Tensor, "batch state"]:
    """Values of the theta* on the grid with the least error over these tasks."""
    mrp, x = subject.mrp, subject.mrp.features
    start, found = torch.zeros_like(mrp.r), []
    for c in _SHARPNESS:
        kernel = kernel_of(c * inner_product_scores(x, x), mrp, subject.context.states)
        for alpha in _STEPS:
            w = alpha * TD_WEIGHTS.to(x)
            found.append(softmax_td_states(start, kernel, gamma=mrp.gamma, num_layers=num_layers, w=w)[-1])
    return min(found, key=lambda values: float(_errors(subject, values).sum()))


def _errors(subject: Subject, values: Float[Tensor, "batch state"]) -> Float[Tensor, "batch"]:
    return (subject.mrp.stationary * (values - subject.mrp.value).square()).sum(-1)


def _finding(subject: Subject, rule: Rule, errors: dict[str, Tensor]) -> Finding:
    square = (subject.mrp.stationary * subject.mrp.value.square()).sum()
    shares = {name: float(error.sum() / square) for name, error in errors.items()}
    lifted = {name: share for name, share in shares.items() if name != "now" and share == share}
    best = min(lifted, key=lambda name: lifted[name])
    interval = ratio_interval(errors[best], errors["now"], seed=subject.seed)
    limits = lifted[best] <= _GAIN * shares["now"] and interval is not None and interval[1] < 1
    numbers: list[Scalar] = [shares.get(name) for name in NAMES]
    reasons = {"interval": "a word; it is decided by the interval of a ratio of squared errors"}
    if not all(isinstance(x, float) and abs(x) < float("inf") for x in numbers):
        reasons["control"] = "deeper layers do not exist" if not rule.tied else "repeating the layer diverges"
    return Finding(
        name="bottleneck",
        estimate=best if limits else "none",
        unit="word",
        n=subject.num_tasks,
        definition="choice",
        control=Control(name="mean squared error / mean squared true value", estimate=numbers),
        reasons=reasons,
    )
