"""Which rules cannot be told apart: in a layer, in a network, and by their responses to counterfactual prompts.

Shape legend: `rule` the forms of `RULES`, `batch` held-out tasks, `shown` columns whose values are known.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._identify_layers import NEGLIGIBLE, LayerScores
from valuelens.probe import RULES

DIFFERENT, NONE, UNDECIDED = "different rules in different layers", "none of these", "cannot tell these apart"

EXPLAINED = 0.95
"""Share of the squared held-out updates of a layer that a rule must explain to count (our definition)."""

FLOOR = 1e-6
"""Predictions that differ by less than a thousandth of the update are the same (our definition)."""

CERTAIN = 1.98
"""Standard errors of a 95 % interval over some 60 tasks."""

_NAMES, _RULES = tuple(RULES), tuple(RULES.values())
_STILL = 1e-8


def layer_classes(scores: LayerScores) -> list[set[int] | None]:
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
    return bool(float(difference.mean()) > CERTAIN * float(difference.std()) / len(difference) ** 0.5)


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


def named_rule(common: set[int], classes: list[set[int] | None], d: int) -> tuple[str, int | None]:
    """The verdict, and the form that it names: the member with the fewest free parameters.

    Args:
        common: What all layers have in common.
        classes: Of every layer.
        d: Number of features.
    """
    if not common:
        known = [each for each in classes if each is not None]
        return (DIFFERENT if known and all(known) and not set.intersection(*known) else NONE), None
    fewest = min(_RULES[rule].num_parameters(d) for rule in common)
    simplest = [rule for rule in sorted(common) if _RULES[rule].num_parameters(d) == fewest]
    if len({_RULES[rule].name for rule in simplest}) > 1:
        return UNDECIDED, simplest[0]
    return _RULES[simplest[0]].name, simplest[0]
