"""The subject of an analysis: its tasks, its read-out, and what stands beside it."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from valuelens.analyses import subject, td_iterates, weights_of
from valuelens.analyses._subject import (
    another_context,
    layer_indices,
    mean_square_ratio,
    query_errors,
    state_summary,
)
from valuelens.models import InputError
from valuelens.models.icrl import ModelConfig, TaskConfig, build, task_sampler, theta_star
from valuelens.probe import residual_stream, value_slots

TASK = TaskConfig(num_states=6, context_length=12)
CONFIGS = {
    "tsm": ModelConfig(num_layers=3),
    "dual": ModelConfig(arch="dual", weights="factored", num_layers=2, tied=False),
    "linear": ModelConfig(arch="linear", num_layers=2),
    "transformer": ModelConfig(arch="transformer", num_layers=2, d_model=8, num_heads=2),
}
each_model = pytest.mark.parametrize("name", CONFIGS)


def model(name: str):
    return build(CONFIGS[name], TASK, torch.Generator().manual_seed(0))


@each_model
def test_the_lens_is_the_read_out_at_every_depth(name: str) -> None:
    studied = subject(model(name), TASK, num_tasks=5)
    context = studied.context
    assert studied.lens.shape == (studied.model.num_layers + 1, 5, 14)
    prompt = studied.model.prompt(context)
    with torch.no_grad():
        assert_close(studied.lens[-1, :, 0], studied.model(prompt)[:, 0])
        assert_close(studied.values, studied.model.values(context, context.features))
        for depth, resid in enumerate(residual_stream(studied.model, prompt)):
            assert_close(studied.lens[depth, :, 0], studied.model.read_out(resid)[:, -1])


def test_truth_and_constant_are_those_of_the_tasks() -> None:
    studied = subject(model("tsm"), TASK, num_tasks=3)
    mrp, states = studied.mrp, studied.context.states
    for b in range(studied.num_tasks):
        identity = torch.eye(6, dtype=torch.float64)
        value = torch.linalg.inv(identity - 0.5 * mrp.P[b]) @ mrp.r[b]
        assert_close(studied.truth[b], value[states[b]])
        assert_close(studied.constant[b], mrp.r[b][states[b, :-1]].mean() / 0.5)
    own, constant, square = query_errors(studied)
    last = studied.truth[:, -1]
    assert_close(
        (own, constant, square),
        ((studied.lens[-1, :, 0] - last) ** 2, (studied.constant - last) ** 2, last**2),
    )


def test_a_seed_decides_the_tasks_and_is_no_training_stream() -> None:
    first, again, other = (subject(model("tsm"), TASK, num_tasks=3, seed=seed) for seed in (1, 1, 2))
    assert_close(first.mrp.P, again.mrp.P, rtol=0, atol=0)
    assert_close(first.context.states, again.context.states)
    assert float((first.mrp.r - other.mrp.r).abs().max()) > 0.01
    generator = torch.Generator().manual_seed(1)
    trained, _ = task_sampler(TASK, generator).sample(3, 12, generator, torch.float64)
    assert float((first.mrp.r - trained.r).abs().max()) > 0.01


def test_all_models_meet_the_same_tasks() -> None:
    contexts = [subject(model(name), TASK, num_tasks=3).context for name in CONFIGS]
    for context in contexts[1:]:
        assert_close(context.features, contexts[0].features, rtol=0, atol=0)
        assert_close(context.rewards, contexts[0].rewards, rtol=0, atol=0)


def test_precision_is_chosen() -> None:
    assert subject(model("tsm"), TASK, num_tasks=2).lens.dtype == torch.float64
    assert subject(model("tsm"), TASK, num_tasks=2, dtype=torch.float32).lens.dtype == torch.float32


def test_values_that_overflow_are_refused() -> None:
    diverging = theta_star(feature_dim=4, num_layers=30, gamma=0.5, alpha=-1e20)
    with pytest.raises(InputError, match="must be finite on every evaluation task; found overflow on 2 of 2"):
        subject(diverging, TASK, num_tasks=2)


@pytest.mark.parametrize("arch", ["tsm", "dual"])
def test_the_iterates_of_theta_star_are_its_slots(arch: str) -> None:
    planted = theta_star(feature_dim=4, num_layers=4, gamma=0.5, alpha=0.7, sharpness=5.0, arch=arch)
    studied = subject(planted, TASK, num_tasks=4)
    iterates = td_iterates(studied, weights_of(studied))
    assert_close(iterates[0], torch.zeros_like(iterates[0]))
    assert_close(iterates[1:], value_slots(planted, planted.prompt(studied.context)))
    elsewhere = td_iterates(studied, weights_of(studied), another_context(studied.context))
    assert float((elsewhere[1:] - iterates[1:]).abs().mean()) > 0.01


def test_another_context_exchanges_rewards_only() -> None:
    context = subject(model("tsm"), TASK, num_tasks=3).context
    other = another_context(context)
    assert_close((other.features, other.states), (context.features, context.states))
    assert_close(other.rewards, context.rewards[[2, 0, 1]])


def test_only_softmax_td_has_such_weights() -> None:
    opaque = subject(model("transformer"), TASK, num_tasks=2)
    with pytest.raises(TypeError, match="weights_of needs SoftmaxTD; found Transformer"):
        weights_of(opaque)
    known = weights_of(subject(model("tsm"), TASK, num_tasks=2))
    with pytest.raises(TypeError, match="td_iterates needs SoftmaxTD; found Transformer"):
        td_iterates(opaque, known)


def test_what_has_no_effect_is_not_identified() -> None:
    untied = theta_star(feature_dim=4, num_layers=2, gamma=0.5, alpha=[0.4, 0.9], sharpness=[2.0, 3.0])
    known = weights_of(subject(untied, TASK, num_tasks=3))
    assert known.w_identified.tolist() == [[True, False, False], [True, True, True]]
    assert_close(known.step_size, torch.tensor([0.4, 0.9], dtype=torch.float64))


def test_tied_layers_are_reported_once() -> None:
    assert layer_indices(subject(model("tsm"), TASK, num_tasks=2)) == [({"layer": "all"}, 0)]
    assert layer_indices(subject(model("dual"), TASK, num_tasks=2)) == [({"layer": 0}, 0), ({"layer": 1}, 1)]
    opaque = layer_indices(subject(model("transformer"), TASK, num_tasks=2))
    assert opaque == [({"layer": 0}, 0), ({"layer": 1}, 1)]


def test_attention_is_gathered_over_sources_only() -> None:
    studied = subject(model("transformer"), TASK, num_tasks=3)
    pattern = torch.rand(3, 13, 13, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = state_summary(studied, pattern)
    states = studied.context.states
    for b in range(3):
        for s in set(states[b].tolist()):
            rows = pattern[b, states[b] == s, :12]
            shares = (rows / rows.sum(-1, keepdim=True)).mean(0)
            assert_close(found.M_hat[b, s, s], shares[states[b, :12] == s].sum())


def test_a_ratio_is_of_sums() -> None:
    error, reference = torch.rand(2, 40, generator=torch.Generator().manual_seed(0))
    estimate, interval = mean_square_ratio(error, reference, 0)
    assert_close(estimate, float(np.sum(error.numpy()) / np.sum(reference.numpy())), rtol=1e-5, atol=0)
    assert interval is not None
    assert interval[0] < estimate < interval[1]


def test_a_subject_says_what_it_is_and_how_well_it_does() -> None:
    studied = subject(theta_star(feature_dim=4, num_layers=2, gamma=0.5), TASK, num_tasks=5)
    own, blind, _ = (float(each.mean()) for each in query_errors(studied))
    assert str(studied).splitlines() == [
        "5 fresh tasks of seed 0",
        "  model                     SoftmaxTD, 2 layers",
        "  tasks                     boyan, 6 states, discount 0.5",
        "  contexts                  12 transitions",
        f"  mean squared value error  {own:.4g} ({blind:.4g} of the constant predictor)",
    ]
