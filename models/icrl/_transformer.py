"""A standard pre-norm transformer as an in-context value learner: the opaque model.

Shape legend: `token` = d+2 slots of a prompt column (features, reward, query marker), `head`, `d_head` =
d_model / heads, `d_mlp` = 4 d_model, `query` and `key` destination and source columns. Weights act on row
vectors and carry TransformerLens' names and shapes.
"""

import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from valuelens.models._errors import InputError
from valuelens.models.icrl._config import ModelConfig
from valuelens.models.icrl._learner import ValueLearner
from valuelens.models.icrl._mrp import Context
from valuelens.models.icrl._prompt import token_prompt

_STD = 0.02
_EPS = 1e-5

_Draw = Callable[..., nn.Parameter]


class Transformer(ValueLearner):
    """Linear embedding, learned absolute positions, pre-norm attention and GELU blocks, linear value read-out.

    Who sees whom: every column sees the n transitions and itself, and the transitions also see S_n. Extra
    query columns stand at the position of S_n and are seen by nobody else, so they change nothing, and one that
    repeats S_n returns the value of S_n. Because the transitions see S_n, the value of another state s is read
    *in the context that ends in S_n*. With `causal`, keys lie at positions up to the query's own, so no
    transition sees a query.

    `positions=False` is the set-only control: without positions the prompt is a set of (x, R) pairs, no
    successor is visible and no TD rule can be expressed; such a network takes contexts of any length. Layers
    are never tied, whatever `ModelConfig.tied` says.

    Initial parameters (our definition, as in GPT-2): weights, positions and read-out N(0, 0.02^2), the matrices
    that write into the residual stream (W_O, W_out) N(0, 0.02^2 / 2L), biases 0, norm gains 1.

    Hooks, l = 0..L-1, in TransformerLens' words:

    * `hook_embed`, `hook_pos_embed` (not in the set-only control): [batch pos d_model].
    * `blocks.{l}.hook_resid_pre`, `.hook_resid_mid`, `.hook_resid_post`, `.hook_attn_out`, `.hook_mlp_out`:
      [batch pos d_model].
    * `blocks.{l}.attn.hook_q`, `.hook_k`, `.hook_v`, `.hook_z`: [batch pos head d_head].
    * `blocks.{l}.attn.hook_attn_scores` (scaled, minus infinity where masked), `.hook_pattern`:
      [batch head query key].
    * `blocks.{l}.ln1.hook_normalized`, `blocks.{l}.ln2.hook_normalized`, `ln_final.hook_normalized`:
      [batch pos d_model].

    Args:
        model: Layers, heads, width, `causal`, `positions`, `normalization`.
        feature_dim: d.
        context_length: Largest n; there are n+1 positions.
        gamma: Discount that the model is meant to learn. Kept as a record.
        generator: Source of the initial parameters.

    Example:
        >>> config = ModelConfig(arch="transformer", num_layers=2)
        >>> generator = torch.Generator()
        >>> model = Transformer(config, feature_dim=4, context_length=30, gamma=0.5, generator=generator)
        >>> model(torch.zeros(8, 31, 6)).shape
        torch.Size([8, 1])
    """

    def __init__(
        self,
        model: ModelConfig,
        *,
        feature_dim: int,
        context_length: int,
        gamma: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.num_layers, self.feature_dim, self.gamma = model.num_layers, feature_dim, gamma
        self.causal = model.causal
        draw = partial(_normal, generator=generator)
        self.W_E, self.b_E = draw(feature_dim + 2, model.d_model), _zeros(model.d_model)
        self.W_pos = draw(context_length + 1, model.d_model) if model.positions else None
        self.blocks = nn.ModuleList(_Block(model, draw) for _ in range(model.num_layers))
        self.ln_final = _Norm(model)
        self.W_U, self.b_U = draw(model.d_model, 1), _zeros(1)
        self.hook_embed = HookPoint()
        if model.positions:
            self.hook_pos_embed = HookPoint()
        self.setup()

    @property
    def cfg(self) -> SimpleNamespace:
        """What an `ActivationCache` asks of a model with heads and MLPs."""
        first: Any = self.blocks[0]
        heads, _, d_model = first.attn.W_O.shape
        return SimpleNamespace(n_layers=self.num_layers, n_heads=heads, d_model=d_model, attn_only=False)

    def prompt(
        self, context: Context, queries: Float[Tensor, "batch query feature"] | None = None
    ) -> Float[Tensor, "batch pos token"]:
        """Tokens: features, reward, query marker.

        Raises:
            InputError: The context has another feature dimension than the model.
        """
        if context.features.shape[-1] != self.feature_dim:
            raise InputError(
                f"contexts must have the model's {self.feature_dim} features",
                f"found {context.features.shape[-1]}",
                "transformer, context",
            )
        return token_prompt(context, queries)

    def forward(
        self, prompt: Float[Tensor, "batch pos token"], num_queries: int = 1
    ) -> Float[Tensor, "batch query"]:
        """Values of the last `num_queries` columns.

        Raises:
            InputError: The context is longer than the model has positions for.
        """
        n = prompt.shape[1] - num_queries
        position = torch.arange(prompt.shape[1], device=prompt.device).clamp(max=n)
        resid = self._embed(prompt, position)
        mask = None if num_queries == 1 and not self.causal else _hidden(position, n, causal=self.causal)
        for block in self.blocks:
            resid = block(resid, mask)
        return self.read_out(resid)[:, -num_queries:]

    def read_out(self, resid: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos"]:
        """Final norm and linear read-out (the logit lens of a value model)."""
        return _affine(self.ln_final(resid), self.W_U, self.b_U)[..., 0]

    def _embed(
        self, prompt: Float[Tensor, "batch pos token"], position: Int[Tensor, " pos"]
    ) -> Float[Tensor, "batch pos d_model"]:
        embed: Tensor = self.hook_embed(_affine(prompt, self.W_E, self.b_E))
        if self.W_pos is None:
            return embed
        n, context_length = int(position[-1]), len(self.W_pos) - 1
        if n > context_length:
            raise InputError(
                f"contexts must have at most {context_length} transitions",
                f"found {n}",
                "transformer, positions",
            )
        pos_embed: Tensor = self.hook_pos_embed(self.W_pos[position].expand_as(embed))
        return embed + pos_embed


def _hidden(position: Int[Tensor, " pos"], n: int, *, causal: bool) -> Bool[Tensor, "query key"]:
    """True where a destination must not see a source."""
    column = torch.arange(len(position), device=position.device)
    query, key = column[:, None], column
    visible = (key < n) | (key == query) | ((key == n) & (query < n))
    if causal:
        visible &= position <= position[:, None]
    return ~visible


class _Norm(nn.Module):
    """LayerNorm with gain and bias, or RMSNorm with gain."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(model.d_model))
        self.b = _zeros(model.d_model) if model.normalization == "layer" else None
        self.hook_normalized = HookPoint()

    def forward(self, resid: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        if self.b is None:
            normalized = nn.functional.rms_norm(resid, self.w.shape, self.w, _EPS)
        else:
            normalized = nn.functional.layer_norm(resid, self.w.shape, self.w, self.b, _EPS)
        hooked: Tensor = self.hook_normalized(normalized)
        return hooked


class _Attention(nn.Module):
    """Multi-head softmax attention with biases."""

    def __init__(self, model: ModelConfig, draw: _Draw) -> None:
        super().__init__()
        heads, d_model, d_head = model.num_heads, model.d_model, model.d_model // model.num_heads
        self.W_Q, self.b_Q = draw(heads, d_model, d_head), _zeros(heads, d_head)
        self.W_K, self.b_K = draw(heads, d_model, d_head), _zeros(heads, d_head)
        self.W_V, self.b_V = draw(heads, d_model, d_head), _zeros(heads, d_head)
        self.W_O, self.b_O = draw(heads, d_head, d_model, std=_output_std(model)), _zeros(d_model)
        self.hook_q, self.hook_k, self.hook_v, self.hook_z = (HookPoint() for _ in range(4))
        self.hook_attn_scores, self.hook_pattern = HookPoint(), HookPoint()

    def forward(
        self, normalized: Float[Tensor, "batch pos d_model"], mask: Bool[Tensor, "pos pos"] | None
    ) -> Float[Tensor, "batch pos d_model"]:
        q = self.hook_q(_project(normalized, self.W_Q, self.b_Q)) / math.sqrt(self.W_Q.shape[-1])
        k = self.hook_k(_project(normalized, self.W_K, self.b_K))
        v = self.hook_v(_project(normalized, self.W_V, self.b_V))
        scores = q.transpose(1, 2) @ rearrange(k, "batch key head d_head -> batch head d_head key")
        if mask is not None:
            scores = scores.masked_fill(mask, -torch.inf)
        pattern = self.hook_pattern(self.hook_attn_scores(scores).softmax(-1))
        z = self.hook_z(
            rearrange(pattern @ v.transpose(1, 2), "batch head pos d_head -> batch pos head d_head")
        )
        return _affine(z.flatten(-2), self.W_O.flatten(0, 1), self.b_O)


class _MLP(nn.Module):
    def __init__(self, model: ModelConfig, draw: _Draw) -> None:
        super().__init__()
        d_model, d_mlp = model.d_model, 4 * model.d_model
        self.W_in, self.b_in = draw(d_model, d_mlp), _zeros(d_mlp)
        self.W_out, self.b_out = draw(d_mlp, d_model, std=_output_std(model)), _zeros(d_model)

    def forward(self, normalized: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        return _affine(nn.functional.gelu(_affine(normalized, self.W_in, self.b_in)), self.W_out, self.b_out)


class _Block(nn.Module):
    def __init__(self, model: ModelConfig, draw: _Draw) -> None:
        super().__init__()
        self.ln1, self.attn = _Norm(model), _Attention(model, draw)
        self.ln2, self.mlp = _Norm(model), _MLP(model, draw)
        self.hook_resid_pre, self.hook_resid_mid, self.hook_resid_post = (HookPoint() for _ in range(3))
        self.hook_attn_out, self.hook_mlp_out = HookPoint(), HookPoint()

    def forward(
        self, resid: Float[Tensor, "batch pos d_model"], mask: Bool[Tensor, "pos pos"] | None
    ) -> Float[Tensor, "batch pos d_model"]:
        resid = self.hook_resid_pre(resid)
        resid = self.hook_resid_mid(resid + self.hook_attn_out(self.attn(self.ln1(resid), mask)))
        resid_post: Tensor = self.hook_resid_post(resid + self.hook_mlp_out(self.mlp(self.ln2(resid))))
        return resid_post


def _affine(
    x: Float[Tensor, "*batch into"], W: Float[Tensor, "into out"], b: Float[Tensor, " out"]
) -> Float[Tensor, "*batch out"]:
    """x W + b in one call, W as TransformerLens keeps it."""
    return nn.functional.linear(x, W.mT, b)


def _project(
    x: Float[Tensor, "batch pos d_model"],
    W: Float[Tensor, "head d_model d_head"],
    b: Float[Tensor, "head d_head"],
) -> Float[Tensor, "batch pos head d_head"]:
    merged = rearrange(W, "head d_model d_head -> d_model (head d_head)")
    y = _affine(x, merged, b.flatten())
    return rearrange(y, "batch pos (head d_head) -> batch pos head d_head", head=len(b))


def _output_std(model: ModelConfig) -> float:
    return _STD / math.sqrt(2 * model.num_layers)


def _normal(*shape: int, generator: torch.Generator, std: float = _STD) -> nn.Parameter:
    return nn.Parameter(std * torch.randn(shape, generator=generator))


def _zeros(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(shape))
