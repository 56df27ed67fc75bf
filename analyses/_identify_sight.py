"""What an identification sees of a network: its layers or only what it returns, also on counterfactual prompts.

Shape legend: `rule` one of `ALGORITHMS`, `batch` tasks, `shown` columns whose values are known.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.analyses._identify_classes import Response
from valuelens.analyses._identify_layers import LayerScores, layer_data, layer_scores, returned_scores, rolled
from valuelens.analyses._observation import Observation, observe, observe_returned, read_out_of
from valuelens.analyses._subject import another_context, part_of
from valuelens.models import InputError, patched
from valuelens.models.icrl import Context, Network, counterfactuals
from valuelens.probe import RuleFit, Run

UNREAD = 1e-3
"""Share of the squared returned values that slots may miss and still be read layer by layer (our definition)."""

SHIFT = 0.5
"""What target slots are multiplied with: a shift of the discount."""

DISCOUNT = "discount halved"
"""Name of that intervention."""

_CHANGED = 32
"""Held-out tasks whose prompts are changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sight:
    """What is seen of a network: its layers, or, where the slots do not hold what it returns, that alone.

    Attributes:
        look: Reads the network on other prompts in the same way.
        network: Its adapter.
        seen: Its values on all tasks.
        scores: Of all rules.
        runs: Fitted end to end, where layers are not seen.
        unread: Share of the squared returned values that the slots miss.
    """

    look: Callable[[Context], Observation]
    network: Network
    seen: Observation
    scores: LayerScores
    runs: tuple[Run, ...] | None
    unread: float

    @property
    def half(self) -> int:
        """Number of the first held-out task."""
        return len(self.seen.context.states) // 2


def sight_of(network: Network, context: Context) -> Sight:
    """See a network on contexts, and fit all rules on the first half of them.

    Args:
        network: Its adapter.
        context: What it sees.

    Raises:
        InputError: Its slots cannot be read.
    """
    read_out = read_out_of(network, context)
    seen = observe(network, context, read_out)
    unread = seen.unread if bool(seen.returned.any()) else 0.0
    if unread <= UNREAD:
        return Sight(
            look=lambda prompt: observe(network, prompt, read_out),
            network=network,
            seen=seen,
            scores=layer_scores(seen),
            runs=None,
            unread=unread,
        )
    whole = observe_returned(network, context)
    scores, runs = returned_scores(whole)
    return Sight(
        look=lambda prompt: observe_returned(network, prompt),
        network=network,
        seen=whole,
        scores=scores,
        runs=runs,
        unread=unread,
    )


def end_to_end(
    sight: Sight,
) -> tuple[Float[Tensor, "batch shown"], Float[Tensor, "rule batch shown"]]:
    """The network's last values on held-out tasks, and those of every rule that runs by itself from v = 0."""
    last = sight.seen.values[-1, sight.half :]
    held_out = part_of(sight.seen.context, slice(sight.half, None))
    return last, torch.stack([rolled(fits, held_out)[:, -last.shape[-1] :] for fits in sight.scores.fits])


def exchanged_errors(sight: Sight) -> Float[Tensor, "rule"]:
    """Mean error of every rule over active layers if it is given the rewards of other tasks: the control of errors."""
    scores, half = sight.scores, slice(sight.half, None)
    exchanged = another_context(part_of(sight.seen.context, half))
    if sight.runs is not None:
        last = sight.seen.values[-1, half]
        ends = torch.stack([rolled(fits, exchanged)[:, -last.shape[-1] :] for fits in scores.fits])
        return (ends - last).square().sum((1, 2)) / last.square().sum()
    layers = [layer for layer, active in enumerate(scores.active.tolist()) if active]
    shares = torch.zeros(len(scores.fits), len(layers), dtype=scores.updates.dtype)
    for column, layer in enumerate(layers):
        data = replace(layer_data(sight.seen, layer, half), rewards=exchanged.rewards)
        left = [(fits[layer].predicted(data) - data.update).square().sum() for fits in scores.fits]
        shares[:, column] = torch.stack(left) / data.update.square().sum()
    return shares.mean(-1)


def responses_of(sight: Sight, seed: int) -> dict[str, Response]:
    """What counterfactual prompts, and target slots that are scaled, change in the last values.

    Prompts that the network does not take, and those on which all its values are 0, are left out.

    Args:
        sight: Of the network.
        seed: Decides the prompts.
    """
    held_out = part_of(sight.seen.context, slice(sight.half, sight.half + _CHANGED))
    changed = counterfactuals(held_out, torch.Generator().manual_seed(seed))
    before = [rolled(fits, held_out) for fits in sight.scores.fits]
    found = {}
    for name, prompt in changed.items():
        try:
            after = sight.look(prompt).values[-1]
        except (InputError, RuntimeError, ValueError, IndexError):
            continue
        ends = [rolled(fits, prompt) for fits in sight.scores.fits]
        found[name] = _response(sight, after, before, ends)
    targets = [slot for slot in sight.network.slots if slot.holds == "target"]
    if targets and sight.runs is None:
        with ExitStack() as shift:
            for slot in targets:
                part = ... if slot.index is None else np.s_[..., slot.index]
                shift.enter_context(
                    patched(sight.network.module, {slot.hook: lambda shown: SHIFT * shown}, part=part)
                )
            after = sight.look(held_out).values[-1]
        ends = [rolled(_shifted(fits), held_out) for fits in sight.scores.fits]
        found[DISCOUNT] = _response(sight, after, before, ends)
    return {name: response for name, response in found.items() if response.values > 0}


def _response(sight: Sight, after: Tensor, before: list[Tensor], ends: list[Tensor]) -> Response:
    shown = after.shape[-1]
    foretold = [
        (end - start[:, -end.shape[1] :])[:, -shown:] for end, start in zip(ends, before, strict=True)
    ]
    return Response(
        own=after - sight.seen.values[-1, sight.half :, -shown:][: len(after)],
        foretold=torch.stack(foretold),
        values=float(after.square().sum()),
    )


def _shifted(fits: tuple[RuleFit, ...]) -> tuple[RuleFit, ...]:
    """The rule with its effective discount scaled, if it has one."""
    shifted = []
    for fit in fits:
        if fit.rule.discounts is not None:
            weights = fit.weights.clone()
            weights[fit.rule.discounts[0]] *= SHIFT
            fit = replace(fit, weights=weights)
        shifted.append(fit)
    return tuple(shifted)
