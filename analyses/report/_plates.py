"""The plates of a report: which figures there are, what each needs, shows and says."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from valuelens.analyses._result import Result
from valuelens.analyses.report._convergence_figures import (
    context_error_figure,
    depth_error_figure,
    extrapolation_figure,
)
from valuelens.analyses.report._generalisation_figures import generalisation_figure
from valuelens.analyses.report._kernel_figures import (
    contraction_share_figure,
    example_kernel_figure,
    population_diagonal_figure,
    state_diagonal_figure,
)
from valuelens.analyses.report._matrix_figures import Pair, matrix_figure, matrix_pairs
from valuelens.analyses.report._style import blank, few_layers
from valuelens.analyses.report._timeline_figures import timeline_figure
from valuelens.analyses.report._training_figures import seed_marks, training_panels
from valuelens.analyses.report._value_figures import (
    batch_td_figure,
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


def _one(draw: Callable[[Axes, Result], Axes], height: float) -> Callable[[Result], Figure]:
    """A figure of one panel."""

    def plate(result: Result) -> Figure:
        figure = blank(6.6, height)
        draw(figure.subplots(), result)
        return figure

    return plate


def _lens(result: Result) -> Figure:
    figure = blank(6.6, 4.3)
    value_lens_figure(figure.subplots(), result)
    return figure


def _batch_td(result: Result) -> Figure:
    figure = blank(4.6, 4.2)
    batch_td_figure(figure.subplots(), result)
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


def _states(result: Result) -> Figure:
    layers = few_layers(len(result.arrays["population_diagonal"].values))
    figure = blank(max(6.6, 3.4 * len(layers)), 3.6)
    axes = figure.subplots(1, len(layers), squeeze=False, sharey=True)[0]
    for ax, layer in zip(axes, layers, strict=True):
        state_diagonal_figure(ax, result, layer)
        if len(layers) > 1:
            ax.set_title(f"layer {layer}")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _kernel(result: Result) -> Figure:
    size = len(result.arrays["example_kernel"].values)
    figure = blank(*(2 * [float(np.clip(0.42 * size, 3.4, 5.5))]))
    example_kernel_figure(figure.subplots(), result)
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


def _generalisation(result: Result) -> Figure:
    rows = len({finding.index["shift"] for finding in result.find("generalisation")})
    figure = blank(7.2, 1.6 + 0.34 * rows)
    generalisation_figure(figure.subplots(), result)
    return figure


def _timeline(result: Result) -> Figure:
    rows = len({finding.index["property"] for finding in result.find("emergence_step")})
    figure = blank(8.4, 1.0 + 0.42 * rows)
    timeline_figure(figure.subplots(), result)
    marks = seed_marks(result)
    handles = [
        figure.axes[0].plot([], [], color="#555555", marker=mark, linestyle="none")[0] for _, mark in marks
    ]
    if len(marks) > 1:
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
    "batch_td": Plate(
        section="rule",
        needs=("state_values", "batch_td_values"),
        draw=_batch_td,
        caption="Values of the model against those of batch TD at the nearest step sizes on the same contexts, one "
        "mark a state, 64 tasks. On the line they agree.",
        says=("value_difference", "implicit_weight_similarity"),
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
    "state_diagonal": Plate(
        section="kernel",
        needs=("population_diagonal", "empirical_diagonal", "stationary"),
        draw=_states,
        caption="How much of its attention each state gives to itself, in very long contexts and in the contexts that "
        "were seen: the median over tasks, and the range of nine tenths of them. Assumption 5.1 asks that every state "
        "of a task lies above the line in very long contexts.",
        says=("population_diagonal_min", "assumption_share"),
    ),
    "contraction_share": Plate(
        section="kernel",
        needs=("assumption_share", "contraction_share"),
        draw=_one(contraction_share_figure, 2.4),
        caption="On how many tasks Assumption 5.1 holds, beside how many have an update that contracts in very long "
        "contexts, by the infinity norm (every step) and by the spectral radius (late steps), in the last layer. Bars "
        "at a mark are exact 95 % intervals; the cross below is the control.",
        says=("assumption_share", "contraction_share"),
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
    "depth_error": Plate(
        section="convergence",
        needs=("depth_true_value",),
        draw=_one(depth_error_figure, 4.3),
        caption="Largest error over the states of a context after every layer, on average over tasks with its 95 % "
        "interval shaded: towards the true value, and towards the fixed point of the context's own transitions, with "
        "what norm and radius predict for the latter. Bounds that leave the frame say nothing.",
        says=("depth_error", "depth_rate"),
    ),
    "context_error": Plate(
        section="convergence",
        needs=("context_lengths",),
        draw=_one(context_error_figure, 4.5),
        caption="Largest error over the states of fresh contexts of every length, on average with its 95 % interval "
        "shaded. The value of the empirical chain is what theta* reaches with endless depth; its error falls by the "
        "law. The model's own limit is its value in an endless context.",
        says=("context_error", "floor_slope"),
    ),
    "extrapolation": Plate(
        section="convergence",
        needs=("extrapolation", "trained_depth"),
        draw=_one(extrapolation_figure, 4.0),
        caption="Largest error over the states of a context when the tied layer is repeated more often than in "
        "training, on average with its 95 % interval shaded.",
        says=("depth_extrapolation", "population_radius"),
    ),
    "generalisation": Plate(
        section="generalisation",
        needs=("generalisation",),
        draw=_generalisation,
        caption="Value errors on tasks that the model was not trained on, as multiples of the constant predictor's on "
        "the same contexts: left of the dashed line is better than seeing no state. Bars are 95 % intervals over "
        "tasks; an arrow stands for more than 20. The first row is the reference.",
        says=("generalises_to",),
    ),
    "emergence": Plate(
        section="training",
        needs=("emergence", "emergence_step"),
        draw=_timeline,
        caption="The optimiser step from which each property lasts until the end, one mark a seed. The black bar is "
        "the geometric mean over seeds with its 95 % interval (Student's t of log steps), where every seed has it and "
        "there are five; marks at the right never have it.",
        says=("emergence_order",),
        run=True,
    ),
    "training": Plate(
        section="training",
        needs=("emergence",),
        draw=_training,
        caption="Training, one mark a checkpoint: value error, update weights, kernel diagonal, agreement with TD and "
        "with true values, effective discount and the map of endless contexts. Several seeds are thin, their mean is "
        "thick, its band the 95 % interval over seeds; a ring is where a property begins to last. Dashed lines are "
        "controls and criteria, named on the line.",
        says=("emergence_step",),
        run=True,
    ),
}
"""By name of the file."""
