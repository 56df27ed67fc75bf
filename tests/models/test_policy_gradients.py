"""Two estimators of one gradient, and the update of critic-free RL beside them."""

import pytest
import torch
from torch import Tensor

from valuelens.models.control import (
    DoubleWell,
    Noise,
    Pendulum,
    ShiftPolicy,
    System,
    Trajectories,
    pathwise_gradients,
    regulator,
    rollout,
    score_function_gradients,
)
from valuelens.probe import group_advantages

HORIZON = 6


def policy(system: System, noise: Noise, *, linear: bool = False) -> ShiftPolicy:
    torch.manual_seed(100)
    into, out = system.state_dim, system.action_dim
    hidden = [torch.nn.Linear(into, 6), torch.nn.Tanh(), torch.nn.Linear(6, out)]
    mean = torch.nn.Linear(into, out, bias=False) if linear else torch.nn.Sequential(*hidden)
    return ShiftPolicy(mean.double(), noise=noise, scale=0.4)


def runs(system: System, chosen: ShiftPolicy, s0: Tensor, seed: int) -> Trajectories:
    eps = chosen.noise((len(s0), HORIZON, system.action_dim), torch.Generator().manual_seed(seed))
    return rollout(system, chosen, s0, eps)


def one_start(batch: int) -> Tensor:
    return torch.tensor([[1.0, -0.5]], dtype=torch.float64).expand(batch, 2)


def reward_to_go(run: Trajectories) -> Tensor:
    discounts = run.gamma ** torch.arange(HORIZON, dtype=torch.float64)
    to_go = run.returns_to_go.detach()
    return discounts * (to_go - to_go.mean(0))


def test_gradients_of_single_rollouts_are_those_of_a_loop() -> None:
    system = Pendulum()
    chosen = policy(system, "gaussian")
    run = runs(system, chosen, one_start(3), 1)
    weights = torch.randn(3, HORIZON, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    pathwise = pathwise_gradients(system, chosen, run.states[:, 0].detach(), run.noise)
    score = score_function_gradients(chosen, run, weights)
    for i in range(3):
        part = slice(i, i + 1)
        total = rollout(system, chosen, run.states[part, 0].detach(), run.noise[part]).returns_to_go[0, 0]
        log_probs = chosen.log_prob(run.states[i, :-1].detach(), run.actions[i].detach())
        for found, objective in ((pathwise, total), (score, (weights[i] * log_probs).sum())):
            gradients = torch.autograd.grad(objective, list(chosen.parameters()))
            torch.testing.assert_close(found[i], torch.cat([g.flatten() for g in gradients]))


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "logistic"])
@pytest.mark.parametrize("system", [regulator(), DoubleWell()], ids=["regulator", "well"])
def test_score_function_and_pathwise_gradients_agree_in_the_mean(system: System, noise: Noise) -> None:
    chosen, n = policy(system, noise, linear=True), 40_000
    s0 = torch.full((n, system.state_dim), 0.6, dtype=torch.float64)
    run, other = runs(system, chosen, s0, 5), runs(system, chosen, s0, 6)
    score = score_function_gradients(chosen, run, reward_to_go(run))
    pathwise = pathwise_gradients(system, chosen, s0, other.noise)
    error = ((score.var(0) + pathwise.var(0)) / n).sqrt()
    assert float(((score.mean(0) - pathwise.mean(0)).abs() / error).max()) < 4
    # what the value gradient is good for: less noise (8 to 300 times here)
    assert float((score.var(0) / pathwise.var(0)).min()) > 5


def test_the_update_of_a_group_shrinks_by_one_minus_one_over_n() -> None:
    """theory B2: subtracting the group's own mean costs 1/n of the gradient; leaving one out costs nothing."""
    system, total = regulator(), 120_000
    chosen = policy(system, "gaussian", linear=True)
    run = runs(system, chosen, one_start(total), 7)
    truth = pathwise_gradients(
        system, chosen, one_start(total), runs(system, chosen, one_start(total), 8).noise
    )
    direction = truth.mean(0) / truth.mean(0).norm()
    returns = run.returns_to_go[:, 0].detach()
    for n in (2, 4, 8):
        for baseline, factor in (("group-mean", 1 - 1 / n), ("leave-one-out", 1.0)):
            advantages = group_advantages(returns.reshape(-1, n), baseline=baseline)  # type: ignore[arg-type]
            weights = advantages.reshape(-1, 1).expand(-1, HORIZON)
            updates = score_function_gradients(chosen, run, weights).reshape(-1, n, 2).mean(1)
            along = updates @ direction / truth.mean(0).norm()
            assert abs(float(along.mean()) - factor) < 4 * float(along.std()) / len(along) ** 0.5


def test_the_update_of_a_larger_group_aligns_better_with_the_value_gradient() -> None:
    """GRPO's update (std-normalised advantages, ratio 1) from one start: alignment grows with the group."""
    system, total = regulator(), 32_768
    chosen = policy(system, "gaussian", linear=True)
    run = runs(system, chosen, one_start(total), 9)
    truth = pathwise_gradients(system, chosen, one_start(total), run.noise).mean(0)
    cosines = []
    for n in (2, 8, 32, 128):
        advantages = group_advantages(run.returns_to_go[:, 0].detach().reshape(-1, n), scale_by_std=True)
        updates = score_function_gradients(chosen, run, advantages.reshape(-1, 1).expand(-1, HORIZON))
        updates = updates.reshape(-1, n, 2).mean(1)
        cosines.append(float(torch.cosine_similarity(updates, truth[None], dim=1).mean()))
        assert float(torch.cosine_similarity(updates.mean(0), truth, dim=0)) > 0.99
    assert cosines == sorted(cosines)
    assert cosines[-1] > 0.98


def test_clipping_is_idle_at_ratio_one() -> None:
    """The gradient of PPO's clipped objective at the policy that sampled is the score-function update."""
    system = Pendulum()
    chosen = policy(system, "gaussian")
    run = runs(system, chosen, one_start(16), 10)
    advantages = group_advantages(run.returns_to_go[:, 0].detach()[None], scale_by_std=True)[0]
    states, actions = run.states[:, :-1].detach(), run.actions.detach()
    log_prob = chosen.log_prob(states, actions)
    ratio = (log_prob - log_prob.detach()).exp()
    objective = torch.minimum(ratio * advantages[:, None], ratio.clamp(0.8, 1.2) * advantages[:, None]).sum()
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(objective, list(chosen.parameters()))])
    found = score_function_gradients(chosen, run, advantages[:, None].expand(-1, HORIZON)).sum(0)
    torch.testing.assert_close(found, expected)
