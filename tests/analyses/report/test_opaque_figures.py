"""Figures of opaque models show the findings beside their controls."""

from collections.abc import Callable

import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from valuelens.analyses import Array, Control, Finding, Result
from valuelens.analyses.report._figures import pictures
from valuelens.analyses.report._opaque_figures import decoding_figure, head_figure, patch_figure

NONE = {"interval": "made up", "control": "made up"}


def finding(
    name: str, estimate: float | str, index: dict, control: object, interval: object = None
) -> Finding:
    return Finding(
        name=name,
        estimate=estimate,
        unit="1",
        n=8,
        definition="choice",
        index=index,
        interval=interval,
        control=None if control is None else Control(name="a, b", estimate=control),
        reasons=NONE,
    )


@pytest.fixture
def result() -> Result:
    made = [finding("opaque_reading", "not decodable", {"of": "all"}, None)]
    for layer, r2 in (("embedding", 0.1), (0, 0.6), (1, 0.9)):
        index = {"layer": layer, "quantity": "v_l(S_j)", "rule": "weighted softmax TD", "iterate": 2}
        made.append(finding("decodability", r2, index, [0.0, 0.01], (r2 - 0.05, r2 + 0.05)))
        made.append(finding("decodability", 0.33, index | {"rule": "linear TD"}, [0.0, 0.01]))
        for against, control in (("an untrained network", r2 / 2), ("another context", 0.0)):
            made.append(finding("selectivity", r2 - control, index | {"against": against}, control))
    place = {"memory": "current", "response": "returned values"}
    made.append(finding("patch_response", 0.1, {"layer": 0, **place}, [1.0, 1.1]))
    for head, asks in ((0, "S_j"), (1, "S_j+1")):
        index = {"layer": 1, "head": head, "asks": asks}
        made.append(finding("head_agreement", 0.7 + head / 10, index, [0.3, 0.2], (0.6, 0.9)))
    responses = torch.tensor([[[[0.1, -0.2]], [[0.1, -0.1]], [[5.0, 0.0]]]])
    arrays = {"patch_responses": Array(axes="layer which task pos", values=responses)}
    return Result(kind="in-context-rl", findings=tuple(made), arrays=arrays)


@pytest.fixture
def ax() -> Axes:
    return Figure().subplots()


def drawn(ax: Axes, label: str) -> tuple[list[float], list[float]]:
    line = next(each for each in ax.lines if str(each.get_label()).startswith(label))
    return list(map(float, line.get_xdata())), list(map(float, line.get_ydata()))


def test_decoding_shows_softmax_td_beside_the_untrained_network(ax: Axes, result: Result) -> None:
    decoding_figure(ax, result, "v_l(S_j)")
    assert drawn(ax, "the model") == ([-1, 0, 1], [0.1, 0.6, 0.9])
    assert drawn(ax, "an untrained network") == ([-1, 0, 1], [0.05, 0.3, 0.45])
    assert drawn(ax, "labels of another context")[1] == [0, 0, 0]
    assert [text.get_text() for text in ax.texts] == ["v2"] * 3
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["emb.", "0", "1"]


def test_patches_show_measured_against_predicted_and_what_is_off_the_scale_at_the_edge(
    ax: Axes, result: Result
) -> None:
    patch_figure(ax, result)
    assert drawn(ax, "patched after layer 0") == (
        pytest.approx([0.1, -0.2]),
        pytest.approx([0.1, -0.1]),
    )
    edge = max(drawn(ax, "a random direction")[1])
    assert 0.2 < edge < 0.25


def test_heads_show_what_they_ask_with(ax: Axes, result: Result) -> None:
    head_figure(ax, result)
    assert drawn(ax, "a head, kernel asked with S_j")[1] == [0.7]
    assert drawn(ax, "a head, kernel asked with S_j+1")[1] == [pytest.approx(0.8)]
    assert any(list(line.get_ydata()) == [0.3, 0.3] for line in ax.lines)


def test_a_report_has_the_three_figures(result: Result) -> None:
    names = {picture.name for picture in pictures(result)}
    assert names == {"opaque_decoding", "opaque_patches", "opaque_heads"}


def test_nothing_is_told_by_colour_alone(
    result: Result, told_by_colour_alone: Callable[[Figure], list[str]]
) -> None:
    figure = Figure()
    left, middle, right = figure.subplots(1, 3)
    decoding_figure(left, result, "v_l(S_j)")
    patch_figure(middle, result)
    head_figure(right, result)
    assert told_by_colour_alone(figure) == []
