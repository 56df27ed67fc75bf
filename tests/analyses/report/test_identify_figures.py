"""Figures of an identification show its arrays, and its findings have sentences."""

import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from valuelens.analyses import ALGORITHMS, Result, identify, subject
from valuelens.analyses.report._figures import pictures
from valuelens.analyses.report._identify_figures import LEAST, response_figure, rule_error_figure
from valuelens.analyses.report._sentences import sentence
from valuelens.models.icrl import TaskConfig, theta_star

TASK = TaskConfig(num_states=5, context_length=8, feature_dim=3)


@pytest.fixture(scope="module")
def result() -> Result:
    return identify(
        subject(theta_star(feature_dim=3, num_layers=2, gamma=0.5, sharpness=4.0), TASK, num_tasks=24)
    )


@pytest.fixture
def ax() -> Axes:
    return Figure().subplots()


def drawn(ax: Axes) -> torch.Tensor:
    return torch.as_tensor(ax.collections[0].get_array()).double().reshape(len(ax.get_yticks()), -1)


def test_both_figures_are_there_and_speak(result: Result) -> None:
    named = {picture.name: picture for picture in pictures(result)}
    assert set(named) == {"rule_errors", "rule_responses"}
    assert "weighted softmax TD" in named["rule_errors"].alt


def test_errors_are_drawn_by_rule_and_layer(ax: Axes, result: Result) -> None:
    rule_error_figure(ax, result)
    assert [label.get_text() for label in ax.get_yticklabels()] == list(ALGORITHMS)
    expected = result.arrays["rule_errors"].values.clamp(LEAST, 1)
    torch.testing.assert_close(drawn(ax), expected)


def test_responses_are_drawn_by_rule_and_intervention(ax: Axes, result: Result) -> None:
    response_figure(ax, result)
    names = [label.get_text() for label in ax.get_xticklabels()]
    assert names == [str(f.index["intervention"]) for f in result.find("rule_response")]
    expected = result.arrays["response_errors"].values.mT.clamp(LEAST, 1)
    torch.testing.assert_close(drawn(ax), expected)
    assert {text.get_text() for text in ax.texts} >= {"0", ">1"}


def test_sentences_say_rule_and_number(result: Result) -> None:
    said = [sentence(finding) for finding in result.findings]
    assert said[0].startswith("Seen through its layers, the network runs: weighted softmax TD;")
    assert any(text.startswith("End to end, linear TD leaves 0.") for text in said)
    assert not any("{" in text for text in said)
