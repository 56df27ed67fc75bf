"""The update over states is the model's own, counts long contexts as short ones, and obeys the law of A5."""

import pytest
import torch
from torch.testing import assert_close

from valuelens.analyses import subject
from valuelens.analyses._rule import kernel_of, rule_of, tabular_kernel, trajectories
from valuelens.models.icrl import (
    MarkovRewardProcess,
    ModelConfig,
    TaskConfig,
    at_states,
    boyan_chains,
    build,
    context_of,
    rollout,
    theta_star,
)
from valuelens.probe import (
    fixed_point,
    floor_slope,
    softmax_td_states,
    state_kernel_from_scores,
    sup_distance,
)

TASK = TaskConfig(num_states=5, context_length=9)


@pytest.mark.parametrize("tied", [True, False])
def test_its_iterates_are_what_the_layers_read_out(tied: bool) -> None:
    model = build(ModelConfig(num_layers=3, tied=tied), TASK, torch.Generator().manual_seed(1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8)
    studied = subject(model, TASK, num_tasks=8)
    rule, why = rule_of(studied)
    assert rule is not None
    assert why == ""
    found = rule.iterates(rule.kernels(studied.mrp, studied.context.states))
    for layer in range(4):
        assert_close(at_states(found[layer], studied.context.states), studied.lens[layer, :, 1:])


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (ModelConfig(arch="dual"), "carry more than a value of the state"),
        (ModelConfig(weights="full"), "carry more than a value of the state"),
        (ModelConfig(arch="linear"), "LinearAttention layers are no updates"),
        (ModelConfig(arch="transformer", d_model=8, num_heads=2), "Transformer layers are no updates"),
    ],
)
def test_other_models_have_none_and_say_why(config: ModelConfig, words: str) -> None:
    rule, why = rule_of(subject(build(config, TASK, torch.Generator()), TASK, num_tasks=2))
    assert rule is None
    assert words in why


def test_counting_equals_gathering(generator: torch.Generator) -> None:
    studied = subject(theta_star(feature_dim=4, num_layers=1, gamma=0.5), TASK, num_tasks=8)
    scores = torch.randn(8, 5, 5, generator=generator, dtype=torch.float64)
    states = trajectories(studied, 30, 1)
    counted = kernel_of(scores, studied.mrp, states)
    gathered = state_kernel_from_scores(scores, states, context_of(studied.mrp, states).rewards)
    for name in ("M_hat", "P_hat", "r_hat", "visited", "closed"):
        assert_close(getattr(counted, name), getattr(gathered, name))


def test_the_tabular_fixed_point_is_the_value_of_the_counted_chain() -> None:
    studied = subject(theta_star(feature_dim=4, num_layers=1, gamma=0.5), TASK, num_tasks=8)
    states = trajectories(studied, 60, 1)
    found = fixed_point(tabular_kernel(studied.mrp, states), gamma=0.5)
    for b in range(8):
        P = torch.zeros(5, 5, dtype=torch.float64)
        for s, successor in zip(states[b, :-1].tolist(), states[b, 1:].tolist(), strict=True):
            P[s, successor] += 1
        if bool((P.sum(1) > 0).all()):
            eye = torch.eye(5, dtype=torch.float64)
            value = torch.linalg.solve(eye - 0.5 * P / P.sum(1, keepdim=True), studied.mrp.r[b])
            assert_close(found[b], value)


def test_streams_and_seeds_tell_trajectories_apart() -> None:
    model = theta_star(feature_dim=4, num_layers=1, gamma=0.5)
    first, second = (subject(model, TASK, num_tasks=8, seed=seed) for seed in (0, 1))
    assert torch.equal(trajectories(first, 20, 1), trajectories(first, 20, 1))
    assert not torch.equal(trajectories(first, 20, 1), trajectories(first, 20, 2))
    assert not torch.equal(trajectories(first, 20, 1), trajectories(second, 20, 1))


REFERENCE = {100: 0.093, 1000: 0.030, 10_000: 0.0097, 100_000: 0.0029}
"""Mean largest error of theta* (one-hot, c = 8, gamma .5, L = 40) on 6-state Boyan chains by n (theory A5)."""


def floors(lengths: list[int], tasks: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    P, r, p0 = boyan_chains(tasks, 6, generator, torch.float64)
    x = torch.eye(6, dtype=torch.float64).expand(tasks, -1, -1)
    mrp = MarkovRewardProcess(P=P, r=r, p0=p0, features=x, gamma=0.5)
    states, errors, covered = rollout(mrp, max(lengths), generator), [], []
    for n in lengths:
        kernel = kernel_of(8 * x, mrp, states[:, : n + 1])
        last = softmax_td_states(torch.zeros_like(r), kernel, gamma=0.5, num_layers=40)[-1]
        errors.append(sup_distance(last, mrp.value, kernel.visited))
        covered.append(kernel.visited.all(-1))
    return torch.stack(errors), torch.stack(covered)


def obeys_the_law(lengths: list[int]) -> None:
    errors, covered = floors(lengths)
    slope = floor_slope(errors, torch.tensor(lengths, dtype=torch.float64), covered)
    assert abs(slope + 0.5) < 0.1
    for n, row, kept in zip(lengths, errors, covered, strict=True):
        assert float(row[kept].mean()) == pytest.approx(REFERENCE[n], rel=0.2)


def test_the_floor_of_theta_star_falls_as_the_root_of_n() -> None:
    obeys_the_law([100, 1000, 10_000])


@pytest.mark.slow
def test_the_floor_of_theta_star_falls_as_the_root_of_very_long_contexts() -> None:
    obeys_the_law([100, 1000, 10_000, 100_000])
