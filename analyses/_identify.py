"""Which algorithm does a network run, and how sure are we? (theory A9)

Shape legend: `rule` the forms of `RULES`, `layer` L, `batch` held-out tasks, `pos` columns of a context.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._identify_layers import (
    NEGLIGIBLE,
    LayerScores,
    layer_data,
    layer_scores,
    returned_scores,
    rolled,
    whole_data,
)
from valuelens.analyses._observation import Observation, observe, observe_returned, read_out_of
from valuelens.models import InputError
from valuelens.models.icrl import Context, Network, counterfactuals
from valuelens.probe import RULES, Run, discount_influence, ratio_interval, weight_spread

DIFFERENT, NONE, UNDECIDED = "different rules in different layers", "none of these", "cannot tell these apart"

ALGORITHMS = tuple(dict.fromkeys(rule.name for rule in RULES.values()))
"""What a verdict may name; or `DIFFERENT`, `NONE`, `UNDECIDED`."""

EXPLAINED = 0.95
"""Share of the squared held-out updates of a layer that a rule must explain to count (our definition)."""

FLOOR = 1e-6
"""Predictions that differ by less than a thousandth of the update are the same (our definition)."""

Interval = tuple[float, float]

UNREAD = 1e-3
"""Share of the squared returned values that slots may miss and still be read layer by layer (our definition)."""

_NAMES = tuple(RULES)
_RULES = tuple(RULES.values())
_CERTAIN = 1.98
_STILL = 1e-8


@dataclass(frozen=True, kw_only=True, slots=True)
class Identification:
    """The verdict on a network, and what it rests on.

    Attributes:
        algorithm: One of `ALGORITHMS`, `DIFFERENT`, `NONE` or `UNDECIDED`.
        members: Algorithms that agree with the named one on these prompts, itself among them.
        margin: Mean over layers of the held-out error of the best rule outside the class minus the winner's.
        interval: Of the margin, over tasks.
        runner_up: That best rule outside the class.
        effective_discount: Of the named rule, w_T / |w_C| pooled over layers.
        discount_interval: Its 95 % interval over tasks.
        errors: Held-out unexplained share of the squared update, for each form of a rule and each layer.
        layer_members: The class of every layer; none for a layer that does nothing.
        end_to_end: Squared error of each form that runs by itself from v = 0, as a share of the squared last values.
        responses: By counterfactual prompt: squared error of each form's response, as a share of the network's.
        splits: By counterfactual prompt: largest squared difference of members' responses, as that share.
        splitting_prompt: The prompt that would split the class best, or why there is none.
        unread: Share of the squared returned values that the slots miss.
        layered: Whether layers were seen; else (`unread` above `UNREAD`) rules ran end to end against the returned
            values, with the same parameters at every step, and `errors` has one column.
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
    sight = _sight(network, context)
    classes = _classes(sight.scores)
    common = set.intersection(*(each for each in classes if each is not None)) if any(classes) else set()
    responses = _responses(sight, seed)
    common = _unrefuted(common, responses)
    algorithm, named = _verdict(common, classes, context.features.shape[-1])
    winner = named if named is not None else _best(common or set(range(len(_RULES))), sight.scores)
    runner_up, margin, interval = _margin(winner, common, sight.scores, seed)
    discount, limits = _discount(winner, sight) if common else (None, None)
    splits = {name: response.split(common) for name, response in responses.items()}
    noise = max(float(sight.scores.errors[winner].nanmean().nan_to_num(0)), FLOOR)
    widest = max(splits, key=splits.__getitem__, default=None)
    return Identification(
        algorithm=algorithm,
        members=_algorithms(common),
        margin=margin,
        interval=interval,
        runner_up=runner_up,
        effective_discount=discount,
        discount_interval=limits,
        errors=sight.scores.errors,
        layer_members=tuple(each if each is None else _algorithms(each) for each in classes),
        end_to_end=_end_to_end(sight),
        responses={name: response.errors for name, response in responses.items()},
        splits=splits,
        splitting_prompt=widest if widest and len(common) > 1 and splits[widest] > noise else None,
        unread=sight.unread,
        layered=sight.runs is None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sight:
    """What is seen of a network: its layers, or, where the slots do not hold what it returns, that alone."""

    look: Callable[[Context], Observation]
    seen: Observation
    scores: LayerScores
    runs: tuple[Run, ...] | None
    unread: float

    @property
    def half(self) -> int:
        return len(self.seen.context.states) // 2


def _sight(network: Network, context: Context) -> _Sight:
    read_out = read_out_of(network, context)
    seen = observe(network, context, read_out)
    unread = seen.unread if bool(seen.returned.any()) else 0.0
    if unread <= UNREAD:
        return _Sight(
            look=lambda prompt: observe(network, prompt, read_out),
            seen=seen,
            scores=layer_scores(seen),
            runs=None,
            unread=unread,
        )
    whole = observe_returned(network, context)
    scores, runs = returned_scores(whole)
    return _Sight(
        look=lambda prompt: observe_returned(network, prompt),
        seen=whole,
        scores=scores,
        runs=runs,
        unread=unread,
    )


def _algorithms(rules: set[int]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_RULES[rule].name for rule in sorted(rules)))


def _end_to_end(sight: _Sight) -> Tensor:
    last = sight.seen.values[-1, sight.half :]
    held_out, shown = _part(sight.seen.context, sight.half), last.shape[-1]
    ends = torch.stack([rolled(fits, held_out)[:, -shown:] for fits in sight.scores.fits])
    return (ends - last).square().sum((1, 2)) / last.square().sum()


def _part(context: Context, start: int) -> Context:
    return Context(
        states=context.states[start:],
        features=context.features[start:],
        rewards=context.rewards[start:],
        gamma=context.gamma,
    )


def _classes(scores: LayerScores) -> list[set[int] | None]:
    """The class of every layer; none where nothing has moved yet."""
    largest = scores.totals.sum(-1).max()
    classes: list[set[int] | None] = []
    for layer in range(len(scores.updates)):
        if bool(scores.active[layer]):
            classes.append(_class(scores, layer))
        elif not bool(scores.active[:layer].any()):
            classes.append(None if bool(scores.active.any()) else {_NAMES.index("identity")})
        else:
            still = scores.predicted[:, layer].square().sum((1, 2)) <= _STILL * largest
            classes.append({i for i, rule in enumerate(_RULES) if not rule.bootstraps or bool(still[i])})
    return classes


def _class(scores: LayerScores, layer: int) -> set[int]:
    """Valid rules that cannot be told from the best one, if that explains enough.

    The best one may have weights of any signs: then a layer with the kernel of a rule but other signs is none of them.
    """
    total = scores.totals[layer].sum()
    predicted = torch.cat([scores.predicted[:, layer], scores.unsigned[:, layer]])
    residuals = (predicted - scores.updates[layer]).square().sum(-1)
    errors = residuals.sum(-1) / total
    best = int(errors.argmin())
    if float(errors[best]) > 1 - EXPLAINED:
        return set()
    noise = max(float(errors[best]), FLOOR)
    apart = (predicted - predicted[best]).square().sum((1, 2)) / total
    same = {
        rule
        for rule in range(len(_RULES))
        if float(apart[rule]) <= noise or not _worse(residuals[rule], residuals[best])
    }
    return {rule for rule in same if bool(scores.valid[rule, layer])}


def _worse(one: Tensor, other: Tensor) -> bool:
    """Whether the first errors certainly exceed the second, over paired tasks."""
    difference = one - other
    return float(difference.mean()) > _CERTAIN * float(difference.std()) / len(difference) ** 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class _Response:
    """What changed in the last values when the prompt changed: of the network and of every rule by itself."""

    own: Float[Tensor, "batch pos"]
    foretold: Float[Tensor, "rule batch pos"]
    values: float

    @property
    def size(self) -> float:
        """Of the squared response; of the squared values if the network does not respond at all."""
        own = float(self.own.square().sum())
        return own if own > NEGLIGIBLE * self.values else self.values

    @property
    def errors(self) -> Float[Tensor, "rule"]:
        """Squared error of every rule's response."""
        return ((self.foretold - self.own).square().sum((1, 2)) / self.size).nan_to_num(torch.inf)

    def split(self, members: set[int]) -> float:
        """Largest squared difference of two members, as a share of the network's response."""
        kept = self.foretold[sorted(members)]
        apart = [(a - b).square().sum() for i, a in enumerate(kept) for b in kept[:i]]
        return float(max(apart, default=self.own.new_tensor(0.0)) / self.size)


def _responses(sight: _Sight, seed: int) -> dict[str, _Response]:
    held_out = _part(sight.seen.context, sight.half)
    changed = counterfactuals(held_out, torch.Generator().manual_seed(seed))
    before = sight.seen.values[-1, sight.half :]
    foretold_before = [rolled(fits, held_out) for fits in sight.scores.fits]
    found = {}
    for name, prompt in changed.items():
        try:
            after = sight.look(prompt).values[-1]
        except (InputError, RuntimeError, ValueError, IndexError):
            continue  # this network does not take such a prompt
        shown, size = after.shape[-1], float(after.square().sum())
        foretold = [
            (rolled(fits, prompt)[:, -shown:] - own[:, -shown:])
            for fits, own in zip(sight.scores.fits, foretold_before, strict=True)
        ]
        if size > 0:
            own = after - before[:, -shown:]
            found[name] = _Response(own=own, foretold=torch.stack(foretold), values=size)
    return found


def _unrefuted(common: set[int], responses: dict[str, _Response]) -> set[int]:
    """Members whose response to some prompt is not certainly worse, by more than the noise, than the best member's."""
    if len(common) < 2:
        return common
    left = set(common)
    for response in responses.values():
        best = min(common, key=lambda rule: float(response.errors[rule]))
        noise = max(float(response.errors[best]), FLOOR)
        if noise > 1 - EXPLAINED:
            continue
        square = (response.foretold - response.own).square().sum(-1)
        apart = (response.foretold - response.foretold[best]).square().sum((1, 2)) / response.size
        left -= {rule for rule in common if float(apart[rule]) > noise and _worse(square[rule], square[best])}
    return left


def _verdict(common: set[int], classes: list[set[int] | None], d: int) -> tuple[str, int | None]:
    if not common:
        known = [each for each in classes if each is not None]
        return (DIFFERENT if known and all(known) and not set.intersection(*known) else NONE), None
    fewest = min(_RULES[rule].num_parameters(d) for rule in common)
    simplest = [rule for rule in sorted(common) if _RULES[rule].num_parameters(d) == fewest]
    if len({_RULES[rule].name for rule in simplest}) > 1:
        return UNDECIDED, simplest[0]
    return _RULES[simplest[0]].name, simplest[0]


def _best(rules: set[int], scores: LayerScores) -> int:
    pooled = scores.errors.nanmean(-1).nan_to_num(torch.inf)
    return min(rules, key=lambda rule: float(pooled[rule]))


def _margin(
    winner: int, common: set[int], scores: LayerScores, seed: int
) -> tuple[str | None, float | None, Interval | None]:
    """Mean over active layers of the error of the best rule outside the class, less the winner's."""
    outside = {i for i, rule in enumerate(_RULES) if i != winner and i not in common}
    outside -= {i for i in outside if _RULES[i].name in {_RULES[rule].name for rule in common}}
    proper = {i for i in outside if bool(scores.valid[i, scores.active].all())}
    outside = proper or outside
    if not outside or not bool(scores.active.any()):
        return None, None, None
    second = _best(outside, scores)
    weight = scores.active / scores.totals.sum(-1) / scores.active.sum()
    weight = torch.where(scores.active, weight, 0.0)
    tasks = ((scores.residuals[second] - scores.residuals[winner]) * weight[:, None]).sum(0)
    share = torch.full_like(tasks, 1 / len(tasks))
    return _RULES[second].name, float(tasks.sum()), ratio_interval(tasks, share, seed=seed)


def _discount(winner: int, sight: _Sight) -> tuple[float | None, Interval | None]:
    """Effective discount with its interval over held-out tasks."""
    if sight.runs is None:
        return _layered_discount(winner, sight)
    run, held_out = sight.runs[winner], slice(sight.half, None)
    influence = discount_influence(
        run, whole_data(sight.seen.context, held_out), sight.seen.values[-1, held_out]
    )
    return (None, None) if influence is None else _with_limits(run.parameters["discount"], influence)


def _layered_discount(winner: int, sight: _Sight) -> tuple[float | None, Interval | None]:
    """w_T / |w_C| solved on the held-out half, layers weighed by how well they know it."""
    places, scores = _RULES[winner].discounts, sight.scores
    if places is None:
        return None, None
    target, current = places
    estimates, influences = [], []
    for layer, fit in enumerate(scores.fits[winner]):
        spread = weight_spread(fit, layer_data(sight.seen, layer, slice(sight.half, None)))
        if not (
            bool(scores.active[layer]) and bool(spread.identified.all()) and spread.weights[current] != 0
        ):
            continue
        w, u = spread.weights, spread.influence
        ratio = w[target] / w[current].abs()
        estimates.append(ratio)
        influences.append((u[:, target] - ratio * u[:, current] * w[current].sign()) / w[current].abs())
    if not estimates:
        return None, None
    influence = torch.stack(influences)
    precision = 1 / (influence.square().sum(-1) + torch.finfo(influence.dtype).eps ** 2)
    weights = precision / precision.sum()
    pooled = float((weights * torch.stack(estimates)).sum())
    return _with_limits(pooled, (weights[:, None] * influence).sum(0))


def _with_limits(estimate: float, influence: Tensor) -> tuple[float, Interval]:
    error = _CERTAIN * float(influence.square().sum().sqrt()) + FLOOR
    return estimate, (estimate - error, estimate + error)
