"""Figures of a diagnosis tell groups that teach from groups that do not, by more than colour."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from valuelens.analyses import Result
from valuelens.analyses.report._diagnosis_figures import (
    group_entropy_figure,
    group_rewards_figure,
    ordered_groups,
    reward_std_figure,
)

Make = Callable[..., Result]


@pytest.fixture
def ax() -> Axes:
    return Figure().subplots()


def drawn(ax: Axes, label: str) -> tuple[list[float], list[float]]:
    line = next(each for each in ax.lines if each.get_label() == label)
    return list(map(float, line.get_xdata())), list(map(float, line.get_ydata()))


def test_groups_stand_in_the_order_of_their_means_with_their_spread(ax: Axes, language_result: Make) -> None:
    result = language_result()
    group_rewards_figure(ax, result)
    groups = ordered_groups(result)
    flat = groups["reward_std"] == 0
    assert groups["reward_mean"].is_monotonic_increasing
    assert drawn(ax, "all rewards equal") == (
        np.flatnonzero(flat).tolist(),
        groups["reward_mean"][flat].tolist(),
    )
    assert drawn(ax, "mean")[1] == groups["reward_mean"][~flat].tolist()
    ends, spread = ([segment[:, 1].tolist() for segment in lines.get_segments()] for lines in ax.collections)
    assert ends == groups[["reward_min", "reward_max"]].to_numpy().tolist()
    assert np.diff(spread)[:, 0] == pytest.approx(2 * groups["reward_std"].to_numpy())
    assert drawn(ax, "largest reward possible")[1] == [1, 1]
    assert drawn(ax, "mean over all")[1] == [result.find("reward")[0].estimate] * 2


def test_flat_groups_are_a_bar_of_their_own(ax: Axes, language_result: Make) -> None:
    result = language_result()
    reward_std_figure(ax, result)
    std = result.tables["groups"]["reward_std"]
    *bars, flat = ax.patches
    assert sum(bar.get_height() for bar in bars) == (std > 0).sum()
    assert (flat.get_height(), flat.get_hatch()) == ((std == 0).sum(), "////")
    assert flat.get_x() + flat.get_width() < 0
    (control,) = (f.control for f in result.find("reward_std"))
    assert [text.get_text() for text in ax.texts] == [str((std == 0).sum())]
    assert drawn(ax, "standard deviation over all rollouts (control)")[0] == [control.estimate] * 2


def test_equal_rewards_are_flat_however_their_deviation_rounds(ax: Axes, language_result: Make) -> None:
    result = language_result(groups=3, flat=1.0)
    rounded = result.tables["groups"].assign(reward_std=1e-17)
    reward_std_figure(ax, replace(result, tables={"groups": rounded}))
    assert ax.patches[-1].get_height() == 3


def test_all_flat_groups_still_have_a_figure(ax: Axes, language_result: Make) -> None:
    result = language_result(flat=1.0)
    group_rewards_figure(ax, result)
    assert len(drawn(ax, "all rewards equal")[0]) == 32
    assert drawn(ax, "mean") == ([], [])
    reward_std_figure(Figure().subplots(), result)
    group_entropy_figure(Figure().subplots(), result)


@pytest.mark.parametrize(("uniform", "words"), [(3.0, "uniform policy (control)"), (10.8, "off the scale")])
def test_entropy_stands_beside_a_uniform_policy(
    ax: Axes, language_result: Make, uniform: float, words: str
) -> None:
    result = language_result()
    findings = [
        replace(f, control=replace(f.control, estimate=uniform)) if f.name == "entropy" else f
        for f in result.findings
    ]
    group_entropy_figure(ax, replace(result, findings=tuple(findings)))
    points = [point for line in ax.lines[:2] for point in zip(*line.get_data(), strict=True)]
    groups = result.tables["groups"]
    assert sorted(points) == sorted(zip(groups["reward_mean"], groups["entropy"], strict=True))
    assert words in ax.texts[0].get_text()


def test_groups_without_rewards_are_left_out(language_result: Make) -> None:
    result = language_result(groups=4)
    table = result.tables["groups"].copy()
    table.loc[1, "reward_mean"] = np.nan
    assert len(ordered_groups(replace(result, tables={"groups": table}))) == 3
