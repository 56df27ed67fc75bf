"""Constructors of models whose algorithm is known: theta*, and softmax TD with given matrices."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from valuelens.models._errors import InputError
from valuelens.models.icrl._config import Arch, ModelConfig
from valuelens.models.icrl._softmax_td import SoftmaxTD


def theta_star(
    *,
    feature_dim: int,
    num_layers: int,
    gamma: float,
    alpha: float | Sequence[float] = 1.0,
    sharpness: float | Sequence[float] = 1.0,
    arch: Arch = "tsm",
) -> SoftmaxTD:
    """The construction theta*(alpha, c) with restricted weights: L steps of weighted softmax TD, in float64.

    A = c diag(I_d, 0); V is zero but for alpha [0, 1, 1, -1] into current memory (dual head: the same row into
    target memory).

    Source: arXiv 2605.07333 (theory A3); alpha and c are the scales that theory A8 leaves free.

    Args:
        feature_dim: d.
        num_layers: L.
        gamma: Discount.
        alpha: Step size, one or one a layer.
        sharpness: c, one or one a layer.
        arch: `tsm` or `dual`.

    Raises:
        InputError: There are not as many step sizes or sharpnesses as layers.

    Example:
        >>> model = theta_star(feature_dim=2, num_layers=1, gamma=0.5, alpha=0.25)
        >>> model.V[0, -1].tolist()
        [0.0, 0.0, 0.25, 0.25, -0.25]
    """
    tied = isinstance(alpha, int | float) and isinstance(sharpness, int | float)
    layers = 1 if tied else num_layers
    steps, cs = _a_layer("alpha", alpha, layers), _a_layer("sharpness", sharpness, layers)
    config = ModelConfig(arch=arch, weights="restricted", num_layers=num_layers, tied=tied)
    model = _empty(config, feature_dim=feature_dim, gamma=gamma)
    w = steps[:, None] * torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
    model.A_features = nn.Parameter(cs[:, None, None] * torch.eye(feature_dim, dtype=torch.float64))
    model.w = nn.Parameter(w)
    if arch == "dual":
        model.w_target = nn.Parameter(w.clone())
    return model


def softmax_td_from_matrices(
    A: Float[Tensor, "layer D D"],
    V: Float[Tensor, "layer D D"],
    *,
    gamma: float,
    V_target: Float[Tensor, "layer D D"] | None = None,
) -> SoftmaxTD:
    """Untied softmax TD with given matrices (full weights), dual head if `V_target` is given.

    Args:
        A: Merged key-query matrix of each layer.
        V: Value-output matrix of the current-value head.
        gamma: Discount.
        V_target: Value-output matrix of the target-value head.
    """
    num_layers, D, _ = A.shape
    arch: Arch = "tsm" if V_target is None else "dual"
    config = ModelConfig(arch=arch, weights="full", num_layers=num_layers, tied=False)
    model = _empty(config, feature_dim=D - 3, gamma=gamma)
    model.A_full, model.V_full = nn.Parameter(A.clone()), nn.Parameter(V.clone())
    if V_target is not None:
        model.V_full_target = nn.Parameter(V_target.clone())
    return model


def _a_layer(name: str, numbers: float | Sequence[float], layers: int) -> Float[Tensor, "{layers}"]:
    tensor = torch.as_tensor(numbers, dtype=torch.float64)
    if tensor.ndim and len(tensor) != layers:
        must = f"{name} must be one number or one a layer"
        raise InputError(must, f"found {len(tensor)} for {layers} layers", "theta_star")
    return tensor.expand(layers)


def _empty(model: ModelConfig, *, feature_dim: int, gamma: float) -> SoftmaxTD:
    return SoftmaxTD(model, feature_dim=feature_dim, gamma=gamma, generator=torch.Generator()).double()
