"""Wrapped rules against the second implementation of each rule, that of the probes."""

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from valuelens.models.icrl import Context, TaskConfig, WrappedRules, context_of, hidden_basis, task_sampler
from valuelens.models.icrl._wrapped import (
    IdentityRule,
    LayerRule,
    LinearTDRule,
    MonteCarloRule,
    ResidualGradientRule,
    RewardAveragingRule,
    SmoothingRule,
    SoftmaxTDRule,
    SolvedRule,
    TabularTDRule,
    TDLambdaRule,
)
from valuelens.probe import (
    bilinear_scores,
    constant_value,
    kernel_regression,
    linear_td,
    lstd,
    monte_carlo,
    monte_carlo_returns,
    residual_gradient,
    softmax_kernel,
    softmax_td,
    tabular_td,
    td_lambda,
)

GAMMA, STEP, LAYERS = 0.7, 0.6, 3
A = torch.tensor([[2.0, 0.3, 0.0], [0.0, 2.0, 0.1], [-0.2, 0.0, 2.0]], dtype=torch.float64)
TD = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)


@pytest.fixture
def context(generator: torch.Generator) -> Context:
    task = TaskConfig(feature_dim=3, num_states=6, context_length=12, gamma=GAMMA)
    mrp, states = task_sampler(task, generator).sample(5, 12, generator, torch.float64)
    return context_of(mrp, states)


def kernel(context: Context) -> Tensor:
    return softmax_kernel(bilinear_scores(context.features, context.features[:, :-1], A))


def towards(target: Tensor) -> Tensor:
    return (1 - (1 - STEP) ** LAYERS) * target


FIXED = {"gamma": GAMMA, "num_layers": LAYERS}
RULES: Mapping[str, tuple[LayerRule, Callable[[Context], Tensor]]] = {
    "softmax TD": (
        SoftmaxTDRule(gamma=GAMMA, A=A, w=STEP * TD),
        lambda c: softmax_td(
            torch.zeros_like(c.features[..., 0]), c.rewards, kernel(c), w=STEP * TD, **FIXED
        )[-1],
    ),
    "linear TD": (
        LinearTDRule(gamma=GAMMA, alpha=STEP),
        lambda c: linear_td(c.features, c.rewards, alpha=STEP, **FIXED)[-1],
    ),
    "tabular TD": (
        TabularTDRule(gamma=GAMMA, alpha=STEP),
        lambda c: tabular_td(c.states, c.rewards, alpha=STEP, **FIXED)[-1],
    ),
    "TD(lambda)": (
        TDLambdaRule(gamma=GAMMA, alpha=STEP, lam=0.4),
        lambda c: td_lambda(c.features, c.rewards, alpha=STEP, lambda_=0.4, **FIXED)[-1],
    ),
    "residual gradient": (
        ResidualGradientRule(gamma=GAMMA, alpha=STEP),
        lambda c: residual_gradient(c.features, c.rewards, alpha=STEP, **FIXED)[-1],
    ),
    "Monte-Carlo": (
        MonteCarloRule(gamma=GAMMA, alpha=STEP),
        # returns in place of rewards at discount 0: errors are then G - v
        lambda c: linear_td(
            c.features, monte_carlo_returns(c.rewards, gamma=GAMMA), alpha=STEP, gamma=0.0, num_layers=LAYERS
        )[-1],
    ),
    "LSTD": (
        SolvedRule(gamma=GAMMA, alpha=STEP, ridge=0.01, bootstrap=1.0),
        lambda c: towards(lstd(c.features, c.rewards, gamma=GAMMA, ridge=0.01)),
    ),
    "Monte-Carlo, solved": (
        SolvedRule(gamma=GAMMA, alpha=STEP, ridge=0.01, bootstrap=0.0),
        lambda c: towards(monte_carlo(c.features, c.rewards, gamma=GAMMA, ridge=0.01)),
    ),
    "kernel regression": (
        SmoothingRule(gamma=GAMMA, alpha=STEP, A=A, returns_too=1.0),
        lambda c: towards(kernel_regression(monte_carlo_returns(c.rewards, gamma=GAMMA), kernel(c))),
    ),
    "kernel reward averaging": (
        SmoothingRule(gamma=GAMMA, alpha=STEP, A=A, returns_too=0.0),
        lambda c: towards(kernel_regression(c.rewards, kernel(c))),
    ),
    "reward averaging": (
        RewardAveragingRule(gamma=GAMMA, alpha=STEP),
        lambda c: towards(constant_value(c.rewards, gamma=GAMMA)[:, None].expand(c.states.shape)),
    ),
    "identity": (IdentityRule(gamma=GAMMA), lambda c: torch.zeros_like(c.features[..., 0])),
}

each_rule = pytest.mark.parametrize("name", RULES)


def network(rule: LayerRule, basis: Tensor | None = None) -> WrappedRules:
    return WrappedRules([rule] * LAYERS, feature_dim=3, basis=basis)


@each_rule
def test_a_wrapped_rule_is_the_probes_rule(name: str, context: Context) -> None:
    rule, oracle = RULES[name]
    model = network(rule)
    values = model(model.prompt(context, context.features), 1 + context.states.shape[1])
    torch.testing.assert_close(values[:, 1:], oracle(context), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(values[:, 0], values[:, -1])


@each_rule
def test_a_hidden_basis_hides_the_slots_and_changes_nothing(name: str, context: Context) -> None:
    rule, _ = RULES[name]
    plain, hidden = network(rule), network(rule, hidden_basis(6, torch.Generator().manual_seed(1)))
    torch.testing.assert_close(
        hidden(hidden.prompt(context)), plain(plain.prompt(context)), rtol=1e-9, atol=1e-9
    )
    _, cache = hidden.run_with_cache(hidden.prompt(context))
    shown = cache["blocks.1.hook_resid_post"]
    assert float((shown[..., -1] - cache["blocks.1.hook_value"]).abs().max()) > 0.1
    torch.testing.assert_close(hidden.read_out(shown), cache["blocks.1.hook_value"])


def test_noise_is_a_share_of_every_update(context: Context) -> None:
    direction = 0.01 * torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64)
    rule = LinearTDRule(gamma=GAMMA, alpha=STEP)
    noisy, quiet = (
        WrappedRules([rule], feature_dim=3, noise=direction[None]),
        WrappedRules([rule], feature_dim=3),
    )
    update = quiet(quiet.prompt(context, context.features), 14)
    moved = noisy(noisy.prompt(context, context.features), 14) - update
    expected = torch.tanh(context.features @ direction)
    torch.testing.assert_close(moved[:, 1:] / moved[:, 1:].abs().max(), expected / expected.abs().max())
    assert 0.001 < float(moved.norm() / update.norm()) < 0.05


def test_the_target_slot_holds_gamma_times_the_next_value(context: Context) -> None:
    model = network(LinearTDRule(gamma=GAMMA, alpha=STEP))
    _, cache = model.run_with_cache(model.prompt(context))
    value, target = cache["blocks.2.hook_value"], cache["blocks.2.hook_target"]
    torch.testing.assert_close(target[:, :-1], GAMMA * value[:, 1:])
    assert not bool(target[:, -1].any())


def test_a_rule_must_be_written() -> None:
    empty = torch.zeros(1, 2, 1, dtype=torch.float64)
    with pytest.raises(NotImplementedError):
        LayerRule(gamma=GAMMA)(empty, empty[:, :1, 0], empty[..., 0])
