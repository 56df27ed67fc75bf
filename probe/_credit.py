"""Credit through depth: how the read-out depends on the value that each state holds before each layer.

Shape legend: `iterate` 0..L (before layer l, and after the last), `layer` L, `batch` contexts, `pos` the n+1 columns
S_0..S_n, `D` slots (the last two are target and current memory), `state` S.

The layer of a value is the time of an optimal-control problem: costates run backwards through it (theory A10, derived).
"""

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from valuelens.probe._slots import block_hooks


def read_out_gradients(
    model: HookedRootModule, prompt: Float[Tensor, "batch pos D"]
) -> Float[Tensor, "iterate batch pos D"]:
    """G_l, the gradient of the read-out at the query by the residual stream before each layer and after the last.

    Args:
        model: Hooked model; the last column of the prompt is its query.
        prompt: Its input.

    Raises:
        ValueError: The model has no hooks blocks.0.hook_resid_pre and _post.
    """
    before, after = block_hooks(model, "hook_resid_pre"), block_hooks(model, "hook_resid_post")[-1:]
    if not before or not after:
        raise ValueError("the model must have hooks blocks.0.hook_resid_pre and _post; found none; credit")
    streams: list[Tensor] = []

    def keep(activation: Tensor, hook: HookPoint) -> Tensor:
        streams.append(activation)
        return activation

    with torch.enable_grad(), model.hooks(fwd_hooks=[(name, keep) for name in before + after]):
        read = model(prompt.detach().clone().requires_grad_())[:, 0].sum()
    return torch.stack(torch.autograd.grad(read, streams))


def column_costates(
    gradients: Float[Tensor, "*batch pos D"], *, gamma: float, target_scale: float = 1.0
) -> Float[Tensor, "*batch pos"]:
    """lambda[j] = G_current[j] + gamma G_target[j-1]: effect on the read-out of one more unit of value in column j.

    The value of column j stands in two places, as current memory of j and, times gamma, as target memory of j-1; the
    current row alone is *not* the adjoint.

    Source: derived (theory A10).

    Args:
        gradients: Of `read_out_gradients`.
        gamma: Discount.
        target_scale: s of a free target slot, which holds s gamma v (theory A8).
    """
    current, target = gradients[..., -1], gradients[..., -2]
    return current + gamma * target_scale * torch.nn.functional.pad(target[..., :-1], (1, 0))


def by_state(
    costates: Float[Tensor, "*batch pos"], states: Int[Tensor, "*#batch pos"], num_states: int
) -> Float[Tensor, "*batch {num_states}"]:
    """lambda(s) = sum over the columns that hold s.

    Args:
        costates: Of columns.
        states: State of each column.
        num_states: S.
    """
    columns = torch.nn.functional.one_hot(states.long(), num_states).to(costates.dtype)
    return einsum(costates, columns, "... pos, ... pos state -> ... state")


def adjoint_step(
    costates: Float[Tensor, "*batch state"], step: Float[Tensor, "*batch state state"]
) -> Float[Tensor, "*batch state"]:
    """lambda_l = (I + w_C M_hat + gamma w_T P_hat)' lambda_{l+1}: one layer backwards.

    Exact, in both forms, for any A that reads features only.

    Source: derived (theory A10).

    Args:
        costates: After the layer.
        step: `value_iteration_matrix` of the layer.
    """
    return einsum(step, costates, "... row state, ... row -> ... state")


def relative_gap(
    found: Float[Tensor, "*batch state"], costates: Float[Tensor, "*batch state"]
) -> Float[Tensor, "*batch"]:
    """|| found - lambda || / || lambda || of each context.

    Args:
        found: What a recursion gives.
        costates: lambda, measured.

    Example:
        >>> relative_gap(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0]))
        tensor(0.5000)
    """
    difference, size = ((x.square().sum(-1)).sqrt() for x in (found - costates, costates))
    return difference / size
