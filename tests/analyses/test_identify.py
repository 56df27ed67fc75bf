"""The question `identify`: findings of a checkpoint and of any network, with their controls."""

import pytest
import torch

from valuelens.analyses import (
    ALGORITHMS,
    Result,
    identify,
    identify_network,
    load_result,
    save_result,
    subject,
    verdict,
)
from valuelens.models import InputError
from valuelens.models.icrl import (
    ModelConfig,
    SoftmaxTD,
    TaskConfig,
    build,
    network_of,
    softmax_td_from_matrices,
    theta_star,
)

TASK = TaskConfig(num_states=6, context_length=12, feature_dim=3)
OTHER = 0.3


def model(w: tuple[float, float, float] = (0.8, 0.8 * OTHER / 0.5, -0.8)) -> SoftmaxTD:
    star = theta_star(feature_dim=3, num_layers=3, gamma=0.5, sharpness=4.0)
    with torch.no_grad():
        star.w.copy_(torch.tensor([w]))
    return star


@pytest.fixture(scope="module")
def found() -> Result:
    return identify(subject(model(), TASK, num_tasks=40))


def test_the_verdict_names_rule_class_and_discount(found: Result) -> None:
    assert found.find("algorithm")[0].estimate == "weighted softmax TD"
    assert found.find("algorithm_class")[0].estimate == "weighted softmax TD"
    discount = found.find("identified_discount")[0]
    assert discount.estimate == pytest.approx(OTHER, abs=1e-6)
    assert discount.interval is not None
    assert discount.interval[1] < 0.5
    assert discount.control is not None
    assert discount.control.estimate == 0.5
    said = verdict(found)
    assert said.startswith(
        "It runs weighted softmax TD with three free weights and effective discount 0.3 (95 % interval within rounding)"
    )
    assert "next best is" in said


def test_every_rule_has_both_errors_beside_a_control(found: Result) -> None:
    for scored in ("layer by layer", "end to end"):
        errors = {str(f.index["rule"]): f for f in found.find("rule_error", scored=scored)}
        assert tuple(errors) == ALGORITHMS
        best = errors["weighted softmax TD"]
        assert isinstance(best.estimate, float)
        assert best.estimate < 1e-9
        assert best.control is not None
        assert isinstance(best.control.estimate, float)
        assert best.control.estimate > 0.1
    margin, other = found.find("algorithm_margin")[0], found.arrays["rule_errors"].values
    rule = ALGORITHMS.index(str(margin.index["other"]))
    assert margin.estimate == pytest.approx(float(other[rule].mean()), rel=1e-6)


def test_responses_beside_the_best_other_rule(found: Result) -> None:
    responses = found.find("rule_response")
    assert {str(f.index["intervention"]) for f in responses} >= {"one reward", "order", "discount halved"}
    assert all(isinstance(f.estimate, float) and f.estimate < 1e-9 for f in responses)
    table = found.arrays["response_errors"].values
    assert table.shape == (len(responses), len(ALGORITHMS))


def test_redrawn_weights_are_the_control_of_the_verdict(found: Result) -> None:
    control = found.find("algorithm")[0].control
    assert control is not None
    assert control.estimate != "weighted softmax TD"


def test_a_wrong_sign_is_said_in_words() -> None:
    result = identify(subject(model((0.8, 0.5, 0.3)), TASK, num_tasks=24))
    assert result.find("algorithm")[0].estimate == "none of these"
    assert result.find("algorithm_class")[0].estimate == "none"
    assert result.find("identified_discount") == []
    assert verdict(result).startswith("None of the rules tried explains what its layers do; end to end")


def test_a_network_that_does_nothing_is_the_identity() -> None:
    zero = torch.zeros(2, 6, 6, dtype=torch.float64)
    network = network_of(softmax_td_from_matrices(zero, zero, gamma=0.5))
    result = identify_network(network, TASK, num_tasks=16)
    assert result.find("algorithm")[0].estimate == "identity"
    assert result.find("rule_error") == []
    assert "It runs identity" in verdict(result)


@pytest.mark.slow
def test_a_checkpoint_and_its_network_give_the_same_answer(found: Result, tmp_path) -> None:
    other = identify_network(network_of(model()), TASK, num_tasks=40)
    torch.testing.assert_close(other.arrays["rule_errors"].values, found.arrays["rule_errors"].values)
    save_result(found, tmp_path)
    assert load_result(tmp_path).findings == found.findings


@pytest.mark.slow
def test_an_opaque_model_gets_a_verdict_too() -> None:
    config = ModelConfig(arch="transformer", num_layers=1, d_model=8, num_heads=2)
    opaque = build(config, TASK, torch.Generator().manual_seed(0))
    result = identify(subject(opaque, TASK, num_tasks=16))
    assert result.find("algorithm")[0].estimate != "weighted softmax TD"


def test_too_few_tasks_are_refused_or_skipped() -> None:
    with pytest.raises(InputError, match="an identification needs 8 contexts"):
        identify_network(network_of(model()), TASK, num_tasks=5)
    (skipped,) = identify(subject(model(), TASK, num_tasks=5)).skipped
    assert skipped["what"] == "identify"
    assert "found 5 of 12" in skipped["why"]
