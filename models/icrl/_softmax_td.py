"""Softmax transformers whose layer is one step of weighted softmax TD, in two forms.

Row-vector code, column-vector weights: `A` and `V` are in the papers' orientation, so that a layer is
Z <- Z + V Z K', K[j, i] = softmax over sources i of (z_i' A z_j + mask), with Z's columns the rows here.

Shape legend: `batch pos D` the residual stream, D = d+3 (see `softmax_slots`); `query` is the destination j,
`key` the source i; `layer` is L; parameters have a leading axis of L, or of 1 if tied.

Source: arXiv 2605.07333 (theory A3).
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from valuelens.models.icrl._config import ModelConfig
from valuelens.models.icrl._learner import ValueLearner
from valuelens.models.icrl._mrp import Context
from valuelens.models.icrl._prompt import softmax_prompt, source_mask


class _Attention(nn.Module):
    """Scores z_key' A z_query and their softmax over sources."""

    def __init__(self) -> None:
        super().__init__()
        self.hook_attn_scores = HookPoint()
        self.hook_pattern = HookPoint()

    def forward(
        self, resid: Float[Tensor, "batch pos D"], A: Float[Tensor, "D D"], mask: Float[Tensor, "pos"]
    ) -> Float[Tensor, "batch pos pos"]:
        scores = (resid @ A.mT) @ resid.mT + mask
        pattern: Tensor = self.hook_pattern(torch.softmax(self.hook_attn_scores(scores), dim=-1))
        return pattern


class _Block(nn.Module):
    """One layer; hooks only, the weights come from the model."""

    def __init__(self, gamma: float) -> None:
        super().__init__()
        self.gamma = gamma
        self.attn = _Attention()
        self.hook_resid_pre = HookPoint()
        self.hook_attn_out = HookPoint()
        self.hook_value = HookPoint()
        self.hook_target = HookPoint()
        self.hook_resid_post = HookPoint()

    def forward(
        self,
        resid: Float[Tensor, "batch pos D"],
        A: Float[Tensor, "D D"],
        V: Float[Tensor, "D D"],
        V_target: Float[Tensor, "D D"] | None,
        mask: Float[Tensor, "pos"],
        num_queries: int,
    ) -> Float[Tensor, "batch pos D"]:
        resid = self.hook_resid_pre(resid)
        pattern = self.attn(resid, A, mask)
        update = pattern @ (resid @ V.mT)
        if V_target is not None:
            update = update + self.gamma * _shift(pattern @ (resid @ V_target.mT), num_queries)
        resid = resid + self.hook_attn_out(update)
        current = self.hook_value(resid[..., -1])
        target = self.gamma * _shift(current, num_queries) if V_target is None else resid[..., -2]
        memories = torch.stack([self.hook_target(target), current], dim=-1)
        out: Tensor = self.hook_resid_post(torch.cat([resid[..., :-2], memories], dim=-1))
        return out


class SoftmaxTD(ValueLearner):
    """Softmax attention with value memories: single head + temporal shift module, or dual head.

    `tsm`: Y = Z + V Z K', then target memory of column j <- gamma times current memory of column j+1.
    `dual`: Z + V Z K' + gamma V_target Z K' Pi with a second head of free rows that shares A and is shifted to
    the predecessor column. Both are one weighted softmax TD step for theta*, and differ when the memories are not
    consistent (target[j] = gamma current[j+1]). Patching `hook_value` keeps them consistent in `tsm` and breaks
    them in `dual`.

    Args:
        model: `arch` tsm or dual, `weights` restricted (three scalars w = (w_R, w_T, w_C) and A's feature block),
            full (D x D matrices) or factored (W_Q, W_K, W_V, W_O with A = W_K W_Q' / sqrt(d_head), V = (W_V W_O)').
        feature_dim: d.
        gamma: Discount of the shift.
        generator: Draws the initial parameters: normal with standard deviation .1 / sqrt(size) for matrices,
            .1 for w, .5 / sqrt(D) for factors.

    Example:
        >>> from valuelens.models.icrl import ModelConfig
        >>> model = SoftmaxTD(ModelConfig(num_layers=2), feature_dim=4, gamma=0.5, generator=torch.Generator())
        >>> model.A.shape, model.hook_dict["blocks.1.attn.hook_pattern"].name
        (torch.Size([2, 7, 7]), 'blocks.1.attn.hook_pattern')
    """

    def __init__(
        self, model: ModelConfig, *, feature_dim: int, gamma: float, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.arch, self.num_layers, self.tied = model.arch, model.num_layers, model.tied
        self.gamma, self.feature_dim = gamma, feature_dim
        layers, heads = (1 if model.tied else model.num_layers), (1 if model.arch == "tsm" else 2)
        self._parameterise(model.weights, layers, heads, generator)
        self.blocks = nn.ModuleList(_Block(gamma) for _ in range(model.num_layers))
        self.setup()

    def _parameterise(self, weights: str, layers: int, heads: int, generator: torch.Generator) -> None:
        d, D = self.feature_dim, self.feature_dim + 3
        self.weights = weights

        def normal(*shape: int, std: float) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape).normal_(std=std, generator=generator))

        names = ("", "_target")[:heads]
        if weights == "restricted":
            self.A_features = normal(layers, d, d, std=0.1 / math.sqrt(d))
            for name in names:
                self.register_parameter(f"w{name}", normal(layers, 3, std=0.1))
        elif weights == "full":
            self.A_full = normal(layers, D, D, std=0.1 / math.sqrt(D))
            for name in names:
                self.register_parameter(f"V_full{name}", normal(layers, D, D, std=0.1 / math.sqrt(D)))
        else:
            for name in ("W_Q", "W_K", *(f"{part}{head}" for head in names for part in ("W_V", "W_O"))):
                self.register_parameter(name, normal(layers, D, D, std=0.5 / math.sqrt(D)))

    @property
    def A(self) -> Float[Tensor, "layer D D"]:
        """Merged key-query matrix of each layer: g(dest, src) = z_src' A z_dest."""
        if self.weights == "restricted":
            merged = nn.functional.pad(self.A_features, (0, 3, 0, 3))
        elif self.weights == "full":
            merged = self.A_full
        else:
            merged = (
                self.get_parameter("W_K") @ self.get_parameter("W_Q").mT / math.sqrt(self.feature_dim + 3)
            )
        return merged.expand(self.num_layers, -1, -1)

    @property
    def V(self) -> Float[Tensor, "layer D D"]:
        """Value-output matrix of the current-value head."""
        return self._value_output("", row=-1)

    @property
    def V_target(self) -> Float[Tensor, "layer D D"] | None:
        """Value-output matrix of the target-value head; none in `tsm`."""
        return self._value_output("_target", row=-2) if self.arch == "dual" else None

    def _value_output(self, head: str, *, row: int) -> Tensor:
        D = self.feature_dim + 3
        if self.weights == "restricted":
            above = D + row
            merged = nn.functional.pad(
                self.get_parameter(f"w{head}")[:, None, :], (D - 3, 0, above, D - 1 - above)
            )
        elif self.weights == "full":
            merged = self.get_parameter(f"V_full{head}")
        else:
            merged = (self.get_parameter(f"W_V{head}") @ self.get_parameter(f"W_O{head}")).mT
        return merged.expand(self.num_layers, -1, -1)

    def prompt(
        self, context: Context, queries: Float[Tensor, "batch query feature"] | None = None
    ) -> Float[Tensor, "batch pos D"]:
        """Z_0 with its slots (see `softmax_prompt`)."""
        return softmax_prompt(context, queries)

    def matrices(self) -> dict[str, Float[Tensor, "layer D D"]]:
        """A, V and, with a target head, V_target: all that the function depends on."""
        merged = {"A": self.A, "V": self.V}
        return merged if self.V_target is None else {**merged, "V_target": self.V_target}

    def support(self) -> dict[str, Float[Tensor, "D D"]]:
        """1 where this parameterisation lets a matrix be anything but zero."""
        d, D = self.feature_dim, self.feature_dim + 3
        full = torch.ones(D, D, dtype=self.A.dtype)
        if self.weights != "restricted":
            return {name: full for name in self.matrices()}
        features, row = torch.zeros_like(full), torch.zeros_like(full)
        features[:d, :d], row[-1, -3:] = 1, 1
        masks = {"A": features, "V": row, "V_target": row.roll(-1, dims=0)}
        return {name: masks[name] for name in self.matrices()}

    def forward(
        self, prompt: Float[Tensor, "batch pos D"], num_queries: int = 1
    ) -> Float[Tensor, "batch query"]:
        """Current memory of the query columns after L layers.

        Args:
            prompt: Z_0, or any residual stream with these slots.
            num_queries: Columns at the end that are no sources: S_n, then extra queries.
        """
        return self.run(prompt, self.matrices(), num_queries)

    def run(
        self, prompt: Float[Tensor, "batch pos D"], matrices: dict[str, Tensor], num_queries: int = 1
    ) -> Float[Tensor, "batch query"]:
        """`forward` with given matrices instead of the model's own, as functions of which it can be differentiated.

        Args:
            prompt: As for `forward`.
            matrices: With the keys of `matrices()`.
            num_queries: As for `forward`.
        """
        mask = source_mask(prompt.shape[1], num_queries, prompt)
        target = matrices.get("V_target")
        resid = prompt
        for layer, block in enumerate(self.blocks):
            head = None if target is None else target[layer]
            resid = block(resid, matrices["A"][layer], matrices["V"][layer], head, mask, num_queries)
        return self.read_out(resid)[:, -num_queries:]

    def read_out(self, resid: Float[Tensor, "batch pos D"]) -> Float[Tensor, "batch pos"]:
        """Current memory."""
        return resid[..., -1]


def _shift(x: Tensor, num_queries: int) -> Tensor:
    """Column j takes column j+1 up to the query S_n; S_n and extra queries take 0 (the matrix Pi)."""
    n = x.shape[1] - num_queries
    padding = (0, 0) * (x.ndim - 2) + (0, num_queries)
    return nn.functional.pad(x[:, 1 : n + 1], padding)
