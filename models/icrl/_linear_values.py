"""Linear attention that shows the values of all states of its context, not of its queries only.

Shape legend: `batch` contexts, `pos` the n+1 columns S_0..S_n, `query` the query S_n and extra ones, `D` = 2d+1 slots.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from valuelens.models.icrl._learner import ValueLearner
from valuelens.models.icrl._linear_attention import LinearAttention
from valuelens.models.icrl._mrp import Context


class LinearAttentionValues(ValueLearner):
    """`LinearAttention` with S_0..S_n once more behind its queries, where it holds values.

    On the columns of transitions its last slot holds TD errors; a query column of the same state holds the value, and
    is a source for no other. `blocks.{l}.hook_value` shows the values of S_0..S_n; a patch there has no effect.

    Args:
        model: What runs.
    """

    def __init__(self, model: LinearAttention) -> None:
        super().__init__()
        self.num_layers, self.gamma = model.num_layers, model.gamma
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"hook_value": HookPoint()}) for _ in range(model.num_layers)
        )
        self.inner = model
        self.setup()

    def prompt(
        self, context: Context, queries: Float[Tensor, "batch query feature"] | None = None
    ) -> Float[Tensor, "batch column D"]:
        """S_0..S_n, the extra queries, and S_0..S_n as queries."""
        states = context.features
        return self.inner.prompt(context, states if queries is None else torch.cat([queries, states], dim=1))

    def forward(
        self, prompt: Float[Tensor, "batch column D"], num_queries: int = 1
    ) -> Float[Tensor, "batch query"]:
        """Values of S_n and of the extra queries."""
        pos = (prompt.shape[1] - num_queries + 1) // 2
        resid, weights = prompt, zip(self.inner.P, self.inner.Q, strict=True)
        for inner, shown, (P, Q) in zip(self.inner.blocks, self.blocks, weights, strict=True):
            resid = inner(resid, P, Q, num_queries + pos)
            shown["hook_value"](self.read_out(resid)[:, -pos:])  # type: ignore[index]
        return self.read_out(resid)[:, pos - 1 : -pos]

    def read_out(self, resid: Float[Tensor, "batch column D"]) -> Float[Tensor, "batch column"]:
        """The negated reward slot."""
        return self.inner.read_out(resid)
