"""The algorithm of a network, and how sure we are of it (theory A13).

Shape legend: `rule` one of `ALGORITHMS`, `layer` L, `batch` held-out tasks.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float
from scipy import optimize
from torch import Tensor

from valuelens.analyses._identify_classes import (
    CERTAIN,
    EXPLAINED,
    FLOOR,
    Response,
    common_rules,
    layer_classes,
    named_rule,
    unrefuted,
)
from valuelens.analyses._identify_layers import ALGORITHMS, LayerScores, layer_data, whole_data
from valuelens.analyses._identify_sight import Sight, end_to_end, exchanged_errors, responses_of, sight_of
from valuelens.models import InputError, Shown
from valuelens.models.icrl import Context, Network
from valuelens.probe import discount_influence, ratio_interval, weight_spread

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What an identification rests on, all of it on held-out tasks.

    Attributes:
        scores: Predictions by layer.
        responses: By counterfactual prompt.
        exchanged: Mean error over layers of every rule that is given the rewards of other tasks.
        last: The network's last values.
        ends: Those of every rule that runs by itself from v = 0.
    """

    scores: LayerScores
    responses: Mapping[str, Response]
    exchanged: Float[Tensor, "rule"]
    last: Float[Tensor, "batch shown"]
    ends: Float[Tensor, "rule batch shown"]


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Identification(Shown):
    """The verdict on a network, and what it rests on.

    Attributes:
        algorithm: One of `ALGORITHMS`, `DIFFERENT`, `NONE` or `UNDECIDED`.
        members: Algorithms that agree with the named one on these prompts, itself among them.
        margin: Mean over layers of the held-out error of the best rule outside the class minus the winner's.
        interval: Of the margin, over tasks.
        runner_up: That best rule outside the class.
        effective_discount: Of the named rule, w_T / |w_C| pooled over layers.
        discount_interval: Its 95 % interval over tasks.
        errors: Held-out unexplained share of the squared update, for each algorithm and layer.
        layer_members: The class of every layer; none for a layer that does nothing.
        end_to_end: Squared error of each rule that runs by itself from v = 0, as a share of the squared last values.
        responses: By counterfactual prompt: squared error of each rule's response, as a share of the network's.
        splits: By counterfactual prompt: largest squared difference of members' responses, as that share.
        splitting_prompt: The prompt that would split the class best, or why there is none.
        unread: Share of the squared returned values that the slots miss.
        layered: Whether layers were seen; else (`unread` above `UNREAD`) rules ran end to end against the returned
            values, with the same parameters at every step, and `errors` has one column.
        winner: Position of the named rule among `ALGORITHMS`, or of the best one where none is named.
        second: Position of the runner-up.
        evidence: What the network and every rule did on the held-out tasks.
    """

    algorithm: str
    members: tuple[str, ...]
    margin: float | None
    interval: Interval | None
    runner_up: str | None
    effective_discount: float | None
    discount_interval: Interval | None
    errors: Float[Tensor, "rule layer"]
    layer_members: tuple[tuple[str, ...] | None, ...]
    end_to_end: Float[Tensor, "rule"]
    responses: dict[str, Float[Tensor, "rule"]]
    splits: dict[str, float]
    splitting_prompt: str | None
    unread: float
    layered: bool
    winner: int
    second: int | None
    evidence: Evidence

    def table(self) -> pd.DataFrame:
        """What each rule leaves unexplained, a line a rule, the best first: layer by layer, and run end to end."""
        columns = (
            [f"layer {layer}" for layer in range(self.errors.shape[1])] if self.layered else ["whole run"]
        )
        table = pd.DataFrame(self.errors.numpy(), columns=columns)
        table.insert(0, "rule", list(ALGORITHMS))
        table["end to end"] = self.end_to_end.numpy()
        order = table[columns].mean(axis=1).sort_values(kind="stable").index
        return table.loc[order].reset_index(drop=True)

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """The name, how much worse the best other rule is, and what cannot be told apart."""
        alike = [name for name in self.members if name != self.algorithm]
        margin = "none" if self.margin is None else f"{self.margin:.3g}{_limits(self.interval)}"
        discount = self.effective_discount
        rows: dict[str, object] = {
            "margin": f"{margin} (over {self.runner_up})" if self.runner_up else margin,
            "cannot be told from": ", ".join(alike) or "no other rule",
            "effective discount": "not identified"
            if discount is None
            else f"{discount:.3g}{_limits(self.discount_interval)}",
            "a prompt that would split": self.splitting_prompt or "none",
            "seen": "layer by layer" if self.layered else "end to end",
        }
        return f"Algorithm: {self.algorithm}", rows

    def preview(self) -> pd.DataFrame:
        """The best rules."""
        return self.table()


def _limits(interval: Interval | None) -> str:
    return "" if interval is None else f" [{interval[0]:.3g}, {interval[1]:.3g}]"


def identification(network: Network, context: Context, *, seed: int = 0) -> Identification:
    """Identify the algorithm of a network from its slots on ordinary and on counterfactual prompts.

    Rules are fitted layer by layer on the first half of the tasks and scored on the second. Those whose predictions
    differ from the best one's by less than the noise (what the best one leaves unexplained, at least a millionth of
    the squared update), or whose error does not certainly exceed its error, are one class. The class of the network is
    what all its layers have in common; named is the member with the fewest free parameters.

    Args:
        network: Its adapter: a callable and the names of its hooks; nothing else is looked at.
        context: One context for each of at least eight tasks.
        seed: Of the counterfactual prompts and of resampling.

    Raises:
        InputError: Too few tasks or transitions, or the network's slots cannot be read.
    """
    if len(context.states) < 8 or context.num_transitions < 4:
        found = f"found {len(context.states)} of {context.num_transitions}"
        raise InputError("an identification needs 8 contexts of 4 transitions", found, "identification")
    sight = sight_of(network, context)
    classes = layer_classes(sight.scores)
    common = common_rules(sight.scores, classes)
    responses = responses_of(sight, seed)
    common = unrefuted(common, responses)
    algorithm, named = named_rule(common, classes, sight.scores)
    winner = named if named is not None else _best(common or set(range(len(ALGORITHMS))), sight.scores)
    second = _second(winner, common, sight.scores)
    margin, interval = (None, None) if second is None else _margin(winner, second, sight.scores, seed)
    discount, limits = _discount(winner, sight) if common else (None, None)
    last, ends = end_to_end(sight)
    splits = {name: response.split(common) for name, response in responses.items()}
    noise = max(float(sight.scores.errors[winner].nanmean().nan_to_num(0)), FLOOR)
    widest = max(splits, key=splits.__getitem__, default=None)
    return Identification(
        algorithm=algorithm,
        members=_algorithms(common),
        margin=margin,
        interval=interval,
        runner_up=None if second is None else ALGORITHMS[second],
        effective_discount=discount,
        discount_interval=limits,
        errors=sight.scores.errors,
        layer_members=tuple(each if each is None else _algorithms(each) for each in classes),
        end_to_end=(ends - last).square().sum((1, 2)) / last.square().sum(),
        responses={name: response.errors for name, response in responses.items()},
        splits=splits,
        splitting_prompt=widest if widest and len(common) > 1 and splits[widest] > noise else None,
        unread=sight.unread,
        layered=sight.runs is None,
        winner=winner,
        second=second,
        evidence=Evidence(
            scores=sight.scores,
            responses=responses,
            exchanged=exchanged_errors(sight),
            last=last,
            ends=ends,
        ),
    )


def _algorithms(rules: set[int]) -> tuple[str, ...]:
    return tuple(ALGORITHMS[rule] for rule in sorted(rules))


def _best(rules: set[int], scores: LayerScores) -> int:
    pooled = scores.errors.nanmean(-1).nan_to_num(torch.inf)
    return min(rules, key=lambda rule: float(pooled[rule]))


def _second(winner: int, common: set[int], scores: LayerScores) -> int | None:
    """The best rule outside the class."""
    outside = set(range(len(ALGORITHMS))) - common - {winner}
    return _best(outside, scores) if bool(scores.active.any()) and outside else None


def _margin(winner: int, second: int, scores: LayerScores, seed: int) -> tuple[float, Interval | None]:
    """Mean over active layers of the error of the second less the winner's."""
    tasks = pooled_residuals(scores, second) - pooled_residuals(scores, winner)
    return float(tasks.sum()), ratio_interval(tasks, torch.full_like(tasks, 1 / len(tasks)), seed=seed)


def pooled_residuals(scores: LayerScores, rule: int) -> Float[Tensor, "batch"]:
    """What every task contributes to the mean over active layers of a rule's error.

    Args:
        scores: Of all rules.
        rule: Its position among `RULES`.
    """
    weight = torch.where(scores.active, 1 / (scores.sizes * scores.active.sum()), 0.0)
    return (scores.residuals[rule] * weight[:, None]).sum(0)


def _discount(winner: int, sight: Sight) -> tuple[float | None, Interval | None]:
    """Effective discount with its interval over held-out tasks."""
    if sight.runs is None:
        return _layered_discount(winner, sight)
    run, held_out = sight.runs[winner], slice(sight.half, None)
    influence = discount_influence(
        run, whole_data(sight.seen.context, held_out), sight.seen.values[-1, held_out]
    )
    return (None, None) if influence is None else _with_limits(run.parameters["discount"], influence)


def _layered_discount(winner: int, sight: Sight) -> tuple[float | None, Interval | None]:
    """w_T / |w_C| solved on the held-out half, layers weighed by how well they know it.

    A layer whose values are negligible beside its update (the first one, which starts from none) knows nothing of it.
    """
    places, scores = sight.scores.fits[winner][0].rule.discounts, sight.scores
    if places is None:
        return None, None
    target, current = places
    estimates, influences = [], []
    for layer, fit in enumerate(scores.fits[winner]):
        data = layer_data(sight.seen, layer, slice(sight.half, None))
        spread = weight_spread(fit, data)
        size = scores.updates[layer].square().sum()
        left = scores.residuals[winner, layer].sum() / size
        heard = fit.rule.terms(data, fit.shape)[..., [target, current]].square().sum((0, 1)) > FLOOR * size
        if not (
            bool(left <= 1 - EXPLAINED)
            and bool(heard.all())
            and bool(scores.active[layer])
            and bool(spread.identified.all())
            and spread.weights[current] != 0
        ):
            continue
        w, u = spread.weights, spread.influence
        ratio = w[target] / w[current].abs()
        estimates.append(ratio)
        influences.append((u[:, target] - ratio * u[:, current] * w[current].sign()) / w[current].abs())
    if not estimates:
        return None, None
    return _pooled(torch.stack(estimates), torch.stack(influences))


def _pooled(estimates: Tensor, influence: Tensor) -> tuple[float, Interval]:
    """Layers weighed by precision, with a variance between them where they disagree (Paule and Mandel, 1982)."""
    within = influence.square().sum(-1) + (FLOOR / 10) ** 2

    def excess(between: float) -> float:
        precision = 1 / (within + between)
        mean = (precision * estimates).sum() / precision.sum()
        return float((precision * (estimates - mean).square()).sum()) - (len(estimates) - 1)

    between = 0.0
    if len(estimates) > 1 and excess(0.0) > 0:  # of a single one, what exceeds is rounding
        between = float(optimize.brentq(excess, 0.0, float(estimates.square().sum()) + 1))
    precision = 1 / (within + between)
    weights = precision / precision.sum()
    sampled = (weights[:, None] * influence).sum(0).square().sum()
    error = CERTAIN * float((sampled + between * weights.square().sum()).sqrt()) + FLOOR
    mean = float((weights * estimates).sum())
    return mean, (mean - error, mean + error)


def _with_limits(estimate: float, influence: Tensor) -> tuple[float, Interval]:
    error = CERTAIN * float(influence.square().sum().sqrt()) + FLOOR
    return estimate, (estimate - error, estimate + error)
