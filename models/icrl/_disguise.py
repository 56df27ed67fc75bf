"""What leaves a network's function alone and hides its slots: hidden bases, gauges, foreign read-outs.

Shape legend: `layer` L, `D` = d+3 slots of a column.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.models.icrl._learner import ValueLearner
from valuelens.models.icrl._mrp import Context
from valuelens.models.icrl._softmax_td import SoftmaxTD
from valuelens.models.icrl._theta_star import softmax_td_from_matrices


def hidden_basis(size: int, generator: torch.Generator) -> Float[Tensor, "{size} {size}"]:
    """A random permutation, scale (of either sign, 1/2 to 2) and rotation of slots, in this order.

    Args:
        size: D.
        generator: Source of randomness.
    """
    permuted = torch.eye(size, dtype=torch.float64)[torch.randperm(size, generator=generator)]
    scale = torch.exp2(2 * torch.rand(size, generator=generator, dtype=torch.float64) - 1)
    sign = 2 * torch.randint(0, 2, (size,), generator=generator, dtype=torch.float64) - 1
    rotation, _ = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    basis: Tensor = permuted @ torch.diag(sign * scale) @ rotation
    return basis


class DisguisedSoftmaxTD(ValueLearner):
    """Dual-head softmax TD whose residual stream lives in a hidden basis: z T for row vectors z.

    Its weights are A -> T^{-1} A T^{-T} and V -> T' V T^{-T}, its prompt Z_0 T; its read-out is no slot any more.
    `blocks.{l}.hook_resid_post` shows the stream.

    Args:
        model: Two-head softmax TD; the shift of one head needs its slots where they are.
        basis: T.

    Raises:
        ValueError: The model has one head.
    """

    def __init__(self, model: SoftmaxTD, basis: Float[Tensor, "D D"]) -> None:
        super().__init__()
        matrices = {name: matrix.detach().double() for name, matrix in model.matrices().items()}
        if "V_target" not in matrices:
            raise ValueError("a hidden basis needs two heads; found one with a shift of slots; disguise")
        self.num_layers, self.feature_dim, self.gamma = model.num_layers, model.feature_dim, model.gamma
        self.register_buffer("basis", basis)
        self.register_buffer("inverse", torch.linalg.inv(basis))
        inverse = self.get_buffer("inverse")
        inner = softmax_td_from_matrices(
            inverse @ matrices["A"] @ inverse.mT,
            basis.mT @ matrices["V"] @ inverse.mT,
            gamma=model.gamma,
            V_target=basis.mT @ matrices["V_target"] @ inverse.mT,
        )
        self.blocks, self.inner = inner.blocks, inner  # in this order: hooks take the first name
        self.setup()

    def prompt(
        self, context: Context, queries: Float[Tensor, "batch query feature"] | None = None
    ) -> Float[Tensor, "batch pos D"]:
        """Z_0 in the hidden basis."""
        return self.inner.prompt(context, queries) @ self.get_buffer("basis")

    def forward(
        self, prompt: Float[Tensor, "batch pos D"], num_queries: int = 1
    ) -> Float[Tensor, "batch query"]:
        """Values of the last `num_queries` columns."""
        last: list[Tensor] = []
        handle = self.blocks[-1].register_forward_hook(lambda _, __, output: last.append(output))
        try:
            self.inner(prompt, num_queries)
        finally:
            handle.remove()
        return self.read_out(last[0])[:, -num_queries:]

    def read_out(self, resid: Float[Tensor, "batch pos D"]) -> Float[Tensor, "batch pos"]:
        """Current memory, out of the hidden basis."""
        return resid @ self.get_buffer("inverse")[:, -1]


def softmax_gauged(
    A: Float[Tensor, "layer D D"], direction: Float[Tensor, "d"], generator: torch.Generator
) -> Float[Tensor, "layer D D"]:
    """A + direction u' with random u: the same attention where direction'x is the same for all sources (theory A8).

    Args:
        A: Merged key-query matrices.
        direction: Of the features, such as ones for one-hot features.
        generator: Draws u.
    """
    d = len(direction)
    u = torch.randn(A.shape[-1], generator=generator, dtype=A.dtype)
    moved = A.clone()
    moved[:, :d] += direction[:, None] * u
    return moved
