"""Which heads carry credit back in time: the part of a costate that is not its own token's, by block, head and path.

Credit of later tokens enters position t by what later positions read of it: keys and values. Follow it back from there.
It was read in one block l' >= l by one head, through the value or through the key, and from there on down to h_{l,t}
it never leaves position t, for what it crossed before that does not matter. So paths from h_{l,t} to the objective
fall apart by the first edge on which they leave t (the last one that credit crosses on its way back):

    lambda_{l,t} = own_{l,t} + sum_{l' >= l} sum_head [ (dv_{l'}/dh_l)' vbar_{l'} + (dk_{l'}/dh_l)' kbar_{l'} ]_t

with vbar, kbar the gradients of the objective by the value and the key of one query head, as *other* positions read
them (all that happens behind that reading is in), and d/dh_l taken inside position t, other positions held fixed. The
sum is exact, by the chain rule. `value` is the path through what a head moves, `pattern` that through where it attends.
Our definition.

Of each part only its inner product with lambda is taken, so that the parts are shares of |lambda|^2, and locality is
the share of `own`. All kbar and vbar come of one backward pass, and one forward derivative along lambda, other
positions held fixed, gives (dv/dh) lambda and (dk/dh) lambda of all blocks and heads at once: a pass for each layer.

Heads are query heads. Where several share keys and values, each reads a copy of its own; what the shared one carries is
the sum over its heads.

Shape legend: `batch` rollouts, `layer` l, those asked for, `block` l' = 0..L-1, `head` query heads, `path` value and
pattern, `pos` positions, `state` k = 0..T-1 (or, of prompts, positions 0..P-2), `d_model` width of the residual stream.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Module

from valuelens.probe._language_costates import Positions, costates_at, known_layers, stream_gradients
from valuelens.probe._language_objectives import Objective
from valuelens.probe._locality import attend_apart, own_token_attend, per_query_head, replaced_attention
from valuelens.probe._residual_stream import edited_stream, frozen, residual_blocks
from valuelens.probe._sequences import Sequences
from valuelens.probe._shown import Measured
from valuelens.probe._token_scores import micro_batches, state_pass

PATHS = ("value", "pattern")
"""Through what a head moves, and through where it attends."""

Head = tuple[int, int]
"""Block and query head."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class HeadCredit(Measured):
    """Inner products of costates with their parts, 0 where a rollout has no such state; they sum to `whole`.

    Attributes:
        heads: <part of a head and a path, lambda>; 0 in blocks below the layer. Paths are in the order of `PATHS`.
        own: <own, lambda>; 0 in a prompt, whose tokens are not sampled.
        whole: <lambda, lambda>.
        layers: As asked for.
        valid: Whether a rollout has the state.
    """

    heads: Float[Tensor, "batch layer state block head path"]
    own: Float[Tensor, "batch layer state"]
    whole: Float[Tensor, "batch layer state"]
    layers: tuple[int, ...]
    valid: Bool[Tensor, "batch state"]

    @property
    def share(self) -> Float[Tensor, "layer block head path"]:
        """Of the sum of |lambda|^2 over rollouts and states; with locality they sum to 1. A share may be negative."""
        return self.heads.sum((0, 2)) / self.whole.sum((0, 2))[:, None, None, None]


def head_credit_batches(
    model: Module,
    sequences: Sequences,
    objective: Objective,
    *,
    layers: Sequence[int],
    micro_batch: int = 8,
    positions: Positions = "completion",
) -> Iterator[HeadCredit]:
    """Credit by head of one micro-batch after another, as `costate_batches` gives costates.

    Args:
        model: A causal language model of transformers, in evaluation mode.
        sequences: Prompts and completions.
        objective: What is maximised; a sum of terms, each of the logits at one state.
        layers: 0..L-1; behind the last block there is no head.
        micro_batch: Rollouts in one pass.
        positions: Where credit arrives.

    Raises:
        ValueError: A layer does not exist; as `own_token_attention` and `stream_gradients`; or the parts do not add up
            to the costates, as where positions mix otherwise than by attention.
    """
    wanted, depth = known_layers(model, layers), len(residual_blocks(model))
    if wrong := [layer for layer in wanted if not 0 <= layer < depth]:
        raise ValueError(f"layers must lie in 0..{depth - 1}; found {wrong[0]}; head_credit_batches")
    sequences = sequences.to(next(model.parameters()).device)
    for start, rows in micro_batches(sequences, micro_batch):
        some = objective.rows(start, start + len(rows.input_ids))
        read = dict[tuple[int, int], Tensor]()
        with replaced_attention(model, _reader(read)):
            streams = stream_gradients(model, rows, some, wanted, first_row=start)
        parts = [
            _along(model, rows, some, layer, stream, read)
            for layer, stream in zip(wanted, streams, strict=True)
        ]
        credit = _gathered(parts, rows, wanted, positions)
        _check_sum(credit, next(model.parameters()).dtype)
        yield credit


@contextmanager
def ablated_heads(model: Module, heads: Sequence[Head]) -> Iterator[None]:
    """Inside the block some heads give 0, whatever they attend to: what the model says changes, and every costate.

    Args:
        model: A causal language model of transformers.
        heads: Block and query head of each.

    Raises:
        ValueError: As `own_token_attention`, or there is no such head.
    """

    def attend(block: int, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> Any:
        key, value = per_query_head(query, key, value)
        mixed, weights = attend_apart(query, (key, key), (value, value), *rest, **options)
        return mixed.masked_fill(_chosen(heads, block, query)[:, None], 0.0), weights

    _check_blocks(model, heads, "ablated_heads")
    with replaced_attention(model, attend):
        yield


@contextmanager
def cut_heads(model: Module, heads: Sequence[Head]) -> Iterator[None]:
    """Inside the block no credit goes back in time through some heads, while all outputs stay as they are.

    With every head cut, it is `own_token_attention`.

    Args:
        model: A causal language model of transformers.
        heads: Block and query head of each.

    Raises:
        ValueError: As `own_token_attention`, or there is no such head.
    """

    def attend(block: int, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> Any:
        cut = _chosen(heads, block, query)[:, None, None]
        keys, values = (
            (each, torch.where(cut, each.detach(), each)) for each in per_query_head(query, key, value)
        )
        return attend_apart(query, keys, values, *rest, **options)

    _check_blocks(model, heads, "cut_heads")
    with replaced_attention(model, attend):
        yield


def _chosen(heads: Sequence[Head], block: int, query: Tensor) -> Bool[Tensor, " head"]:
    chosen = torch.zeros(query.shape[1], dtype=torch.bool, device=query.device)
    mine = [head for at, head in heads if at == block]
    if wrong := [head for head in mine if not 0 <= head < len(chosen)]:
        raise ValueError(f"a head must lie in 0..{len(chosen) - 1}; found {wrong[0]}; block {block}")
    chosen[mine] = True
    return chosen


def _check_blocks(model: Module, heads: Sequence[Head], where: str) -> None:
    depth = len(residual_blocks(model))
    if wrong := [block for block, _ in heads if not 0 <= block < depth]:
        raise ValueError(f"a block must lie in 0..{depth - 1}; found {wrong[0]}; {where}")


_Part = tuple[
    Float[Tensor, "batch pos block head path"], Float[Tensor, "batch pos"], Float[Tensor, "batch pos"]
]


def _reader(read: dict[tuple[int, int], Tensor]) -> Any:
    """Attention that keeps the gradients by keys and values as other positions read them: (block, path) -> gradient."""

    def attend(
        block: int, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
    ) -> tuple[Tensor, Tensor]:
        key, value = per_query_head(query, key, value)
        others = key.clone(), value.clone()
        for path, tensor in zip(("pattern", "value"), others, strict=True):
            if tensor.requires_grad:
                tensor.register_hook(_keeping(read, (block, PATHS.index(path))))
        return attend_apart(query, (key, others[0]), (value, others[1]), mask, **options)

    return attend


def _keeping(read: dict[tuple[int, int], Tensor], where: tuple[int, int]) -> Any:
    def keep(gradient: Tensor) -> None:
        read[where] = gradient

    return keep


def _along(
    model: Module,
    rows: Sequences,
    objective: Objective,
    layer: int,
    costate: Float[Tensor, "batch pos d_model"],
    read: dict[tuple[int, int], Tensor],
) -> _Part:
    """Inner products with the costate of one layer, of all parts at every position."""
    moved = dict[tuple[int, int], Tensor]()

    def attend(block: int, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> Any:
        for path, tensor in zip(("pattern", "value"), per_query_head(query, key, value), strict=True):
            tangent = forward_ad.unpack_dual(tensor).tangent
            where = (block, PATHS.index(path))
            if tangent is not None and where in read:
                moved[where] = (read[where].double() * tangent.double()).sum(-1)
        return own_token_attend(query, key, value, *rest, **options)

    def directed(stream: Tensor) -> Tensor:
        with warnings.catch_warnings():
            # the first call loads scripts of torch that torch itself calls deprecated
            warnings.simplefilter("ignore", DeprecationWarning)
            dual: Tensor = forward_ad.make_dual(stream, costate.to(stream.dtype))
        return dual

    inside = replaced_attention(model, attend), edited_stream(model, {layer: directed})
    with torch.no_grad(), frozen(model), forward_ad.dual_level(), inside[0], inside[1]:
        logits, tangent = forward_ad.unpack_dual(state_pass(model, rows)[0])
    like = next(iter(moved.values()))
    depth = len(residual_blocks(model))
    heads = [[moved.get((block, path), torch.zeros_like(like)) for path in (0, 1)] for block in range(depth)]
    heads_first = torch.stack([torch.stack(paths) for paths in heads])
    return (
        rearrange(heads_first, "block path batch head pos -> batch pos block head path"),
        _own(objective, rows, logits, tangent),
        costate.double().square().sum(-1),
    )


def _own(
    objective: Objective,
    rows: Sequences,
    logits: Float[Tensor, "batch state vocabulary"],
    tangent: Float[Tensor, "batch state vocabulary"],
) -> Float[Tensor, "batch pos"]:
    """How the term of each position's own token changes along its costate."""
    with torch.enable_grad():
        leaf = logits.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(objective.values(leaf, rows).sum(), leaf)
    terms = (gradient.double() * tangent.double()).sum(-1).masked_fill(~rows.valid, 0.0)
    return terms.new_zeros(rows.input_ids.shape).scatter_add(1, rows.states, terms)


def _gathered(
    parts: Sequence[_Part], rows: Sequences, layers: tuple[int, ...], positions: Positions
) -> HeadCredit:
    shape = parts[0][0].shape[2:]
    lines = [
        torch.cat([heads.flatten(2), own[..., None], whole[..., None]], -1) for heads, own, whole in parts
    ]
    found = costates_at(lines, rows, layers, positions)
    return HeadCredit(
        heads=found.values[..., :-2].unflatten(-1, shape),
        own=found.values[..., -2],
        whole=found.values[..., -1],
        layers=layers,
        valid=found.valid,
    )


def _check_sum(credit: HeadCredit, precision: torch.dtype) -> None:
    """By a tolerance that rounding stays far below: the root of its epsilon; norms of float64 models are float32."""
    missed = (credit.heads.sum((-3, -2, -1)) + credit.own - credit.whole).abs().sum((0, 2))
    share = missed / credit.whole.sum((0, 2))
    epsilon = max(torch.finfo(each).eps for each in (precision, torch.float32))
    if bool((share > epsilon**0.5).any()):
        place = int(share.nan_to_num().argmax())
        rule = "own token and heads must add up to the costate: positions may mix by attention only"
        raise ValueError(
            f"{rule}; found {float(share[place]):.2g} of it missing; layer {credit.layers[place]}"
        )
