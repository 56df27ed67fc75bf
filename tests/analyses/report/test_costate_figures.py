"""Figures of costates show the numbers of a result beside their controls, whatever layers there are."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from valuelens.analyses import Result
from valuelens.analyses.report._costate_figures import (
    by_layer_figure,
    chosen_layers,
    costate_norm_figure,
    expected_cosine,
    group_size,
    layer_name,
    locality_figure,
    rollouts_figure,
)

Make = Callable[..., Result]
PERMUTED = "advantages permuted within groups (control)"


@pytest.fixture
def ax() -> Axes:
    return Figure().subplots()


def drawn(ax: Axes, label: str) -> tuple[list[float], list[float]]:
    line = next(each for each in ax.lines if str(each.get_label()).startswith(label))
    return list(map(float, line.get_xdata())), list(map(float, line.get_ydata()))


def labels(ax: Axes) -> list[str]:
    named = [str(line.get_label()) for line in ax.lines]
    return [label for label in named if not label.startswith("_")]


def test_the_norm_is_drawn_by_position_a_line_a_layer(ax: Axes, language_result: Make) -> None:
    result = language_result()
    costate_norm_figure(ax, result)
    table = result.tables["positions"]
    for layer in (0, 15, 22):
        rows = table[table["layer"] == layer]
        assert drawn(ax, f"layer {layer}") == (rows["state"].tolist(), pytest.approx(rows["norm"].tolist()))
    assert ax.get_yscale() == "log"
    shared = [line for line in ax.lines if list(line.get_xdata()) == [0]]
    starts = table.loc[table["state"] == 0, "mean_norm"].tolist()
    assert [float(line.get_ydata()[0]) for line in shared] == pytest.approx(starts)
    assert len({(line.get_marker(), line.get_linestyle()) for line in ax.lines[:3]}) == 3


def test_few_of_many_layers_are_named_and_the_others_stay_in_sight(ax: Axes, language_result: Make) -> None:
    costate_norm_figure(ax, language_result(tuple(range(31)), num_layers=30))
    named = ["layer 0", "layer 8", "layer 15", "layer 22", "after the final norm", "the other 26 layers"]
    assert labels(ax)[: len(named)] == named
    lines = [line for line in ax.lines if len(line.get_xdata()) == 24]
    assert len(lines) == 31


def test_it_is_marked_where_half_of_the_rollouts_have_ended(ax: Axes, language_result: Make) -> None:
    result = language_result((0,))
    costate_norm_figure(ax, result)
    n = result.tables["positions"].set_index("state")["n"]
    left = int(n[n < n[0] / 2].index[0])
    assert [text.xy[0] for text in ax.texts] == [left]


def test_long_completions_are_thinned_and_keep_their_ends(ax: Axes, language_result: Make) -> None:
    states = np.arange(3000)
    table = pd.DataFrame({"layer": 0, "state": states, "n": 8, "norm": states + 1.0, "mean_norm": 1.0})
    costate_norm_figure(ax, replace(language_result((0,)), tables={"positions": table}))
    x, y = drawn(ax, "layer 0")
    assert (len(x), x[0], x[-1]) == (200, 0, 2999)
    assert y == [each + 1 for each in x]


def test_positions_of_prompts_are_no_start_states(ax: Axes, language_result: Make) -> None:
    result = language_result((0,))
    alone = [
        replace(f, control=None, reasons={"control": "tokens of the prompt are not sampled"})
        for f in result.find("costate_norm")
    ]
    costate_norm_figure(ax, replace(result, findings=tuple(alone)))
    assert ax.get_xlabel() == "position in the prompt"
    assert labels(ax) == ["layer 0"]
    assert not ax.texts


@pytest.mark.parametrize(("even", "above"), [(0.15, False), (0.02, True), (0.9, True)])
def test_locality_stands_beside_even_credit(
    ax: Axes, language_result: Make, even: float, above: bool
) -> None:
    result = language_result()
    findings = [
        replace(f, control=replace(f.control, estimate=even)) if f.name == "locality" else f
        for f in result.findings
    ]
    locality_figure(ax, replace(result, findings=tuple(findings)))
    table = result.tables["positions"]
    rows = table[table["layer"] == 15]
    assert drawn(ax, "layer 15")[1] == pytest.approx(rows["locality"].tolist())
    (name,) = [text for text in ax.texts if "control" in text.get_text()]
    assert name.get_text() == "credit spread evenly over the tokens to come (control)"
    assert (name.xy[1], name.get_va()) == (pytest.approx(even), "bottom" if above else "top")


def test_locality_beyond_its_bounds_is_in_sight_and_controls_that_differ_are_shaded(
    ax: Axes, language_result: Make
) -> None:
    result = language_result((0, 15))
    controls = iter((0.25, 0.35))
    findings = [
        replace(f, control=replace(f.control, estimate=next(controls))) for f in result.find("locality")
    ]
    table = result.tables["positions"].assign(locality=[-0.4] * 24 + [1.6] * 24)
    locality_figure(ax, replace(result, findings=tuple(findings), tables={"positions": table}))
    low, high = ax.get_ylim()
    assert low < -0.4
    assert high > 1.6
    (shade,) = ax.patches
    assert (shade.get_y(), shade.get_height()) == (0.25, pytest.approx(0.1))


@pytest.mark.parametrize("name", ["signal_to_noise", "cosine", "gap_discrete"])
def test_a_quantity_is_drawn_by_layer_beside_its_control(ax: Axes, language_result: Make, name: str) -> None:
    result = language_result(enumerated=True)
    by_layer_figure(ax, result, name)
    found = result.find(name)
    assert drawn(ax, "measured") == ([0, 15, 22], [f.estimate for f in found])
    control = f"{found[0].control.name} (control)"
    assert drawn(ax, control)[1] == [f.control.estimate for f in found]
    ends = [tuple(segment[:, 1]) for bars in ax.collections for segment in bars.get_segments()]
    assert ends == [pytest.approx(f.interval) for f in found if f.interval]
    assert bool(ends) == (name != "cosine")  # as the analysis: it has no interval of its own


def test_the_layer_past_the_last_block_is_the_norm(ax: Axes, language_result: Make) -> None:
    result = language_result((0, 2), num_layers=2)
    by_layer_figure(ax, result, "signal_to_noise")
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0", "norm"]
    assert layer_name(result, 2) == "after the final norm"
    assert layer_name(replace(result, provenance={}), 2) == "layer 2"


def test_one_layer_is_a_point(ax: Axes, language_result: Make) -> None:
    by_layer_figure(ax, language_result((15,)), "signal_to_noise")
    assert (drawn(ax, "measured")[0], ax.get_xlim()) == ([15], (14, 16))


def test_the_curve_is_the_formula_and_marks_what_was_used_and_what_is_needed(
    ax: Axes, language_result: Make
) -> None:
    result = language_result()
    rollouts_figure(ax, result)
    (found,) = result.find("signal_to_noise", layer=15)
    x, y = map(np.array, drawn(ax, "layer 15"))
    assert y**2 == pytest.approx(x * found.estimate / (1 + x * found.estimate))
    marks = [line for line in ax.lines if list(line.get_ydata()) == [0.9] and len(line.get_xdata()) == 1]
    needed = [f.estimate for f in result.find("rollouts_needed")]
    assert [float(line.get_xdata()[0]) for line in marks] == pytest.approx(needed)
    assert [text.get_text() for text in ax.texts] == ["cosine 0.9", "16 used"]
    assert ax.get_xlim()[1] >= max(needed)


def test_without_a_signal_there_is_no_curve_but_a_word(ax: Axes, language_result: Make) -> None:
    result = language_result((0,))
    findings = [
        replace(f, estimate=-0.01, interval=(-0.05, 0.03)) if f.name == "signal_to_noise" else f
        for f in result.findings
    ]
    rollouts_figure(ax, replace(result, findings=tuple(findings)))
    assert "layer 0: no signal above 0" in labels(ax)
    assert drawn(ax, "layer 0")[0] == []
    assert not ax.collections


def test_chance_has_a_curve_where_it_is_above_zero(ax: Axes, language_result: Make) -> None:
    result = language_result((0, 1))
    controls = iter((-0.5, 0.01))
    findings = [
        replace(f, control=replace(f.control, estimate=next(controls))) if f.name == "signal_to_noise" else f
        for f in result.findings
    ]
    rollouts_figure(ax, replace(result, findings=tuple(findings)))
    x, y = drawn(ax, "advantages permuted within groups (largest control)")
    assert y == pytest.approx(expected_cosine(0.01, np.array(x)).tolist())


def test_the_expected_cosine_is_that_of_means_of_noisy_vectors() -> None:
    rng = np.random.default_rng(0)
    d, n, snr = 2000, 25, 0.04
    truth = rng.normal(size=d)
    noise = rng.normal(size=(n, d)) * np.linalg.norm(truth) / np.sqrt(snr * d)
    mean = (truth + noise).mean(0)
    cosine = mean @ truth / np.linalg.norm(mean) / np.linalg.norm(truth)
    assert expected_cosine(snr, n).item() == pytest.approx(cosine, abs=0.02)
    assert expected_cosine(-1.0, n).item() == 0


def test_the_group_size_comes_from_the_groups_or_the_provenance(language_result: Make) -> None:
    result = language_result()
    assert group_size(result) == 16
    assert group_size(replace(result, tables={}, provenance={"rollouts": {"count": 24, "groups": 3}})) == 8
    assert group_size(replace(result, tables={}, provenance={})) is None


def test_chosen_layers_are_few_and_hold_both_ends() -> None:
    assert chosen_layers([5]) == [5]
    assert chosen_layers([22, 0, 15]) == [0, 15, 22]
    assert chosen_layers(list(range(80))) == [0, 20, 40, 59, 79]
