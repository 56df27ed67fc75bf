"""Plates on a ranking of checkpoints: its arc over pretraining, what it foretold, and the RL runs behind."""

from collections.abc import Callable

from matplotlib.figure import Figure, SubFigure

from valuelens.analyses._result import Result
from valuelens.analyses.report._arc_figures import (
    arc_panels,
    flat_groups_figure,
    gain_arc_figure,
    reward_arc_figure,
    score_arc_figure,
)
from valuelens.analyses.report._impact_words import (
    all_series,
    flat_words,
    forest_words,
    learning_words,
    prediction_words,
)
from valuelens.analyses.report._learning_figures import learning_figure, learning_panels, learning_series
from valuelens.analyses.report._plate import Plate
from valuelens.analyses.report._prediction_figures import (
    best_rival,
    forest_figure,
    forest_legend,
    forest_rows,
    prediction_figure,
)
from valuelens.analyses.report._predictors import OURS, checkpoint_name
from valuelens.analyses.report._ranking import DRAWN, drawn_series, series_names
from valuelens.analyses.report._style import blank

_WIDE = 10.0
_NAME = 80
"""Inches of three panels, and characters of a series' name above its panels."""


def _arc(result: Result) -> Figure:
    series, panels = drawn_series(result), (score_arc_figure, gain_arc_figure, reward_arc_figure)
    drawn = panels if arc_panels(result) == len(panels) else (score_arc_figure, reward_arc_figure)
    figure = blank(_WIDE if len(drawn) > 2 else 7.4, 0.6 + 2.9 * len(series))
    for row, name in zip(_rows(figure, result, series), series, strict=True):
        for ax, draw in zip(row.subplots(1, len(drawn)), drawn, strict=True):
            draw(ax, result, name)
    _one_legend(figure)
    return figure


def _flat(result: Result) -> Figure:
    series = drawn_series(result)
    figure = blank(6.6, 2.9 + 0.17 * (len(series) if len(series) > 1 else 0))
    ax = flat_groups_figure(figure.subplots(), result, series)
    if len(series) > 1:
        figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=1)
    return figure


def _prediction(result: Result) -> Figure:
    series, rival = _predicted(result), best_rival(result)
    figure = blank(8.6, 0.4 + 3.3 * len(series))
    for row, name in zip(_rows(figure, result, series), series, strict=True):
        left, right = row.subplots(1, 2, sharey=True, sharex=True)
        prediction_figure(left, result, name, OURS)
        prediction_figure(right, result, name, rival)
        left.set_ylabel("realised gain in reward")
    _one_legend(figure)
    return figure


def _forest(result: Result) -> Figure:
    rows = forest_rows(result)
    figure = blank(9.4, 1.3 + 0.3 * len(rows))
    left, right = figure.subplots(1, 2, sharey=True)
    forest_figure(left, result, "gain", rows)
    forest_figure(right, result, "final_reward", rows)
    forest_legend(figure)
    return figure


def _learning(result: Result) -> Figure:
    series = learning_series(result)[:DRAWN]
    panels = {name: learning_panels(result, name) for name in series}
    width = max(map(len, panels.values()))
    figure = blank(max(4.6, 2.5 * width), 0.6 + 2.5 * len(series))
    for row, name in zip(_rows(figure, result, series), series, strict=True):
        axes = row.subplots(1, width, sharey=True, squeeze=False)[0]
        for ax, (label, why) in zip(axes, panels[name], strict=False):
            learning_figure(ax, result, name, label)
            ax.set_title("\n".join((checkpoint_name(label, step="step "), *why)), fontsize=8.5)
        for ax in axes[len(panels[name]) :]:
            ax.set_visible(False)
        axes[0].set_ylabel("mean reward of the rollouts")
    _one_legend(figure)
    return figure


def _rows(figure: Figure, result: Result, series: list[str]) -> list[SubFigure]:
    """A strip of the figure for each series, with its name where there are several."""
    rows: list[SubFigure] = figure.subfigures(len(series), 1, squeeze=False)[:, 0].tolist()
    if len(series_names(result)) > 1:
        for row, name in zip(rows, series, strict=True):
            row.suptitle(
                name if len(name) <= _NAME else f"{name[: _NAME - 1]}…", fontsize=9.5, fontweight="bold"
            )
    return rows


def _one_legend(figure: Figure) -> None:
    """Every label of all panels, once."""
    found = {
        label: line for ax in figure.axes for line, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=4)


def _predicted(result: Result) -> list[str]:
    known = set(result.tables["predictions"]["series"].astype(str))
    return [name for name in drawn_series(result) if name in known]


def _left_out(series: list[str]) -> str:
    more = len(series) > DRAWN
    return f" Drawn are the first {DRAWN} of {len(series)} series; the tables have them all." if more else ""


def _seed_words(result: Result) -> str:
    """Whether gains have intervals over RL seeds; nothing where no RL was run."""
    gains = [f for f in result.find("gain") if f.estimate is not None]
    if any(f.interval for f in gains):
        return " Bars are 95 % intervals over RL seeds."
    one = gains and all(f.n == 1 for f in gains)
    return " There was one RL seed, so no gain has an interval." if one else ""


def _run_words(result: Result) -> str:
    if result.tables["curves"]["rl_seed"].nunique() > 1:
        return " Thin lines are RL seeds, thick ones their mean."
    return " There was one RL seed."


def _has_scores(result: Result) -> bool:
    return len(result.tables["scores"]) > 0


def _words(tell: Callable[[Result, str], str]) -> Callable[[Result], str]:
    return lambda result: " ".join(tell(result, series) for series in drawn_series(result)[:3])


IMPACT = {
    "flat_groups": Plate(
        section="flat",
        needs=("scores",),
        applies=_has_scores,
        draw=_flat,
        caption="Share of groups whose rewards are all equal. Such a group has no advantage: it costs as much as any "
        "other and teaches nothing. At 1, trainers report reward and loss 0 and nothing else.",
        says=(),
        tells=_words(flat_words),
        remark=lambda result: _left_out(series_names(result)),
    ),
    "impact_arc": Plate(
        section="arc",
        needs=("scores",),
        applies=_has_scores,
        draw=_arc,
        caption="The arc over pretraining. Left: signal, headroom and their product, each divided by its largest value "
        "in the series (above the panel), so that only the shape can be compared. Middle, where RL was run: what "
        "it gained on held-out prompts, and the same with credit through time cut; a hollow triangle is the most gain. "
        "Right: mean reward before RL, and after it. The dotted line is the recommended checkpoint: for the most gain "
        "(left, middle), for the most reward after RL (right).",
        says=(),
        tells=all_series,
        remark=lambda result: _seed_words(result) + _left_out(series_names(result)),
    ),
    "predicted_gain": Plate(
        section="judgement",
        needs=("predictions",),
        applies=lambda result: bool(_predicted(result)),
        draw=_prediction,
        caption="Predicted against realised gain, on the same axes for the score (left) and a rival (right): the best "
        "one by correlation, or, where nothing was correlated, one whose choice costs least. Across: the checkpoint's "
        "rank, the larger the better it should be; up: what RL gained. A ring is the recommended checkpoint. "
        "A predictor is good if the points rise from left to right, and safe to act on if the rightmost is "
        "the highest.",
        says=(),
        tells=_words(prediction_words),
        remark=lambda result: _seed_words(result) + _left_out(series_names(result)),
    ),
    "spearman": Plate(
        section="judgement",
        needs=("judgement",),
        applies=lambda result: bool(forest_rows(result)),
        draw=_forest,
        caption="Spearman correlation of every predictor, pooled over series, with its 95 % interval (solid) and the "
        "naive one that takes checkpoints for independent (dotted, above). The diamond is primary, named "
        "in advance; circles are exploratory. Small grey bars are single series. Dashed lines (published) and tall "
        "orange bars (our pilots, on other runs) are references, not a pass mark.",
        says=(),
        tells=forest_words,
    ),
    "learning_curves": Plate(
        section="runs",
        needs=("curves",),
        applies=lambda result: bool(learning_series(result)),
        draw=_learning,
        caption="Mean reward of the rollouts that each RL step was taken on. Dashed: the same runs with credit "
        "through time cut (keys and values from a detached residual stream); where the lines agree, attention carried "
        "no credit that mattered.",
        says=(),
        tells=learning_words,
        remark=lambda result: _run_words(result) + _left_out(learning_series(result)),
    ),
}
"""By name of the file."""
