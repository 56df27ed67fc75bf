"""A zoo of networks whose algorithm is known, for whoever claims to identify algorithms.

Members differ in task, depth, step sizes, sharpnesses, weight noise and form; of a third the slots are hidden. What an
identification gets of a member is its `network`: a callable and hook names.

Shape legend: `layer` L, `d` features, `D` = d+3 slots of a column.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from types import MappingProxyType

import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.models.icrl._config import TaskConfig
from valuelens.models.icrl._disguise import DisguisedSoftmaxTD, hidden_basis, softmax_gauged
from valuelens.models.icrl._learner import ValueLearner
from valuelens.models.icrl._linear_attention import linear_attention_from_matrices, theta_td
from valuelens.models.icrl._linear_values import LinearAttentionValues
from valuelens.models.icrl._network import LearnerNetwork, Slot, network_of
from valuelens.models.icrl._theta_star import softmax_td_from_matrices
from valuelens.models.icrl._wrapped import (
    IdentityRule,
    LayerRule,
    LinearTDRule,
    MonteCarloRule,
    OwnValueRule,
    ResidualGradientRule,
    RewardAveragingRule,
    SmoothingRule,
    SoftmaxTDRule,
    SolvedRule,
    TabularTDRule,
    TDLambdaRule,
    WrappedRules,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ZooTask:
    """What tasks and how deep networks a zoo is made of.

    Attributes:
        num_states: S, both ends included; likewise the others.
        feature_dim: d.
        context_length: n.
        gamma: Discount.
        num_layers: L.
        noise: Largest relative weight noise.
        hidden: Share of members in a hidden basis.
    """

    num_states: tuple[int, int] = (6, 10)
    feature_dim: tuple[int, int] = (3, 6)
    context_length: tuple[int, int] = (20, 40)
    gamma: tuple[float, float] = (0.4, 0.9)
    num_layers: tuple[int, int] = (3, 10)
    noise: float = 0.02
    hidden: float = 1 / 3


@dataclass(frozen=True, kw_only=True, slots=True)
class ZooMember:
    """A network with a known answer.

    Attributes:
        kind: What it is: an algorithm, or a hard negative.
        network: All that an identification may see.
        task: Distribution of tasks on which it is to be asked.
        record: What it was made of, for tables.
    """

    kind: str
    network: LearnerNetwork
    task: TaskConfig
    record: Mapping[str, str | float] = field(default_factory=dict)


class Draw:
    """Random numbers of one member, and what its network needs besides the rule.

    Args:
        generator: Source of randomness.
        zoo: Ranges.
        noise: Relative weight noise; drawn from the zoo's range if none.
    """

    def __init__(self, generator: torch.Generator, zoo: ZooTask, noise: float | None = None) -> None:
        self.generator = generator
        self.num_layers = self.integer(*zoo.num_layers)
        features = self.choice("sphere", "sphere", "uniform", "one-hot")
        num_states = self.integer(*zoo.num_states)
        self.task = TaskConfig(
            env=self.choice("boyan", "loop", "garnet"),
            num_states=num_states,
            features=features,
            feature_dim=num_states if features == "one-hot" else self.integer(*zoo.feature_dim),
            context_length=self.integer(*zoo.context_length),
            gamma=round(self.number(*zoo.gamma), 3),
        )
        self.noise = self.number(0, zoo.noise) if noise is None else noise
        self.hidden = self.number(0, 1) < zoo.hidden
        self.gamma = self.task.gamma

    @property
    def d(self) -> int:
        """Features."""
        return self.task.feature_dim

    def number(self, low: float, high: float) -> float:
        """Uniform between two numbers."""
        return low + (high - low) * float(torch.rand((), generator=self.generator))

    def integer(self, low: int, high: int) -> int:
        """Uniform, both ends included."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def choice(self, *options: str) -> str:
        """One of them."""
        return options[self.integer(0, len(options) - 1)]

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers."""
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def kernel(self) -> Float[Tensor, "d d"]:
        """A of a softmax kernel that neither attends evenly nor is saturated: c I and a little of anything.

        c is 2 to 5 for features of norm 1 on the sphere, 1 to 3 elsewhere.
        """
        c = self.number(2, 5) if self.task.features == "sphere" else self.number(1, 3)
        anything = self.normal(self.d, self.d) / self.d**0.5
        A: Tensor = c * (torch.eye(self.d, dtype=torch.float64) + 0.15 * anything)
        return A


Make = Callable[[Draw], LayerRule]


def _softmax_td(draw: Draw) -> LayerRule:
    w = draw.number(0.4, 1) * torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
    return SoftmaxTDRule(gamma=draw.gamma, A=draw.kernel(), w=w)


def _step(draw: Draw) -> float:
    """Step size of a linear rule: below 2 / the largest mean squared norm of the features."""
    return draw.number(0.4, 1.2) if draw.task.features != "uniform" else draw.number(0.3, 0.7)


MAKERS: Mapping[str, Make] = MappingProxyType(
    {
        "weighted softmax TD": _softmax_td,
        "linear TD": lambda draw: LinearTDRule(gamma=draw.gamma, alpha=_step(draw)),
        "tabular TD": lambda draw: TabularTDRule(gamma=draw.gamma, alpha=draw.number(0.4, 1)),
        "TD(lambda)": lambda draw: TDLambdaRule(
            gamma=draw.gamma, alpha=_step(draw) / 2, lam=draw.number(0.3, 0.9)
        ),
        "residual gradient": lambda draw: ResidualGradientRule(gamma=draw.gamma, alpha=_step(draw) / 2),
        "LSTD": lambda draw: SolvedRule(
            gamma=draw.gamma, alpha=draw.number(0.4, 1), ridge=10 ** draw.number(-3, -1), bootstrap=1.0
        ),
        "Monte-Carlo": lambda draw: (
            MonteCarloRule(gamma=draw.gamma, alpha=_step(draw))
            if draw.number(0, 1) < 0.5
            else SolvedRule(
                gamma=draw.gamma, alpha=draw.number(0.4, 1), ridge=10 ** draw.number(-3, -1), bootstrap=0.0
            )
        ),
        "kernel regression": lambda draw: SmoothingRule(
            gamma=draw.gamma, alpha=draw.number(0.4, 1), A=draw.kernel(), returns_too=1.0
        ),
        "kernel reward averaging": lambda draw: SmoothingRule(
            gamma=draw.gamma, alpha=draw.number(0.4, 1), A=draw.kernel(), returns_too=0.0
        ),
        "reward averaging": lambda draw: RewardAveragingRule(gamma=draw.gamma, alpha=draw.number(0.4, 1)),
        "kernel-based value iteration": lambda draw: OwnValueRule(
            gamma=draw.gamma, alpha=draw.number(0.4, 1), A=draw.kernel()
        ),
        "identity": lambda draw: IdentityRule(gamma=draw.gamma),
    }
)
"""A random layer of each algorithm."""

MIXED = "different rules in different layers"

KINDS = (*MAKERS, MIXED)
"""What members of a zoo may be."""

_MIXABLE = (
    "weighted softmax TD",
    "linear TD",
    "tabular TD",
    "residual gradient",
    "Monte-Carlo",
    "kernel regression",
)

_PAIRS = [pair for pair in permutations(_MIXABLE, 2) if set(pair) != {"weighted softmax TD", "tabular TD"}]


def zoo_member(
    kind: str, generator: torch.Generator, *, zoo: ZooTask | None = None, noise: float | None = None
) -> ZooMember:
    """A random network that runs a given algorithm.

    Softmax TD and, half of the time, kernel reward averaging run in attention (one head with a temporal shift, or two
    heads), linear TD with plain slots half of the time in linear attention; the others are wrapped. Layers are tied in
    half of the members.

    Args:
        kind: One of `KINDS`.
        generator: Decides everything.
        zoo: Ranges of tasks and depths.
        noise: Relative weight noise; drawn from the zoo's range if none.
    """
    draw = Draw(generator, zoo or ZooTask(), noise)
    if kind == MIXED:
        return mixed(draw, MIXED)
    tied = draw.number(0, 1) < 0.5
    layers = (
        [MAKERS[kind](draw)] * draw.num_layers
        if tied
        else [MAKERS[kind](draw) for _ in range(draw.num_layers)]
    )
    if kind == "weighted softmax TD":
        return in_attention(kind, draw, layers)
    if kind == "linear TD" and not draw.hidden and draw.number(0, 1) < 0.5:
        return in_linear_attention(kind, draw, layers)
    if kind == "kernel reward averaging" and draw.number(0, 1) < 0.5:
        only_rewards = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
        smoothing = [
            SoftmaxTDRule(gamma=draw.gamma, A=each.get_buffer("A"), w=each.get_buffer("alpha") * only_rewards)
            for each in layers
        ]
        return in_attention(kind, draw, smoothing)
    return wrapped(kind, draw, layers)


def mixed(draw: Draw, kind: str) -> ZooMember:
    """Two algorithms in halves of at least two layers each, or in turns.

    Softmax TD is not mixed with tabular TD, which is its limit for sharp kernels: softmax TD in all layers, sharper in
    some, is then as true an answer.

    Args:
        draw: Random numbers of the member.
        kind: Its name.
    """
    first, second = _PAIRS[draw.integer(0, len(_PAIRS) - 1)]
    length, halves = max(draw.num_layers, 4), draw.number(0, 1) < 0.5
    names = [
        (first if layer < length // 2 else second) if halves else (first, second)[layer % 2]
        for layer in range(length)
    ]
    return wrapped(kind, draw, [MAKERS[name](draw) for name in names], made=f"{first}, {second}")


def wrapped(kind: str, draw: Draw, layers: Sequence[LayerRule], made: str = "wrapped") -> ZooMember:
    """The member that runs these rules in a module.

    Args:
        kind: Its name.
        draw: Random numbers of the member: noise and basis.
        layers: Rules.
        made: For the record.
    """
    hide = draw.hidden and not isinstance(layers[0], IdentityRule)
    model = WrappedRules(
        layers,
        feature_dim=draw.d,
        basis=hidden_basis(draw.d + 3, draw.generator) if hide else None,
        noise=draw.noise * draw.normal(len(layers), draw.d),
    )
    return member(kind, draw, model, hidden=hide, made=made)


def in_attention(kind: str, draw: Draw, layers: Sequence[LayerRule]) -> ZooMember:
    """The member that runs these rules of softmax TD in attention with full matrices, gauges and weight noise.

    Args:
        kind: Its name.
        draw: Random numbers of the member.
        layers: Rules with A and w.
    """
    D, two_heads = draw.d + 3, draw.hidden or draw.number(0, 1) < 0.5
    A = torch.stack([torch.nn.functional.pad(each.get_buffer("A"), (0, 3, 0, 3)) for each in layers])
    V = torch.zeros(len(layers), D, D, dtype=torch.float64)
    V[:, -1, -3:] = torch.stack([each.get_buffer("w") for each in layers])
    A, V, target = (_noisy(each, draw) for each in (A, V, V.roll(-1, dims=1)))
    if draw.task.features == "one-hot" and draw.number(0, 1) < 0.5:
        A = softmax_gauged(A, torch.ones(draw.d, dtype=A.dtype), draw.generator)
    model = softmax_td_from_matrices(A, V, gamma=draw.gamma, V_target=target if two_heads else None)
    made = "two heads" if two_heads else "one head and shift"
    if draw.hidden:
        disguised = DisguisedSoftmaxTD(model, hidden_basis(D, draw.generator))
        return member(kind, draw, disguised, hidden=True, made=made)
    return member(kind, draw, model, hidden=False, made=made)


def in_linear_attention(kind: str, draw: Draw, layers: Sequence[LayerRule]) -> ZooMember:
    """The member that runs these steps of linear TD in linear attention with full matrices and weight noise.

    Args:
        kind: Its name.
        draw: Random numbers of the member.
        layers: Rules with alpha.
    """
    clean = theta_td(
        feature_dim=draw.d,
        num_layers=len(layers),
        gamma=draw.gamma,
        alpha=[float(each.get_buffer("alpha")) for each in layers],
        dtype=torch.float64,
    )
    P, Q = (_noisy(each.detach(), draw) for each in (clean.P, clean.Q))
    model = linear_attention_from_matrices(P, Q, gamma=draw.gamma, num_layers=len(layers), tied=False)
    return member(kind, draw, LinearAttentionValues(model), hidden=False, made="linear attention")


def member(kind: str, draw: Draw, model: ValueLearner, *, hidden: bool, made: str) -> ZooMember:
    """A model as a member: its hooks and its record.

    Args:
        kind: Its name.
        draw: Its random numbers.
        model: What runs.
        hidden: Show residual streams only.
        made: For the record.
    """
    network = network_of(model.double().eval())
    if hidden:
        slots = tuple(
            Slot(hook=f"blocks.{layer}.hook_resid_post", layer=layer, holds="residual")
            for layer in range(model.num_layers)
        )
        network = LearnerNetwork(module=model, slots=slots)
    record: dict[str, str | float] = {
        "made": made,
        "hidden": float(hidden),
        "noise": draw.noise,
        "gamma": draw.gamma,
        "layers": model.num_layers,
        "env": draw.task.env,
        "features": f"{draw.task.features} {draw.d}",
        "n": draw.task.context_length,
    }
    return ZooMember(kind=kind, network=network, task=draw.task, record=record)


def _noisy(matrix: Float[Tensor, "layer D D"], draw: Draw) -> Float[Tensor, "layer D D"]:
    """With noise on every entry, of the given size relative to the Frobenius norm."""
    D = matrix.shape[-1]
    scale = draw.noise * matrix.flatten(1).norm(dim=1)[:, None, None] / D
    noisy: Tensor = matrix + scale * draw.normal(*matrix.shape)
    return noisy
