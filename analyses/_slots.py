"""What are the values, layer by layer? The value lens, and the errors of the final read-out.

Shape legend: `layer` L, `batch` tasks, `pos` columns of a context.
"""

import torch
from torch import Tensor

from valuelens.analyses._question import Phrase, Question
from valuelens.analyses._result import Array, Control, Finding, Result
from valuelens.analyses._subject import (
    Subject,
    another_context,
    context_errors,
    mean_square_ratio,
    query_errors,
    td_iterates,
    weights_of,
)
from valuelens.models.icrl import SoftmaxTD
from valuelens.probe import value_slots, within_chain_sums

_SHOWN = 0
"""The task whose context is drawn as an example: the first, whatever it looks like."""


def slots(subject: Subject) -> Result:
    """Read every layer against the true value, the TD iterate and the final layer.

    `value_lens`, per layer and including the input: mean squared difference at the query / mean squared true value
    (our definition). Controls: the constant predictor; for the TD iterate, the iterates of contexts whose rewards
    were exchanged.

    Args:
        subject: Model and tasks.
    """
    square = subject.truth[:, -1].square()
    final = subject.lens[-1, :, 0]
    parts = [
        _lens(subject, "true value", subject.truth[:, -1], square),
        _lens(subject, "final layer", final, square),
    ]
    arrays = {"lens": Array(axes="layer+1 task", values=subject.lens[:, :, 0])}
    if isinstance(subject.model, SoftmaxTD):
        finding, more = _td_lens(subject, square)
        parts.insert(1, finding)
        arrays |= more
    arrays |= {"example_truth": Array(axes="pos", values=subject.truth[_SHOWN])}
    arrays |= {"example_states": Array(axes="pos", values=subject.context.states[_SHOWN])}
    return Result(kind="in-context-rl", findings=(*value_errors(subject), *parts), arrays=arrays)


def value_errors(subject: Subject) -> list[Finding]:
    """Squared errors at the query and over whole contexts, and within-chain R^2, each beside the constant predictor.

    The query S_n may be a state that the context never left, so its errors have heavy tails: `msve_ratio` and
    `msve_vs_constant` judge the read-out that was trained. `context_msve_vs_constant` pools the n+1 columns of each
    context, which says more about the same number of tasks (our definition).

    Args:
        subject: Model and tasks.
    """
    error, constant, square = query_errors(subject)
    everywhere, blind = context_errors(subject)
    residual, total = within_chain_sums(subject.values, subject.truth)
    unexplained, limits = mean_square_ratio(residual, total, subject.seed)
    explained = 1 - unexplained, limits and (1 - limits[1], 1 - limits[0])
    at_query = float(constant.sum() / square.sum())
    return [
        _error(subject, "msve_ratio", mean_square_ratio(error, square, subject.seed), at_query),
        _error(subject, "msve_vs_constant", mean_square_ratio(error, constant, subject.seed), 1.0),
        _error(subject, "context_msve_vs_constant", mean_square_ratio(everywhere, blind, subject.seed), 1.0),
        _error(subject, "within_chain_r2", explained, 0.0),
    ]


def _error(
    subject: Subject, name: str, found: tuple[float, tuple[float, float] | None], control: float
) -> Finding:
    estimate, interval = found
    return Finding(
        name=name,
        estimate=estimate,
        unit="1",
        n=subject.num_tasks,
        definition="choice",
        interval=interval,
        control=Control(name="constant predictor", estimate=control),
        reasons={} if interval else {"interval": "too few tasks, or no spread between them"},
    )


def _lens(subject: Subject, reference: str, against: Tensor, square: Tensor) -> Finding:
    errors = (subject.lens[:, :, 0] - against).square().sum(-1) / square.sum()
    constant = (subject.constant - against).square().sum() / square.sum()
    return Finding(
        name="value_lens",
        estimate=errors.tolist(),
        unit="mean squared value",
        n=subject.num_tasks,
        definition="choice",
        index={"reference": reference},
        control=Control(name="constant predictor", estimate=float(constant)),
        reasons={"interval": "a list over layers; msve_ratio has the interval of the last"},
    )


def _td_lens(subject: Subject, square: Tensor) -> tuple[Finding, dict[str, Array]]:
    weights = weights_of(subject)
    iterates = td_iterates(subject, weights)
    control = td_iterates(subject, weights, another_context(subject.context))
    own = subject.lens[:, :, 0]
    errors = (own - iterates[:, :, -1]).square().sum(-1) / square.sum()
    others = (own - control[:, :, -1]).square().sum(-1) / square.sum()
    finding = Finding(
        name="value_lens",
        estimate=errors.tolist(),
        unit="mean squared value",
        n=subject.num_tasks,
        definition="choice",
        index={"reference": "TD iterate"},
        control=Control(name="iterates with exchanged rewards", estimate=others.tolist()),
        reasons={"interval": "a list over layers; functional_distance summarises it"},
    )
    current = value_slots(subject.model, subject.model.prompt(subject.context))[:, _SHOWN]
    return finding, {
        "example_slots": Array(
            axes="layer+1 pos", values=torch.cat([torch.zeros_like(current[:1]), current])
        ),
        "example_iterates": Array(axes="layer+1 pos", values=iterates[:, _SHOWN]),
    }


def _no_difference(x: float) -> str:
    return ", worse than predicting no difference at all" if x < 0 else ""


QUESTION = Question(
    name="slots",
    section="values",
    ask=slots,
    tenths=2,
    title="Values",
    introduction="Does the model evaluate states? Its read-out is compared with true values, known because the tasks "
    "are small. The control is the constant predictor mean(R) / (1 - gamma), which sees no state.",
    phrases={
        "value_lens": Phrase(
            noun="the value lens",
            text="Against the {reference}, the value read at the query state is off by {x}, as mean squared difference "
            "/ mean squared true value there",
            beside="{name}: {c}",
        ),
        "msve_ratio": Phrase(
            noun="the value error at the query",
            text="The squared value error at the query state is {x} of the mean squared true value there",
            beside="the {name}, which sees no state, is at {c}",
        ),
        "msve_vs_constant": Phrase(
            noun="the value error at the query against that of the constant predictor",
            text="The squared value error at the query state is {x} times that of a predictor that sees no state, only "
            "the mean reward",
            beside="the {name} itself is at {c}",
        ),
        "context_msve_vs_constant": Phrase(
            noun="the value error over whole contexts against that of the constant predictor",
            text="Over the states of the contexts, each as often as it is visited, the squared value error is {x} "
            "times that of the constant predictor",
            beside="the {name} itself is at {c}",
        ),
        "within_chain_r2": Phrase(
            noun="the explained share of value differences within a chain",
            text="The read-out explains {x} of the differences in value between the states of one chain",
            beside="the {name} explains {c}",
            comment=_no_difference,
        ),
    },
)
