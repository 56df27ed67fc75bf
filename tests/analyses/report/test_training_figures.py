"""Figures of training: seeds, their mean, and where properties begin."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from valuelens.analyses import emergence
from valuelens.analyses.report._timeline_figures import timeline_figure
from valuelens.analyses.report._training_figures import (
    NEAR,
    diagonal_figure,
    discount_figure,
    population_figure,
    training_panels,
    update_weights_figure,
)

STEPS = (0, 10, 100)


def run_table(seeds: int) -> pd.DataFrame:
    rows = [
        {
            "seed": seed,
            "step": step,
            "msve_vs_constant": 2 / (1 + step),
            "within_chain_r2": step / 100,
            "kernel_diagonal_mean": 0.1 + step / 200,
            "w_R": step / 100,
            "w_T": step / 110 - 0.01 * seed,
            "w_C": -step / 120,
            "signs": float(step > 0),
            "weight_cosine": step / 100,
        }
        for seed in range(seeds)
        for step in STEPS
    ]
    return pd.DataFrame(rows)


@pytest.fixture
def ax() -> Axes:
    return Figure().subplots()


def labels(ax: Axes) -> set[str]:
    texts = {text.get_text() for text in ax.texts}
    return texts | {str(each.get_label()) for each in (*ax.lines, *ax.patches)}


def close(shown: np.ndarray, expected: object) -> None:
    torch.testing.assert_close(
        torch.as_tensor(shown, dtype=torch.float64), torch.as_tensor(expected, dtype=torch.float64)
    )


def test_several_seeds_have_a_mean_with_a_band(ax: Axes) -> None:
    five = emergence(run_table(5))
    update_weights_figure(ax, five)
    means = [each for each in ax.lines if len(each.get_xdata()) == len(STEPS) and each.get_marker() == "None"]
    table = five.tables["emergence_mean"]
    for each, column in zip(means, ("w_R", "w_T", "w_C"), strict=True):
        close(np.asarray(each.get_ydata()), table[table["quantity"] == column]["mean"].tolist())
    low = table[table["quantity"] == "w_T"]["low"].min()
    assert min(band.get_paths()[0].vertices[:, 1].min() for band in ax.collections[1:2]) == pytest.approx(low)


def test_many_seeds_are_not_told_by_colour_alone(
    told_by_colour_alone: Callable[[Figure], list[str]],
) -> None:
    table = run_table(6).assign(effective_discount=0.4, discount_error=0.1, assumption_margin=-0.5)
    result, figure = emergence(table), Figure()
    panels = training_panels(result)
    for ax, panel in zip(figure.subplots(1, len(panels)), panels, strict=True):
        panel(ax, result)
    assert told_by_colour_alone(figure) == []


def test_a_single_seed_has_no_mean(ax: Axes) -> None:
    diagonal_figure(ax, emergence(run_table(1)))
    curves = [each for each in ax.lines if len(each.get_xdata()) == len(STEPS)]
    assert [each.get_marker() for each in curves] == ["o"]
    assert not ax.collections


def test_a_ring_is_where_a_property_begins(ax: Axes) -> None:
    table = run_table(2)
    diagonal_figure(ax, emergence(table))
    rings = [each for each in ax.lines if each.get_markerfacecolor() == "none"]
    assert [float(each.get_xdata()[0]) for each in rings] == [100.0, 100.0]
    close(np.array([float(each.get_ydata()[0]) for each in rings]), [0.6, 0.6])


def test_discount_and_population_panels_show_their_columns(ax: Axes) -> None:
    table = run_table(2).assign(effective_discount=0.4, discount_error=0.1, assumption_margin=-0.5)
    result = replace(emergence(table), provenance={"config": {"task": {"gamma": 0.5}}})
    assert {discount_figure, population_figure} <= set(training_panels(result))
    discount_figure(ax, result)
    assert any(f"gamma, with the {NEAR}" in label for label in labels(ax))
    other = Figure().subplots()
    population_figure(other, result)
    assert "margin of Assumption 5.1" in labels(other)
    assert "spectral radius" not in labels(other)


def test_the_timeline_has_a_mark_for_every_seed(ax: Axes) -> None:
    table = run_table(3)
    table.loc[table["seed"] == 2, "signs"] = 0.0
    timeline_figure(ax, emergence(table))
    names = [text.get_text().replace("\n", " ") for text in ax.get_yticklabels()]
    row = names.index("signs ++-")
    marks = [
        each
        for each in ax.lines
        if each.get_marker() in "os^" and abs(float(each.get_ydata()[0]) - row) < 0.4
    ]
    assert [float(each.get_xdata()[0]) for each in marks] == pytest.approx(
        [10, 10, 220]
    )  # the last one: never
    assert len({float(each.get_ydata()[0]) for each in marks}) == 3
    assert names[:2] == [
        "MSVE at most a third of the constant predictor's",
        "signs ++-",
    ]  # the median decides


def test_one_seed_stands_in_its_row(ax: Axes) -> None:
    timeline_figure(ax, emergence(run_table(1)))
    assert {float(each.get_ydata()[0]) % 1 for each in ax.lines if each.get_marker() == "o"} == {0.0}
