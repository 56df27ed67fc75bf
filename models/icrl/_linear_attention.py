"""Linear attention as an in-context value learner, and its TD construction.

Shape legend: `layer` L, `D` = 2d+1 slots (features 0..d-1, gamma times the successor's features d..2d-1,
reward 2d), `query` and `key` destination and source columns. P and Q are in the papers' column orientation.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from valuelens.models._errors import InputError
from valuelens.models.icrl._config import ModelConfig
from valuelens.models.icrl._learner import ValueLearner
from valuelens.models.icrl._mrp import Context
from valuelens.models.icrl._prompt import linear_prompt


class LinearAttention(ValueLearner):
    """Z <- Z + (1/n) P Z M Z' Q Z, L times; M = diag(1, ..., 1, 0) keeps queries from being sources.

    No softmax, no feed-forward part. The negated reward slot is read out. On a query column it is the value;
    on the column of transition j it is, at theta_TD, minus the TD error R_{j+1} + gamma w'x(S_{j+1}) - w'x(S_j),
    so values of context states are read through extra query columns (`values`).

    Parameters, one set a layer or one in all if tied: `alpha` (restricted: P and Q are theta_TD's with step
    size alpha; starts as N(0, 0.1^2)), or `P_full` and `Q_full` (full; start as N(0, 0.1^2 / D)).

    Hooks, l = 0..L-1, row-vector layout:
        `blocks.{l}.hook_resid_pre`, `blocks.{l}.hook_resid_post`: Z' [batch pos D].
        `blocks.{l}.attn.hook_attn_scores`: z_key' Q z_query [batch query key].
        `blocks.{l}.attn.hook_pattern`: scores / n, zero where the key is a query column [batch query key].
        `blocks.{l}.hook_attn_out`: the update [batch pos D].
        `blocks.{l}.hook_value`: negated reward slot after the update [batch pos]; a patch is written back.

    Source: arXiv 2405.13861 and its public code (theory A11).

    Args:
        model: Layers, tying, and `restricted` or `full` weights.
        feature_dim: d.
        gamma: Discount that the model was built for, kept as a record: the layers find gamma in the prompt.
        generator: Source of the initial parameters.

    Example:
        >>> config = ModelConfig(arch="linear", num_layers=3)
        >>> model = LinearAttention(config, feature_dim=4, gamma=0.5, generator=torch.Generator())
        >>> model.Q.shape
        torch.Size([3, 9, 9])
    """

    def __init__(
        self, model: ModelConfig, *, feature_dim: int, gamma: float, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.num_layers, self.tied = model.num_layers, model.tied
        self.feature_dim, self.gamma = feature_dim, gamma
        self._parameterise(model, 2 * feature_dim + 1, generator)
        self.blocks = nn.ModuleList(_Block() for _ in range(model.num_layers))
        self.setup()

    def _parameterise(self, model: ModelConfig, D: int, generator: torch.Generator) -> None:
        layers = 1 if model.tied else model.num_layers
        self.weights = model.weights
        if model.weights == "restricted":
            self.alpha = nn.Parameter(0.1 * torch.randn(layers, generator=generator))
            P, Q = _unit_step(self.feature_dim)
            self.register_buffer("_unit_P", P, persistent=False)
            self.register_buffer("_unit_Q", Q, persistent=False)
        else:
            self.P_full = nn.Parameter(0.1 / math.sqrt(D) * torch.randn(layers, D, D, generator=generator))
            self.Q_full = nn.Parameter(0.1 / math.sqrt(D) * torch.randn(layers, D, D, generator=generator))

    @property
    def P(self) -> Float[Tensor, "layer D D"]:
        """What a source sends and into which slot; one matrix a layer, however it is parameterised."""
        if self.weights != "restricted":
            return self.P_full.expand(self.num_layers, -1, -1)
        return self.get_buffer("_unit_P").expand(self.num_layers, -1, -1)

    @property
    def Q(self) -> Float[Tensor, "layer D D"]:
        """Merged key-query matrix, score = z_src' Q z_dest; one a layer, however it is parameterised."""
        if self.weights != "restricted":
            return self.Q_full.expand(self.num_layers, -1, -1)
        unit = self.get_buffer("_unit_Q")
        return (self.alpha[:, None, None] * unit).expand(self.num_layers, -1, -1)

    def matrices(self) -> dict[str, Float[Tensor, "layer D D"]]:
        """P and Q: all that the function depends on."""
        return {"P": self.P, "Q": self.Q}

    def prompt(
        self, context: Context, queries: Float[Tensor, "batch query feature"] | None = None
    ) -> Float[Tensor, "batch pos D"]:
        """Z_0 of linear attention, gamma being the context's.

        Raises:
            InputError: The context has another feature dimension than the model.
        """
        if context.features.shape[-1] != self.feature_dim:
            raise InputError(
                f"contexts must have the model's {self.feature_dim} features",
                f"found {context.features.shape[-1]}",
                "linear attention, context",
            )
        return linear_prompt(context, queries)

    def forward(
        self, prompt: Float[Tensor, "batch pos D"], num_queries: int = 1
    ) -> Float[Tensor, "batch query"]:
        """Values of the last `num_queries` columns after L layers."""
        resid = prompt
        for block, P, Q in zip(self.blocks, self.P, self.Q, strict=True):
            resid = block(resid, P, Q, num_queries)
        return self.read_out(resid)[:, -num_queries:]

    def read_out(self, resid: Float[Tensor, "batch pos D"]) -> Float[Tensor, "batch pos"]:
        """The negated reward slot: a value on query columns only (see the class)."""
        return -resid[..., -1]


def theta_td(
    *,
    feature_dim: int,
    num_layers: int,
    gamma: float,
    alpha: float | Sequence[float] = 1.0,
    dtype: torch.dtype = torch.float32,
) -> LinearAttention:
    """The linear attention whose every layer is one step of linear batch TD(0), exactly.

    P is zero but P[2d, 2d] = 1; Q is zero but rows 0..d-1 = [-alpha I, alpha I, 0]. Then layer l does
    w <- w + (alpha_l / n) sum_k delta_k x(S_{k-1}) from w = 0, and every query column reads w'x.

    Source: arXiv 2405.13861, with C = alpha I (theory A11).

    Args:
        feature_dim: d.
        num_layers: L, steps of TD.
        gamma: Discount on the contexts that the model is meant for.
        alpha: Step size; a number (tied layers) or one a layer (untied).
        dtype: Of the parameters.

    Raises:
        InputError: There are not as many step sizes as layers.

    Example:
        >>> theta_td(feature_dim=1, num_layers=1, gamma=0.9, alpha=0.5).Q[0]
        tensor([[-0.5000,  0.5000,  0.0000],
                [ 0.0000,  0.0000,  0.0000],
                [ 0.0000,  0.0000,  0.0000]], grad_fn=<SelectBackward0>)
    """
    step_sizes = torch.as_tensor(alpha, dtype=dtype)
    if step_sizes.ndim and len(step_sizes) != num_layers:
        raise InputError(
            "alpha must be one number or one a layer",
            f"found {len(step_sizes)} for {num_layers} layers",
            "theta_td",
        )
    config = ModelConfig(
        arch="linear", weights="restricted", num_layers=num_layers, tied=step_sizes.ndim == 0
    )
    model = LinearAttention(config, feature_dim=feature_dim, gamma=gamma, generator=torch.Generator()).to(
        dtype
    )
    with torch.no_grad():
        model.alpha.copy_(step_sizes)
    return model


def linear_attention_from_matrices(
    P: Float[Tensor, "set D D"],
    Q: Float[Tensor, "set D D"],
    *,
    gamma: float,
    num_layers: int,
    tied: bool,
) -> LinearAttention:
    """Linear attention with given matrices (full weights), in their dtype.

    Args:
        P: What a source sends, one matrix a layer, or one in all if tied.
        Q: Merged key-query matrices, likewise.
        gamma: Discount.
        num_layers: L.
        tied: Share the matrices over layers.
    """
    config = ModelConfig(arch="linear", weights="full", num_layers=num_layers, tied=tied)
    d = (P.shape[-1] - 1) // 2
    model = LinearAttention(config, feature_dim=d, gamma=gamma, generator=torch.Generator())
    model.P_full, model.Q_full = nn.Parameter(P.clone()), nn.Parameter(Q.clone())
    return model


def _unit_step(feature_dim: int) -> tuple[Float[Tensor, "D D"], Float[Tensor, "D D"]]:
    """P and Q of theta_TD at step size 1."""
    d = feature_dim
    P, Q = torch.zeros(2, 2 * d + 1, 2 * d + 1)
    P[2 * d, 2 * d] = 1
    Q[:d, :d] = -torch.eye(d)
    Q[:d, d : 2 * d] = torch.eye(d)
    return P, Q


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hook_attn_scores, self.hook_pattern = HookPoint(), HookPoint()

    def forward(
        self,
        resid: Float[Tensor, "batch pos D"],
        P: Float[Tensor, "D D"],
        Q: Float[Tensor, "D D"],
        num_queries: int,
    ) -> Float[Tensor, "batch pos D"]:
        n = resid.shape[1] - num_queries
        sources = resid.new_zeros(resid.shape[1])
        sources[:n] = 1 / n
        scores = self.hook_attn_scores(resid @ Q.mT @ resid.mT)
        pattern = self.hook_pattern(scores * sources)
        update: Tensor = pattern @ resid @ P.mT
        return update


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = _Attention()
        self.hook_resid_pre, self.hook_resid_post = HookPoint(), HookPoint()
        self.hook_attn_out, self.hook_value = HookPoint(), HookPoint()

    def forward(
        self,
        resid: Float[Tensor, "batch pos D"],
        P: Float[Tensor, "D D"],
        Q: Float[Tensor, "D D"],
        num_queries: int,
    ) -> Float[Tensor, "batch pos D"]:
        resid = self.hook_resid_pre(resid)
        resid = resid + self.hook_attn_out(self.attn(resid, P, Q, num_queries))
        value = self.hook_value(-resid[..., -1])
        resid_post: Tensor = self.hook_resid_post(torch.cat([resid[..., :-1], -value[..., None]], dim=-1))
        return resid_post
