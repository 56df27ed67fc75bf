"""Models whose limit is known by construction are told their limit."""

import pytest
import torch
from torch.testing import assert_close

from valuelens.analyses import Finding, Subject, subject
from valuelens.analyses._bottleneck import bottleneck
from valuelens.analyses._rule import rule_of
from valuelens.models.icrl import ModelConfig, SoftmaxTD, TaskConfig, build, theta_star


def one_hot(n: int) -> TaskConfig:
    return TaskConfig(features="one-hot", num_states=5, context_length=n)


def star(num_layers: int, w: tuple[float, float, float] = (1.0, 1.0, -1.0)) -> SoftmaxTD:
    model = theta_star(feature_dim=5, num_layers=num_layers, gamma=0.5, sharpness=16.0)
    with torch.no_grad():
        model.w.copy_(torch.tensor([w]))
    return model


def told(studied: Subject) -> Finding:
    rule, _ = rule_of(studied)
    assert rule is not None
    (finding,) = bottleneck(studied, rule).findings
    return finding


def numbers(finding: Finding) -> list[float]:
    assert finding.control is not None
    assert isinstance(finding.control.estimate, list)
    return [float("nan") if x is None else float(str(x)) for x in finding.control.estimate]


@pytest.mark.parametrize(
    ("limit", "model", "n"),
    [
        ("depth", star(2), 150),
        ("context", star(30), 10),
        ("weights", star(30, (1.0, 1.6, -1.0)), 150),  # effective discount .8
        ("depth", star(6, (0.05, 0.05, -0.05)), 100),
    ],
)
def test_a_planted_limit_is_found(limit: str, model: SoftmaxTD, n: int) -> None:
    finding = told(subject(model, one_hot(n), num_tasks=32))
    assert finding.estimate == limit
    now, *lifted = numbers(finding)
    names = ("depth", "context", "weights")
    assert min(zip(lifted, names, strict=True))[1] == limit
    assert min(lifted) < 0.9 * now


def test_where_nothing_helps_there_is_no_limit() -> None:
    model = build(ModelConfig(num_layers=2), one_hot(60), torch.Generator())
    with torch.no_grad():
        model.get_parameter("w").zero_()
    studied = subject(model, one_hot(60), num_tasks=16)
    before = numbers(told(studied))
    assert_close(before[:3], [before[0]] * 3)  # a layer that does nothing is not helped by depth or context
    rule, _ = rule_of(studied)
    assert rule is not None
    assert told(studied).estimate == "weights"


def test_the_error_now_is_that_of_the_model() -> None:
    studied = subject(star(3), one_hot(12), num_tasks=16)
    mrp = studied.mrp
    with torch.no_grad():
        values = studied.model.values(studied.context, mrp.features)
    mu = mrp.stationary
    expected = (mu * (values - mrp.value).square()).sum() / (mu * mrp.value.square()).sum()
    assert_close(numbers(told(studied))[0], float(expected))


def test_endless_context_and_depth_leave_nothing_of_theta_star() -> None:
    now, depth, context, _ = numbers(told(subject(star(40), one_hot(30), num_tasks=16)))
    assert context < 1e-20
    assert_close(depth, now, rtol=1e-6, atol=0)


def test_untied_layers_have_no_endless_depth() -> None:
    model = theta_star(feature_dim=5, num_layers=2, gamma=0.5, alpha=[1, 1], sharpness=[9, 9])
    finding = told(subject(model, one_hot(30), num_tasks=16))
    assert numbers(finding)[1] != numbers(finding)[1]
    assert finding.reasons["control"] == "deeper layers do not exist"


def test_layers_that_diverge_say_so() -> None:
    finding = told(subject(star(3, (1.0, 3.0, -1.0)), one_hot(30), num_tasks=16))
    assert finding.reasons["control"] == "repeating the layer diverges"
    assert finding.estimate != "depth"
