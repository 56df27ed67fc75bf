"""Errors against context length: in state form as through prompts, and the law where it is planted."""

import pytest
import torch
from torch.testing import assert_close

from valuelens.analyses import Finding, Result, subject
from valuelens.analyses._context_length import context_lengths
from valuelens.analyses._rule import rule_of
from valuelens.models.icrl import ModelConfig, TaskConfig, build, theta_star

TASK = TaskConfig(num_states=5, context_length=8)


def lengths(result: Result) -> list[int]:
    return [int(n) for n in result.arrays["context_lengths"].values]


def listed(finding: Finding) -> list[float]:
    assert isinstance(finding.estimate, list)
    return [float("nan") if x is None else float(str(x)) for x in finding.estimate]


def test_the_state_form_reads_as_prompts_do() -> None:
    model = theta_star(feature_dim=4, num_layers=3, gamma=0.5, alpha=0.9, sharpness=4.0)
    studied = subject(model, TASK, num_tasks=16)
    by_rule, by_prompt = (context_lengths(studied, rule) for rule in (rule_of(studied)[0], None))
    assert lengths(by_prompt) == [4, 8, 16, 32, 80, 264]
    assert lengths(by_rule) == [*lengths(by_prompt), 800]
    for name in ("context_error", "context_error_covered", "context_chain_covered"):
        assert_close(by_rule.arrays[name].values[:, :6], by_prompt.arrays[name].values, equal_nan=True)
    assert [f.index["reference"] for f in by_prompt.find("floor_slope")] == ["true value"]
    assert len(by_rule.find("floor_slope")) == 2


def test_deep_theta_star_is_the_value_of_the_empirical_chain() -> None:
    task = TaskConfig(features="one-hot", num_states=5, context_length=20)
    model = theta_star(feature_dim=5, num_layers=40, gamma=0.5, sharpness=40.0)
    studied = subject(model, task, num_tasks=32)
    result = context_lengths(studied, rule_of(studied)[0])
    finding = result.find("context_error", contexts="that visit every state")[0]
    assert finding.control is not None
    assert isinstance(finding.control.estimate, list)
    known = [k for k, x in enumerate(listed(finding)) if x == x]
    assert len(known) >= 4
    for k in known:
        assert listed(finding)[k] == pytest.approx(float(str(finding.control.estimate[k])), abs=1e-6)
    for slope in result.find("floor_slope"):
        assert slope.interval is not None
        assert abs(float(str(slope.estimate)) + 0.5) < 0.1


def test_weights_of_another_discount_do_not_profit_from_context() -> None:
    task = TaskConfig(features="one-hot", num_states=5, context_length=20)
    model = theta_star(feature_dim=5, num_layers=40, gamma=0.5, sharpness=40.0)
    with torch.no_grad():
        model.w.copy_(torch.tensor([[1.0, 1.5, -1.0]]))
    studied = subject(model, task, num_tasks=32)
    truth, own = context_lengths(studied, rule_of(studied)[0]).find("floor_slope")
    assert float(str(truth.estimate)) > -0.2
    assert abs(float(str(own.estimate)) + 0.5) < 0.15  # the statistical part still falls


def test_a_transformer_is_read_up_to_its_last_position() -> None:
    config = ModelConfig(arch="transformer", num_layers=1, d_model=8, num_heads=2)
    studied = subject(build(config, TASK, torch.Generator()), TASK, num_tasks=8)
    assert lengths(context_lengths(studied, None)) == [4, 8]
    free = ModelConfig(arch="transformer", num_layers=1, d_model=8, num_heads=2, positions=False)
    studied = subject(build(free, TASK, torch.Generator()), TASK, num_tasks=8)
    assert lengths(context_lengths(studied, None)) == [4, 8, 16, 32, 80, 264]


def test_one_length_has_no_slope() -> None:
    task = TaskConfig(num_states=5, context_length=1)
    config = ModelConfig(arch="transformer", num_layers=1, d_model=8, num_heads=2)
    studied = subject(build(config, task, torch.Generator()), task, num_tasks=8)
    (slope,) = context_lengths(studied, None).find("floor_slope")
    assert slope.estimate is None
    assert slope.reasons["estimate"].startswith("needs two lengths")
