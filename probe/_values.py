"""Value errors and the predictors that they stand beside.

Shape legend: `batch` tasks (one context each), `pos` the n+1 columns of a context, `transition` its n rewards.
"""

from jaxtyping import Float
from torch import Tensor


def constant_value(rewards: Float[Tensor, "batch transition"], *, gamma: float) -> Float[Tensor, "batch"]:
    """mean(R) / (1 - gamma): the best guess that sees no state, the control of every value error (theory A7).

    Example:
        >>> import torch
        >>> constant_value(torch.tensor([[1.0, 3.0]]), gamma=0.5)
        tensor([4.])
    """
    return rewards.mean(-1) / (1 - gamma)


def within_chain_sums(
    values: Float[Tensor, "batch pos"], truth: Float[Tensor, "batch pos"]
) -> tuple[Float[Tensor, "batch"], Float[Tensor, "batch"]]:
    """Residual and total sum of squares about each context's own means, for `within_chain_r2`.

    Args:
        values: vhat_j.
        truth: v_j.
    """
    centred = truth - truth.mean(-1, keepdim=True)
    residual = values - values.mean(-1, keepdim=True) - centred
    return residual.square().sum(-1), centred.square().sum(-1)


def within_chain_r2(
    values: Float[Tensor, "batch pos"], truth: Float[Tensor, "batch pos"]
) -> Float[Tensor, ""]:
    """1 - sum_j ((vhat_j - mean vhat) - (v_j - mean v))^2 / sum_j (v_j - mean v)^2, sums over columns and contexts.

    How much of the differences between the states of one chain is explained; a constant predictor scores 0.
    Our definition (theory A7).

    Example:
        >>> import torch
        >>> truth = torch.tensor([[0.0, 1.0, 2.0]])
        >>> within_chain_r2(truth + 5, truth)
        tensor(1.)
    """
    residual, total = within_chain_sums(values, truth)
    return 1 - residual.sum() / total.sum()
