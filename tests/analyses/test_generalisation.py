"""Other tasks without retraining: against constructions whose answer is known, and loops."""

import pytest
import torch
from torch.testing import assert_close

from valuelens.analyses import Finding, Result, Subject, generalisation, subject, value_errors
from valuelens.analyses._generalisation import _better
from valuelens.analyses._shifts import OWN
from valuelens.models.icrl import (
    ModelConfig,
    SoftmaxTD,
    TaskConfig,
    Transformer,
    ValueLearner,
    at_states,
    build,
    theta_star,
    theta_td,
)

TASK = TaskConfig(num_states=6, context_length=12)


def star(alpha: float = 1.0, sharpness: float = 1.0) -> SoftmaxTD:
    return theta_star(feature_dim=4, num_layers=3, gamma=0.5, alpha=alpha, sharpness=sharpness)


def studied(model: ValueLearner, task: TaskConfig = TASK, num_tasks: int = 40) -> Subject:
    return subject(model, task, num_tasks=num_tasks)


def one(result: Result, shift: str, of: str = "context") -> Finding:
    (finding,) = result.find("generalisation", shift=shift, of=of)
    return finding


def beside(finding: Finding) -> list[float]:
    assert finding.control is not None
    return [float(str(x)) for x in finding.control.estimate]


@pytest.fixture(scope="module")
def planted() -> Result:
    return generalisation(studied(star()))


def test_theta_star_equals_its_own_control_under_every_shift(planted: Result) -> None:
    found = planted.find("generalisation")
    assert len(found) == 24
    for finding in found:
        assert_close(finding.estimate, beside(finding)[2])
        assert finding.interval is not None
        assert finding.interval[0] < float(str(finding.estimate)) < finding.interval[1]
    assert planted.skipped == ()
    planted.summary()


def test_own_tasks_are_those_of_the_subject() -> None:
    model = studied(star(alpha=0.7, sharpness=4.0))
    result, errors = generalisation(model), {f.name: f for f in value_errors(model)}
    for of, name in (("query", "msve_vs_constant"), ("context", "context_msve_vs_constant")):
        assert_close(one(result, OWN, of).estimate, errors[name].estimate)
        assert_close(one(result, OWN, of).interval, errors[name].interval)


def test_the_reward_scale_cancels_for_a_rule_that_is_linear_in_rewards(planted: Result) -> None:
    for of in ("query", "context"):
        for shift in ("rewards x 0.1", "rewards x 10"):
            assert_close(one(planted, shift, of).estimate, one(planted, OWN, of).estimate)
            assert_close(beside(one(planted, shift, of)), beside(one(planted, OWN, of)))


def test_a_network_that_is_not_linear_feels_the_reward_scale() -> None:
    config = ModelConfig(arch="transformer", num_layers=1, d_model=8, num_heads=2)
    result = generalisation(studied(build(config, TASK, torch.Generator().manual_seed(1)), num_tasks=8))
    assert one(result, "rewards x 0.1").estimate != pytest.approx(one(result, OWN).estimate, rel=1e-3)
    reasons = {each["what"]: each["why"] for each in result.skipped}
    for shift, n in (("context x 2", 24), ("context x 10", 120)):
        why = f"contexts must have at most 12 transitions; found {n}; transformer, positions"
        assert reasons[f"generalisation to {shift}"] == why
    assert one(result, "context x 0.5").n == 8


def test_the_set_only_control_reads_any_length() -> None:
    config = ModelConfig(arch="transformer", num_layers=1, d_model=8, num_heads=2, positions=False)
    model = build(config, TASK, torch.Generator())
    assert isinstance(model, Transformer)
    assert one(generalisation(studied(model, num_tasks=4)), "context x 10").n == 4


def test_lstd_equals_a_loop(planted: Result) -> None:
    model = studied(star())
    context, gamma = model.context, 0.5
    wrong, blind = [0.0, 0.0], 0.0
    truth = at_states(model.mrp.value, context.states)
    for b in range(40):
        blind += float((context.rewards[b].mean() / 0.5 - truth[b]).square().sum())
        for which, x in enumerate((context.features[b], torch.eye(6).double()[context.states[b]])):
            A = 1e-3 * torch.eye(x.shape[1]).double()
            for k in range(12):
                A += torch.outer(x[k], x[k] - gamma * x[k + 1]) / 12
            weights = torch.linalg.solve(A, x[:-1].T @ context.rewards[b] / 12)
            wrong[which] += float((x @ weights - truth[b]).square().sum())
    assert_close(beside(one(planted, OWN))[:2], [error / blind for error in wrong])


def test_more_context_helps_who_knows_the_states(planted: Result) -> None:
    long, short = (beside(one(planted, shift))[1] for shift in ("context x 10", "context x 0.5"))
    assert long < 0.1 < short


def test_it_says_which_shifts_are_beaten() -> None:
    (good,) = generalisation(studied(star(alpha=0.9, sharpness=7.0))).find("generalises_to")
    assert str(good.estimate).startswith("own tasks, loop, garnet, cart-pole, ")
    assert good.n == 12
    (bad,) = generalisation(studied(star(alpha=-1.0))).find("generalises_to")
    assert bad.estimate == "none of them"
    assert good.control is not None
    assert good.control.name == "LSTD"


@pytest.mark.parametrize(("errors", "better"), [([0.4, 0.5, 0.6] * 9, True), ([0.1, 0.1, 2.5] * 9, False)])
def test_better_is_a_matter_of_the_whole_interval(errors: list[float], better: bool) -> None:
    own = torch.tensor(errors, dtype=torch.float64)
    assert float(own.mean()) < 1
    assert _better(own, torch.ones_like(own), 0) == better


def test_overflow_is_a_reason() -> None:
    steps = theta_td(feature_dim=4, num_layers=2, gamma=0.5, alpha=0.5, dtype=torch.float64)
    few = studied(steps, num_tasks=4)
    with torch.no_grad():
        steps.alpha.mul_(1e200)
    result = generalisation(few)
    reasons = {each["what"]: each["why"] for each in result.skipped}
    assert len(reasons) == 13
    for why in reasons.values():
        assert why == "the model's values must be finite on every task; found overflow on 4 of 4; read-out"
    (summary,) = result.findings
    assert (summary.estimate, summary.n) == ("none of them", 0)


def test_linear_attention_is_asked_about_gamma() -> None:
    steps = theta_td(feature_dim=4, num_layers=4, gamma=0.5, alpha=0.5, dtype=torch.float64)
    result = generalisation(studied(steps))
    assert float(str(one(result, "gamma 0.9").estimate)) > float(str(one(result, OWN).estimate))
