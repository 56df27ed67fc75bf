"""Weighted softmax temporal-difference learning, along a trajectory and over states.

Shape legend: `batch` contexts, `pos` the n+1 columns S_0..S_n and any extra query columns behind them,
`transition` the n rewards R_1..R_n, `key` sources (the first n columns), `state` S, `iterate` 0..num_layers.

One layer is v <- v + K (w_R R + gamma w_T v(S_k) + w_C v(S_{k-1})), values frozen during the step; at
w = alpha (1, 1, -1) the bracket is alpha times the TD error. Source: arXiv 2605.07333 (theory A2).
"""

from collections.abc import Callable, Sequence

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from valuelens.probe._kernel import TD_WEIGHTS, StateKernel, check_columns


def td_error(
    v_tm1: Float[Tensor, "*batch"],
    r_t: Float[Tensor, "*batch"],
    discount: float,
    v_t: Float[Tensor, "*batch"],
) -> Float[Tensor, "*batch"]:
    """delta = r_t + discount v_t - v_tm1: how much better a transition was than its value foretold.

    Source: Sutton and Barto, Reinforcement Learning (2018), eq. 6.5.

    Args:
        v_tm1: Value of the state that was left.
        r_t: Reward on leaving it.
        discount: Discount of the next value.
        v_t: Value of the state that was reached.
    """
    return r_t + discount * v_t - v_tm1


def softmax_td_step(
    values: Float[Tensor, "batch pos"],
    rewards: Float[Tensor, "batch transition"],
    kernel: Float[Tensor, "batch pos key"],
    *,
    gamma: float,
    w: Float[Tensor, "3"] = TD_WEIGHTS,
) -> Float[Tensor, "batch pos"]:
    """One layer of weighted softmax TD: every column moves by the errors of the transitions it attends to.

    Nothing here needs the kernel to be a softmax: with another one (`linear_td_kernel`, ...) it is a step of the
    rival rule.

    Source: arXiv 2605.07333 (theory A2), generalised to weights w.

    Args:
        values: v(S_0)..v(S_n), then values of extra query columns, which change but influence nothing.
        rewards: R_1..R_n.
        kernel: Weight of each source (from the first n columns; later keys are ignored) for each column.
        gamma: Discount.
        w: (w_R, w_T, w_C).

    Raises:
        ValueError: There are no transitions, or too few columns or sources for them.

    Example:
        >>> softmax_td_step(torch.zeros(1, 2), torch.ones(1, 1), torch.ones(1, 2, 1), gamma=0.5)
        tensor([[1., 1.]])
    """
    n = rewards.shape[-1]
    check_columns(n, queries=values.shape[-1], keys=kernel.shape[-1], where="softmax_td_step")
    error = w[0] * rewards + gamma * w[1] * values[:, 1 : n + 1] + w[2] * values[:, :n]
    return values + einsum(kernel[..., :n], error, "batch pos key, batch key -> batch pos")


def softmax_td(
    values: Float[Tensor, "batch pos"],
    rewards: Float[Tensor, "batch transition"],
    kernels: Float[Tensor, "*kernel_layer batch pos key"],
    *,
    gamma: float,
    num_layers: int,
    w: Float[Tensor, "*weight_layer 3"] = TD_WEIGHTS,
) -> Float[Tensor, "iterate batch pos"]:
    """All iterates of weighted softmax TD, the start among them.

    Args:
        values: Where to start, usually 0.
        rewards: R_1..R_n.
        kernels: One kernel for all layers, or one a layer.
        gamma: Discount.
        num_layers: L.
        w: (w_R, w_T, w_C), one for all layers, or one a layer.

    Raises:
        ValueError: As in `softmax_td_step`, or a number of kernels or weights that is not `num_layers`.
    """
    layer_kernels = _per_layer("kernels", kernels, 3, num_layers)
    layer_weights = _per_layer("w", w, 1, num_layers)
    return iterates(
        lambda v, layer: softmax_td_step(
            v, rewards, layer_kernels[layer], gamma=gamma, w=layer_weights[layer]
        ),
        values,
        num_layers,
    )


def softmax_td_states_step(
    values: Float[Tensor, "batch state"],
    kernel: StateKernel,
    *,
    gamma: float,
    w: Float[Tensor, "3"] = TD_WEIGHTS,
) -> Float[Tensor, "batch state"]:
    """One layer over states: v <- v + w_R r_hat + w_C M_hat v + gamma w_T P_hat v.

    Equals `softmax_td_step` read at each state, if columns of one state hold one value and one kernel row.

    Source: arXiv 2605.07333, by its audit (theory A4), generalised to weights w.

    Args:
        values: v(s).
        kernel: Attention by state.
        gamma: Discount.
        w: (w_R, w_T, w_C).
    """
    pull = w[2] * kernel.M_hat + gamma * w[1] * kernel.P_hat
    return values + w[0] * kernel.r_hat + einsum(pull, values, "batch row state, batch state -> batch row")


def softmax_td_states(
    values: Float[Tensor, "batch state"],
    kernels: StateKernel | Sequence[StateKernel],
    *,
    gamma: float,
    num_layers: int,
    w: Float[Tensor, "*weight_layer 3"] = TD_WEIGHTS,
) -> Float[Tensor, "iterate batch state"]:
    """All iterates over states, the start among them; one kernel (and one w) for all layers, or one a layer.

    Args:
        values: Where to start, usually 0.
        kernels: Attention by state.
        gamma: Discount.
        num_layers: L.
        w: (w_R, w_T, w_C), one for all layers, or one a layer.

    Raises:
        ValueError: A number of kernels or weights that is not `num_layers`.
    """
    layer_kernels = [kernels] * num_layers if isinstance(kernels, StateKernel) else kernels
    if len(layer_kernels) != num_layers:
        raise ValueError(
            f"kernels must be one or {num_layers}; found {len(layer_kernels)}; softmax_td_states"
        )
    layer_weights = _per_layer("w", w, 1, num_layers)
    return iterates(
        lambda v, layer: softmax_td_states_step(v, layer_kernels[layer], gamma=gamma, w=layer_weights[layer]),
        values,
        num_layers,
    )


def fixed_point(
    kernel: StateKernel, *, gamma: float, w: Float[Tensor, "3"] = TD_WEIGHTS
) -> Float[Tensor, "batch state"]:
    """Values that a layer leaves as they are: (-w_C M_hat - gamma w_T P_hat) v = w_R r_hat on visited states.

    At w = alpha (1, 1, -1): (M_hat - gamma P_hat) v = r_hat, whatever alpha. Zero at unvisited states; meaningful
    where `kernel.closed`. Of several solutions (states with equal features) the one of least norm.

    Source: theory A5.

    Args:
        kernel: Attention by state.
        gamma: Discount.
        w: (w_R, w_T, w_C).
    """
    both = kernel.visited[:, :, None] & kernel.visited[:, None, :]
    matrix = (-w[2] * kernel.M_hat - gamma * w[1] * kernel.P_hat) * both
    target = (w[0] * kernel.r_hat)[..., None]
    # Least squares by singular values (on the CPU, the only place that has it) passes over the zeroed rows.
    solution: Tensor = torch.linalg.lstsq(matrix.cpu(), target.cpu(), driver="gelsd").solution
    return solution[..., 0].to(kernel.r_hat.device)


def memory_response(
    current: Float[Tensor, "batch pos"],
    target: Float[Tensor, "batch transition"],
    kernel: Float[Tensor, "batch pos key"],
    *,
    gamma: float,
    w: Float[Tensor, "3"] = TD_WEIGHTS,
    num_layers: int,
) -> Float[Tensor, "iterate batch pos"]:
    """How a change of the two memories moves current memories through layers of the dual-head form.

    Current memory of column j moves by sum_k K(S_j <- S_{k-1}) (w_T target_{k-1} + w_C current_{k-1}); target memory of
    column j by gamma times the same at S_{j+1}. The step is affine in the memories, so this holds for changes of any
    size. A change of current memory at column k alone leaves the copy of v(S_k) in target memory of column k-1
    behind; to move the value itself, change that one too, by gamma times as much.

    Source: theory A3 (dual-head form), A10.

    Args:
        current: Change of current memories, of S_0..S_n (extra queries respond like any column, and influence none).
        target: Change of target memories, of S_0..S_{n-1}.
        kernel: Weight of each source for each column.
        gamma: Discount.
        w: (w_R, w_T, w_C).
        num_layers: Steps that follow.

    Raises:
        ValueError: There are no transitions, or too few columns or sources for them.
    """
    n = target.shape[-1]
    check_columns(n, queries=current.shape[-1], keys=kernel.shape[-1], where="memory_response")
    responses = [current]
    for _ in range(num_layers):
        error = w[1] * target + w[2] * responses[-1][:, :n]
        moved = einsum(kernel[..., :n], error, "batch pos key, batch key -> batch pos")
        responses.append(responses[-1] + moved)
        target = target + gamma * moved[:, 1 : n + 1]
    return torch.stack(responses)


def iterates(
    step: Callable[[Tensor, int], Tensor], start: Float[Tensor, "*shape"], num_layers: int
) -> Float[Tensor, "iterate *shape"]:
    """start, step(start, 0), ... stacked: the `num_layers` + 1 values of a recursion."""
    values = [start]
    for layer in range(num_layers):
        values.append(step(values[-1], layer))
    return torch.stack(values)


def _per_layer(name: str, one_or_many: Tensor, ndim: int, num_layers: int) -> Tensor:
    if one_or_many.ndim == ndim:
        return one_or_many.expand(num_layers, *one_or_many.shape)
    if len(one_or_many) != num_layers:
        raise ValueError(f"{name} must be one or {num_layers}; found {len(one_or_many)}; softmax TD")
    return one_or_many
