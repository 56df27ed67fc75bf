"""The value lens and the value errors, against their definitions written out."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from valuelens.analyses import Result, Subject, slots, subject, value_errors
from valuelens.models.icrl import ModelConfig, TaskConfig, build, theta_star

TASK = TaskConfig(context_length=20)
THETA_STAR = theta_star(feature_dim=4, num_layers=4, gamma=0.5, alpha=0.8, sharpness=6.0)


@pytest.fixture(scope="module")
def studied() -> Subject:
    return subject(THETA_STAR, TASK, num_tasks=40)


def lens(result: Result, reference: str) -> tuple[list[float], object]:
    (finding,) = result.find("value_lens", reference=reference)
    assert finding.control is not None
    return [float(str(x)) for x in listed(finding.estimate)], finding.control.estimate


def listed(estimate: object) -> list[object]:
    assert isinstance(estimate, list)
    return estimate


def share(x: Tensor, y: Tensor, square: Tensor) -> float:
    return sum(float((a - b) ** 2) for a, b in zip(x, y, strict=True)) / float(square.sum())


def test_the_lens_is_the_squared_difference_at_the_query(studied: Subject) -> None:
    result, truth, read = slots(studied), studied.truth[:, -1], studied.lens[:, :, 0]
    errors, constant = lens(result, "true value")
    assert_close(errors, [share(each, truth, truth**2) for each in read])
    assert_close(constant, share(studied.constant, truth, truth**2))
    errors, constant = lens(result, "final layer")
    assert_close(errors, [share(each, read[-1], truth**2) for each in read])
    assert_close(constant, share(studied.constant, read[-1], truth**2))
    assert errors[-1] == 0


def test_the_lens_of_theta_star_is_the_td_iterate(studied: Subject) -> None:
    errors, control = lens(slots(studied), "TD iterate")
    assert_close(errors, [0.0] * 5)
    others = [float(str(x)) for x in listed(control)]
    assert others[0] == 0
    assert min(others[1:]) > 0.05


def test_errors_fall_from_layer_to_layer(studied: Subject) -> None:
    errors, constant = lens(slots(studied), "true value")
    assert errors == sorted(errors, reverse=True)
    assert_close(errors[0], 1.0)  # nothing is read before the first layer
    assert errors[-1] < float(str(constant)) / 3


def test_value_errors_are_ratios_of_sums(studied: Subject) -> None:
    found = {finding.name: finding for finding in value_errors(studied)}
    truth, values = studied.truth, studied.values
    blind = studied.constant[:, None].expand_as(truth)
    query = ((studied.lens[-1, :, 0] - truth[:, -1]) ** 2).sum()
    expected = {
        "msve_ratio": query / (truth[:, -1] ** 2).sum(),
        "msve_vs_constant": query / ((blind - truth)[:, -1] ** 2).sum(),
        "context_msve_vs_constant": ((values - truth) ** 2).sum() / ((blind - truth) ** 2).sum(),
        "within_chain_r2": 1
        - (centred(values) - centred(truth)).square().sum() / centred(truth).square().sum(),
    }
    assert list(found) == list(expected)
    for name, value in expected.items():
        finding = found[name]
        assert_close(finding.estimate, float(value))
        assert finding.n == 40
        assert finding.interval is not None
        assert finding.interval[0] < float(value) < finding.interval[1]


def centred(x: Tensor) -> Tensor:
    return x - x.mean(1, keepdim=True)


def test_the_constant_predictor_is_its_own_control(studied: Subject) -> None:
    blind = studied.constant[None, :, None].expand_as(studied.lens)
    same = Subject(
        model=studied.model, task=studied.task, mrp=studied.mrp, context=studied.context, lens=blind, seed=0
    )
    for finding in value_errors(same):
        assert finding.control is not None
        assert finding.control.name == "constant predictor"
        assert_close(finding.estimate, finding.control.estimate)


def test_arrays_hold_what_is_drawn(studied: Subject) -> None:
    arrays = slots(studied).arrays
    assert_close(arrays["lens"].values, studied.lens[:, :, 0])
    assert_close(arrays["example_truth"].values, studied.truth[0])
    assert_close(arrays["example_states"].values, studied.context.states[0])
    assert_close(arrays["example_slots"].values, arrays["example_iterates"].values)
    for array in arrays.values():
        assert len(array.axes.split()) == array.values.ndim


@pytest.mark.parametrize("arch", ["linear", "transformer"])
def test_other_architectures_have_no_td_iterate(arch: str) -> None:
    config = ModelConfig.model_validate({"arch": arch, "num_layers": 2, "d_model": 8, "num_heads": 2})
    result = slots(subject(build(config, TASK, torch.Generator()), TASK, num_tasks=8))
    assert [finding.index["reference"] for finding in result.find("value_lens")] == [
        "true value",
        "final layer",
    ]
    result.summary()
