"""`opaque` reads a planted transformer and none that is untrained; patches act as TD where TD was planted."""

import pytest
import torch

from valuelens.analyses import Result, opaque, subject
from valuelens.analyses._opaque_rules import SOFTMAX
from valuelens.analyses.report._sentences import sentence
from valuelens.models.icrl import ModelConfig, TaskConfig, Transformer, build, planted_transformer, theta_star

pytestmark = pytest.mark.slow

TASK = TaskConfig(context_length=16)
TAUGHT = ("v_l(S_j)", "v_l(S_j+1)", "TD error of v_l", "x(S_j+1)", "R_j+1")


def planted() -> Transformer:
    generator = torch.Generator().manual_seed(103)
    return planted_transformer(
        feature_dim=4, context_length=16, gamma=0.5, alpha=0.9, sharpness=3.0, generator=generator
    )


@pytest.fixture(scope="module")
def found() -> Result:
    return opaque(subject(planted(), TASK, num_tasks=40, seed=100))


@pytest.fixture(scope="module")
def blank() -> Result:
    model = build(ModelConfig(arch="transformer"), TASK, torch.Generator().manual_seed(103))
    return opaque(subject(model, TASK, num_tasks=40, seed=100))


def test_what_was_planted_is_decoded_where_it_stands(found: Result) -> None:
    for layer in (1, 2, 3):
        for quantity in TAUGHT:
            each = [
                f
                for f in found.find("decodability", layer=layer, quantity=quantity)
                if f.index.get("rule", SOFTMAX) == SOFTMAX
            ]
            assert [f.estimate > 0.99 for f in each] == [True]
        value = found.find("decodability", layer=layer, quantity="v_l(S_j)", rule=SOFTMAX)[0]
        assert value.index["iterate"] == layer
    assert found.find("decodability", layer="embedding", quantity="x(S_j+1)")[0].estimate < 0.1


def test_control_labels_are_at_chance(found: Result) -> None:
    for finding in found.find("decodability"):
        assert max(finding.control.estimate) < 0.1


def test_what_an_untrained_network_shows_too_is_not_selective(found: Result) -> None:
    against = {"against": "an untrained network"}
    reward = found.find("selectivity", layer=2, quantity="R_j+1", **against)[0]
    successor = found.find("selectivity", layer=2, quantity="x(S_j+1)", **against)[0]
    assert abs(reward.estimate) < 0.05 < 0.5 < successor.estimate
    assert successor.interval[0] < successor.estimate < successor.interval[1]


def test_patches_of_the_planted_move_as_td_predicts(found: Result) -> None:
    memories = []
    for finding in found.find("patch_response"):
        if finding.index["layer"] in (1, 2) and finding.estimate is not None:
            assert finding.estimate < 0.02
            assert min(finding.control.estimate) > 0.5
            memories.append((finding.index["layer"], finding.index["memory"], finding.index["response"]))
    assert len(set(memories)) == 2 * 3 * 2


def test_increments_are_those_of_the_rule(found: Result) -> None:
    steps = found.find("decoded_increment", rule=SOFTMAX)
    assert [(f.index["layer"], f.index["from"], f.index["to"]) for f in steps] == [(2, 1, 2), (3, 2, 3)]
    for finding in steps:
        assert finding.estimate > 0.99
        assert finding.control.estimate < 0.1


def test_heads_that_were_planted_attend_as_the_kernel_and_idle_ones_do_not(found: Result) -> None:
    for layer in (1, 2, 3):
        heads = [found.find("head_agreement", layer=layer, head=head)[0] for head in range(4)]
        assert [head.estimate > 0.999 for head in heads] == [True, True, False, False]
        assert [head.index["asks"] for head in heads[:2]] == ["S_j", "S_j+1"]
        assert max(heads[0].control.estimate) < 0.7


def test_the_readings_are_told_apart(found: Result, blank: Result) -> None:
    planted_reading, other = (each.find("opaque_reading")[0].estimate for each in (found, blank))
    assert planted_reading == "decodable; patches move downstream as TD predicts"
    assert other.startswith("not decodable")


def test_results_keep_to_the_schema_and_speak(found: Result, blank: Result) -> None:
    for result in (found, blank):
        assert result.summary()["findings"]
        for finding in result.findings:
            assert sentence(finding).endswith(".")


@pytest.mark.parametrize(
    ("model", "task", "tasks", "why"),
    [
        (theta_star(feature_dim=4, num_layers=1, gamma=0.5), TASK, 8, "stand in slots"),
        (planted(), TaskConfig(context_length=3), 8, "at least 4 transitions"),
        (planted(), TASK, 4, "at least 8 tasks"),
    ],
)
def test_what_cannot_be_asked_is_skipped_with_a_reason(
    model: torch.nn.Module, task: TaskConfig, tasks: int, why: str
) -> None:
    result = opaque(subject(model, task, num_tasks=tasks))
    assert result.findings == ()
    assert [why in each["why"] for each in result.skipped] == [True]
