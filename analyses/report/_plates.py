"""The plates of a report: which figures there are, what each needs, shows and says."""

import numpy as np
from matplotlib.figure import Figure

from valuelens.analyses._result import Result
from valuelens.analyses.report._interactive import lens_data
from valuelens.analyses.report._kernel_figures import (
    contraction_share_figure,
    example_kernel_figure,
    population_diagonal_figure,
    state_diagonal_figure,
)
from valuelens.analyses.report._matrix_figures import Pair, matrix_figure, matrix_pairs
from valuelens.analyses.report._phrases import questions_of
from valuelens.analyses.report._plate import Plate, one
from valuelens.analyses.report._plates_costates import COSTATES
from valuelens.analyses.report._plates_dynamics import DYNAMICS
from valuelens.analyses.report._plates_impact import IMPACT
from valuelens.analyses.report._plates_opaque import OPAQUE
from valuelens.analyses.report._style import blank, few_layers
from valuelens.analyses.report._value_figures import (
    batch_td_figure,
    example_columns_figure,
    example_scatter_figure,
    unexplained_figure,
    value_lens_figure,
)


def _iterate_words(result: Result) -> str:
    """Which of two rules the TD iterate is of; a linear or opaque model has none."""
    known = result.find("value_lens", reference="TD iterate")
    return " The TD iterate is of weighted softmax TD with one fitted step size a layer." if known else ""


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
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _kernel(result: Result) -> Figure:
    size = len(result.arrays["example_kernel"].values)
    figure = blank(*(2 * [float(np.clip(0.42 * size, 3.4, 5.5))]))
    example_kernel_figure(figure.subplots(), result)
    return figure


PLATES = {
    "value_lens": Plate(
        section="values",
        needs=("value_lens",),
        draw=one(value_lens_figure, 4.3),
        caption="Value lens: what is read at the query state after every layer, against the true value, the TD iterate "
        "at the same depth, and the model's own final layer; all as squares over the mean squared true value at the "
        "query state. Lower is closer; the bar at the end is the 95 % interval over tasks. Exact zeros are not drawn "
        "and errors below 1e-9 are drawn there.",
        says=("value_lens",),
        remark=_iterate_words,
        explored=lens_data,
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
        draw=one(unexplained_figure, 4.0),
        caption="What softmax TD with three free weights leaves unexplained of every layer's value updates, on tasks "
        "that it was not fitted on. Lower is closer; values below 1e-9 are drawn there, and 1 is a rule that predicts "
        "no update.",
        says=("reparameterisation_r2",),
    ),
    "example": Plate(
        section="rule",
        needs=("example_slots", "example_iterates", "example_truth"),
        draw=_example,
        caption="Value slots of one context, the first one whatever it looks like, beside the iterates of weighted "
        "softmax TD with one fitted step size a layer and the layer's own attention. Right: the same marks, slot "
        "against iterate.",
        says=("functional_distance",),
    ),
    "batch_td": Plate(
        section="rule",
        needs=("state_values", "batch_td_values"),
        draw=one(batch_td_figure, 4.2, width=4.6),
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
        draw=one(contraction_share_figure, 2.4),
        caption="On how many tasks Assumption 5.1 holds, beside how many have an update that contracts in very long "
        "contexts, by the infinity norm (every step) and by the spectral radius (late steps), in the last layer. Bars "
        "at a mark are exact 95 % intervals; the cross above is the control.",
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
    **OPAQUE,
    **DYNAMICS,
    **COSTATES,
    **IMPACT,
}
"""By name of the file."""


def plates_of(result: Result) -> dict[str, Plate]:
    """All plates, last those that questions draw themselves, also of installed packages.

    Args:
        result: Any.
    """
    own = {
        f"{section}_{name}": Plate(
            section=section,
            needs=drawing.needs,
            draw=one(drawing.draw, drawing.height),
            caption=drawing.caption,
            says=drawing.says,
        )
        for section, question in questions_of(result.findings).items()
        for name, drawing in question.drawings.items()
    }
    return PLATES | own
