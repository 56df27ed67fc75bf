"""Runs of rules are found from their last values alone."""

import pytest
import torch

from valuelens.probe import RULES, UpdateData, discount_influence, fit_run, run_rule
from valuelens.probe._rule_runs import _fit

MADE = {
    "weighted softmax TD": {"step": 0.8, "discount": 0.45, "scale": 1.1, "A": 5.0},
    "linear TD": {"step": 0.9, "discount": 0.45, "scale": 1.1},
    "LSTD": {"scale": 1.2, "discount": 0.6, "ridge": -4.0},
    "kernel regression": {"scale": 0.9, "A": 6.0, "discount": 0.4},
    "reward averaging": {"scale": 1.7},
}


def contexts(seed: int) -> UpdateData:
    generator = torch.Generator().manual_seed(seed)
    x = torch.nn.functional.normalize(torch.randn(24, 6, 3, generator=generator, dtype=torch.float64), dim=-1)
    states = torch.randint(0, 6, (24, 21), generator=generator)
    r = torch.randn(24, 20, generator=generator, dtype=torch.float64)
    x = x[torch.arange(24)[:, None], states]
    empty = torch.zeros_like(x[..., 0])
    return UpdateData(features=x, rewards=r, values=empty, update=empty, gamma=0.5)


@pytest.mark.parametrize("name", MADE)
def test_a_run_is_found_from_where_it_ends(name: str) -> None:
    rule, data, held_out = RULES[name], contexts(1), contexts(2)
    steps = 4 if rule.corrects else 1
    true = (_fit(rule, MADE[name], data),) * steps
    run = fit_run(rule, data, run_rule(true, data))
    expected = run_rule(true, held_out)
    missed = (run_rule(run.fits, held_out) - expected).square().sum() / expected.square().sum()
    assert float(missed) < 1e-4
    assert run.parameters.keys() == MADE[name].keys()
    assert len(run.fits) == steps


def test_the_influence_on_the_discount_is_its_spread() -> None:
    rule, data = RULES["linear TD"], contexts(1)
    true = (_fit(rule, MADE["linear TD"], data),) * 2
    clean, estimates, errors = run_rule(true, data), [], []
    for seed in range(8):
        noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        run = fit_run(rule, data, clean + 0.05 * noise)
        influence = discount_influence(run, data, clean + 0.05 * noise)
        assert influence is not None
        estimates.append(run.parameters["discount"])
        errors.append(float(influence.square().sum().sqrt()))
    spread, foretold = torch.tensor(estimates).std(), torch.tensor(errors).mean()
    assert 0.4 < float(spread / foretold) < 2.5


def test_rules_without_a_discount_have_none() -> None:
    data = contexts(1)
    run = fit_run(
        RULES["reward averaging"],
        data,
        run_rule((_fit(RULES["reward averaging"], {"scale": 2.0}, data),), data),
    )
    assert discount_influence(run, data, data.values) is None
