"""Which entries of a model's matrices have any effect on what it returns: computed, not listed."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from valuelens.models.icrl._softmax_td import SoftmaxTD

_TRIALS = 3


def identified_entries(
    model: SoftmaxTD, prompt: Float[Tensor, "batch pos D"], generator: torch.Generator
) -> dict[str, Bool[Tensor, "layer D D"]]:
    """Masks of the entries whose gradient is not exactly zero, at random weights of the same form.

    The memories are empty at the input, so in the first of several untied layers w_T and w_C have no effect; nor
    has a target row that the shift overwrites, or whatever the last layer writes outside the value slot. Tied
    layers share one mask. Derived (theory A8).

    Args:
        model: Its form counts (support, tying, heads), its weights do not.
        prompt: Random prompts.
        generator: Draws the random weights: the support of each matrix filled with N(0, 1 / D).
    """
    shapes = {name: matrix.detach() for name, matrix in model.matrices().items()}
    effects = {name: torch.zeros_like(matrix, dtype=torch.bool) for name, matrix in shapes.items()}
    support = model.support()
    for _ in range(_TRIALS):
        drawn = {}
        for name, matrix in shapes.items():
            noise = torch.empty_like(matrix[:1] if model.tied else matrix).normal_(generator=generator)
            drawn[name] = (support[name] * noise / matrix.shape[-1] ** 0.5).expand_as(matrix)
        leaves = {name: matrix.clone().requires_grad_() for name, matrix in drawn.items()}
        read = model.run(prompt, leaves)
        weights = torch.empty_like(read).normal_(generator=generator)
        gradients = torch.autograd.grad((read * weights).sum(), list(leaves.values()), allow_unused=True)
        for name, gradient in zip(leaves, gradients, strict=True):
            if gradient is not None:
                effects[name] |= gradient != 0
    return {name: _shared(mask, tied=model.tied) for name, mask in effects.items()}


def _shared(mask: Tensor, *, tied: bool) -> Tensor:
    return mask.any(0, keepdim=True).expand_as(mask) if tied else mask
