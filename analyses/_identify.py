"""Which algorithm does this network run? The question `identify` of a checkpoint, or of any network (theory A13).

Shape legend: `rule` one of `ALGORITHMS`, `layer` L, `batch` held-out tasks.
"""

from copy import deepcopy
from dataclasses import replace

import torch

from valuelens.analyses._identification import Identification, identification, pooled_residuals
from valuelens.analyses._identify_layers import ALGORITHMS
from valuelens.analyses._question import Phrase, Question
from valuelens.analyses._result import Array, Control, Finding, Result
from valuelens.analyses._subject import (
    FEW,
    Subject,
    evaluation_stream,
    in_float64,
    mean_square_ratio,
    part_of,
)
from valuelens.models import InputError
from valuelens.models.icrl import Context, Network, TaskConfig, context_of, network_of, task_sampler
from valuelens.probe import ratio_interval

_DIVERGES = 1e6
_TASKS = 128
"""At most: half of them to fit, half to score."""


def identify(subject: Subject) -> Result:
    """The algorithm of a checkpoint, its class, margin and effective discount, beside rivals and interventions.

    `algorithm` is the verdict, `algorithm_class` the rules that cannot be told from it here, `algorithm_margin` how
    much more the best other rule leaves unexplained, `rule_error` what each rule leaves (control: the same rule given
    the rewards of other tasks), layer by layer and end to end, `rule_response` how well the named rule foretells the
    response to changed prompts (control: the best other rule), `identified_discount` its effective discount, and
    `splitting_prompt` what would split the class. Control of the verdict: the same network with redrawn weights.
    All thresholds are our definition.

    Args:
        subject: Its model is seen through its hooks alone; at most 128 of its tasks are used. With fewer than eight
            tasks, or contexts of fewer than four transitions, it is skipped.
    """
    exact = in_float64(subject)
    try:
        return _result(network_of(exact.model), part_of(exact.context, slice(_TASKS)), subject.seed)
    except InputError as error:
        return Result(kind="in-context-rl", skipped=({"what": "identify", "why": str(error)},))


def identify_network(network: Network, task: TaskConfig, *, num_tasks: int = _TASKS, seed: int = 0) -> Result:
    """The same of any network behind an adapter.

    Args:
        network: A callable and the names of its hooks.
        task: Distribution of the tasks that it is asked on.
        num_tasks: One context each, at least eight.
        seed: Decides the tasks.

    Raises:
        InputError: Too few tasks or transitions, or the network's slots cannot be read.
    """
    generator = evaluation_stream(seed)
    mrp, states = task_sampler(task, generator).sample(
        num_tasks, task.context_length, generator, torch.float64
    )
    return _result(network, context_of(mrp, states), seed)


def _result(network: Network, context: Context, seed: int) -> Result:
    found = identification(network, context, seed=seed)
    n = len(context.states) - len(context.states) // 2
    findings = [
        _algorithm(found, _redrawn(network, context, seed), n),
        _class(found, n),
        *_margin(found, n),
        *_errors(found, n, seed),
        *_responses(found, seed),
        *_discount(found, context.gamma, n),
        _splitting(found, n),
    ]
    responses = [found.responses[name] for name in found.responses]
    arrays = {"rule_errors": Array(axes="rule layer", values=found.errors)}
    if responses:
        arrays["response_errors"] = Array(axes="intervention rule", values=torch.stack(responses))
    return Result(kind="in-context-rl", findings=tuple(findings), arrays=arrays)


def _redrawn(network: Network, context: Context, seed: int) -> str | None:
    """The verdict on the same network with normal weights of the same size; none if it has none or cannot be copied."""
    if next(network.module.parameters(), None) is None:
        return None
    try:
        copy, half = deepcopy(network), len(context.states) // 2
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in copy.module.parameters():
                size = parameter.square().mean().sqrt()
                drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_(size * drawn.to(parameter))
        return identification(copy, part_of(context, slice(half, None)), seed=seed).algorithm
    except InputError:
        return "values overflow"
    except (TypeError, RuntimeError):
        return None


def _algorithm(found: Identification, redrawn: str | None, n: int) -> Finding:
    reasons = {"interval": "a name; its margin has an interval"}
    if redrawn is None:
        reasons["control"] = "its weights cannot be redrawn"
    return Finding(
        name="algorithm",
        estimate=found.algorithm,
        unit="rule",
        n=n,
        definition="choice",
        control=None
        if redrawn is None
        else Control(name="the same network with redrawn weights", estimate=redrawn),
        reasons=reasons,
        index={"seen": "layers" if found.layered else "returned values"},
    )


def _class(found: Identification, n: int) -> Finding:
    return Finding(
        name="algorithm_class",
        estimate=", ".join(found.members) or "none",
        unit="rules",
        n=n,
        definition="choice",
        control=None
        if found.runner_up is None
        else Control(name="the best rule outside", estimate=found.runner_up),
        reasons={"interval": "a list of names"}
        | ({} if found.runner_up else {"control": "no rule is left outside"}),
    )


def _margin(found: Identification, n: int) -> list[Finding]:
    if found.margin is None or found.second is None:
        return []
    other = float(pooled_residuals(found.evidence.scores, found.second).sum())
    return [
        Finding(
            name="algorithm_margin",
            estimate=found.margin,
            unit="1",
            n=n,
            definition="choice",
            index={"rule": ALGORITHMS[found.winner], "other": ALGORITHMS[found.second]},
            interval=found.interval,
            control=Control(name=f"error of {ALGORITHMS[found.second]}", estimate=other),
            reasons={} if found.interval else {"interval": FEW},
        )
    ]


def _errors(found: Identification, n: int, seed: int) -> list[Finding]:
    """Layer by layer (mean over layers), then end to end."""
    scores, evidence = found.evidence.scores, found.evidence
    if not bool(scores.active.any()):
        return []
    findings = []
    for rule, name in enumerate(ALGORITHMS):
        tasks = pooled_residuals(scores, rule)
        findings.append(
            _error(
                {"rule": name, "scored": "layer by layer"},
                (
                    float(tasks.sum()),
                    ratio_interval(tasks, torch.full_like(tasks, 1 / len(tasks)), seed=seed),
                ),
                Control(
                    name="the same rule with the rewards of other tasks",
                    estimate=float(evidence.exchanged[rule]),
                ),
                n,
            )
        )
    total = evidence.last.square().sum(-1)
    for rule, name in enumerate(ALGORITHMS):
        missed = (evidence.ends[rule] - evidence.last).square().sum(-1)
        findings.append(
            _error(
                {"rule": name, "scored": "end to end"},
                mean_square_ratio(missed, total, seed),
                Control(name="no learning at all", estimate=1.0),
                n,
            )
        )
    return findings


def _error(
    index: dict[str, int | str], measured: tuple[float, tuple[float, float] | None], control: Control, n: int
) -> Finding:
    estimate, interval = measured
    reasons = {} if interval else {"interval": FEW}
    if not _finite(estimate):
        estimate, interval = torch.nan, None
        reasons = {"estimate": "this rule diverges", "interval": "no estimate"}
    if not (isinstance(control.estimate, float) and _finite(control.estimate)):
        control, reasons["control"] = replace(control, estimate=None), "it diverges"
    return Finding(
        name="rule_error",
        estimate=estimate,
        unit="1",
        n=n,
        definition="choice",
        index=index,
        interval=interval,
        control=control,
        reasons=reasons,
    )


def _responses(found: Identification, seed: int) -> list[Finding]:
    """Of the named (or best) rule, beside the best one outside the class."""
    findings = []
    for name, response in found.evidence.responses.items():
        missed = (response.foretold[found.winner] - response.own).square().sum(-1)
        share = torch.full_like(missed, response.size / len(missed))
        index: dict[str, int | str] = {"rule": ALGORITHMS[found.winner], "intervention": name}
        if found.second is None:
            control = Control(name="no response", estimate=float(response.own.square().sum()) / response.size)
        else:
            second = float(response.errors[found.second])
            control = Control(name=ALGORITHMS[found.second], estimate=second)
        finding = _error(index, mean_square_ratio(missed, share, seed), control, len(missed))
        findings.append(replace(finding, name="rule_response"))
    return findings


def _discount(found: Identification, gamma: float, n: int) -> list[Finding]:
    if found.effective_discount is None:
        return []
    return [
        Finding(
            name="identified_discount",
            estimate=found.effective_discount,
            unit="1",
            n=n,
            definition="derived",
            index={"rule": ALGORITHMS[found.winner]},
            interval=found.discount_interval,
            control=Control(name="discount of the tasks", estimate=gamma),
            reasons={} if found.discount_interval else {"interval": FEW},
        )
    ]


def _splitting(found: Identification, n: int) -> Finding:
    widest = max(found.splits.values(), default=0.0)
    said = found.splitting_prompt or "none of those tried" if len(found.members) > 1 else "nothing to split"
    return Finding(
        name="splitting_prompt",
        estimate=said,
        unit="prompt",
        n=n,
        definition="choice",
        control=Control(name="largest squared difference between the responses of members", estimate=widest),
        reasons={"interval": "a name"} | ({} if _finite(widest) else {"control": "a member diverges"}),
    )


def _finite(x: float) -> bool:
    """Whether a share of a square is a number that means anything."""
    return x < _DIVERGES


def _solved(x: float) -> str:
    return "; what it solves for is then the value at this discount"


QUESTION = Question(
    name="identify",
    ask=identify,
    tenths=40,
    title="Which algorithm",
    introduction="Which rule does the network follow? It is seen through its hooks alone. Every rule is fitted to "
    "every layer on one half of the tasks and scored on the other; rules that cannot be told apart are one class, of "
    "which the one with the fewest free parameters is named. The control is the same rule with the rewards of other "
    "tasks, and the same network with redrawn weights.",
    last_only=True,
    phrases={
        "algorithm": Phrase(
            noun="the algorithm",
            text="Seen through its {seen}, the network runs: {x}",
            beside="{name} runs: {c}",
            sampled="held-out tasks",
        ),
        "algorithm_class": Phrase(
            noun="the class of the algorithm",
            text="Rules that these prompts and interventions cannot tell apart here: {x}",
            beside="{name}: {c}",
            sampled="held-out tasks",
        ),
        "algorithm_margin": Phrase(
            noun="the margin",
            text="On average over layers, {other}, the best rule outside the class, leaves {x} more of the squared "
            "updates unexplained than {rule}",
            beside="the {name} alone is {c}",
            sampled="held-out tasks",
        ),
        "rule_error": Phrase(
            noun="what {rule} leaves unexplained, {scored},",
            text="{scored}, {rule} leaves {x} unexplained",
            beside="{name}: {c}",
            sampled="held-out tasks",
        ),
        "rule_response": Phrase(
            noun="the response to the intervention {intervention}",
            text='{rule} misses the response to the intervention "{intervention}" by {x} of its square',
            beside="{name} misses it by {c}",
            sampled="held-out tasks",
        ),
        "identified_discount": Phrase(
            noun="the effective discount of the named rule",
            text="The effective discount of {rule}, pooled over layers, is {x}",
            beside="the {name} is {c}",
            sampled="held-out tasks",
            comment=_solved,
        ),
        "splitting_prompt": Phrase(
            noun="the prompt that would split the class",
            text="What would split the class of rules: {x}",
            beside="the {name} is {c} of the response",
            sampled="held-out tasks",
        ),
    },
)
