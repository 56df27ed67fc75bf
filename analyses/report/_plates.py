"""The plates of a report: which figures there are, what each needs, shows and says."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from valuelens.analyses._result import Result
from valuelens.analyses.report._credit_figures import costate_figure, gap_figure
from valuelens.analyses.report._kernel_figures import example_kernel_figure, population_diagonal_figure
from valuelens.analyses.report._matrix_figures import Pair, matrix_figure, matrix_pairs
from valuelens.analyses.report._neu_figures import depth_figure, plane_figure, segment_figure
from valuelens.analyses.report._style import blank, few_layers
from valuelens.analyses.report._training_figures import seed_marks, training_panels
from valuelens.analyses.report._value_figures import (
    example_columns_figure,
    example_scatter_figure,
    unexplained_figure,
    value_lens_figure,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plate:
    """A figure yet to be drawn.

    Attributes:
        section: Of the report.
        needs: Findings, arrays or tables without which it is left out.
        draw: Called inside `styled()`.
        caption: What is shown and how to read it.
        says: Findings that tell in words what it shows.
        run: Whether it is about a whole run.
    """

    section: str
    needs: tuple[str, ...]
    draw: Callable[[Result], Figure]
    caption: str
    says: tuple[str, ...]
    run: bool = False


def _lens(result: Result) -> Figure:
    figure = blank(6.6, 4.3)
    value_lens_figure(figure.subplots(), result)
    return figure


def _example(result: Result) -> Figure:
    layers = few_layers(len(result.arrays["example_slots"].values) - 1)
    figure = blank(9.6, 0.6 + 2.15 * len(layers))
    axes = figure.subplots(len(layers), 2, squeeze=False, width_ratios=[3.4, 1])
    for (left, right), layer in zip(axes, layers, strict=True):
        left.sharey(axes[0, 0])
        example_columns_figure(left, result, layer)
        example_scatter_figure(right, result, layer)
    axes[-1, 0].set_xlabel("state of each column of the context, in order; the last is the query")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    more = axes[0, 1].get_legend_handles_labels()
    figure.legend(handles + more[0], labels + more[1], loc="outside upper center", ncols=4)
    return figure


def _matrices(result: Result) -> Figure:
    rows = matrix_pairs(result)
    inches = float(np.clip(0.3 * len(rows[0][0].own), 2.4, 3.3))
    figure = blank(inches * 2 * len(rows[0]), (inches + 0.1) * len(rows) + 0.6)
    axes = figure.subplots(len(rows), 2 * len(rows[0]), squeeze=False)
    for k in range(len(rows[0])):
        limit = max(_largest(row[k]) for row in rows)
        for line, row in zip(axes, rows, strict=True):
            matrix_figure(line[2 * k], row[k], limit=limit)
            matrix_figure(line[2 * k + 1], row[k], theory=True, limit=limit)
            line[2 * k + 1].set(ylabel="", yticks=[])
        for line in axes[:-1]:
            line[2 * k].set_xlabel("")
            line[2 * k + 1].set_xlabel("")
    return figure


def _largest(pair: Pair) -> float:
    shown = np.abs(np.where(pair.hidden, 0, [pair.own, pair.theory]))
    return float(shown.max()) or 1.0


def _unexplained(result: Result) -> Figure:
    figure = blank(6.6, 4.0)
    unexplained_figure(figure.subplots(), result)
    return figure


def _diagonal(result: Result) -> Figure:
    count = len(result.arrays["population_diagonal"].values)
    layers = few_layers(count)
    figure = blank(max(6.6, 3.4 * len(layers)), 3.6)
    axes = figure.subplots(1, len(layers), squeeze=False, sharey=True)[0]
    for ax, layer in zip(axes, layers, strict=True):
        population_diagonal_figure(ax, result, layer)
        ax.set_title(
            "all layers" if result.find("population_diagonal_mean", layer="all") else f"layer {layer}"
        )
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _kernel(result: Result) -> Figure:
    size = len(result.arrays["example_kernel"].values)
    figure = blank(*(2 * [float(np.clip(0.42 * size, 3.4, 5.5))]))
    example_kernel_figure(figure.subplots(), result)
    return figure


def _segment(result: Result) -> Figure:
    figure = blank(9.6, 3.4)
    for ax, quantity in zip(figure.subplots(1, 2), ("NEU", "MSTDE"), strict=True):
        segment_figure(ax, result, quantity)
    return figure


def _planes(result: Result) -> Figure:
    planes = [plane for plane in ("checkpoint", "discount") if f"neu_plane_{plane}" in result.arrays]
    figure = blank(9.6, 3.4 * len(planes) + 0.3)
    axes = figure.subplots(len(planes), 2, squeeze=False)
    for row, plane in zip(axes, planes, strict=True):
        for ax, quantity in zip(row, ("NEU", "MSTDE"), strict=True):
            plane_figure(ax, result, plane, quantity)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def _depth(result: Result) -> Figure:
    figure = blank(8.0, 3.8)
    depth_figure(figure.subplots(), result)
    return figure


def _costates(result: Result) -> Figure:
    figure = blank(9.6, 3.6)
    axes = figure.subplots(1, 2, sharey=True)
    for ax, name, title in zip(
        axes,
        ("example_costates", "example_costates_fitted"),
        ("measured", "recursion, fitted weights"),
        strict=True,
    ):
        costate_figure(ax, result, name).set_title(title)
    axes[1].set_ylabel("")
    return figure


def _gaps(result: Result) -> Figure:
    figure = blank(6.6, 4.2)
    gap_figure(figure.subplots(), result)
    return figure


def _training(result: Result) -> Figure:
    panels = training_panels(result)
    rows = (len(panels) + 1) // 2
    figure = blank(9.6, 3.2 * rows + 0.3)
    axes = figure.subplots(rows, 2, squeeze=False).ravel()
    for ax, panel in zip(axes, panels, strict=False):
        panel(ax, result)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    marks = seed_marks(result)
    if len(marks) > 1:
        handles = [axes[0].plot([], [], color="#555555", marker=mark)[0] for _, mark in marks]
        figure.legend(handles, [f"seed {seed}" for seed, _ in marks], loc="outside upper center", ncols=8)
    return figure


PLATES = {
    "value_lens": Plate(
        section="values",
        needs=("value_lens",),
        draw=_lens,
        caption="Value lens: what is read at the query after every layer, against the true value, the iterate of the "
        "fitted TD rule at the same depth, and the model's own final layer. Lower is closer; the bar at the end is "
        "the 95 % interval over tasks. Exact zeros are not drawn and errors below 1e-9 are drawn there.",
        says=("value_lens",),
    ),
    "matrices": Plate(
        section="weights",
        needs=("A", "V"),
        draw=_matrices,
        caption="Attention matrix A and value matrix V of the model beside theta* at the fitted step size alpha and "
        "sharpness c. Empty cells are exactly zero; hatched cells are unidentified, no measurement can tell their "
        "value. With one-hot features A is known only up to a constant in each column.",
        says=("weights",),
    ),
    "matrices_linear": Plate(
        section="weights",
        needs=("P", "Q"),
        draw=_matrices,
        caption="Matrices P and Q of linear attention beside theta_TD at the fitted step size alpha. Empty cells are "
        "exactly zero; the common scale of P and Q is free and taken from P.",
        says=("step_size",),
    ),
    "unexplained": Plate(
        section="rule",
        needs=("reparameterisation_r2",),
        draw=_unexplained,
        caption="What the fitted TD rule leaves unexplained of every layer's value updates, on tasks that it was not "
        "fitted on. Lower is closer; values below 1e-9 are drawn there, and 1 is a rule that predicts no update.",
        says=("reparameterisation_r2",),
    ),
    "example": Plate(
        section="rule",
        needs=("example_slots", "example_iterates", "example_truth"),
        draw=_example,
        caption="Value slots of one context, the first one whatever it looks like, beside the iterates of weighted "
        "softmax TD with the fitted step size and attention. Right: the same marks, slot against iterate.",
        says=("functional_distance",),
    ),
    "population_diagonal": Plate(
        section="kernel",
        needs=("population_diagonal",),
        draw=_diagonal,
        caption="How much of its attention a state would give to itself in very long contexts, over all tasks. "
        "Assumption 5.1 asks that even the least state of a task lies right of the threshold; convergence does not "
        "need it.",
        says=("population_diagonal_mean", "assumption_margin"),
    ),
    "example_kernel": Plate(
        section="kernel",
        needs=("example_kernel",),
        draw=_kernel,
        caption="Attention between the states of the example context in the last layer, gathered by state: rows sum "
        "to 1, and the diagonal is what a state gives to itself. Hatched columns are states that the context never "
        "leaves, which nothing can attend to.",
        says=("kernel_diagonal_mean",),
    ),
    "neu_depth": Plate(
        section="neu",
        needs=("neu_depth", "neu_depth_lengths"),
        draw=_depth,
        caption="The order of limits: NEU of theta* with the fitted step size and sharpness against depth, over "
        "contexts of growing length and in the limit of endless ones. Over finite contexts more layers end at a "
        "floor; only without it do they go on. Values below 1e-16 are drawn there.",
        says=("neu_task",),
    ),
    "neu_segment": Plate(
        section="neu",
        needs=("neu_segment", "neu_segment_share"),
        draw=_segment,
        caption="NEU and mean squared TD error (MSTDE) on the straight way from theta*, with the checkpoint's own step "
        "size and sharpness, to the checkpoint. The true value is not the minimum of MSTDE.",
        says=("neu_task", "mstde"),
    ),
    "neu_planes": Plate(
        section="neu",
        needs=("neu_plane_checkpoint", "neu_plane_checkpoint_axes"),
        draw=_planes,
        caption="NEU and MSTDE over planes through theta*, on the first tasks: above, the way to the checkpoint and a "
        "random direction at right angles to it; below, step size and effective discount. Darker is larger, "
        "logarithmically, up to 100 times the least; the cross marks the least value of the grid.",
        says=("neu_task", "neu_gradient_norm"),
    ),
    "credit_gap": Plate(
        section="credit",
        needs=("credit_adjoint_gap",),
        draw=_gaps,
        caption="How far the recursion misses the measured credit, layer by layer, as a share of its norm. Lower is "
        "closer; gaps below 1e-16 are drawn there, bars are 95 % intervals over tasks.",
        says=("credit_adjoint_gap",),
    ),
    "costates": Plate(
        section="credit",
        needs=("example_costates", "example_costates_fitted"),
        draw=_costates,
        caption="Credit of each state of the example context for the value at the query: what one more unit of its "
        "value before a layer adds to the read-out, in units of the largest there. Left as measured by gradients, "
        "right the recursion with the fitted weights, started at the query and run back through all layers.",
        says=("credit_adjoint_gap",),
    ),
    "training": Plate(
        section="training",
        needs=("emergence",),
        draw=_training,
        caption="Training, one mark a checkpoint: value error, update weights, kernel diagonal, and agreement with TD "
        "and with true values. Dashed lines are controls and criteria, named on the line.",
        says=("emergence_step",),
        run=True,
    ),
}
"""By name of the file."""
