"""Which part of a costate comes from its own token, and which from later tokens through attention.

own_{l,t} = d (term of state t alone) / dh_{l,t}: for the surrogate d (w_t log pi(o_{t+1})) / dh_t. One more pass gives
it for all states at once: keys and values of *other* positions are held fixed, so that nothing flows back in time,
while a position's attention to itself keeps its gradient.

Shape legend: `batch` rollouts, `head` heads, `query` and `key` positions, `d_head` width of a head, `layer` those
asked for, `state` k = 0..T-1, `d_model` width of the residual stream.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor
from torch.nn import Module

from valuelens.probe._language_costates import Costates, costates_at, known_layers, stream_gradients
from valuelens.probe._language_objectives import Objective
from valuelens.probe._residual_stream import residual_blocks
from valuelens.probe._sequences import Sequences
from valuelens.probe._shown import Measured
from valuelens.probe._token_scores import micro_batches

_NAME = "valuelens_own_token"
_KNOWN = frozenset(
    (
        *("scaling", "softcap", "dropout", "sliding_window", "is_causal"),
        *("position_ids", "use_cache", "output_attentions", "output_hidden_states"),
    )
)
"""Options of attention that are obeyed here, or by the mask, or that change nothing in evaluation mode."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Locality(Measured):
    """Inner products of costates with their own-token parts, 0 where a rollout has no such state.

    Attributes:
        own: <own, lambda>.
        whole: <lambda, lambda>.
    """

    own: Float[Tensor, "batch layer state"]
    whole: Float[Tensor, "batch layer state"]

    @property
    def share(self) -> Float[Tensor, " layer"]:
        """sum <own, lambda> / sum <lambda, lambda> over rollouts and states: our definition of locality.

        1 where nothing comes from later tokens, as behind the final norm and at each rollout's last state.
        """
        return self.own.sum((0, 2)) / self.whole.sum((0, 2))

    @property
    def by_state(self) -> Float[Tensor, "layer state"]:
        """The same over rollouts alone; not a number where no rollout has the state, or none a costate."""
        return self.own.sum(0) / self.whole.sum(0)


def locality(own: Costates, whole: Costates) -> Locality:
    """Compare own-token parts with costates, of the same micro-batch or of all rollouts.

    Args:
        own: Of `own_token_batches`.
        whole: Of `costate_batches`, with the same objective and layers.
    """
    products = (
        einsum(
            each.values.double(),
            whole.values.double(),
            "batch layer state d, batch layer state d -> batch layer state",
        )
        for each in (own, whole)
    )
    return Locality(**dict(zip(("own", "whole"), products, strict=True)))


def own_token_batches(
    model: Module,
    sequences: Sequences,
    objective: Objective,
    *,
    layers: Sequence[int],
    micro_batch: int = 8,
) -> Iterator[Costates]:
    """Own-token parts of the costates at the states, one micro-batch after another, as `costate_batches` gives them.

    Args:
        model: A causal language model of transformers, in evaluation mode.
        sequences: Prompts and completions.
        objective: What is maximised; a sum of terms, each of the logits at one state.
        layers: 0..L, or `BEFORE_NORM`.
        micro_batch: Rollouts in one pass.

    Raises:
        ValueError: As `own_token_attention` and `stream_gradients`, or a layer does not exist.
    """
    wanted = known_layers(model, layers)
    sequences = sequences.to(next(model.parameters()).device)
    for start, rows in micro_batches(sequences, micro_batch):
        some = objective.rows(start, start + len(rows.input_ids))
        with own_token_attention(model):
            streams = stream_gradients(model, rows, some, wanted, first_row=start)
        yield costates_at(streams, rows, wanted, "completion")


@contextmanager
def own_token_attention(model: Module) -> Iterator[None]:
    """Inside the block positions are held fixed for one another: outputs stay, gradients flow within a position.

    Args:
        model: A causal language model of transformers whose blocks attend through its attention interface.

    Raises:
        ValueError: As `replaced_attention` and `own_token_attend`.
    """
    with replaced_attention(model, lambda block, *tensors, **options: own_token_attend(*tensors, **options)):
        yield


@contextmanager
def replaced_attention(model: Module, attend: Callable[..., tuple[Tensor, Tensor]]) -> Iterator[None]:
    """Inside the block a model attends by another function, which is handed the number of the block first.

    Args:
        model: A causal language model of transformers whose blocks attend through its attention interface.
        attend: attend(block, query, key, value, mask, **options), as `attend_apart` behind the number.

    Raises:
        ValueError: As `taken_attention`.
    """
    with taken_attention(model, lambda block, own, *tensors, **options: attend(block, *tensors, **options)):
        yield


@contextmanager
def taken_attention(
    model: Module, attend: Callable[..., tuple[Tensor, Tensor | None]], *, plain: bool = True
) -> Iterator[None]:
    """Inside the block a model attends by another function, which is also handed the model's own.

    Args:
        model: A causal language model of transformers whose blocks attend through its attention interface.
        attend: attend(block, own, query, key, value, mask, **options), `own` taking what follows it.
        plain: The mask is one to be added and `own` is `attend_apart`; else both are those that the model has, where
            its own function is one of the interface (not `eager`), and so equal to the last bit.

    Raises:
        ValueError: It has no such interface, or a block did not attend through it.
    """
    switch: Any = getattr(model, "set_attn_implementation", None)
    name = type(model).__name__
    if switch is None:
        raise ValueError(
            f"the model must be one of transformers, whose attention can be set; found {name}; locality"
        )
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    config: Any = model.config
    before, calls = config._attn_implementation, dict[int, int]()
    own: Any = None if plain else AttentionInterface().get(before)

    def numbered(module: Module, *tensors: Any, **options: Any) -> tuple[Tensor, Tensor | None]:
        block = calls.setdefault(id(module), len(calls))
        return attend(block, _attend_plainly if own is None else partial(own, module), *tensors, **options)

    AttentionInterface.register(_NAME, numbered)
    mask = eager_mask if own is None else AttentionMaskInterface().get(before, eager_mask)
    AttentionMaskInterface.register(_NAME, mask)
    try:
        switch(_NAME)
        yield
    finally:
        switch(before)
    blocks = residual_blocks(model)
    if len(calls) != len(blocks):
        found = f"found {len(calls)} of {len(blocks)} blocks"
        raise ValueError(
            f"every block must attend through transformers' attention interface; {found}; {name}"
        )


def _attend_plainly(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> Any:
    key, value = per_query_head(query, key, value)
    return attend_apart(query, (key, key), (value, value), *rest, **options)


def own_token_attend(
    query: Float[Tensor, "batch head query d_head"],
    key: Float[Tensor, "batch kv_head key d_head"],
    value: Float[Tensor, "batch kv_head key d_value"],
    attention_mask: Float[Tensor, "#batch #head query key"] | None,
    **options: Any,
) -> tuple[Float[Tensor, "batch query head d_value"], Float[Tensor, "batch head query key"]]:
    """Attention that gives what it always gives, and gradients only from a position to itself.

    Args:
        query: Of all positions.
        key: Of the same positions, of as many or fewer heads.
        value: As the keys.
        attention_mask: Added to scores.
        **options: As `attend_apart`.

    Raises:
        ValueError: As `attend_apart`.
    """
    keys, values = ((each, each.detach()) for each in per_query_head(query, key, value))
    return attend_apart(query, keys, values, attention_mask, **options)


def per_query_head(
    query: Float[Tensor, "batch head query d_head"],
    key: Float[Tensor, "batch kv_head key d_head"],
    value: Float[Tensor, "batch kv_head key d_value"],
) -> tuple[Float[Tensor, "batch head key d_head"], Float[Tensor, "batch head key d_value"]]:
    """Keys and values once for each query head: heads of a group get copies of what they share.

    Args:
        query: Of all positions.
        key: Of the same positions, of as many or fewer heads.
        value: As the keys.
    """
    groups = query.shape[1] // key.shape[1]
    return key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)


def attend_apart(
    query: Float[Tensor, "batch head query d_head"],
    keys: tuple[Float[Tensor, "batch head key d_head"], Float[Tensor, "batch head key d_head"]],
    values: tuple[Float[Tensor, "batch head key d_value"], Float[Tensor, "batch head key d_value"]],
    attention_mask: Float[Tensor, "#batch #head query key"] | None,
    **options: Any,
) -> tuple[Float[Tensor, "batch query head d_value"], Float[Tensor, "batch head query key"]]:
    """Attention whose keys and values may differ in their graph: those that a position has for itself, and for others.

    Args:
        query: Of all positions.
        keys: For the position itself, and for all others; equal in value.
        values: As the keys.
        attention_mask: Added to scores.
        **options: `scaling` and `softcap`; what else changes attention is refused.

    Raises:
        ValueError: An option is not known, or there is no mask.
    """
    unknown = {name for name, option in options.items() if option is not None} - _KNOWN
    if unknown or attention_mask is None:
        found = f"found {min(unknown)}" if unknown else "found no mask"
        raise ValueError(f"attention must be plain (a mask, a scale, a soft cap); {found}; locality")
    scale = options.get("scaling") or query.shape[-1] ** -0.5
    # what is added is 0, and carries the gradient of a position's attention to itself
    scores = query @ keys[1].mT + torch.diag_embed((query * (keys[0] - keys[1])).sum(-1))
    scores = scores * scale
    if cap := options.get("softcap"):
        scores = torch.tanh(scores / cap) * cap
    weights = (scores + attention_mask).softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    weights = weights.to(query.dtype)
    itself = weights.diagonal(dim1=-2, dim2=-1)[..., None]
    mixed = weights @ values[1] + itself * (values[0] - values[1])
    return mixed.transpose(1, 2).contiguous(), weights
