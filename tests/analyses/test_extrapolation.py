"""Repeating a tied layer: in state form as in the model, and with the warning where it diverges."""

import pytest
import torch
from torch.testing import assert_close

from valuelens.analyses import Finding, Result, subject
from valuelens.analyses._extrapolation import extrapolation
from valuelens.analyses._rule import rule_of
from valuelens.models.icrl import ModelConfig, SoftmaxTD, TaskConfig, build, theta_star

TASK = TaskConfig(num_states=5, context_length=12)


def star(w: tuple[float, float, float]) -> SoftmaxTD:
    model = theta_star(feature_dim=4, num_layers=4, gamma=0.5, sharpness=6.0)
    with torch.no_grad():
        model.w.copy_(torch.tensor([w]))
    return model


def asked(model: SoftmaxTD) -> Result:
    studied = subject(model, TASK, num_tasks=16)
    return extrapolation(studied, rule_of(studied)[0])


def one(result: Result, name: str) -> Finding:
    (finding,) = result.find(name)
    return finding


def number(finding: Finding) -> float:
    return float(str(finding.estimate))


def test_the_state_form_repeats_as_the_model_itself() -> None:
    studied = subject(star((1.2, 1.1, -1.3)), TASK, num_tasks=16)
    by_rule, by_model = (extrapolation(studied, rule) for rule in (rule_of(studied)[0], None))
    assert_close(by_rule.arrays["extrapolation"].values, by_model.arrays["extrapolation"].values)
    assert_close(number(one(by_rule, "depth_extrapolation")), number(one(by_model, "depth_extrapolation")))
    assert one(by_rule, "depth_extrapolation").index == {"depth": 60, "trained": 4}
    assert len(by_rule.arrays["extrapolation"].values[0]) == 61


def test_up_to_the_trained_depth_it_is_what_the_lens_reads() -> None:
    studied = subject(star((1.2, 1.1, -1.3)), TASK, num_tasks=16)
    found = extrapolation(studied, None).arrays["extrapolation"].values[0, :5]
    off = (studied.lens[:, :, 1:-1] - studied.truth[:, :-1]).abs().amax(-1).mean(1)
    assert_close(found, off)


def test_an_effective_discount_above_one_diverges_and_the_radius_says_why() -> None:
    result = asked(star((1.0, 2.6, -1.0)))  # effective discount 1.3
    assert number(one(result, "divergence_share")) == 1
    assert number(one(result, "population_radius")) > 1
    assert number(one(result, "depth_extrapolation")) > 100
    td = asked(star((1.0, 1.0, -1.0)))
    assert number(one(td, "divergence_share")) == 0
    assert number(one(td, "population_radius")) < 1
    assert number(one(td, "depth_extrapolation")) < 1.1
    for name in ("divergence_share", "population_radius", "depth_extrapolation"):
        control = one(result, name).control
        assert control is not None
        assert_close(float(str(control.estimate)), number(one(td, name)))  # the same kernel at w = (1, 1, -1)


def test_values_that_overflow_are_a_reason() -> None:
    finding = one(asked(star((1e3, 1e4, 1e4))), "depth_extrapolation")
    if finding.estimate is not None:
        assert number(finding) > 1e100
    finding = one(asked(star((1e30, 1e30, 1e30))), "depth_extrapolation")
    assert finding.estimate is None
    assert "diverges" in finding.reasons["estimate"]


@pytest.mark.parametrize(("arch", "weights"), [("dual", "full"), ("tsm", "factored"), ("linear", "full")])
def test_models_without_a_rule_are_repeated_themselves(arch: str, weights: str) -> None:
    config = ModelConfig(arch=arch, weights=weights, num_layers=2, tied=True)
    result = extrapolation(subject(build(config, TASK, torch.Generator()), TASK, num_tasks=8), None)
    assert {finding.name for finding in result.findings} == {"depth_extrapolation"}
    control = one(result, "depth_extrapolation").control
    assert control is not None
    assert control.name == "the constant predictor"


def test_untied_layers_are_skipped() -> None:
    model = build(ModelConfig(num_layers=2, tied=False), TASK, torch.Generator())
    result = asked(model)
    assert result.findings == ()
    assert [each["what"] for each in result.skipped] == ["depth extrapolation"]
