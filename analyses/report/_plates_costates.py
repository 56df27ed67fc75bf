"""Plates on language models: the diagnosis of their rewards, and their costates."""

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from valuelens.analyses._result import Result
from valuelens.analyses.report._costate_figures import (
    by_layer_figure,
    costate_norm_figure,
    locality_figure,
    rollouts_figure,
)
from valuelens.analyses.report._diagnosis_figures import (
    group_entropy_figure,
    group_rewards_figure,
    reward_std_figure,
)
from valuelens.analyses.report._hop_figures import hop_map_figure, hop_share_figure
from valuelens.analyses.report._interactive import hops_data
from valuelens.analyses.report._plate import Plate
from valuelens.analyses.report._style import INK, blank


def _rewards(result: Result) -> Figure:
    figure = blank(9.4, 3.7)
    left, middle, right = figure.subplots(1, 3, width_ratios=[2, 1.1, 1.2])
    group_rewards_figure(left, result)
    reward_std_figure(middle, result)
    group_entropy_figure(right, result)
    lines, labels = left.get_legend_handles_labels()
    more = [each for each in zip(*middle.get_legend_handles_labels(), strict=True) if each[1] not in labels]
    figure.legend(
        [*lines, *(line for line, _ in more)],
        [*labels, *(label for _, label in more)],
        loc="outside lower center",
        ncols=4,
    )
    return figure


def _by_position(draw: Callable[[Axes, Result], Axes]) -> Callable[[Result], Figure]:
    def plate(result: Result) -> Figure:
        figure = blank(6.6, 3.9)
        ax = draw(figure.subplots(), result)
        figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return figure

    return plate


def _signal(result: Result) -> Figure:
    figure = blank(9.2, 4.4)
    left, right = figure.subplots(1, 2)
    by_layer_figure(left, result, "signal_to_noise").set_ylabel("signal-to-noise of one rollout")
    left.axhline(0, color=INK, linewidth=0.8)
    rollouts_figure(right, result)
    return figure


def _enumerated(result: Result) -> Figure:
    figure = blank(9.2, 3.8)
    left, right = figure.subplots(1, 2)
    by_layer_figure(left, result, "cosine", against="enumerated").set(
        ylabel="cosine with the value gradient", ylim=(-1.05, 1.05)
    )
    by_layer_figure(right, result, "gap_discrete").set_ylabel("gap / norm of the value gradient")
    right.set_ylim(bottom=0)
    return figure


def _hops(result: Result) -> Figure:
    figure = blank(9.2, 3.8)
    left, right = figure.subplots(1, 2)
    hop_share_figure(left, result)
    hop_map_figure(right, result)
    return figure


_NORM = "As a layer, norm is the state after the final norm."

COSTATES = {
    "group_rewards": Plate(
        section="diagnosis",
        needs=("groups", "reward", "reward_std"),
        draw=_rewards,
        caption="Rewards prompt by prompt. Left: the groups in the order of their mean reward; a group whose rewards "
        "are all equal (a hollow square) has no advantage and teaches nothing. Middle: how many groups have which "
        "standard deviation of rewards. Right: the policy's entropy by mean reward.",
        says=("frac_reward_zero_std", "reward_std"),
    ),
    "costate_norms": Plate(
        section="costates",
        needs=("positions", "costate_norm"),
        draw=_by_position(costate_norm_figure),
        caption="Norm of a rollout's costate along its states, noise included. A hollow mark is the norm of a group's "
        "mean, freed of noise, at the start state, the one state of a completion that a group shares.",
        says=("costate_norm",),
    ),
    "costate_locality": Plate(
        section="costates",
        needs=("positions", "locality"),
        draw=_by_position(locality_figure),
        caption="Share of a costate that comes from the state's own token, along the completion; the rest is credit "
        "from later tokens. The dashed line is the control, averaged over states and layers; shaded is its range over "
        "layers.",
        says=("locality",),
    ),
    "costate_signal": Plate(
        section="costates",
        needs=("signal_to_noise",),
        draw=_signal,
        caption="Signal and noise at the start state that a group shares. Left: squared norm of the mean costate / "
        "trace of the covariance from rollout to rollout, with 95 % intervals over groups; what permuted advantages "
        f"show is chance. {_NORM} Right: the cosine with its expectation (of the surrogate: with the value gradient) "
        "that a mean of so many rollouts would have by this ratio; shaded is the same interval, a hollow mark is where "
        "0.9 is reached.",
        says=("signal_to_noise", "rollouts_needed"),
    ),
    "costate_enumerated": Plate(
        section="costates",
        needs=("cosine", "gap_discrete"),
        draw=_enumerated,
        caption="The mean costate of a group at its start state against the value gradient, known here because all "
        "continuations were enumerated. Left: their cosine. Right: the norm of their difference; its control is what "
        f"the noise of an unbiased mean alone would give. Bars are 95 % intervals over groups. {_NORM}",
        says=("cosine", "gap_discrete"),
    ),
    "credit_by_hop": Plate(
        section="hops",
        needs=("hops", "hop_share"),
        draw=_hops,
        caption="Credit of the differentiable reward by the number of sampled tokens that it crossed. Left: its share "
        "of the relaxed sum (shares add up to 1 and may be negative); bars are 95 % intervals over groups. Right: the "
        "map of that credit along the completion, on a logarithmic scale; credit from far behind crosses more tokens.",
        says=("hop_share", "gap_relaxed"),
        explored=hops_data,
    ),
}
"""By name of the file."""
