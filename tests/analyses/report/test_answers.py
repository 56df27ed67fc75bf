"""The answers at the top: what was found, how sure, against which control, and nothing that was not measured."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from valuelens.analyses import Control, Finding, Result
from valuelens.analyses.report._answer import SURENESS, Answer
from valuelens.analyses.report._answers import answers, headline
from valuelens.analyses.report._numbers import readable

Make = Callable[..., Result]
QUESTIONS = {
    "values": "Does it evaluate states?",
    "rule": "Which rule do its layers follow?",
    "weights": "Do its weights have the form of TD?",
    "kernel": "Does attention tell states apart?",
    "limits": "What limits its values most?",
    "tasks": "Does it work on tasks it was not trained on?",
}


def found(name: str, estimate: Any, interval: tuple[float, float] | None = None, **more: Any) -> Finding:
    control = more.pop("control", ("control", 0.0))
    return Finding(
        **{"name": name, "estimate": estimate, "unit": "1", "n": 64, "definition": "choice"},
        index=more,
        interval=interval,
        control=None if control is None else Control(name=control[0], estimate=control[1]),
        reasons={"interval": "it is a word", "estimate": "not there", "control": "none"},
    )


def result(*findings: Finding) -> Result:
    return Result(kind="in-context-rl", findings=findings)


def values(error: tuple[float, float], explained: tuple[float, float]) -> Result:
    return result(
        found("context_msve_vs_constant", sum(error) / 2, error, control=("constant predictor", 1.0)),
        found("within_chain_r2", sum(explained) / 2, explained, control=("constant predictor", 0.0)),
    )


def answered(result: Result, what: str) -> Answer:
    (answer,) = (each for each in answers(result) if each.question == QUESTIONS[what])
    return answer


@pytest.mark.parametrize(
    ("error", "explained", "answer", "sure", "said"),
    [
        ((0.1, 0.2), (0.8, 0.9), "Yes", "sure", "This model learned to evaluate states in context."),
        ((1.1, 1.5), (-0.2, 0.1), "No", "sure", "This model has not learned to evaluate states."),
        ((0.5, 0.7), (-0.2, -0.1), "No", "sure", "This model has not learned to evaluate states."),
        ((0.8, 1.2), (0.1, 0.2), "Cannot be told", "not sure", "cannot be told from these tasks."),
    ],
)
def test_an_answer_is_as_sure_as_its_interval(
    error: tuple[float, float], explained: tuple[float, float], answer: str, sure: str, said: str
) -> None:
    measured = values(error, explained)
    given = answered(measured, "values")
    assert (given.answer, given.sure) == (answer, sure)
    assert given.control == "the constant predictor, which sees no state: 1 and 0"
    assert f"95 % interval {error[0]:.2f} to" in given.why
    assert given.found.startswith("over the states of its contexts ")
    assert headline(measured).endswith(said)


def test_seeds_are_counted_in_the_headline() -> None:
    good, poor = values((0.1, 0.2), (0.8, 0.9)), values((1.1, 1.5), (-0.2, 0.1))
    findings = [
        replace(f, index={"seed": seed, "checkpoint": "step-00000010"})
        for seed, each in enumerate((good, poor, good))
        for f in each.findings
    ]
    assert headline(result(*findings)) == (
        "This model learned to evaluate states in context. Of 3 training seeds 2 learned it."
    )


def test_the_headline_names_the_rule_of_a_model_that_learned() -> None:
    def told(name: str, lead: tuple[float, float], *errors: tuple[float, float]) -> str:
        margin = found("algorithm_margin", sum(lead) / 2, lead, rule="softmax TD", other="linear TD")
        named = found("algorithm", name, control=("redrawn weights", "none"))
        return headline(result(*values(*errors).findings, named, margin))

    good, poor = ((0.1, 0.2), (0.8, 0.9)), ((1.1, 1.5), (-0.2, 0.1))
    assert told("softmax TD", (0.1, 0.2), *good).endswith("in context. Its layers follow softmax TD.")
    assert told("softmax TD", (-0.1, 0.2), *good).endswith("follow softmax TD, which is not sure.")
    assert told("none of these", (0.1, 0.2), *good).endswith("follow none of the rules that were tried.")
    assert "follow" not in told("softmax TD", (0.1, 0.2), *poor)


def test_a_named_rule_is_sure_where_its_lead_is() -> None:
    def named(name: str, lead: tuple[float, float]) -> Answer:
        margin = found("algorithm_margin", sum(lead) / 2, lead, rule="softmax TD", other="linear TD")
        return answered(result(found("algorithm", name, control=("redrawn weights", "none")), margin), "rule")

    sure = named("softmax TD", (0.1, 0.2))
    assert (sure.answer, sure.sure, sure.control) == ("Softmax TD", "sure", "redrawn weights: none")
    assert "linear TD leaves 0.15 more of the squared updates unexplained" in sure.found
    assert named("softmax TD", (-0.1, 0.2)).sure == "not sure"
    weighted = named("weighted softmax TD", (0.1, 0.2))
    assert weighted.found.startswith("with three free weights a layer, not one step size; it fits best; ")
    assert "three" not in sure.found
    none = named("none of these", (0.1, 0.2))
    assert (none.answer, none.sure) == ("None of the rules that were tried", "no interval")
    assert none.found.startswith("softmax TD fits best")


@pytest.mark.parametrize(
    ("layers", "answer"),
    [
        ((("++-", 0.99), ("++-", 0.95)), "Yes"),
        ((("++-", 0.99), ("+--", 0.2)), "Not in every layer"),
        ((("---", -0.3),), "No"),
        ((("unidentified", None),), "Not identified"),
    ],
)
def test_weights_are_of_the_form_where_every_known_layer_is(layers: Any, answer: str) -> None:
    findings = [
        found("sign_pattern", signs, layer=k, control=("TD", "++-")) for k, (signs, _) in enumerate(layers)
    ]
    findings += [
        found("weight_cosine", cosine, layer=k, control=("random directions", 0.9))
        for k, (_, cosine) in enumerate(layers)
    ]
    given = answered(result(*findings), "weights")
    assert (given.answer, given.sure) == (answer, "exact")


def test_kernel_limit_and_other_tasks() -> None:
    even = {"control": ("even attention", 0.1)}
    kernel = [
        found("kernel_diagonal_mean", x, (x - 0.1, x + 0.1), layer=k, **even)
        for k, x in enumerate((0.6, 0.15))
    ]
    given = answered(result(*kernel), "kernel")
    assert (given.answer, given.sure, given.control) == ("Cannot be told", "not sure", "even attention: 0.10")
    assert "0.15 to 0.60 of its attention to itself, lowest in layer 1" in given.found
    limit = found("bottleneck", "context", control=("error", [0.4, 0.3, 0.1, 0.2]))
    given = answered(result(limit), "limits")
    assert given.answer == "Too short contexts"
    assert given.found == (
        "without it the squared error, over all states weighted by the stationary distribution, would be 0.10 instead "
        "of 0.40 of the mean squared true value"
    )
    wider = found("generalises_to", "own tasks, loop, garnet", control=("LSTD", "loop"))
    shifts = [
        found("generalisation", 0.5, (0.4, 0.6), shift=name, of="context")
        for name in ("own tasks", "loop", "garnet", "cart-pole")
    ]
    given = answered(result(wider, *shifts), "tasks")
    assert (given.answer, given.control) == ("On 2 of 3 kinds", "LSTD, which is no network, on 1")
    assert given.found.startswith("over the states of whole contexts better than")


@pytest.mark.parametrize(
    ("error", "interval", "sure"),
    [
        (0.5, (0.4, 0.6), "sure"),
        (1.5, (1.2, 1.9), "sure"),
        (0.95, (0.8, 1.1), "not sure"),
        (0.5, None, "no interval"),
    ],
)
def test_a_model_that_works_nowhere_else_is_said_to_work_nowhere(
    error: float, interval: tuple[float, float] | None, sure: str
) -> None:
    """`none of them` is no kind of task; errors at the query decide nothing."""
    shifts = [found("generalisation", 0.9, (0.7, 1.2), shift="garnet", of="query")]
    shifts += [
        found("generalisation", error, interval, shift=name, of="context") for name in ("loop", "garnet")
    ]
    shifts += [found("generalisation", 1.0, (0.9, 1.1), shift="own tasks", of="context")]
    for nowhere in ("none of them", "own tasks"):
        given = answered(
            result(found("generalises_to", nowhere, control=("LSTD", nowhere)), *shifts), "tasks"
        )
        assert (given.answer, given.sure) == ("On 0 of 2 kinds", sure)
        assert given.found == "nowhere better than the constant predictor"
        assert given.control == "LSTD, which is no network, on 0"
    asked_nothing = result(found("generalises_to", "none of them", control=("LSTD", "none of them")))
    assert answers(asked_nothing) == []


def test_what_was_not_measured_is_not_answered() -> None:
    for kind in ("in-context-rl", "costates", "impact"):
        empty = Result(kind=kind)
        assert (headline(empty), answers(empty)) == ("", [])


def test_a_card_without_a_control_says_why() -> None:
    bare = {"control": None, "reasons": {"interval": "a word", "control": "nothing stands beside it"}}
    read = replace(found("opaque_reading", "not decodable"), **bare)
    rule = replace(found("algorithm", "softmax TD"), **bare)
    unidentified = found("sign_pattern", "unidentified", layer=0)
    assert [answer.control for answer in answers(result(read, rule, unidentified))] == [
        "none: nothing stands beside it",
        "none: an unidentified direction has no angle to compare",
        "none: nothing stands beside it",
    ]


def test_language_models_are_answered(language_result: Make) -> None:
    measured = language_result(enumerated=True)
    given = {answer.question: answer for answer in answers(measured)}
    assert len(given) == 5
    assert all(answer.sure in SURENESS and answer.answer for answer in given.values())
    assert headline(measured) == (
        "The update carries a value signal to layer 15 that stands out of the noise (objective: surrogate)."
    )
    signal = given["Is there a value signal above the noise?"]
    assert (signal.answer, signal.sure) == ("Yes", "sure")
    assert signal.control.startswith("advantages permuted within groups: ")
    noise = tuple(
        replace(f, interval=(-0.01, 0.02)) if f.name == "signal_to_noise" else f for f in measured.findings
    )
    unsure = replace(measured, findings=noise)
    assert "no value signal can be told from the noise" in headline(unsure)
    assert not any("How many rollouts" in answer.question for answer in answers(unsure))
    flat = language_result(flat=1.0)
    assert headline(flat) == "These rollouts can teach nothing: within every group all rewards are equal."
    assert [(answer.answer, answer.sure) for answer in answers(flat)] == [("No", "sure")]
    bare = [replace(f, interval=None, reasons={**f.reasons, "interval": "few"}) for f in measured.findings]
    assert "too few groups" in headline(replace(measured, findings=tuple(bare)))


def test_rankings_are_answered(ranked_result: Make) -> None:
    given = {answer.question: answer for answer in answers(ranked_result())}
    gain, _, rival, credit = given.values()
    assert gain.question == "Where should RL start for the most gain?"
    assert gain.answer.startswith("Step ")
    assert "the best one with probability" in gain.why
    assert "the last checkpoint falls" in gain.control
    assert rival.answer in ("Yes", "Cannot be told", "No, worse")
    assert rival.sure == ("not sure" if rival.answer == "Cannot be told" else "sure")
    assert credit.answer.endswith("of 14 checkpoints")
    chances = (f.estimate for f in ranked_result().find("probability_best", predictor="reward + impact"))
    assert ("Not sure, by the runs:" in headline(ranked_result())) == (
        gain.sure != "sure" or next(chances) < 0.95
    )
    for (chance,) in (
        [f.estimate for f in ranked_result().find("probability_best", predictor=who, target=target)]
        for target, who in (("gain", "impact"), ("final_reward", "reward + impact"))
    ):
        assert isinstance(chance, float)
        said = f" (the best one with probability {readable(chance)})"
        assert (said in headline(ranked_result())) == (chance < 0.95)
    forecast = ranked_result(seeds=0)
    assert all("none: no RL was run" in answer.control for answer in answers(forecast)[:2])
    assert headline(forecast).endswith("This is a forecast: no RL was run.")
    assert {answer.sure for answer in answers(forecast)} == {"no interval"}
    nothing = ranked_result(seeds=0, checkpoints=6, flat=tuple(range(6)))
    assert headline(nothing) == "No checkpoint is recommended."
    assert answers(nothing)[0].answer == "Nowhere in particular"
    assert headline(ranked_result(2, checkpoints=6, seeds=0)).count(" in ") >= 2
