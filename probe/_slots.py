"""Capture of named tensors from hooked models: residual streams, value slots, attention patterns.

Works on any module with TransformerLens hooks named `blocks.{l}. ...`; knows no architecture.

Shape legend: `batch pos D` a residual stream, `layer` L blocks, `iterate` 0..L, `query key` destination and source.
"""

import re
from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedRootModule


def captured(
    model: HookedRootModule,
    prompt: Float[Tensor, "batch pos D"],
    names: tuple[str, ...],
    *,
    num_queries: int = 1,
) -> Mapping[str, Tensor]:
    """Detached activations of hooks, by full name.

    Args:
        model: Hooked model, called as model(prompt, num_queries).
        prompt: Its input.
        names: Full hook names.
        num_queries: Columns at the end that are no sources.

    Raises:
        ValueError: The model has no hook of that name (never a silent zero).
    """
    missing = [name for name in names if name not in model.hook_dict]
    if missing:
        raise ValueError(
            f"the model must have hook {missing[0]}; found {len(model.hook_dict)} others; capture"
        )
    with torch.no_grad():
        _, cache = model.run_with_cache(prompt, num_queries, names_filter=list(names))
    return {name: cache[name].detach() for name in names}


def block_hooks(model: HookedRootModule, suffix: str) -> tuple[str, ...]:
    """Hook names `blocks.{l}.{suffix}` in the order of layers; empty if the model has none.

    Args:
        model: Hooked model.
        suffix: Such as `hook_value` or `attn.hook_pattern`.
    """
    pattern = re.compile(rf"blocks\.(\d+)\.{re.escape(suffix)}")
    found = {int(match[1]): name for name in model.hook_dict if (match := pattern.fullmatch(name))}
    return tuple(found[layer] for layer in sorted(found))


def stacked(
    model: HookedRootModule, prompt: Float[Tensor, "batch pos D"], suffix: str, *, num_queries: int = 1
) -> Float[Tensor, "layer *shape"]:
    """The activations of one hook of every block, stacked along a leading layer axis.

    Raises:
        ValueError: No block has such a hook.
    """
    names = block_hooks(model, suffix)
    if not names:
        raise ValueError(f"the model must have hooks blocks.0.{suffix}, ...; found none; capture")
    return torch.stack(list(captured(model, prompt, names, num_queries=num_queries).values()))


def value_slots(
    model: HookedRootModule, prompt: Float[Tensor, "batch pos D"], *, num_queries: int = 1
) -> Float[Tensor, "layer batch pos"]:
    """The value slot of every column after every layer, from `blocks.{l}.hook_value`.

    Example:
        >>> import torch
        >>> from valuelens.models.icrl import theta_star
        >>> model = theta_star(feature_dim=2, num_layers=3, gamma=0.5)
        >>> value_slots(model, torch.zeros(1, 6, 5, dtype=torch.float64)).shape
        torch.Size([3, 1, 6])
    """
    return stacked(model, prompt, "hook_value", num_queries=num_queries)


def residual_stream(
    model: HookedRootModule, prompt: Float[Tensor, "batch pos D"], *, num_queries: int = 1
) -> Float[Tensor, "iterate batch pos d_model"]:
    """The residual stream before the first block and after every block."""
    before, after = block_hooks(model, "hook_resid_pre")[:1], block_hooks(model, "hook_resid_post")
    if not before or not after:
        raise ValueError("the model must have hooks blocks.0.hook_resid_pre and _post; found none; capture")
    return torch.stack(list(captured(model, prompt, before + after, num_queries=num_queries).values()))


def attention_patterns(
    model: HookedRootModule, prompt: Float[Tensor, "batch pos D"], *, num_queries: int = 1
) -> Float[Tensor, "layer batch *head query key"]:
    """Attention of every destination (query) to every source (key), after every layer's softmax."""
    return stacked(model, prompt, "attn.hook_pattern", num_queries=num_queries)
