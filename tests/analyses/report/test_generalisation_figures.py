"""The figure of generalisation shows every shift beside its rivals, and what is off the scale."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from valuelens.analyses import Control, Finding, Result
from valuelens.analyses.report._generalisation_figures import LIMIT, generalisation_figure


@pytest.fixture
def ax() -> Axes:
    return Figure().subplots()


def shifted(ratios: dict[str, float]) -> Result:
    findings = [
        Finding(
            name="generalisation",
            estimate=ratio,
            unit="1",
            n=8,
            definition="choice",
            index={"shift": shift, "of": of},
            interval=(ratio / 2, ratio * 2),
            control=Control(name="LSTD, LSTD that knows the states, theta*", estimate=[0.9, 0.1, None]),
            reasons={"control": "theta* overflows"},
        )
        for shift, ratio in ratios.items()
        for of in ("query", "context")
    ]
    return Result(kind="in-context-rl", findings=tuple(findings))


def test_generalisation_shows_every_shift_beside_its_rivals(ax: Axes) -> None:
    generalisation_figure(ax, shifted({"own tasks": 0.2, "loop": 0.4}))
    assert [text.get_text() for text in ax.get_yticklabels()] == ["own tasks", "loop"]
    whole = [each for each in ax.lines if each.get_label() == "the model, whole contexts"]
    assert [float(each.get_xdata()[0]) for each in whole] == [0.2, 0.4]
    legend = {text.get_text() for text in ax.get_legend().get_texts()}
    assert {"LSTD, whole contexts", "LSTD that knows the states, whole contexts"} < legend
    assert "theta*, whole contexts" not in legend  # it has no number
    shown = [float(each.get_xdata()[0]) for each in ax.lines if each.get_label() == "the model, at the query"]
    assert shown == [0.2, 0.4]
    assert any(list(each.get_xdata()) == [1, 1] for each in ax.lines)


def test_generalisation_draws_the_huge_as_arrows(ax: Axes) -> None:
    generalisation_figure(ax, shifted({"own tasks": 0.2, "rewards x 10": 1e13}))
    assert max(float(np.max(each.get_xdata())) for each in ax.lines) == LIMIT
    assert sum(each.get_marker() == ">" for each in ax.lines) == 2
