"""Disguises change no value, and hide what they are meant to hide."""

import pytest
import torch

from valuelens.models.icrl import (
    Context,
    DisguisedSoftmaxTD,
    TaskConfig,
    context_of,
    hidden_basis,
    softmax_gauged,
    softmax_td_from_matrices,
    task_sampler,
    theta_star,
)


@pytest.fixture
def context(generator: torch.Generator) -> Context:
    task = TaskConfig(features="one-hot", feature_dim=5, num_states=5, context_length=12)
    mrp, states = task_sampler(task, generator).sample(4, 12, generator, torch.float64)
    return context_of(mrp, states)


def test_a_hidden_basis_is_invertible_and_mixes_everything() -> None:
    basis = hidden_basis(8, torch.Generator().manual_seed(0))
    assert float(torch.linalg.cond(basis)) < 4.001  # scales between 1/2 and 2
    assert float(basis.abs().min()) > 0
    other = hidden_basis(8, torch.Generator().manual_seed(1))
    assert float((basis - other).abs().max()) > 0.1


def test_softmax_td_in_a_hidden_basis_is_the_same_function(context: Context) -> None:
    plain = theta_star(feature_dim=5, num_layers=4, gamma=0.5, alpha=0.7, sharpness=2.0, arch="dual")
    hidden = DisguisedSoftmaxTD(plain, hidden_basis(8, torch.Generator().manual_seed(2)))
    values = plain(plain.prompt(context, context.features), 14)
    torch.testing.assert_close(
        hidden(hidden.prompt(context, context.features), 14), values, rtol=1e-9, atol=1e-9
    )
    _, cache = hidden.run_with_cache(hidden.prompt(context))
    _, slots = plain.run_with_cache(plain.prompt(context))
    shown = cache["blocks.2.hook_resid_post"]
    torch.testing.assert_close(hidden.read_out(shown), slots["blocks.2.hook_value"], rtol=1e-9, atol=1e-9)
    assert float((shown[..., -1] - slots["blocks.2.hook_value"]).abs().max()) > 0.1


def test_one_head_cannot_be_hidden() -> None:
    with pytest.raises(ValueError, match="a hidden basis needs two heads; found one with a shift of slots"):
        DisguisedSoftmaxTD(
            theta_star(feature_dim=2, num_layers=1, gamma=0.5), torch.eye(5, dtype=torch.float64)
        )


def test_the_softmax_gauge_moves_weights_and_no_value(context: Context) -> None:
    star = theta_star(feature_dim=5, num_layers=3, gamma=0.5, sharpness=2.0)
    A, V = star.A.detach(), star.V.detach()
    moved = softmax_gauged(A, torch.ones(5, dtype=torch.float64), torch.Generator().manual_seed(3))
    assert float((moved - A).abs().max()) > 0.1
    before, after = (softmax_td_from_matrices(each, V, gamma=0.5) for each in (A, moved))
    torch.testing.assert_close(
        after(after.prompt(context)), before(before.prompt(context)), rtol=1e-10, atol=1e-10
    )
