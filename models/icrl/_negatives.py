"""Hard negatives: networks that are nearly softmax TD, or evaluate states in another way.

Shape legend: as in `_zoo`.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from valuelens.models.icrl._learner import ValueLearner
from valuelens.models.icrl._mrp import Context, at_states, context_of
from valuelens.models.icrl._prompt import token_prompt
from valuelens.models.icrl._tasks import task_sampler
from valuelens.models.icrl._wrapped import LayerRule, SoftmaxTDRule
from valuelens.models.icrl._zoo import (
    MAKERS,
    Draw,
    ZooMember,
    ZooTask,
    in_attention,
    member,
    mixed,
    wrapped,
)

_TD = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
_WIDTH, _BLOCKS, _STEPS, _BATCH = 64, 3, 300, 64


class ContextMLP(ValueLearner):
    """Values by multilayer perceptrons that read the whole context at once: no attention, no step of any rule.

    Each block moves the value of every column by a perceptron of the column's features and value and of a code of the
    n features and rewards. Takes contexts of one length.

    Args:
        feature_dim: d.
        context_length: n.
        gamma: Kept as a record.
        generator: Source of the initial parameters.
    """

    def __init__(
        self, *, feature_dim: int, context_length: int, gamma: float, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.num_layers, self.feature_dim, self.gamma, self.n = _BLOCKS, feature_dim, gamma, context_length
        self.code = nn.Linear(context_length * (feature_dim + 1), _WIDTH)
        self.into = nn.ModuleList(nn.Linear(feature_dim + 1 + _WIDTH, _WIDTH) for _ in range(_BLOCKS))
        self.out = nn.ModuleList(nn.Linear(_WIDTH, 1) for _ in range(_BLOCKS))
        self.blocks = nn.ModuleList(nn.ModuleDict({"hook_value": HookPoint()}) for _ in range(_BLOCKS))
        for parameter in self.parameters():
            scale = parameter.shape[-1] ** -0.5 if parameter.ndim == 2 else 0.0
            parameter.data = scale * torch.randn(parameter.shape, generator=generator)
        self.setup()

    def prompt(
        self, context: Context, queries: Float[Tensor, "batch query feature"] | None = None
    ) -> Float[Tensor, "batch pos token"]:
        """Features, reward, query marker."""
        return token_prompt(context, queries)

    def forward(
        self, prompt: Float[Tensor, "batch pos token"], num_queries: int = 1
    ) -> Float[Tensor, "batch query"]:
        """Values of the last `num_queries` columns."""
        x = prompt[..., : self.feature_dim]
        code = self.code(prompt[:, : self.n, : self.feature_dim + 1].flatten(1))
        code = code[:, None].expand(-1, x.shape[1], -1)
        v = torch.zeros_like(x[..., 0])
        for into, out, block in zip(self.into, self.out, self.blocks, strict=True):
            hidden = torch.nn.functional.gelu(into(torch.cat([x, v[..., None], code], dim=-1)))
            v = block["hook_value"](v + out(hidden)[..., 0])  # type: ignore[index]
        return v[:, -num_queries:]

    def read_out(self, resid: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos"]:
        """The last entry."""
        return resid[..., -1]


def trained_mlp(draw: Draw) -> ZooMember:
    """A `ContextMLP` trained on true values of the draw's tasks for 300 steps (seconds).

    Args:
        draw: Task and random numbers.
    """
    task, generator = draw.task, draw.generator
    sizes = {"feature_dim": task.feature_dim, "context_length": task.context_length}
    model = ContextMLP(**sizes, gamma=task.gamma, generator=generator)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    sampler = task_sampler(task, generator)
    for _ in range(_STEPS):
        mrp, states = sampler.sample(_BATCH, task.context_length, generator)
        context = context_of(mrp, states)
        values = model(model.prompt(context, context.features), 1 + states.shape[1])[:, 1:]
        loss = (values - at_states(mrp.value, states)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return member("trained MLP", draw, model, hidden=False, made="trained")


def _softmax(draw: Draw, weights: Callable[[int], Tensor], num_layers: int) -> list[LayerRule]:
    A = draw.kernel()
    return [SoftmaxTDRule(gamma=draw.gamma, A=A, w=weights(layer)) for layer in range(num_layers)]


def _wrong_discount(draw: Draw) -> ZooMember:
    alpha = draw.number(0.4, 1)
    moved = [discount for discount in (draw.gamma - 0.2, draw.gamma + 0.2) if 0 < discount < 1]
    discount = moved[draw.integer(0, len(moved) - 1)]
    w = alpha * _TD * torch.tensor([1.0, discount / draw.gamma, 1.0], dtype=torch.float64)
    return in_attention("wrong discount", draw, _softmax(draw, lambda _: w, draw.num_layers))


def _wrong_sign(draw: Draw) -> ZooMember:
    """One of the three weights has the wrong sign in every layer; few layers, since with w_C > 0 values explode."""
    w = draw.number(0.4, 1) * _TD.clone()
    w[draw.integer(0, 2)] *= -1
    return in_attention("wrong sign", draw, _softmax(draw, lambda _: w, min(draw.num_layers, 5)))


def _corrupted_layer(draw: Draw) -> ZooMember:
    """One layer behind the first (where w_T and w_C have no effect) has w redrawn with cosine <= .5 to (1, 1, -1)."""
    alpha, where = draw.number(0.4, 1), draw.integer(1, draw.num_layers - 1)
    w = _TD
    while float(torch.cosine_similarity(w, _TD, dim=0)) > 0.5:
        w = draw.normal(3)
    w = alpha * 3**0.5 * w / w.norm()
    rules = _softmax(draw, lambda layer: w if layer == where else alpha * _TD, draw.num_layers)
    return in_attention("corrupted layer", draw, rules)


def _other(kind: str) -> Callable[[Draw], ZooMember]:
    return lambda draw: wrapped(kind, draw, [MAKERS[kind](draw) for _ in range(draw.num_layers)])


_NEGATIVES: Mapping[str, Callable[[Draw], ZooMember]] = MappingProxyType(
    {
        "wrong discount": _wrong_discount,
        "wrong sign": _wrong_sign,
        "kernel regression": _other("kernel regression"),
        "reward averaging": _other("reward averaging"),
        "trained MLP": trained_mlp,
        "alternating rules": lambda draw: mixed(draw, "alternating rules"),
        "corrupted layer": _corrupted_layer,
        "kernel-based value iteration": _other("kernel-based value iteration"),
    }
)

NEGATIVES = tuple(_NEGATIVES)
"""Kinds of hard negatives."""


def hard_negative(kind: str, generator: torch.Generator, *, zoo: ZooTask | None = None) -> ZooMember:
    """A random network that is not softmax TD of the right discount, but nearly so or as good.

    Args:
        kind: One of `NEGATIVES`.
        generator: Decides everything.
        zoo: Ranges of tasks and depths.
    """
    return _NEGATIVES[kind](Draw(generator, zoo or ZooTask()))
