"""Figures show the numbers of a result and nothing else, and leave nothing behind."""

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from valuelens.analyses import (
    Array,
    Result,
    convergence,
    diagonality,
    distance,
    emergence,
    merged,
    reparameterisation,
    slots,
    subject,
)
from valuelens.analyses._emergence import PROPERTIES
from valuelens.analyses.report._figures import pictures, save_figures
from valuelens.analyses.report._kernel_figures import example_kernel_figure, population_diagonal_figure
from valuelens.analyses.report._matrix_figures import matrix_figure, matrix_pairs
from valuelens.analyses.report._style import few_layers, styled
from valuelens.analyses.report._training_figures import (
    A_THIRD,
    COSINE,
    TRIPLED,
    WITHIN,
    diagonal_figure,
    training_panels,
    update_weights_figure,
    value_error_figure,
)
from valuelens.analyses.report._value_figures import (
    batch_td_figure,
    example_columns_figure,
    example_scatter_figure,
    unexplained_figure,
    value_lens_figure,
)
from valuelens.models.icrl import SoftmaxTD, TaskConfig, theta_star

NAMES = {
    "value_lens",
    "matrices",
    "unexplained",
    "example",
    "population_diagonal",
    "state_diagonal",
    "contraction_share",
    "example_kernel",
    "depth_error",
    "context_error",
    "extrapolation",
}
STEPS = (0, 10, 100)


def analysed(model: SoftmaxTD) -> Result:
    studied = subject(model, TaskConfig(), num_tasks=32)
    questions = (slots, distance, reparameterisation, diagonality, convergence)
    return merged([question(studied) for question in questions])


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


@pytest.fixture(scope="module")
def tied() -> Result:
    return analysed(theta_star(feature_dim=4, num_layers=3, gamma=0.5, alpha=0.5, sharpness=4.0))


@pytest.fixture(scope="module")
def untied() -> Result:
    return analysed(
        theta_star(feature_dim=4, num_layers=2, gamma=0.5, alpha=[0.5, 1.0], sharpness=[4.0, 8.0])
    )


@pytest.fixture(scope="module")
def run(tied: Result) -> Result:
    """Two checkpoints of seed 0, the last of which is the tied construction, and the training of two seeds."""
    parts = [emergence(run_table(2))]
    for step in (0, 100):
        index = {"seed": 0, "checkpoint": f"step-{step:08}"}
        findings = tuple(replace(finding, index={**index, **finding.index}) for finding in tied.findings)
        scale = 0.0 if step == 0 else 1.0
        arrays = {
            f"seed-0/step-{step:08}/{name}": replace(array, values=array.values * scale)
            for name, array in tied.arrays.items()
        }
        parts.append(replace(tied, findings=findings, arrays=arrays))
    return merged(parts, provenance={"config": {"task": {"gamma": 0.5}}})


@pytest.fixture
def ax() -> Axes:
    return Figure().subplots()


def line(ax: Axes, label: str) -> np.ndarray:
    """Heights of the line with that label."""
    return np.asarray(next(each for each in ax.lines if each.get_label() == label).get_ydata(), dtype=float)


def labels(ax: Axes) -> set[str]:
    texts = {text.get_text() for text in ax.texts}
    return texts | {str(each.get_label()) for each in (*ax.lines, *ax.patches)}


def close(shown: np.ndarray, expected: object) -> None:
    torch.testing.assert_close(
        torch.as_tensor(shown, dtype=torch.float64), torch.as_tensor(expected, dtype=torch.float64)
    )


@pytest.mark.parametrize("few", [(1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (10, [0, 4, 9])])
def test_few_layers_are_first_middle_last(few: tuple[int, list[int]]) -> None:
    assert few_layers(few[0]) == few[1]


@pytest.mark.slow
def test_a_checkpoint_has_every_figure_but_training(tied: Result) -> None:
    assert {picture.name for picture in pictures(tied)} == NAMES


def test_what_was_not_measured_is_left_out(tied: Result) -> None:
    assert pictures(replace(tied, findings=(), arrays={})) == []
    assert {picture.name for picture in pictures(replace(tied, arrays={}))} == {
        "value_lens",
        "unexplained",
        "contraction_share",
    }


@pytest.mark.slow
def test_figures_are_the_same_bytes_twice_and_valid(run: Result, tmp_path: Path) -> None:
    first, second = (save_figures(run, tmp_path / name) for name in "ab")
    assert {path.stem for path in first} == NAMES | {"training", "emergence"}
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    for path in first:
        text = path.read_text(encoding="utf-8")
        assert ET.fromstring(text).tag.endswith("svg")
        assert "<dc:date>" not in text
        assert "<image" not in text
        assert "DejaVu" not in text


def test_nothing_stays_behind(tied: Result) -> None:
    with matplotlib.rc_context({"axes.labelsize": 31.0, "svg.hashsalt": "mine"}):
        before = dict(matplotlib.rcParams)
        pictures(replace(tied, arrays={}))
        assert dict(matplotlib.rcParams) == before
    assert plt.get_fignums() == []


def test_a_run_shows_its_last_checkpoint(run: Result, tied: Result) -> None:
    def drawn(result: Result) -> dict[str, str]:
        kernels = {name: array for name, array in result.arrays.items() if name.endswith("example_kernel")}
        few = replace(result, arrays=kernels, tables={})
        return {picture.name: picture.svg for picture in pictures(few)}

    assert "example_kernel" in drawn(run)
    assert drawn(run) == drawn(tied)


def test_pictures_speak(run: Result) -> None:
    training = next(picture for picture in pictures(replace(run, arrays={})) if picture.name == "training")
    assert training.section == "training"
    assert '"signs ++-" holds from optimiser step 10' in training.alt


def test_value_lens_draws_every_reference_and_control(ax: Axes, tied: Result) -> None:
    value_lens_figure(ax, tied)
    for finding in tied.find("value_lens"):
        drawn = line(ax, f"against the {finding.index['reference']}")
        estimates = np.array(finding.estimate, dtype=float)
        known = estimates > 1e-9
        close(drawn[known], estimates[known])
        assert np.isnan(drawn[estimates == 0]).all()
    assert "against iterates with exchanged rewards (control)" in labels(ax)
    assert "constant predictor against the true value (control)" in labels(ax)
    assert ax.get_yscale() == "log"
    assert [text.get_text() for text in ax.get_xticklabels()] == ["input", "0", "1", "2"]


def test_value_lens_has_the_interval_of_the_end(ax: Axes, tied: Result) -> None:
    value_lens_figure(ax, tied)
    bar = ax.containers[0].get_children()[-1].get_segments()[0]
    close(bar[:, 1], tied.find("msve_ratio")[0].interval)


@pytest.mark.parametrize("layer", [0, 2])
def test_example_draws_slots_iterates_and_truth(ax: Axes, tied: Result, layer: int) -> None:
    example_columns_figure(ax, tied, layer)
    close(line(ax, "current memory of the model"), tied.arrays["example_slots"].values[layer + 1])
    close(line(ax, "TD iterate"), tied.arrays["example_iterates"].values[layer + 1])
    close(line(ax, "true value"), tied.arrays["example_truth"].values)
    states = [str(state) for state in tied.arrays["example_states"].values.tolist()]
    assert [text.get_text() for text in ax.get_xticklabels()] == states


def test_scatter_states_the_difference(ax: Axes, tied: Result) -> None:
    shifted = replace(tied.arrays["example_slots"], values=tied.arrays["example_iterates"].values + 0.25)
    example_scatter_figure(ax, replace(tied, arrays={**tied.arrays, "example_slots": shifted}), 1)
    assert ax.texts[0].get_text() == "rms difference 0.25"


def test_unexplained_is_one_minus_r2(ax: Axes, untied: Result) -> None:
    half = [replace(f, estimate=0.75, interval=(0.5, 0.9)) if f.interval else f for f in untied.findings]
    unexplained_figure(ax, replace(untied, findings=tuple(half)))
    close(line(ax, "fitted to the values alone"), [0.25, 0.25])
    close(ax.collections[0].get_segments()[0][:, 1], [0.1, 0.5])
    found = untied.find("reparameterisation_r2", fit="function")
    controls = [1 - f.control.estimate for f in found if f.control and isinstance(f.control.estimate, float)]
    close(line(ax, "with exchanged rewards (control)"), controls)
    assert "predicting no update" in labels(ax)


def test_theory_is_the_construction_itself(tied: Result, untied: Result) -> None:
    assert [[pair.layer for pair in row] for row in matrix_pairs(tied)] == [["all", "all"]]
    for row in matrix_pairs(tied):
        for pair in row:
            close(pair.own, pair.theory)
    assert [row[0].layer for row in matrix_pairs(untied)] == [0, 1]
    assert [row[0].scale for row in matrix_pairs(untied)] == ["c = 4", "c = 8"]
    close(matrix_pairs(untied)[1][1].own, matrix_pairs(untied)[1][1].theory)


def test_cells_carry_values_names_and_hatching(ax: Axes, untied: Result) -> None:
    first = matrix_pairs(untied)[0][1]
    assert first.name == "V"
    assert first.slots == ["x1", "x2", "x3", "x4", "reward", "target", "current"]
    known = untied.arrays["identified_V"].values[0].numpy()
    assert not known[6, 5]  # the memories are empty at the input
    assert not known[6, 6]
    assert (first.hidden == ~known).all()
    with styled():
        matrix_figure(ax, first, limit=1.0)
    assert [text.get_text() for text in ax.texts if text.get_text()] == ["0.50"]
    hatched = [patch.get_xy() for patch in ax.patches if patch.get_hatch()]
    assert hatched == [(column, row) for row, column in np.argwhere(~known)]
    assert [text.get_text() for text in ax.get_yticklabels()] == first.slots
    assert (ax.get_ylabel(), ax.get_title(loc="left")) == ("slot that is written", "V of the model, layer 0")


def test_colours_are_centred_at_zero(ax: Axes, tied: Result) -> None:
    with styled():
        matrix_figure(ax, matrix_pairs(tied)[0][0], limit=4.0)
    mesh = ax.collections[0]
    assert mesh.get_clim() == (-4.0, 4.0)
    assert to_hex(mesh.to_rgba(0.0)) == to_hex(matplotlib.colormaps["RdBu_r"](0.5))


def test_masks_hide_what_they_say(untied: Result) -> None:
    known = torch.ones(2, 7, 7, dtype=torch.bool)
    known[1, 3, 2] = False
    masked = {**untied.arrays, "identified_A": Array(axes="layer D D", values=known)}
    pairs = matrix_pairs(replace(untied, arrays=masked))
    assert [np.argwhere(row[0].hidden).tolist() for row in pairs] == [[], [[3, 2]]]


def test_linear_attention_stands_beside_theta_td() -> None:
    d, p, alpha = 2, 2.0, 0.6
    P, Q = torch.zeros(2, 1, 5, 5, dtype=torch.float64)
    P[0, -1, -1] = p
    Q[0, range(d), range(d)], Q[0, range(d), range(d, 2 * d)] = -alpha / p, alpha / p
    arrays = {name: Array(axes="layer D D", values=x) for name, x in (("P", P), ("Q", Q))}
    size = next(
        f for f in analysed(theta_star(feature_dim=4, num_layers=1, gamma=0.5, alpha=alpha)).find("step_size")
    )
    pairs = matrix_pairs(Result(kind="in-context-rl", findings=(size,), arrays=arrays))[0]
    assert [pair.name for pair in pairs] == ["Q", "P"]
    for pair in pairs:
        close(pair.own, pair.theory)
        assert pair.slots == ["x1", "x2", "gamma x'1", "gamma x'2", "reward"]


def test_batch_td_draws_every_state_and_the_line_of_agreement(ax: Axes) -> None:
    own, td = torch.tensor([[0.5, -1.0], [2.0, 0.0]]), torch.tensor([[0.25, -3.0], [1.0, 0.0]])
    arrays = {
        name: Array(axes="batch state", values=x)
        for name, x in (("state_values", own), ("batch_td_values", td))
    }
    batch_td_figure(ax, Result(kind="in-context-rl", arrays=arrays))
    close(line(ax, "a state"), [0.5, -1.0, 2.0, 0.0])
    close(line(ax, "equal values"), [-3.0, 2.0])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("value by batch TD", "value by the model")


def test_histogram_counts_everything_and_names_the_threshold(ax: Axes, run: Result, tied: Result) -> None:
    known = replace(tied, provenance=run.provenance)
    population_diagonal_figure(ax, known, 0)
    diagonal = tied.arrays["population_diagonal"].values[0].numpy()
    shares = {patch.get_label(): patch.get_data() for patch in ax.patches}
    for label, values in (
        ("every state of every task", diagonal),
        ("least state of each task", diagonal.min(-1)),
    ):
        close(shares[label].values, 100 * np.histogram(values, shares[label].edges)[0] / values.size)
    assert "threshold (1 + gamma) / 2 of Assumption 5.1 = 0.75" in labels(ax)
    assert "even attention (control) = 0.1" in labels(ax)


def test_kernel_hatches_what_was_never_a_source(ax: Axes, tied: Result) -> None:
    states = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8])  # 8 ends the context, 9 is not in it
    known = {**tied.arrays, "example_states": Array(axes="pos", values=states)}
    example_kernel_figure(ax, replace(tied, arrays=known))
    assert [int(patch.get_x()) for patch in ax.patches if patch.get_hatch()] == [8, 9]


@pytest.mark.parametrize("figure", [value_error_figure, diagonal_figure, update_weights_figure])
def test_every_seed_is_drawn(ax: Axes, run: Result, figure: Callable[[Axes, Result], Axes]) -> None:
    figure(ax, run)
    curves = [each for each in ax.lines if len(each.get_xdata()) == len(STEPS)]
    assert len({each.get_marker() for each in curves} - {"None"}) == 2
    assert all(list(each.get_xdata()) == list(STEPS) for each in curves)
    assert ax.get_xscale() == "symlog"


def test_training_names_its_lines(ax: Axes, run: Result) -> None:
    diagonal_figure(ax, run)
    assert {"(1 + gamma) / 2 of Assumption 5.1", "three times the start (our criterion)"} <= labels(ax)
    heights = [float(each.get_ydata()[0]) for each in ax.lines if len(each.get_xdata()) == 2]
    close(np.array(sorted(heights)), [0.3, 0.75])


def test_training_shows_what_the_table_has(run: Result) -> None:
    table = run.tables["emergence"]
    assert len(training_panels(run)) == 4
    opaque = table.drop(columns=["w_R", "w_T", "w_C", "signs", "weight_cosine"])
    assert len(training_panels(replace(run, tables={"emergence": opaque}))) == 3
    free = [replace(f, estimate="unidentified") if f.name == "sign_pattern" else f for f in run.findings]
    assert update_weights_figure not in training_panels(replace(run, findings=tuple(free)))


@pytest.mark.parametrize(
    ("column", "threshold", "better"),
    [
        ("weight_cosine", COSINE, 1),
        ("within_chain_r2", WITHIN, 1),
        ("msve_vs_constant", A_THIRD, -1),
        ("kernel_diagonal_mean", TRIPLED * 0.1, 1),
    ],
)
def test_thresholds_are_those_of_emergence(column: str, threshold: float, better: int) -> None:
    (holds,) = (rule for name, rule in PROPERTIES.values() if name == column)
    assert holds(threshold + better * 1e-6, 0.1)
    assert not holds(threshold - better * 1e-6, 0.1)
