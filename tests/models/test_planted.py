"""A planted transformer returns the values of softmax TD, and hides where they are."""

import pytest
import torch

from valuelens.models import InputError
from valuelens.models.icrl import (
    Context,
    TaskConfig,
    Transformer,
    context_of,
    planted_transformer,
    task_sampler,
)
from valuelens.probe import TD_WEIGHTS, inner_product_scores, residual_stream, softmax_kernel, softmax_td

CASES = [(100, 0.7, 2.0, 0.5), (101, 1.2, 5.0, 0.9)]
RELATIVE = 1e-6


def contexts(task: TaskConfig, num_tasks: int = 16, seed: int = 0) -> Context:
    generator = torch.Generator().manual_seed(seed)
    mrp, states = task_sampler(task, generator).sample(
        num_tasks, task.context_length, generator, torch.float64
    )
    return context_of(mrp, states)


def planted(seed: int, alpha: float, c: float, gamma: float, **changes: int) -> Transformer:
    return planted_transformer(
        **{"feature_dim": 4, "context_length": 30, **changes},
        gamma=gamma,
        alpha=alpha,
        sharpness=c,
        generator=torch.Generator().manual_seed(seed),
    )


def algorithm(context: Context, alpha: float, c: float) -> torch.Tensor:
    x = context.features
    kernel = softmax_kernel(c * inner_product_scores(x, x[:, :-1]))
    start = torch.zeros_like(x[..., 0])
    return softmax_td(start, context.rewards, kernel, gamma=context.gamma, num_layers=3, w=alpha * TD_WEIGHTS)


@pytest.mark.parametrize(("seed", "alpha", "c", "gamma"), CASES)
@pytest.mark.parametrize("n", [1, 12, 30])
def test_values_are_those_of_softmax_td_at_the_query_and_through_extra_queries(
    seed: int, alpha: float, c: float, gamma: float, n: int
) -> None:
    model = planted(seed, alpha, c, gamma)
    context = contexts(TaskConfig(context_length=n, gamma=gamma))
    expected = algorithm(context, alpha, c)[-1]
    tolerance = {"rtol": 0.0, "atol": RELATIVE * float(expected.abs().max())}
    torch.testing.assert_close(model.values(context, context.features), expected, **tolerance)
    torch.testing.assert_close(model(model.prompt(context))[:, 0], expected[:, -1], **tolerance)


def test_other_features_and_one_hot_ones_are_followed_too() -> None:
    for task in (TaskConfig(features="uniform"), TaskConfig(features="one-hot")):
        context = contexts(task)
        model = planted(102, 0.8, 3.0, 0.5, feature_dim=context.features.shape[-1])
        expected = algorithm(context, 0.8, 3.0)[-1]
        tolerance = {"rtol": 0.0, "atol": RELATIVE * float(expected.abs().max())}
        torch.testing.assert_close(model.values(context, context.features), expected, **tolerance)


def test_iterates_stand_after_the_blocks_that_make_them() -> None:
    model, context = planted(100, 0.7, 2.0, 0.5), contexts(TaskConfig())
    streams = residual_stream(model, model.prompt(context))
    read = torch.stack([model.read_out(stream) for stream in streams])
    torch.testing.assert_close(read[1:], algorithm(context, 0.7, 2.0), rtol=0, atol=1e-6)


def test_no_single_coordinate_shows_the_value_and_seeds_hide_it_elsewhere() -> None:
    context = contexts(TaskConfig(), num_tasks=64)
    directions = []
    for seed in (100, 101):
        model = planted(seed, 0.7, 2.0, 0.5)
        stream = residual_stream(model, model.prompt(context))[-1].flatten(0, 1)
        value = algorithm(context, 0.7, 2.0)[-1].flatten()
        both = torch.corrcoef(torch.cat([stream.mT, value[None]]))
        assert float(both[-1, :-1].abs().max()) < 0.9
        torch.testing.assert_close(
            stream.mean(1), torch.zeros_like(value), rtol=0, atol=1e-6
        )  # LayerNorm's mean
        directions.append(model.W_U[:, 0].detach())
    assert abs(float(torch.cosine_similarity(*directions, dim=0))) < 0.5


def test_every_block_has_idle_heads_and_an_mlp_that_write_something() -> None:
    model, context = planted(100, 0.7, 2.0, 0.5), contexts(TaskConfig())
    _, cache = model.run_with_cache(model.prompt(context))
    for layer in range(4):
        assert float(cache[f"blocks.{layer}.hook_mlp_out"].std()) > 0.01


def test_a_head_must_hold_the_features_and_one_number_more() -> None:
    with pytest.raises(InputError, match="features must fit into a head of 16 with one place left; found 16"):
        planted(100, 1.0, 1.0, 0.5, feature_dim=16)
