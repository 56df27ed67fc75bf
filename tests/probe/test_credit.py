"""Credit through depth: gradients of planted models against the transposed update, and loops."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close
from transformer_lens import HookedRootModule

from valuelens.models.icrl import SoftmaxTD, TaskConfig, context_of, task_sampler, theta_star
from valuelens.probe import (
    adjoint_step,
    attention_patterns,
    by_state,
    column_costates,
    read_out_gradients,
    relative_gap,
    state_kernel,
    value_iteration_matrix,
)


def planted(arch: str, seed: int, num_layers: int = 4) -> SoftmaxTD:
    """Every layer with its own random w (both heads alike) and A that reads features only."""
    g = torch.Generator().manual_seed(seed)
    ones = [1.0] * num_layers
    model = theta_star(feature_dim=3, num_layers=num_layers, gamma=0.7, alpha=ones, sharpness=ones, arch=arch)
    with torch.no_grad():
        model.A_features.copy_(2 * torch.randn(model.A_features.shape, generator=g, dtype=torch.float64))
        model.w.copy_(torch.randn(model.w.shape, generator=g, dtype=torch.float64))
        if arch == "dual":
            model.w_target.copy_(model.w)
    return model


def studied(model: SoftmaxTD, seed: int, n: int = 9, S: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """States, measured costates of states, and the matrix of every layer."""
    g = torch.Generator().manual_seed(seed)
    task = TaskConfig(num_states=S, feature_dim=3, gamma=0.7)
    mrp, states = task_sampler(task, g).sample(6, n, g, torch.float64)
    context = context_of(mrp, states)
    prompt = model.prompt(context)
    columns = column_costates(read_out_gradients(model, prompt), gamma=0.7)
    steps = []
    for pattern, w in zip(attention_patterns(model, prompt), model.V[:, -1, -3:].detach(), strict=True):
        kernel = state_kernel(pattern, states, context.rewards, num_states=S)
        steps.append(value_iteration_matrix(kernel, gamma=0.7, w=w))
    return states, by_state(columns, states, S), torch.stack(steps)


@pytest.mark.parametrize("arch", ["tsm", "dual"])
@settings(max_examples=20)
@given(seed=st.integers(0, 999), n=st.integers(1, 12))
def test_costates_follow_the_transposed_update_in_both_forms(arch: str, seed: int, n: int) -> None:
    states, costates, steps = studied(planted(arch, seed), seed, n)
    assert_close(costates[-1], torch.nn.functional.one_hot(states[:, -1], 5).double())
    for before, after, step in zip(costates[:-1], costates[1:], steps, strict=True):
        assert_close(adjoint_step(after, step), before, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("arch", ["tsm", "dual"])
def test_the_current_row_alone_is_not_the_adjoint(arch: str) -> None:
    model = theta_star(feature_dim=3, num_layers=4, gamma=0.7, alpha=0.7, sharpness=3.0, arch=arch)
    g = torch.Generator().manual_seed(0)
    mrp, states = task_sampler(TaskConfig(feature_dim=3, gamma=0.7), g).sample(64, 30, g, torch.float64)
    gradients = read_out_gradients(model, model.prompt(context_of(mrp, states)))
    costates = by_state(column_costates(gradients, gamma=0.7), states, 10)
    gap = relative_gap(by_state(gradients[..., -1], states, 10)[:-1], costates[:-1]).mean(-1)
    assert float(gap.min()) > 0.1


def test_a_costate_is_what_one_more_unit_of_value_does() -> None:
    """Finite differences through the hooks of tsm, which keep both memories consistent."""
    model = planted("tsm", 3)
    g = torch.Generator().manual_seed(3)
    task = TaskConfig(num_states=5, feature_dim=3, gamma=0.7)
    mrp, states = task_sampler(task, g).sample(2, 8, g, torch.float64)
    prompt = model.prompt(context_of(mrp, states))
    costates = column_costates(read_out_gradients(model, prompt), gamma=0.7)
    for column in range(9):

        def nudge(value: Tensor, hook: object, by: float, column: int = column) -> Tensor:
            return value + by * torch.nn.functional.one_hot(torch.tensor(column), 9)

        reads = []
        for by in (1e-6, -1e-6):
            hooks = [("blocks.1.hook_value", lambda v, hook, by=by: nudge(v, hook, by))]
            with torch.no_grad(), model.hooks(fwd_hooks=hooks):
                reads.append(model(prompt)[:, 0])
        assert_close((reads[0] - reads[1]) / 2e-6, costates[2, :, column], atol=1e-7, rtol=1e-6)


def test_a_scaled_target_slot_changes_nothing() -> None:
    """The gauge s of theory A8: target memory holds s gamma v, and the costate is the same."""
    model = planted("dual", 1)
    plain = studied(model, 1)[1]
    with torch.no_grad():
        model.w_target.mul_(4.0)
        model.w_target[:, 1] /= 4.0
        model.w[:, 1] /= 4.0
    g = torch.Generator().manual_seed(1)
    task = TaskConfig(num_states=5, feature_dim=3, gamma=0.7)
    mrp, states = task_sampler(task, g).sample(6, 9, g, torch.float64)
    gradients = read_out_gradients(model, model.prompt(context_of(mrp, states)))
    scaled = by_state(column_costates(gradients, gamma=0.7, target_scale=4.0), states, 5)
    assert_close(scaled, plain)


def test_state_costates_equal_a_loop(generator: torch.Generator) -> None:
    costates = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    states = torch.randint(5, (3, 4), generator=generator)
    expected = torch.zeros(2, 3, 5).double()
    for layer in range(2):
        for b in range(3):
            for j in range(4):
                expected[layer, b, states[b, j]] += costates[layer, b, j]
    assert_close(by_state(costates, states, 5), expected)


def test_a_model_without_streams_is_refused() -> None:
    class Bare(HookedRootModule):
        def __init__(self) -> None:
            super().__init__()
            self.setup()

    with pytest.raises(ValueError, match=r"must have hooks blocks\.0\.hook_resid_pre and _post; found none"):
        read_out_gradients(Bare(), torch.zeros(1, 2, 3))


def test_gradients_leave_no_hooks_behind() -> None:
    model = planted("tsm", 0)
    prompt = torch.zeros(1, 4, 6, dtype=torch.float64)
    read_out_gradients(model, prompt)
    assert all(not point.fwd_hooks for point in model.hook_dict.values())
    assert prompt.grad is None
