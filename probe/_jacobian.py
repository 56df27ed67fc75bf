"""Paths between the states of a rollout: how the residual stream at position t moves the logits at position s.

`attention`: B_{s,t} = dz_s / dh_{l,t}, the tokens held fixed. `sampling`: what of the relaxed dz_s / dh_{l,t} crosses
exactly one sampled token, whose embedding follows its probabilities. On a language model neither matrix is ever
formed: products with it and with its transpose give its leading singular values. Both products come from one graph,
the first as the gradient of the second, which is linear in what it is given.

Shape legend: `batch` rollouts, `layer` those asked for, `pair` of states, `source` and `target` states k = 0..T-1,
`rank` singular values, `vocabulary` tokens, `d_model` width of the residual stream.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module
from torch.nn.attention import SDPBackend, sdpa_kernel

from valuelens.probe._hops import drawn_from
from valuelens.probe._residual_stream import Edit, edited_stream, frozen, residual_blocks
from valuelens.probe._sequences import Sampling, Sequences
from valuelens.probe._shown import Measured
from valuelens.probe._token_scores import micro_batches, state_pass

Through = Literal["attention", "sampling"]
"""Which paths count: those with all tokens held fixed, or those that cross exactly one sampled token."""

DENSE_WIDTH, DENSE_VOCABULARY = 64, 512
"""Of the largest model whose Jacobians are formed whole."""

_ROWS = 512
"""Copies of rollouts, one for each logit, in one pass."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Path:
    """Which Jacobian is asked for.

    Attributes:
        layer: Whose residual stream, 0..L-1.
        through: Attention alone, or exactly one sampled token.
        sampling: How tokens were drawn.
    """

    layer: int
    through: Through = "attention"
    sampling: Sampling = field(default_factory=Sampling)


@dataclass(frozen=True, kw_only=True, slots=True)
class StatePairs:
    """From where to where: the stream at state `source`, the logits at state `target` of the same rollout.

    Attributes:
        row: Number of the rollout.
        source: k of position t.
        target: k of position s, not before `source`.
    """

    row: Int[Tensor, " pair"]
    source: Int[Tensor, " pair"]
    target: Int[Tensor, " pair"]

    def __len__(self) -> int:
        """How many."""
        return len(self.row)


@dataclass(frozen=True, kw_only=True, slots=True)
class PowerIteration:
    """How long singular values are looked for.

    Attributes:
        rank: How many of them.
        iterations: At most.
        tolerance: Change in units of the largest at which it ends.
        micro_batch: Pairs in one pass.
    """

    rank: int = 1
    iterations: int = 30
    tolerance: float = 1e-3
    micro_batch: int = 8


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Spectrum(Measured):
    """Leading singular values of Jacobians, each a lower bound of the true one, and their directions.

    Attributes:
        values: Largest first.
        right: Directions in the residual stream at the source that they belong to, of length 1.
        left: Directions in the logits at the target, of length 1.
        change: Of any of the values in the last iteration, in units of the largest; infinite after only one.
        iterations: How many there were.
    """

    values: Float[Tensor, "pair rank"]
    right: Float[Tensor, "pair rank d_model"]
    left: Float[Tensor, "pair rank vocabulary"]
    change: Float[Tensor, " pair"]
    iterations: Int[Tensor, " pair"]


def state_pairs(sequences: Sequences) -> StatePairs:
    """All pairs of a state and one that is not before it, rollout by rollout.

    Args:
        sequences: Prompts and completions.

    Example:
        >>> from valuelens.probe import sequences
        >>> pairs = state_pairs(sequences([[5], [5]], [[1, 2], [3]]))
        >>> pairs.row.tolist(), pairs.source.tolist(), pairs.target.tolist()
        ([0, 0, 0, 1], [0, 0, 1, 0], [0, 1, 1, 0])
    """
    valid = sequences.valid
    later = torch.ones(valid.shape[1], valid.shape[1], dtype=torch.bool, device=valid.device).triu()
    row, source, target = (later & valid[:, None]).nonzero().unbind(-1)
    return StatePairs(row=row, source=source, target=target)


def leading_singular_values(
    model: Module,
    sequences: Sequences,
    pairs: StatePairs,
    path: Path,
    generator: torch.Generator,
    options: PowerIteration | None = None,
) -> Spectrum:
    """Singular values of Jacobians by subspace iteration: Q <- J'J Q, made orthonormal; those of J Q bound J's below.

    Source: Halko, Martinsson and Tropp (2011), Finding structure with randomness, section 4.5.

    Args:
        model: A causal language model as those of transformers, in evaluation mode.
        sequences: Prompts and completions.
        pairs: Of states.
        path: Layer and kind of path.
        generator: Draws where the iteration starts.
        options: How many values, and for how long.

    Raises:
        ValueError: The layer does not exist, a pair is not one of states in order, or a Jacobian has no such rank.
    """
    options = options or PowerIteration()
    sequences = sequences.to(next(model.parameters()).device)
    _check_layers(model, (path.layer,), "leading_singular_values")
    _check_pairs(sequences, pairs)
    parts = []
    for start in range(0, len(pairs), options.micro_batch):
        some = _part(pairs, start, start + options.micro_batch, sequences.input_ids.device)
        with _products(model, _cropped(sequences, some), some, path) as (forth, back, shape):
            if not 1 <= options.rank <= min(shape):
                found = f"found {options.rank}"
                raise ValueError(f"rank must lie in 1..{min(shape)}; {found}; leading_singular_values")
            start_at = torch.randn(
                len(some), shape[1], options.rank, generator=generator, dtype=torch.float64
            )
            parts.append(_iterated(forth, back, start_at, options))
    names = ("values", "right", "left", "change", "iterations")
    return Spectrum(**{name: torch.cat([part[name] for part in parts]) for name in names})


def direction_cosines(one: Spectrum, other: Spectrum) -> dict[str, Float[Tensor, " pair"]]:
    """|cosine| between the leading directions of two Jacobians of the same pairs: do the paths carry the same thing?

    Args:
        one: Of one path.
        other: Of the other.

    Returns:
        `right` in the residual stream, `left` in the logits.
    """
    sides = {"right": (one.right, other.right), "left": (one.left, other.left)}
    return {name: (a[:, 0] * b[:, 0]).sum(-1).abs() for name, (a, b) in sides.items()}


def dense_jacobians(
    model: Module, sequences: Sequences, *, layers: Sequence[int]
) -> Float[Tensor, "batch layer target source vocabulary d_model"]:
    """B_{s,t} of all pairs of states whole, 0 where there is no pair: batch x layers x T^2 x V x d_model numbers.

    Args:
        model: A causal language model as those of transformers, in evaluation mode, not wider than `DENSE_WIDTH`.
        sequences: Prompts and completions.
        layers: 0..L-1.

    Raises:
        ValueError: A layer does not exist, or the model is too large.
    """
    sequences = sequences.to(next(model.parameters()).device)
    _check_layers(model, layers, "dense_jacobians")
    with torch.no_grad():
        logits, hidden = state_pass(model, sequences.rows(0, 1), output_hidden_states=True)
    vocabulary, d_model = logits.shape[-1], hidden[0].shape[-1]
    if d_model > DENSE_WIDTH or vocabulary > DENSE_VOCABULARY:
        rule = f"whole Jacobians take d_model <= {DENSE_WIDTH} and vocabulary <= {DENSE_VOCABULARY}"
        raise ValueError(f"{rule}; found {d_model} and {vocabulary}; dense_jacobians")
    width = sequences.valid.shape[1]
    found = logits.new_zeros(len(sequences.input_ids), len(layers), width, width, vocabulary, d_model)
    for start, rows in micro_batches(sequences, max(1, _ROWS // vocabulary)):
        part = _dense(model, rows, layers, vocabulary)
        states = part.shape[2]
        found[start : start + len(part), :, :states, :states] = part
    return found


def _dense(model: Module, rows: Sequences, layers: Sequence[int], vocabulary: int) -> Tensor:
    """Each rollout once for each logit, so that one backward pass gives a target's Jacobians to all sources."""
    count, states = rows.valid.shape
    streams: dict[int, Tensor] = {}
    edits = {layer: _held(streams, layer, leaf=layer == min(layers)) for layer in layers}
    place = rows.states[:, None, :, None].expand(-1, vocabulary, -1, 1)
    parts = []
    with frozen(model), edited_stream(model, edits), torch.enable_grad():
        copies = _rows(rows, torch.arange(count, device=rows.input_ids.device).repeat_interleave(vocabulary))
        logits = state_pass(model, copies)[0].unflatten(0, (count, vocabulary))
        for target in range(states):
            each = torch.einsum("bvv->", logits[:, :, target])
            gradients = torch.autograd.grad(each, [streams[layer] for layer in layers], retain_graph=True)
            split = [gradient.unflatten(0, (count, vocabulary)) for gradient in gradients]
            at = [one.gather(2, place.expand(-1, -1, -1, one.shape[-1])) for one in split]
            parts.append(torch.stack(at, dim=1).transpose(2, 3))
    pair = rows.valid[:, :, None] & rows.valid[:, None]
    pair = pair & torch.ones_like(pair[0]).tril()
    return torch.where(pair[:, None, :, :, None, None], torch.stack(parts, dim=2).to(logits), 0.0)


Product = Callable[[Tensor], Tensor]


@contextmanager
def _products(
    model: Module, rows: Sequences, pairs: StatePairs, path: Path
) -> Iterator[tuple[Product, Product, tuple[int, int]]]:
    """Products with the Jacobians of pairs (one a row) and with their transposes, while the graph of both is kept."""
    with frozen(model), torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):  # others have no second derivative
        stream, every = _passed(model, rows, path)
        each = torch.arange(len(every), device=every.device)
        at, logits = rows.prompt_length - 1 + pairs.source, every[each, pairs.target]
        given = torch.zeros_like(logits).requires_grad_()
        (back,) = torch.autograd.grad(logits, stream, given, create_graph=True)
        linear = back[each, at]

        def forth(direction: Tensor) -> Tensor:
            return torch.autograd.grad(linear, given, direction.to(linear), retain_graph=True)[0]

        def transposed(push: Tensor) -> Tensor:
            return torch.autograd.grad(logits, stream, push.to(logits), retain_graph=True)[0][each, at]

        yield forth, transposed, (logits.shape[-1], stream.shape[-1])


def _passed(model: Module, rows: Sequences, path: Path) -> tuple[Tensor, Tensor]:
    """The stream as a leaf, and the logits at the states as far as the path joins them."""
    streams: dict[int, Tensor] = {}
    with edited_stream(model, {path.layer: _held(streams, path.layer, leaf=True)}):
        logits = state_pass(model, rows)[0]
    if path.through == "attention":
        return streams[path.layer], logits
    embedding = model.get_input_embeddings()  # type: ignore[operator]
    every = torch.arange(logits.shape[-1], device=logits.device)[None]
    p = drawn_from(logits, path.sampling)
    fed = embedding(rows.input_ids)
    carried = (p - p.detach()).to(fed) @ embedding(every)[0]
    # rows end with their target: what stands in for a state that is not there is fed behind it
    place = (rows.states + 1)[..., None].expand_as(carried)
    return streams[path.layer], state_pass(model, rows, fed.scatter_add(1, place, carried))[0]


def _iterated(
    forth: Product, back: Product, block: Float[Tensor, "pair d_model rank"], options: PowerIteration
) -> dict[str, Tensor]:
    pairs, _, rank = block.shape
    before, change, step = block.new_zeros(pairs, rank), block.new_full((pairs,), torch.inf), 0
    while True:
        step += 1
        basis = torch.linalg.qr(block).Q
        pushed = _columns(forth, basis)
        left, values, turn = torch.linalg.svd(pushed, full_matrices=False)
        if step > 1:
            # 0 / 0 where no path joins the two
            change = ((values - before).abs() / values[:, :1]).amax(1).nan_to_num(0.0)
        if step >= options.iterations or bool((change < options.tolerance).all()):
            break
        before, block = values, _columns(back, pushed)
    return {
        "values": values,
        "right": turn @ basis.mT,
        "left": left.mT,
        "change": change,
        "iterations": torch.full((pairs,), step),
    }


def _columns(product: Product, block: Float[Tensor, "pair in rank"]) -> Float[Tensor, "pair out rank"]:
    return torch.stack([product(column) for column in block.unbind(-1)], dim=-1).double().cpu()


def _held(streams: dict[int, Tensor], layer: int, *, leaf: bool) -> Edit:
    def edit(stream: Tensor) -> Tensor:
        streams[layer] = stream.detach().requires_grad_() if leaf else stream
        return streams[layer]

    return edit


def _rows(sequences: Sequences, row: Int[Tensor, " pair"]) -> Sequences:
    return Sequences(
        input_ids=sequences.input_ids[row],
        prompt_length=sequences.prompt_length[row],
        completion_length=sequences.completion_length[row],
    )


def _cropped(sequences: Sequences, pairs: StatePairs) -> Sequences:
    """A rollout for each pair, as far as its target."""
    rows = _rows(sequences, pairs.row)
    ends = Sequences(
        input_ids=rows.input_ids, prompt_length=rows.prompt_length, completion_length=pairs.target + 1
    )
    return ends.rows(0, len(pairs))


def _part(pairs: StatePairs, start: int, stop: int, device: torch.device) -> StatePairs:
    parts = (each[start:stop].to(device) for each in (pairs.row, pairs.source, pairs.target))
    return StatePairs(**dict(zip(("row", "source", "target"), parts, strict=True)))


def _check_layers(model: Module, layers: Sequence[int], where: str) -> None:
    depth = len(residual_blocks(model))
    wrong = [layer for layer in layers if not 0 <= layer < depth]
    if wrong or not layers:
        found = f"found {wrong[0]}" if wrong else "found none"
        raise ValueError(f"layers must lie in 0..{depth - 1}; {found}; {where}")


def _check_pairs(sequences: Sequences, pairs: StatePairs) -> None:
    length = sequences.completion_length[pairs.row]
    wrong = (pairs.source < 0) | (pairs.source > pairs.target) | (pairs.target >= length)
    if not len(pairs) or bool(wrong.any()):
        at = int(wrong.nonzero()[0]) if len(pairs) else 0
        found = (
            f"found {int(pairs.source[at])} and {int(pairs.target[at])} of {int(length[at])}"
            if len(pairs)
            else "found none"
        )
        raise ValueError(
            f"a pair must hold two states of a rollout in order; {found}; leading_singular_values"
        )
