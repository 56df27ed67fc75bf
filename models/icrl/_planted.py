"""A standard transformer whose algorithm is known: theta*, planted where only its values give it away.

Shape legend: `D` width of the residual stream, `slot` the D-1 coordinates that it is made of before they are hidden,
`d_head` = D / heads, `pos` positions 0..n.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from valuelens.models._errors import InputError
from valuelens.models.icrl._config import ModelConfig
from valuelens.models.icrl._transformer import Transformer

_CONSTANT = 1e4
"""Size of the constant slot: LayerNorm is linear up to the squared norm of the rest over its square, halved."""

_SHARP = 45.0
"""Score by which what must not be attended to falls behind: exp(-45) is below rounding in float64."""

_NOISE = 0.3
"""Size of what MLPs and idle heads write into slots that nobody reads."""


def planted_transformer(
    *,
    feature_dim: int,
    context_length: int,
    gamma: float,
    alpha: float = 1.0,
    sharpness: float = 1.0,
    generator: torch.Generator,
) -> Transformer:
    """Three steps of weighted softmax TD, theta*(alpha, c), inside a transformer of four layers, in float64.

    Block 0 finds column j+1 by the positions and copies its features into column j. Each later block has one head
    for current memories, which asks with x(S_j), and one for target memories, which asks with x(S_{j+1}); both see
    the transitions only, because a marker on queries suppresses the rest, and both carry
    alpha (R + target - current), the second one times gamma. So after block l every column holds v_l(S_j) and
    gamma v_l(S_{j+1}), l = 0..3. Two idle heads and the MLP of every block compute something random and write it
    where nobody reads. A large constant slot keeps LayerNorm linear, and a random rotation that maps the vector of
    ones to itself hides which direction is what. The values are those of softmax TD up to 1e-6 of their size
    (measured: some 1e-7).

    Source: theta* from arXiv 2605.07333 (theory A3), its place in a standard transformer is ours.

    Args:
        feature_dim: d, at most 15.
        context_length: Largest n.
        gamma: Discount.
        alpha: Step size.
        sharpness: c.
        generator: Decides rotation and noise.

    Raises:
        InputError: There are more features than a head can hold.

    Example:
        >>> model = planted_transformer(
        ...     feature_dim=4, context_length=30, gamma=0.5, generator=torch.Generator().manual_seed(0)
        ... )
        >>> model.num_layers, model.blocks[0].attn.W_Q.shape
        (4, torch.Size([4, 64, 16]))
    """
    config = ModelConfig(arch="transformer")
    d_head = config.d_model // config.num_heads
    if feature_dim >= d_head:
        must = f"features must fit into a head of {d_head} with one place left"
        raise InputError(must, f"found {feature_dim}", "planted transformer, feature_dim")
    model = Transformer(
        config,
        feature_dim=feature_dim,
        context_length=context_length,
        gamma=gamma,
        generator=generator,
    ).double()
    _Plan(config.d_model, feature_dim, generator).plant(model, alpha=alpha, sharpness=sharpness)
    return model


class _Plan:
    """Where everything stands in the residual stream, and the weights that read and write it."""

    def __init__(self, d_model: int, d: int, generator: torch.Generator) -> None:
        self.generator = generator
        self.x, self.next = slice(0, d), slice(d, 2 * d)
        self.reward, self.marker, self.target, self.current, self.constant = range(2 * d, 2 * d + 5)
        self.code, self.noise = slice(2 * d + 5, 2 * d + 7), slice(2 * d + 7, d_model - 1)
        ones = torch.ones(d_model, 1, dtype=torch.float64)
        self.basis = torch.linalg.qr(torch.cat([ones, self._normal(d_model, d_model - 1)], dim=1)).Q[:, 1:]
        self.unit = _CONSTANT / math.sqrt(d_model)

    def plant(self, model: Transformer, *, alpha: float, sharpness: float) -> None:
        """Overwrite every parameter of a model."""
        tokens = [*range(self.x.start, self.x.stop), self.reward, self.marker]
        _set(model.W_E, self.basis[:, tokens].mT)
        _set(model.b_E, _CONSTANT * self.basis[:, self.constant])
        if model.W_pos is None:
            raise TypeError("a planted transformer has positions")
        angle = 2 * math.pi / len(model.W_pos)
        _set(model.W_pos, _circle(len(model.W_pos), angle) @ self.basis[:, self.code].mT)
        block: Any
        for layer, block in enumerate(model.blocks):
            self._idle(block)
            if layer == 0:
                self._copy_next(block.attn, angle)
            else:
                self._td_head(block.attn, 0, self.x, self.current, (alpha, sharpness))
                self._td_head(block.attn, 1, self.next, self.target, (model.gamma * alpha, sharpness))
        _set(model.W_U, self._reading(self.current)[:, None])

    def _copy_next(self, attn: Any, angle: float) -> None:
        """Head 0: the column one step further on the circle of positions, and its features."""
        W_Q, W_K, W_V, W_O = self._cleared(attn, 0)
        turn = torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        scale = math.sqrt(W_Q.shape[-1]) * _SHARP / (1 - math.cos(angle))
        W_Q[:, :2] = scale * self._reading(self.code) @ turn.double()
        W_K[:, :2] = self._reading(self.code)
        d = self.x.stop
        W_V[:, :d], W_O[:d] = self._reading(self.x), self.basis[:, self.next].mT

    def _td_head(self, attn: Any, head: int, ask: slice, memory: int, scales: tuple[float, float]) -> None:
        """Attention exp(c <asked, x>) over the transitions; scales[0] times TD errors into a memory."""
        W_Q, W_K, W_V, W_O = self._cleared(attn, head)
        d, root = self.x.stop, math.sqrt(W_Q.shape[-1])
        W_Q[:, :d], W_K[:, :d] = root * scales[1] * self._reading(ask), self._reading(self.x)
        # With features of norm r a query could gain up to c r^2; the marker costs c times a hundred.
        attn.b_Q.data[head, d] = root * (_SHARP + 100 * scales[1])
        W_K[:, d] = -self._reading(self.marker)
        error = self._reading(self.reward) + self._reading(self.target) - self._reading(self.current)
        W_V[:, 0], W_O[0] = scales[0] * error, self.basis[:, memory]

    def _idle(self, block: Any) -> None:
        """Heads and an MLP that read everything but the constant, and write where nobody reads."""
        read = torch.arange(self.basis.shape[1]) != self.constant
        reading, noise = self._reading(read) / math.sqrt(int(read.sum())), self.basis[:, self.noise]
        attn, mlp = block.attn, block.mlp
        for name in ("W_Q", "W_K", "W_V"):
            W = getattr(attn, name)
            _set(W, reading @ self._normal(len(W), reading.shape[1], W.shape[-1]))
        written = self._normal(*attn.W_O.shape[:2], noise.shape[1]) / math.sqrt(attn.W_O.shape[1])
        _set(attn.W_O, _NOISE * written @ noise.mT)
        _set(mlp.W_in, reading @ self._normal(reading.shape[1], mlp.W_in.shape[1]))
        _set(mlp.b_in, self._normal(len(mlp.b_in)))
        width = mlp.W_out.shape[0]
        _set(mlp.W_out, _NOISE * self._normal(width, noise.shape[1]) / math.sqrt(width) @ noise.mT)

    def _reading(self, slots: int | slice | Tensor) -> Float[Tensor, "D *slot"]:
        """Weights that read slots from a normalised stream."""
        weights: Tensor = self.basis[:, slots] * self.unit
        return weights

    def _cleared(self, attn: Any, head: int) -> tuple[Tensor, ...]:
        weights = tuple(getattr(attn, name).data[head] for name in ("W_Q", "W_K", "W_V", "W_O"))
        for each in weights:
            each.zero_()
        return weights

    def _normal(self, *shape: int) -> Float[Tensor, "*shape"]:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)


def _circle(count: int, angle: float) -> Float[Tensor, "pos 2"]:
    turned = angle * torch.arange(count, dtype=torch.float64)
    return torch.stack([turned.cos(), turned.sin()], dim=-1)


def _set(parameter: nn.Parameter, value: Tensor) -> None:
    parameter.data.copy_(value)
