"""Which rules cannot be told apart: in a layer, in a network, and by their responses to counterfactual prompts.

Shape legend: `rule` one of `ALGORITHMS`, `batch` held-out tasks, `shown` columns whose values are known.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._identify_layers import ALGORITHMS, NEGLIGIBLE, LayerScores

DIFFERENT, NONE, UNDECIDED = "different rules in different layers", "none of these", "cannot tell these apart"

EXPLAINED = 0.95
"""Share of the squared held-out updates of a layer that a rule must explain to count (our definition)."""

FLOOR = 1e-6
"""Predictions that differ by less than a thousandth of the update are the same (our definition)."""

TOLERANCE = 2e-3
"""By what share of the squared update one rule may be worse than another and still be preferred (our definition)."""

MOSTLY, TRIFLE = 0.98, 5e-4
"""Share of all squared updates, and share of the squared values (our definition); see `common_rules`."""

CERTAIN = 1.98
"""Standard errors of a 95 % interval over some 60 tasks."""

_STILL = 1e-8


def layer_classes(scores: LayerScores) -> list[set[int] | None]:
    """The class of every layer; none where nothing has moved yet."""
    largest = scores.updates.square().sum((1, 2)).max()
    classes: list[set[int] | None] = []
    for layer in range(len(scores.updates)):
        if bool(scores.active[layer]):
            classes.append(_class(scores, layer))
        elif not bool(scores.active[:layer].any()):
            classes.append(None if bool(scores.active.any()) else {ALGORITHMS.index("identity")})
        else:
            still = scores.predicted[:, layer].square().sum((1, 2)) <= _STILL * largest
            classes.append(
                {i for i, row in enumerate(scores.fits) if not row[layer].rule.bootstraps or bool(still[i])}
            )
    return classes


def _class(scores: LayerScores, layer: int) -> set[int]:
    """Rules that cannot be told from the best one, if that explains enough.

    A layer with the kernel of a rule but other signs is none of them: a rule must not explain more with weights of
    other signs, and the best rule may not leave more than `TOLERANCE` above what any rule leaves with any signs.
    """
    size, counts = scores.sizes[layer], scores.signed[:, layer]
    predicted, update = scores.predicted[:, layer], scores.updates[layer]
    residuals = (predicted - update).square().sum(-1)
    errors = (residuals.sum(-1) / size).where(counts, torch.inf)
    best = int(errors.argmin())
    unsigned = (scores.unsigned[:, layer] - update).square().sum((1, 2)) / size
    if float(errors[best]) > min(1 - EXPLAINED, float(unsigned.min()) + TOLERANCE):
        return set()
    noise = max(float(errors[best]), FLOOR)
    apart = (predicted - predicted[best]).square().sum((1, 2)) / size
    return {
        rule
        for rule in range(len(ALGORITHMS))
        if bool(counts[rule])
        and (float(apart[rule]) <= noise or not _worse(residuals[rule], residuals[best]))
    }


def common_rules(scores: LayerScores, classes: list[set[int] | None]) -> set[int]:
    """What the classes of all layers have in common.

    If that is nothing, the rules with the right signs that are nearly as good in every layer: one rule that explains
    `MOSTLY` all of the squared updates together, and in each layer leaves at most `TOLERANCE` more than the best one or
    less than `TRIFLE` of the squared values, is preferred to a patchwork (our definition).

    Args:
        scores: Of all rules.
        classes: Of every layer.
    """
    known = [each for each in classes if each is not None]
    common = set.intersection(*known) if known else set()
    if common or not bool(scores.active.any()):
        return common
    left, active = scores.residuals.sum(-1), scores.active
    good = (scores.errors <= scores.errors.amin(0) + TOLERANCE) & (scores.errors <= 1 - EXPLAINED)
    near = scores.signed & (good | (left <= TRIFLE * scores.values))
    total = scores.updates.square().sum((1, 2))[active].sum()
    mostly = left[:, active].sum(-1) <= (1 - MOSTLY) * total
    return {rule for rule in range(len(ALGORITHMS)) if bool(near[rule, active].all() and mostly[rule])}


def _worse(one: Tensor, other: Tensor) -> bool:
    """Whether the first errors certainly exceed the second, over paired tasks.

    By their difference, or by their difference relative to their sum, which no single heavy task can hide.
    """
    difference = one - other
    relative = difference / (one + other).clamp(min=torch.finfo(one.dtype).tiny)
    return bool(difference.mean() > 0) and any(
        float(each.mean()) > CERTAIN * float(each.std()) / len(each) ** 0.5 for each in (difference, relative)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """What changed in the last values when the prompt changed: of the network and of every rule by itself.

    Attributes:
        own: The network's.
        foretold: The rules'.
        values: Sum of the network's squared values on the changed prompt.
    """

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


def unrefuted(common: set[int], responses: dict[str, Response]) -> set[int]:
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


def named_rule(
    common: set[int], classes: list[set[int] | None], scores: LayerScores
) -> tuple[str, int | None]:
    """The verdict, and the rule that it names: the member with the fewest free parameters over all layers.

    Args:
        common: What all layers have in common.
        classes: Of every layer.
        scores: Of all rules.
    """
    if not common:
        known = [each for each in classes if each is not None]
        return (DIFFERENT if known and all(known) and not set.intersection(*known) else NONE), None
    d = _dimension(scores)
    counts = {rule: sum(fit.rule.num_parameters(d) for fit in scores.fits[rule]) for rule in sorted(common)}
    simplest = [rule for rule, count in counts.items() if count == min(counts.values())]
    return (ALGORITHMS[simplest[0]] if len(simplest) == 1 else UNDECIDED), simplest[0]


def _dimension(scores: LayerScores) -> int:
    """d, from the size of a softmax kernel."""
    return math.isqrt(len(scores.fits[ALGORITHMS.index("weighted softmax TD")][0].shape))
