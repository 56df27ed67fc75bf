"""Plates on convergence, expected update, credit, other tasks and training."""

from matplotlib.figure import Figure

from valuelens.analyses._result import Result
from valuelens.analyses.report._convergence_figures import (
    context_error_figure,
    depth_error_figure,
    extrapolation_figure,
)
from valuelens.analyses.report._credit_figures import costate_figure, gap_figure
from valuelens.analyses.report._generalisation_figures import generalisation_figure
from valuelens.analyses.report._identify_figures import response_figure, rule_error_figure
from valuelens.analyses.report._neu_figures import depth_figure, plane_figure, segment_figure
from valuelens.analyses.report._plate import Plate, one
from valuelens.analyses.report._style import SOFT, blank
from valuelens.analyses.report._timeline_figures import timeline_figure
from valuelens.analyses.report._training_figures import seed_marks, training_panels


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


def _costates(result: Result) -> Figure:
    figure = blank(9.6, 3.6)
    axes = figure.subplots(1, 2, sharey=True)
    for ax, name, title in zip(
        axes,
        ("example_costates", "example_costates_fitted"),
        ("measured", "recursion, one step size"),
        strict=True,
    ):
        costate_figure(ax, result, name).set_title(title)
    axes[1].set_ylabel("")
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
        handles = [axes[0].plot([], [], color=SOFT, marker=mark)[0] for _, mark in marks]
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
    handles = [figure.axes[0].plot([], [], color=SOFT, marker=mark, linestyle="none")[0] for _, mark in marks]
    if len(marks) > 1:
        figure.legend(handles, [f"seed {seed}" for seed, _ in marks], loc="outside upper center", ncols=8)
    return figure


def _mean_words(result: Result) -> str:
    """What the bar of the timeline is, where it is drawn."""
    means = [f for f in result.find("emergence_over_seeds") if f.estimate is not None]
    if not means:
        return ""
    between = ", with its 95 % interval (Student's t of log steps)" if any(f.interval for f in means) else ""
    return f" The black bar is the geometric mean over seeds{between}, where every seed has the property."


def _seed_words(result: Result) -> str:
    """How seeds and their mean are drawn, where there are several."""
    if len(seed_marks(result)) < 2:
        return " There is one training seed, so nothing shows how seeds differ."
    means = result.tables.get("emergence_mean")
    banded = means is not None and bool(means["low"].notna().any())
    return (
        f" Seeds are thin, their mean is thick{', its band the 95 % interval over seeds' if banded else ''}."
    )


DYNAMICS: dict[str, Plate] = {
    "depth_error": Plate(
        section="convergence",
        needs=("depth_true_value",),
        draw=one(depth_error_figure, 4.3),
        caption="Largest error over the states of a context after every layer, on average over tasks with its 95 % "
        "interval shaded: towards the true value, and towards the fixed point of the context's own transitions, with "
        "what norm and radius predict for the latter. Bounds that leave the frame say nothing.",
        says=("depth_error", "depth_rate"),
    ),
    "context_error": Plate(
        section="convergence",
        needs=("context_lengths",),
        draw=one(context_error_figure, 4.5),
        caption="Largest error over the states of fresh contexts of every length, on average with its 95 % interval "
        "shaded. The value of the empirical chain is what theta* reaches with endless depth; its error falls by the "
        "law. The model's own limit is its value in an endless context.",
        says=("context_error", "floor_slope"),
    ),
    "extrapolation": Plate(
        section="convergence",
        needs=("extrapolation", "trained_depth"),
        draw=one(extrapolation_figure, 4.0),
        caption="Largest error over the states of a context when the tied layer is repeated more often than in "
        "training, on average with its 95 % interval shaded.",
        says=("depth_extrapolation", "population_radius"),
    ),
    "neu_depth": Plate(
        section="neu",
        needs=("neu_depth", "neu_depth_lengths"),
        draw=one(depth_figure, 3.8, width=8.0),
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
    "rule_errors": Plate(
        section="identify",
        needs=("rule_errors", "rule_error"),
        draw=one(rule_error_figure, 4.2),
        caption="What every rule leaves unexplained of each layer's squared updates on held-out tasks. Darker is less; "
        "0 is below a millionth, >1 is worse than no update at all.",
        says=("algorithm", "algorithm_margin"),
    ),
    "rule_responses": Plate(
        section="identify",
        needs=("response_errors", "rule_response", "rule_error"),
        draw=one(response_figure, 4.8),
        caption="How far every rule, run by itself with the parameters fitted on ordinary prompts, misses what an "
        "intervention changes in the last values, as a share of the squared response. Darker is closer; >1 is worse "
        "than no response.",
        says=("algorithm_class", "splitting_prompt"),
    ),
    "credit_gap": Plate(
        section="credit",
        needs=("credit_adjoint_gap",),
        draw=one(gap_figure, 4.2),
        caption="How far the recursion misses the measured credit, layer by layer, as a share of its norm. Own "
        "weights are the three of the layer, fitted weights (alpha, alpha, -alpha) of one step size. Lower is closer; "
        "gaps below 1e-16 are drawn there, bars are 95 % intervals over tasks.",
        says=("credit_adjoint_gap",),
    ),
    "costates": Plate(
        section="credit",
        needs=("example_costates", "example_costates_fitted"),
        draw=_costates,
        caption="Credit of each state of the example context for the value at the query: what one more unit of its "
        "value before a layer adds to the read-out, in units of the largest there. Left as measured by gradients, "
        "right the recursion with one fitted step size a layer, started at the query and run back through all "
        "layers.",
        says=("credit_adjoint_gap",),
    ),
    "generalisation": Plate(
        section="generalisation",
        needs=("generalisation",),
        draw=_generalisation,
        caption="Squared value errors on tasks that the model was not trained on, as multiples of the constant "
        "predictor's on the same contexts: left of the dashed line is better than seeing no state. Bars are 95 % "
        "intervals over tasks; an arrow stands for more than 20. The first row is the reference.",
        says=("generalises_to",),
    ),
    "emergence": Plate(
        section="training",
        needs=("emergence", "emergence_step"),
        draw=_timeline,
        caption="The optimiser step from which each property lasts until the end, one mark a seed; marks at the right "
        "never have it.",
        says=("emergence_order",),
        run=True,
        remark=_mean_words,
    ),
    "training": Plate(
        section="training",
        needs=("emergence",),
        draw=_training,
        caption="Training, one mark a checkpoint: value error, update weights, kernel diagonal, agreement with TD and "
        "with true values, effective discount and the map of endless contexts. MSVE is the squared value error at "
        "the query state. A large hollow ring is where a property begins to last. Dashed lines are controls and "
        "criteria, named on the line.",
        says=("emergence_step",),
        run=True,
        remark=_seed_words,
    ),
}
