"""Objectives against explicit formulas, and the two engines against each other."""

import pytest
import torch
from torch.testing import assert_close

from valuelens.models.icrl import (
    ContextStatistics,
    LinearAttention,
    ModelConfig,
    SoftmaxTD,
    TaskConfig,
    ValueLearner,
    _losses,
    context_of,
    horizon,
    loss_and_value,
    prepare,
    softmax_prompt,
    task_sampler,
)

N, D, GAMMA, BATCH = 7, 3, 0.6, 6
LOSSES = ("td", "neu", "monte-carlo", "true-value")
each_loss = pytest.mark.parametrize("loss", LOSSES)


def learner(arch="tsm", weights="restricted", *, tied=True, seed=0):
    config = ModelConfig(arch=arch, weights=weights, num_layers=3, tied=tied)
    g = torch.Generator().manual_seed(seed)
    model = SoftmaxTD(config, feature_dim=D, gamma=GAMMA, generator=g).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8)
    return model


def sample(loss, seed=0):
    task = TaskConfig(num_states=5, feature_dim=D, context_length=N, gamma=GAMMA)
    g = torch.Generator().manual_seed(seed)
    return task_sampler(task, g).sample(BATCH, horizon(loss, N), g, torch.float64)


def batch_of(model, loss, seed=0):
    return prepare(model, loss, N, *sample(loss, seed))


def evaluated(model, loss, batch):
    total, value = loss_and_value(model, loss, batch)
    return total, value, torch.autograd.grad(total, list(model.parameters()))


def context_value(model, mrp, states):
    """v(S_n | S_0..S_n) of each task, and v of every state."""
    context = context_of(mrp, states)
    return model(model.prompt(context))[:, 0], model.values(context, mrp.features)


@each_loss
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_the_engines_give_one_loss_and_one_gradient(monkeypatch, loss, tied, seed):
    model = learner(tied=tied, seed=seed)
    by_state = batch_of(model, loss, seed)
    monkeypatch.setattr(_losses, "has_state_form", lambda model: False)
    by_column = batch_of(model, loss, seed)
    assert isinstance(by_state.context, ContextStatistics)
    assert isinstance(by_column.context, _losses.Prompted)
    first, second = evaluated(model, loss, by_state), evaluated(model, loss, by_column)
    assert_close(first, second, atol=1e-10, rtol=1e-10)
    assert all(bool(gradient.any()) for gradient in first[2])


@each_loss
@pytest.mark.parametrize("form", [("tsm", "restricted"), ("dual", "full")])
def test_the_value_is_that_of_the_query(loss, form):
    model, (mrp, states) = learner(*form), sample(loss)
    _, value = loss_and_value(model, loss, prepare(model, loss, N, mrp, states))
    assert_close(value, context_value(model, mrp, states[:, : N + 1])[0], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("form", [("tsm", "restricted"), ("dual", "full")])
def test_td_is_the_semi_gradient_of_the_squared_td_error(form):
    """The gradient is -2 mean(delta grad v(S)): nothing flows through the bootstrapped v(S')."""
    model, (mrp, states) = learner(*form), sample("td")
    total, _, gradients = evaluated(model, "td", prepare(model, "td", N, mrp, states))
    value, _ = context_value(model, mrp, states[:, : N + 1])
    after, _ = context_value(model, mrp, states[:, 1 : N + 2])
    expected, semi = 0.0, [torch.zeros_like(p) for p in model.parameters()]
    for b in range(BATCH):
        delta = mrp.r[b, states[b, N]] + GAMMA * after[b] - value[b]
        expected += float(delta.detach()) ** 2 / BATCH
        for part, gradient in zip(
            semi, torch.autograd.grad(value[b], list(model.parameters()), retain_graph=True), strict=True
        ):
            part -= 2 * delta.detach() * gradient / BATCH
    assert_close(total.item(), expected, atol=1e-10, rtol=1e-10)
    assert_close(gradients, tuple(semi), atol=1e-10, rtol=1e-10)


def test_monte_carlo_regresses_on_forty_further_rewards():
    model, (mrp, states) = learner(), sample("monte-carlo")
    batch = prepare(model, "monte-carlo", N, mrp, states)
    value, _ = context_value(model, mrp, states[:, : N + 1])
    total = 0.0
    for b in range(BATCH):
        discounted = 0.0
        for t in range(40):
            discounted += GAMMA**t * float(mrp.r[b, states[b, N + t]])
        assert_close(batch.target[b].item(), discounted, atol=1e-10, rtol=1e-10)
        total += (discounted - value[b].item()) ** 2 / BATCH
    assert_close(loss_and_value(model, "monte-carlo", batch)[0].item(), total, atol=1e-10, rtol=1e-10)


def test_true_value_regresses_on_v_pi():
    model, (mrp, states) = learner(), sample("true-value")
    batch = prepare(model, "true-value", N, mrp, states)
    value, _ = context_value(model, mrp, states[:, : N + 1])
    total = sum((float(mrp.value[b, states[b, N]]) - value[b].item()) ** 2 for b in range(BATCH)) / BATCH
    assert_close(loss_and_value(model, "true-value", batch)[0].item(), total, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("form", [("tsm", "restricted"), ("dual", "full")])
def test_neu_is_the_mean_squared_norm_of_the_weighted_bellman_residual_with_its_full_gradient(form):
    model, (mrp, states) = learner(*form), sample("neu")
    total, _, gradients = evaluated(model, "neu", prepare(model, "neu", N, mrp, states))
    _, values = context_value(model, mrp, states[:, : N + 1])
    expected = torch.zeros((), dtype=torch.float64)
    for b in range(BATCH):
        for s in range(5):
            successor = sum(mrp.P[b, s, t] * values[b, t] for t in range(5))
            update = mrp.stationary[b, s] * (mrp.r[b, s] + GAMMA * successor - values[b, s])
            expected = expected + update**2 / BATCH
    assert_close(total, expected, atol=1e-10, rtol=1e-10)
    full = torch.autograd.grad(expected, list(model.parameters()))
    assert_close(gradients, full, atol=1e-10, rtol=1e-10)


class Oracle(ValueLearner):
    """Answers with given values of all states."""

    def __init__(self, answer):
        super().__init__()
        self.answer, self.num_layers, self.gamma = answer, 1, GAMMA
        self.setup()

    def prompt(self, context, queries=None):
        return softmax_prompt(context, queries)

    def forward(self, prompt, num_queries=1):
        return torch.cat([self.answer[:, :1], self.answer], dim=1)

    def read_out(self, resid):
        return resid[..., -1]


def test_neu_vanishes_at_v_pi_and_nowhere_near():
    mrp, states = sample("neu")

    def neu(values):
        model = Oracle(values)
        return loss_and_value(model, "neu", prepare(model, "neu", N, mrp, states))[0]

    assert_close(neu(mrp.value), torch.zeros((), dtype=torch.float64), atol=1e-25, rtol=0)
    assert neu(mrp.value + 0.1) > 1e-5


@each_loss
def test_a_batch_brings_the_controls_of_the_log(loss):
    """v_pi(S_n), and mean(R) / (1 - gamma), which sees no state and no reward behind the context."""
    model, (mrp, states) = learner(), sample(loss)
    batch = prepare(model, loss, N, mrp, states)
    for b in range(BATCH):
        assert_close(batch.true_value[b], mrp.value[b, states[b, N]])
        rewards = [float(mrp.r[b, s]) for s in states[b, :N]]
        assert_close(batch.constant[b].item(), sum(rewards) / N / (1 - GAMMA))


@pytest.mark.parametrize(
    ("loss", "transitions"), [("td", 31), ("neu", 31), ("true-value", 31), ("monte-carlo", 71)]
)
def test_horizon(loss, transitions):
    assert horizon(loss, 30) == transitions


@each_loss
@pytest.mark.parametrize("form", [("tsm", "restricted"), ("dual", "full")])
def test_rows_of_a_batch_are_the_batch_of_these_tasks(loss, form):
    model = learner(*form)
    batch = batch_of(model, loss)
    parts = [loss_and_value(model, loss, _losses.rows(batch, slice(b, b + 1))) for b in range(BATCH)]
    total, value = loss_and_value(model, loss, batch)
    assert_close(torch.stack([part for part, _ in parts]).mean(), total)
    assert_close(torch.cat([each for _, each in parts]), value)


def test_statistics_are_for_softmax_td_only():
    config = ModelConfig(arch="linear", num_layers=2)
    linear = LinearAttention(config, feature_dim=D, gamma=GAMMA, generator=torch.Generator()).double()
    with pytest.raises(TypeError, match="the state form needs SoftmaxTD; found LinearAttention"):
        loss_and_value(linear, "td", batch_of(learner(), "td"))
