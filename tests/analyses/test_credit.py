"""Credit through depth: an identity on theta*, a gap where the fitted weights are not the model's."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from valuelens.analyses import Finding, Subject, credit, subject
from valuelens.models.icrl import ModelConfig, TaskConfig, build, theta_star

SPHERE = TaskConfig(num_states=5, context_length=8)


def star(arch: Any = "tsm", **changes: float) -> Subject:
    options = {"alpha": 0.7, "sharpness": 3.0} | changes
    model = theta_star(feature_dim=4, num_layers=3, gamma=0.5, arch=arch, **options)
    return subject(model, SPHERE, num_tasks=16)


def gaps(findings: tuple[Finding, ...], weights: str) -> list[float]:
    return [float(str(f.estimate)) for f in findings if f.index["weights"] == weights]


@pytest.mark.parametrize("arch", ["tsm", "dual"])
def test_on_theta_star_both_recursions_are_identities(arch: Any) -> None:
    result = credit(star(arch))
    for weights in ("own", "fitted"):
        found = gaps(result.findings, weights)
        assert len(found) == 3
        assert max(found) < 1e-9
    for finding in result.findings:
        assert finding.control is not None
        assert float(str(finding.control.estimate)) > 0.05
    costates, again = (result.arrays[name].values for name in ("example_costates", "example_costates_fitted"))
    assert_close(again, costates)


def test_own_weights_that_are_not_td_leave_a_gap_to_the_fitted_ones() -> None:
    studied = star()
    with torch.no_grad():
        studied.model.get_parameter("w").copy_(torch.tensor([[0.9, 1.1, -0.4]]))
    result = credit(studied)
    assert max(gaps(result.findings, "own")) < 1e-9
    assert min(gaps(result.findings, "fitted")) > 0.1


def test_the_fitted_gap_is_the_difference_of_the_matrices() -> None:
    """At the last layer the costate is known: lambda_{L-1} = T' e_query, so the gap is a matter of T alone."""
    studied = star()
    w = torch.tensor([0.9, 1.1, -0.4]).double()
    with torch.no_grad():
        studied.model.get_parameter("w").copy_(w[None])
    found = gaps(credit(studied).findings, "fitted")[-1]
    expected = []
    x, states = studied.mrp.features, studied.context.states
    for b in range(16):
        source = states[b, :-1]
        attention = (3.0 * x[b, states[b, -1]] @ x[b, source].T).softmax(-1)
        T = {}
        for name, (w_T, w_C) in {"own": (1.1, -0.4), "fitted": (0.8, -0.8)}.items():
            row = torch.zeros(5).double()
            row[states[b, -1]] = 1
            for k, a in enumerate(attention):
                row[states[b, k]] += w_C * a
                row[states[b, k + 1]] += 0.5 * w_T * a
            T[name] = row
        expected.append(float((T["own"] - T["fitted"]).norm() / T["own"].norm()))
    assert_close(found, sum(expected) / 16)


def test_the_first_untied_layer_has_no_fitted_weights() -> None:
    model = build(ModelConfig(num_layers=2, tied=False), SPHERE, torch.Generator().manual_seed(0))
    first, second = credit(subject(model, SPHERE, num_tasks=8)).findings[1::2]
    assert first.estimate is None
    assert first.reasons["estimate"].startswith("unidentified: memories are empty")
    assert second.estimate is not None


def test_full_weights_are_measured_and_not_an_identity() -> None:
    model = build(ModelConfig(weights="full", num_layers=2), SPHERE, torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10)
    assert min(gaps(credit(subject(model, SPHERE, num_tasks=8)).findings, "own")) > 1e-3


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ({"arch": "linear", "num_layers": 2}, "only softmax TD has value slots"),
        ({"arch": "transformer", "num_layers": 1, "d_model": 8, "num_heads": 2}, "only softmax TD"),
        ({"arch": "dual", "weights": "full", "num_layers": 2}, "may mix its slots"),
    ],
    ids=str,
)
def test_where_there_is_no_such_costate_it_says_why(model: dict[str, Any], why: str) -> None:
    learner = build(ModelConfig(**model), SPHERE, torch.Generator().manual_seed(0))
    result = credit(subject(learner, SPHERE, num_tasks=4))
    assert not result.findings
    assert why in result.skipped[0]["why"]


def test_faded_credit_is_left_out_and_counted() -> None:
    """Without discount and with sharp attention a layer overwrites a value, so that nothing before it matters."""
    task = TaskConfig(features="one-hot", num_states=5, context_length=8, gamma=0.0)
    model = theta_star(feature_dim=5, num_layers=3, gamma=0.0, sharpness=30.0)
    result = credit(subject(model, task, num_tasks=16))
    first, last = (result.find("credit_adjoint_gap", weights="fitted")[layer] for layer in (0, -1))
    assert first.estimate is None or first.n < 16
    assert last.n < 16
    result.summary()
