"""Rules foretell exactly what the algorithms of the same name do, and are those only with their signs."""

import pytest
import torch
from torch import Tensor

from valuelens.probe import (
    RULES,
    RuleFit,
    UpdateData,
    kernel_regression,
    linear_td,
    lstd,
    monte_carlo,
    monte_carlo_returns,
    residual_gradient,
    softmax_td,
    tabular_td,
    td_lambda,
)

GAMMA, ALPHA, LAYERS = 0.6, 0.7, 3
each_rule = pytest.mark.parametrize("name", RULES)


def drawn(num_tasks: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """States, features and rewards of some contexts, rewards being functions of the state."""
    generator = torch.Generator().manual_seed(5)
    table = torch.randn(num_tasks, 4, 3, generator=generator, dtype=torch.float64)
    pay = torch.randn(num_tasks, 4, generator=generator, dtype=torch.float64)
    states = torch.randint(0, 4, (num_tasks, 9), generator=generator)
    rows = torch.arange(num_tasks)[:, None]
    return states, table[rows, states], pay[rows, states[:, :-1]]


def data(features: Tensor, rewards: Tensor, values: Tensor) -> UpdateData:
    return UpdateData(features=features, rewards=rewards, values=values, update=values, gamma=GAMMA)


def fit(name: str, weights: list[float], *shape: Tensor | float) -> RuleFit:
    parts = [torch.as_tensor(each, dtype=torch.float64).flatten() for each in shape]
    flat = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)
    return RuleFit(rule=RULES[name], weights=torch.tensor(weights, dtype=torch.float64), shape=flat)


def run(rule: RuleFit, features: Tensor, rewards: Tensor) -> Tensor:
    values = [torch.zeros_like(features[..., 0])]
    for _ in range(LAYERS):
        values.append(values[-1] + rule.predicted(data(features, rewards, values[-1])))
    return torch.stack(values)


TD = [ALPHA, ALPHA * GAMMA, -ALPHA]


def test_td_rules_are_the_algorithms_of_their_names() -> None:
    states, x, r = drawn()
    chosen = {"gamma": GAMMA, "alpha": ALPHA, "num_layers": LAYERS}
    A = torch.tensor([[2.0, 0.3, 0.0], [0.0, 1.0, 0.1], [0.2, 0.0, 3.0]], dtype=torch.float64)
    kernel = torch.softmax(torch.einsum("bjd,sd,bks->bjk", x, A, x[:, :-1]), dim=-1)
    w = ALPHA * torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
    expected = {
        "linear TD": (fit("linear TD", TD), linear_td(x, r, **chosen)),
        "tabular TD": (fit("tabular TD", TD), tabular_td(states, r, **chosen)),
        "TD(lambda)": (fit("TD(lambda)", TD, 0.4 * GAMMA), td_lambda(x, r, **chosen, lambda_=0.4)),
        "residual gradient": (
            fit("residual gradient", [ALPHA, ALPHA], GAMMA),
            residual_gradient(x, r, **chosen),
        ),
        "weighted softmax TD": (
            fit("weighted softmax TD", TD, A),
            softmax_td(torch.zeros_like(x[..., 0]), r, kernel, gamma=GAMMA, num_layers=LAYERS, w=w),
        ),
    }
    for rule, iterates in expected.values():
        torch.testing.assert_close(run(rule, x, r), iterates)


def test_targets_and_smoothers_go_where_their_algorithms_are() -> None:
    _, x, r = drawn()
    A = torch.diag(torch.tensor([2.0, 1.0, 3.0], dtype=torch.float64))
    kernel = torch.softmax(torch.einsum("bjd,sd,bks->bjk", x, A, x[:, :-1]), dim=-1)
    ridge, log_ridge = 0.05, torch.tensor(0.05, dtype=torch.float64).log()
    returns = monte_carlo_returns(r, gamma=GAMMA)
    expected = {
        "LSTD": (fit("LSTD", [1, -1], GAMMA, log_ridge), lstd(x, r, gamma=GAMMA, ridge=ridge)),
        "Monte-Carlo, solved": (
            fit("Monte-Carlo, solved", [1, -1], GAMMA, log_ridge),
            monte_carlo(x, r, gamma=GAMMA, ridge=ridge),
        ),
        "kernel regression": (
            fit("kernel regression", [1, -1], A, GAMMA),
            kernel_regression(returns, kernel),
        ),
        "kernel reward averaging": (
            fit("kernel reward averaging", [1, -1], A),
            kernel_regression(r, kernel),
        ),
        "reward averaging": (fit("reward averaging", [1, -1]), r.mean(1, keepdim=True).expand(x.shape[:2])),
    }
    for rule, target in expected.values():
        torch.testing.assert_close(run(rule, x, r)[-1], target)  # a full step, repeated, stays


def test_gradient_monte_carlo_ends_where_its_solution_is() -> None:
    _, x, r = drawn()
    rule = fit("Monte-Carlo", [0.3, -0.3], GAMMA)
    values = torch.zeros_like(x[..., 0])
    for _ in range(4000):
        values = values + rule.predicted(data(x, r, values))
    torch.testing.assert_close(values, monte_carlo(x, r, gamma=GAMMA, ridge=1e-12), rtol=1e-4, atol=1e-4)


def test_states_are_told_apart_by_what_is_seen_of_them() -> None:
    _, x, r = drawn()
    blind = torch.ones_like(x)
    shares = RULES["tabular TD"].terms(data(blind, r, x[..., 0]), torch.zeros(0))
    torch.testing.assert_close(shares[..., 0], r.mean(1, keepdim=True).expand_as(shares[..., 0]))


@each_rule
def test_the_cone_holds_the_signs_and_both_weights_of_an_error(name: str) -> None:
    rule = RULES[name]
    cone = rule.cone(torch.zeros(1, dtype=torch.float64))
    signs = torch.tensor(rule.signs, dtype=torch.float64)
    assert bool((cone * signs[:, None] >= 0).all())
    inside = cone @ torch.rand(len(signs), 50, generator=torch.Generator().manual_seed(0)).double()
    if rule.corrects:
        ratio = (inside[0] / inside[-1]).abs()
        assert 0.1 <= float(ratio.min()) <= float(ratio.max()) <= 10
    else:
        torch.testing.assert_close(cone.abs(), torch.eye(len(signs), dtype=torch.float64))


def test_free_parameters_are_counted() -> None:
    counts = {name: rule.num_parameters(3) for name, rule in RULES.items()}
    assert counts["identity"] == 0
    assert counts["weighted softmax TD"] == 3 + 9
    assert counts["kernel regression"] == 2 + 9 + 1
    assert counts["LSTD"] == 4
    assert counts["linear TD"] == counts["tabular TD"] == counts["residual gradient"] == 3
