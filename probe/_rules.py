"""Rules that a layer of a value network may follow, on equal footing: linear in their weights, free in their shape.

A rule predicts the update of every column of a context from features, rewards and the values before the layer. What
enters linearly are its `weights`; what does not (the matrix A of a softmax kernel, a trace decay, a discount, a ridge)
is its `shape`, one flat vector. Discounts are fitted: the term of v(S_k) carries no gamma.

Shape legend: `batch` contexts, `pos` the n+1 columns S_0..S_n, `transition` the n rewards, `key` the n sources,
`feature` d, `term` the terms of a rule, `free` its shape.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from jaxtyping import Float
from torch import Tensor

from valuelens.probe._reparameterisation import UpdateData, attention
from valuelens.probe._rivals import (
    linear_td_kernel,
    lstd,
    monte_carlo,
    monte_carlo_returns,
    residual_gradient_kernel,
    td_lambda_kernel,
)

Terms = Callable[[UpdateData, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A hypothesis on what one layer does.

    Attributes:
        name: Of the algorithm; two forms of one algorithm share it.
        terms: What its weights multiply, [batch pos term], for given data and shape.
        signs: Of its weights: what makes it this algorithm and not merely its kernel.
        reads: `A`, `decay`, `discount`, `ridge`: what its shape holds, in this order.
        any_signs: Whether weights need not have these signs.
        discounts: Positions of (w_T, w_C) among its weights, if it bootstraps.
    """

    name: str
    terms: Terms
    signs: tuple[int, ...]
    reads: tuple[str, ...] = ()
    discounts: tuple[int, int] | None = None
    any_signs: bool = False

    @property
    def bootstraps(self) -> bool:
        """Whether it moves values by those of successors."""
        return self.discounts is not None or self.name == "residual gradient"

    @property
    def approaches(self) -> bool:
        """Whether it goes a part, minus its last weight, of the way from an own value to a bootstrapped target."""
        return self.terms is _kernel_value_iteration

    @property
    def corrects(self) -> bool:
        """Whether it moves values by errors of transitions, so that its last weight must not be 0."""
        return self.bootstraps or self.terms is _gradient_monte_carlo

    def cone(self, like: Tensor) -> Float[Tensor, "term term"]:
        """What positive combinations of its columns are: the weights that make it this algorithm.

        All weights have its signs; and of a rule that corrects, those of reward and of current value lie within a
        factor of ten of each other (our definition): without either it would not move values by errors.

        Args:
            like: For precision.
        """
        cone = torch.eye(len(self.signs), dtype=like.dtype)
        if self.any_signs:
            return cone
        if self.corrects:
            cone[0, -1] = cone[-1, 0] = _LEAST
        return torch.tensor(self.signs, dtype=like.dtype)[:, None] * cone

    def num_parameters(self, feature_dim: int) -> int:
        """Free parameters of one layer.

        Args:
            feature_dim: d, of which a softmax kernel takes the square.
        """
        return len(self.signs) + sum(feature_dim**2 if each == "A" else 1 for each in self.reads)


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleFit:
    """A rule with its parameters.

    Attributes:
        rule: Which.
        weights: What multiplies its terms.
        shape: What enters non-linearly.
    """

    rule: Rule
    weights: Float[Tensor, "term"]
    shape: Float[Tensor, "free"]

    def predicted(self, data: UpdateData) -> Float[Tensor, "batch pos"]:
        """The update that it predicts.

        Args:
            data: One layer on any contexts; its update is not read.
        """
        return self.rule.terms(data, self.shape) @ self.weights


def same_state(
    features: Float[Tensor, "batch pos feature"], num_sources: int
) -> Float[Tensor, "batch pos key"]:
    """Weights of tabular TD: each column attends evenly to the sources with its own features, or to all if none has.

    States are told apart by what a network sees of them, so that any prompt is legal.

    Args:
        features: x(S_0)..x(S_n).
        num_sources: n.
    """
    apart = (features[:, :, None] - features[:, None, :num_sources]).abs().amax(-1)
    same = apart <= _SAME * features.abs().amax()
    shared = (same | ~same.any(-1, keepdim=True)).to(features.dtype)
    return shared / shared.sum(-1, keepdim=True)


def td_quantities(data: UpdateData) -> Float[Tensor, "batch key 3"]:
    """R_k, v(S_k) and v(S_{k-1}) of every transition."""
    return torch.stack([data.rewards, data.values[:, 1:], data.values[:, :-1]], dim=-1)


def return_quantities(data: UpdateData, discount: float) -> Float[Tensor, "batch key 1"]:
    """Discounted rewards from every source to the end of the context."""
    return monte_carlo_returns(data.rewards, gamma=discount)[..., None]


def square(shape: Float[Tensor, "free"], data: UpdateData) -> Float[Tensor, "feature feature"]:
    """The matrix A at the beginning of a shape."""
    d = data.features.shape[-1]
    return shape[: d * d].reshape(d, d)


_SAME = 1e-9
_LEAST = 0.1


def _linear(data: UpdateData) -> Tensor:
    return linear_td_kernel(data.features, data.rewards.shape[1])


def _softmax_td(data: UpdateData, shape: Tensor) -> Tensor:
    return attention(data, square(shape, data)) @ td_quantities(data)


def _linear_td(data: UpdateData, _: Tensor) -> Tensor:
    return _linear(data) @ td_quantities(data)


def _tabular_td(data: UpdateData, _: Tensor) -> Tensor:
    return same_state(data.features, data.rewards.shape[1]) @ td_quantities(data)


def _td_lambda(data: UpdateData, shape: Tensor) -> Tensor:
    kernel = td_lambda_kernel(data.features, data.rewards.shape[1], decay=float(shape[0]))
    return kernel @ td_quantities(data)


def _residual_gradient(data: UpdateData, shape: Tensor) -> Tensor:
    kernel = residual_gradient_kernel(data.features, data.rewards.shape[1], gamma=float(shape[0]))
    return kernel @ torch.stack([data.rewards, shape[0] * data.values[:, 1:] - data.values[:, :-1]], dim=-1)


def _gradient_monte_carlo(data: UpdateData, shape: Tensor) -> Tensor:
    returns = return_quantities(data, float(shape[0]))
    return _linear(data) @ torch.cat([returns, data.values[:, :-1, None]], dim=-1)


def _targets(data: UpdateData, target: Tensor) -> Tensor:
    return torch.stack([target, data.values], dim=-1)


def _lstd(data: UpdateData, shape: Tensor) -> Tensor:
    solved = lstd(data.features, data.rewards, gamma=float(shape[0]), ridge=float(shape[1].exp()))
    return _targets(data, solved)


def _monte_carlo(data: UpdateData, shape: Tensor) -> Tensor:
    solved = monte_carlo(data.features, data.rewards, gamma=float(shape[0]), ridge=float(shape[1].exp()))
    return _targets(data, solved)


def _reward_averaging(data: UpdateData, _: Tensor) -> Tensor:
    return _targets(data, data.rewards.mean(-1, keepdim=True).expand_as(data.values))


def _smoothed(data: UpdateData, shape: Tensor, quantities: Tensor) -> Tensor:
    smooth = attention(data, square(shape, data)) @ quantities
    return torch.cat([smooth, data.values[..., None]], dim=-1)


def _kernel_reward_averaging(data: UpdateData, shape: Tensor) -> Tensor:
    return _smoothed(data, shape, data.rewards[..., None])


def _kernel_value_iteration(data: UpdateData, shape: Tensor) -> Tensor:
    return _smoothed(data, shape, torch.stack([data.rewards, data.values[:, 1:]], dim=-1))


def _kernel_regression(data: UpdateData, shape: Tensor) -> Tensor:
    return _smoothed(data, shape, return_quantities(data, float(shape[-1])))


def _identity(data: UpdateData, _: Tensor) -> Tensor:
    return data.values.new_zeros(*data.values.shape, 0)


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "weighted softmax TD": Rule(
            name="weighted softmax TD", terms=_softmax_td, reads=("A",), signs=(1, 1, -1), discounts=(1, 2)
        ),
        "kernel-based value iteration": Rule(
            name="kernel-based value iteration",
            terms=_kernel_value_iteration,
            reads=("A",),
            signs=(1, 1, -1),
            discounts=(1, 2),
        ),
        "linear TD": Rule(name="linear TD", terms=_linear_td, signs=(1, 1, -1), discounts=(1, 2)),
        "tabular TD": Rule(name="tabular TD", terms=_tabular_td, signs=(1, 1, -1), discounts=(1, 2)),
        "TD(lambda)": Rule(
            name="TD(lambda)", terms=_td_lambda, reads=("decay",), signs=(1, 1, -1), discounts=(1, 2)
        ),
        "residual gradient": Rule(
            name="residual gradient", terms=_residual_gradient, reads=("discount",), signs=(1, 1)
        ),
        "LSTD": Rule(name="LSTD", terms=_lstd, reads=("discount", "ridge"), signs=(1, -1)),
        "Monte-Carlo": Rule(
            name="Monte-Carlo", terms=_gradient_monte_carlo, reads=("discount",), signs=(1, -1)
        ),
        "Monte-Carlo, solved": Rule(
            name="Monte-Carlo", terms=_monte_carlo, reads=("discount", "ridge"), signs=(1, -1)
        ),
        "kernel regression": Rule(
            name="kernel regression", terms=_kernel_regression, reads=("A", "discount"), signs=(1, -1)
        ),
        "kernel reward averaging": Rule(
            name="kernel reward averaging", terms=_kernel_reward_averaging, reads=("A",), signs=(1, -1)
        ),
        "reward averaging": Rule(name="reward averaging", terms=_reward_averaging, signs=(1, -1)),
        "identity": Rule(name="identity", terms=_identity, signs=()),
    }
)
"""By the name of the form: Monte-Carlo has two, its gradient steps and its least-squares solution."""
