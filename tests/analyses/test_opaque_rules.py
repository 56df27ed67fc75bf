"""Rules fitted to values that one of them made find it, and its parameters."""

import pytest
import torch
from torch.testing import assert_close

from valuelens.analyses._opaque_rules import SOFTMAX, fit_rules
from valuelens.analyses._subject import part_of
from valuelens.models.icrl import Context, TaskConfig, context_of, task_sampler, theta_star
from valuelens.probe import inner_product_scores, linear_td, softmax_kernel, tabular_td


@pytest.fixture(scope="module")
def context() -> Context:
    generator = torch.Generator().manual_seed(100)
    mrp, states = task_sampler(TaskConfig(), generator).sample(32, 20, generator, torch.float64)
    return context_of(mrp, states)


def test_softmax_td_is_found_with_its_parameters(context: Context) -> None:
    model = theta_star(feature_dim=4, num_layers=2, gamma=0.5, alpha=0.8, sharpness=3.0)
    values = model.values(context, context.features).detach()
    rules = fit_rules(context, values, 4)
    found = rules[SOFTMAX]
    assert found.steps == 2
    assert found.parameters == pytest.approx((0.8, 3.0), abs=1e-5)
    assert found.error < 1e-9
    assert min(rule.error for name, rule in rules.items() if name != SOFTMAX) > 0.01
    assert_close(found.iterates(context)[-1], values, atol=1e-6, rtol=0)
    x = context.features
    assert_close(
        found.kernel(context), softmax_kernel(3 * inner_product_scores(x, x[:, :-1])), atol=1e-5, rtol=0
    )


def test_rivals_are_found_too(context: Context) -> None:
    for name, values in {
        "linear TD": linear_td(context.features, context.rewards, gamma=0.5, alpha=1.5, num_layers=3)[-1],
        "tabular TD": tabular_td(context.states, context.rewards, gamma=0.5, alpha=0.7, num_layers=3)[-1],
    }.items():
        found = fit_rules(context, values, 4)[name]
        assert (found.steps, found.error < 1e-9) == (3, True)
        assert found.alpha == pytest.approx({"linear TD": 1.5, "tabular TD": 0.7}[name], abs=1e-5)


def test_only_softmax_td_has_a_kernel(context: Context) -> None:
    rule = fit_rules(part_of(context, slice(8)), torch.ones(8, 21, dtype=torch.float64), 1)["linear TD"]
    with pytest.raises(TypeError, match="only weighted softmax TD has a kernel; found linear TD"):
        rule.kernel(context)


def test_a_part_holds_the_named_tasks(context: Context) -> None:
    part = part_of(context, slice(3, 5))
    assert_close(part.features, context.features[3:5])
    assert_close(part.states, context.states[3:5])
    assert_close(part.rewards, context.rewards[3:5])
