"""Fits find the parameters that made the updates, keep the signs of their rule, and know how sure they are."""

import pytest
import torch
from torch import Tensor

from valuelens.probe import (
    RULES,
    RuleFit,
    UpdateData,
    fit_any_signs,
    fit_rule,
    misfit,
    searched_part,
    unexplained,
    weight_spread,
)

A = torch.tensor([[3.0, 0.4, 0.0], [0.0, 2.0, 0.3], [-0.3, 0.0, 2.5]], dtype=torch.float64)
MADE: dict[str, tuple[list[float], list[Tensor | float]]] = {
    "weighted softmax TD": ([0.8, 0.4, -0.8], [A]),
    "linear TD": ([0.8, 0.4, -0.8], []),
    "tabular TD": ([0.8, 0.4, -0.8], []),
    "TD(lambda)": ([0.8, 0.4, -0.8], [0.35]),
    "residual gradient": ([0.8, 0.7], [0.45]),
    "LSTD": ([0.8, -0.8], [0.55, -4.0]),
    "Monte-Carlo": ([0.8, -0.8], [0.62]),
    "Monte-Carlo, solved": ([0.8, -0.8], [0.62, -3.0]),
    "kernel regression": ([0.8, -0.8], [A, 0.55]),
    "kernel reward averaging": ([0.8, -0.8], [A]),
    "reward averaging": ([1.6, -0.8], []),
}


def made(name: str, seed: int, *, noise: float = 0.0, w: list[float] | None = None) -> UpdateData:
    """A layer that does what the rule says, from values that are no function of anything."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.nn.functional.normalize(torch.randn(60, 6, 3, generator=generator, dtype=torch.float64), dim=-1)
    states = torch.randint(0, 6, (60, 21), generator=generator)
    rows = torch.arange(60)[:, None]
    r = torch.randn(60, 20, generator=generator, dtype=torch.float64)
    v = 0.7 * torch.randn(60, 21, generator=generator, dtype=torch.float64)
    data = UpdateData(features=x[rows, states], rewards=r, values=v, update=v, gamma=0.5)
    update = truth(name, w).predicted(data)
    update = update + noise * torch.randn(update.shape, generator=generator, dtype=torch.float64)
    return UpdateData(features=data.features, rewards=r, values=v, update=update, gamma=0.5)


def truth(name: str, w: list[float] | None = None) -> RuleFit:
    weights, shape = MADE[name]
    parts = [torch.as_tensor(each, dtype=torch.float64).flatten() for each in shape]
    flat = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)
    return RuleFit(rule=RULES[name], weights=torch.tensor(w or weights, dtype=torch.float64), shape=flat)


@pytest.mark.parametrize("name", MADE)
def test_a_rule_is_found_from_its_own_update(name: str) -> None:
    fit, held_out = fit_rule(RULES[name], made(name, 1)), made(name, 2)
    assert float(unexplained(fit, held_out).sum() / held_out.update.square().sum()) < 1e-9
    torch.testing.assert_close(fit.weights, truth(name).weights, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("w", [[-0.8, 0.4, -0.8], [0.8, -0.4, -0.8], [0.8, 0.4, 0.8]])
def test_a_wrong_sign_is_refused_by_the_rule_and_found_without(w: list[float]) -> None:
    name = "weighted softmax TD"
    data = made(name, 1, w=w)
    fit = fit_rule(RULES[name], data)
    assert bool((fit.weights * torch.tensor([1.0, 1.0, -1.0]) >= 0).all())
    assert misfit(RULES[name], data, fit.shape) > 0.01
    exact = RuleFit(rule=RULES[name], weights=fit.weights, shape=truth(name).shape)
    torch.testing.assert_close(
        fit_any_signs(exact, data).weights, torch.tensor(w, dtype=torch.float64), rtol=1e-6, atol=1e-6
    )


def test_weights_that_meet_no_values_stay_unknown() -> None:
    data = made("linear TD", 1)
    empty = UpdateData(
        features=data.features,
        rewards=data.rewards,
        values=torch.zeros_like(data.values),
        update=data.update,
        gamma=0.5,
    )
    spread = weight_spread(truth("linear TD"), empty)
    assert spread.identified.tolist() == [True, False, False]


def test_standard_errors_cover_the_truth_at_their_rate() -> None:
    inside = []
    for seed in range(120):
        spread = weight_spread(truth("linear TD"), made("linear TD", seed, noise=0.3))
        inside.append((spread.weights - truth("linear TD").weights).abs() < 1.98 * spread.error)
    share = torch.stack(inside).double().mean()
    assert 0.9 < float(share) < 0.99


def test_shapes_are_searched_on_enough_columns_for_their_entries() -> None:
    data = made("linear TD", 1)
    few = searched_part(data)
    columns = len(few.features) * few.features.shape[1]
    assert 600 <= columns < 600 + 21
    torch.testing.assert_close(few.update, data.update[: len(few.update)])
