"""Linear attention against linear batch TD(0) written as plain loops."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from valuelens.models._errors import InputError
from valuelens.models.icrl._config import ModelConfig
from valuelens.models.icrl._linear_attention import LinearAttention, theta_td
from valuelens.models.icrl._mrp import Context

sizes = {"n": st.integers(1, 8), "d": st.integers(1, 5), "seed": st.integers(0, 2**16)}


def _context(*, n: int, d: int, seed: int, gamma: float = 0.9, batch: int = 3) -> Context:
    generator = torch.Generator().manual_seed(seed)
    return Context(
        states=torch.arange(n + 1).expand(batch, -1),
        features=torch.randn(batch, n + 1, d, generator=generator, dtype=torch.float64),
        rewards=torch.randn(batch, n, generator=generator, dtype=torch.float64),
        gamma=gamma,
    )


def _model(weights: str, *, d: int, seed: int = 0, num_layers: int = 3, tied: bool = True) -> LinearAttention:
    config = ModelConfig.model_validate(
        {"arch": "linear", "weights": weights, "num_layers": num_layers, "tied": tied}
    )
    generator = torch.Generator().manual_seed(seed)
    return LinearAttention(config, feature_dim=d, gamma=0.9, generator=generator).double()


def _batch_td(
    x: Tensor, rewards: Tensor, gamma: float, steps: list[float]
) -> tuple[list[float], list[float]]:
    """Weights after the given TD steps, and the TD errors under these weights, of one trajectory."""
    n, d = len(rewards), x.shape[1]
    X, R = x.tolist(), rewards.tolist()
    w = [0.0] * d

    def td_error(k: int) -> float:
        return R[k] + sum(w[i] * (gamma * X[k + 1][i] - X[k][i]) for i in range(d))

    for alpha in steps:
        delta = [td_error(k) for k in range(n)]
        for i in range(d):
            w[i] += alpha * sum(delta[k] * X[k][i] for k in range(n)) / n
    return w, [td_error(k) for k in range(n)]


@settings(max_examples=40, deadline=None)
@given(
    **sizes,
    gamma=st.floats(0, 0.99),
    steps=st.lists(st.floats(-1.5, 1.5), min_size=1, max_size=5),
    num_extra=st.integers(0, 3),
)
def test_theta_td_is_batch_td(
    n: int, d: int, seed: int, gamma: float, steps: list[float], num_extra: int
) -> None:
    context = _context(n=n, d=d, seed=seed, gamma=gamma)
    model = theta_td(feature_dim=d, num_layers=len(steps), gamma=gamma, alpha=steps, dtype=torch.float64)
    others = torch.randn(3, num_extra, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    states = torch.cat([context.features, others], dim=1)
    _, cache = model.run_with_cache(model.prompt(context, states), 1 + states.shape[1])
    last = cache[f"blocks.{len(steps) - 1}.hook_value"]
    values = model.values(context, states)
    for b in range(3):
        w, delta = _batch_td(context.features[b], context.rewards[b], gamma, steps)
        expected = [sum(w_i * x_i for w_i, x_i in zip(w, x.tolist(), strict=True)) for x in states[b]]
        assert_close(values[b], torch.tensor(expected, dtype=torch.float64), atol=1e-10, rtol=1e-10)
        assert_close(last[b, :n], -torch.tensor(delta, dtype=torch.float64), atol=1e-10, rtol=1e-10)
        assert_close(last[b, n], values[b, n], atol=1e-10, rtol=1e-10)


def test_one_step_size_is_that_step_in_every_layer() -> None:
    context = _context(n=5, d=3, seed=0)
    one = theta_td(feature_dim=3, num_layers=4, gamma=0.9, alpha=0.3, dtype=torch.float64)
    many = theta_td(feature_dim=3, num_layers=4, gamma=0.9, alpha=[0.3] * 4, dtype=torch.float64)
    assert (one.alpha.shape, many.alpha.shape) == ((1,), (4,))
    assert_close(one(one.prompt(context)), many(many.prompt(context)))


def test_theta_td_matrices() -> None:
    model = theta_td(feature_dim=2, num_layers=2, gamma=0.9, alpha=[0.5, 2.0])
    rows = torch.tensor([[-1.0, 0, 1, 0, 0], [0, -1, 0, 1, 0], [0] * 5, [0] * 5, [0] * 5])
    assert_close(model.Q.detach(), torch.stack([0.5 * rows, 2.0 * rows]))
    assert_close(model.P, torch.diag(torch.tensor([0.0, 0, 0, 0, 1])).expand(2, 5, 5))


@settings(max_examples=20, deadline=None)
@given(**sizes, num_extra=st.integers(1, 4))
def test_layer_is_the_papers_formula_and_extra_queries_change_nothing(
    n: int, d: int, seed: int, num_extra: int
) -> None:
    """Z <- Z + (1/n) P Z M Z' Q Z in columns, free P and Q, one query column each."""
    context, model = _context(n=n, d=d, seed=seed), _model("full", d=d, seed=seed, tied=False)
    queries = torch.randn(3, num_extra, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    values, cache = model.run_with_cache(model.prompt(context, queries), 1 + num_extra)
    Z = model.prompt(context).mT
    M = torch.diag(torch.tensor([1.0] * n + [0.0], dtype=torch.float64))
    for layer in range(3):
        Z = Z + model.P[layer] @ Z @ M @ Z.mT @ model.Q[layer] @ Z / n
        assert_close(cache[f"blocks.{layer}.hook_resid_post"][:, : n + 1], Z.mT, atol=1e-10, rtol=1e-10)
    assert_close(values[:, 0], -Z[:, 2 * d, n], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("tied", [True, False])
def test_full_with_the_restricted_matrices_is_restricted(tied: bool) -> None:
    restricted, full = (_model(weights, d=3, tied=tied) for weights in ("restricted", "full"))
    stored = 1 if tied else 3
    assert restricted.alpha.shape == (stored,)
    assert full.P_full.shape == full.Q_full.shape == (stored, 7, 7)
    assert full.P.shape == full.Q.shape == restricted.P.shape == restricted.Q.shape == (3, 7, 7)
    with torch.no_grad():
        full.P_full.copy_(restricted.P[:stored])
        full.Q_full.copy_(restricted.Q[:stored])
    prompt = full.prompt(_context(n=6, d=3, seed=1))
    assert_close(full(prompt), restricted(prompt))


def test_tied_is_untied_with_equal_layers_and_untied_layers_differ() -> None:
    tied, untied = _model("full", d=2), _model("full", d=2, tied=False)
    assert not torch.equal(untied.Q[0], untied.Q[1])
    prompt = tied.prompt(_context(n=6, d=2, seed=1))
    before = untied(prompt)
    with torch.no_grad():
        untied.P_full.copy_(tied.P)
        untied.Q_full.copy_(tied.Q)
    assert_close(untied(prompt), tied(prompt))
    with pytest.raises(AssertionError):
        assert_close(before, tied(prompt))


@pytest.mark.parametrize("weights", ["restricted", "full"])
def test_checkpoint_holds_the_parameters_only_and_every_one_gets_a_gradient(weights: str) -> None:
    model = _model(weights, d=3, tied=False)
    assert set(model.state_dict()) == ({"alpha"} if weights == "restricted" else {"P_full", "Q_full"})
    model(model.prompt(_context(n=6, d=3, seed=1))).square().sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert (parameter.grad.flatten(1) if weights == "full" else parameter.grad[:, None]).norm(
            dim=1
        ).min() > 0


def test_initial_parameters_come_from_the_generator_at_the_stated_scale() -> None:
    first, again, other = (_model("full", d=30, seed=seed, tied=False) for seed in (0, 0, 1))
    assert_close(first.Q, again.Q, atol=0, rtol=0)
    assert not torch.equal(first.Q, other.Q)
    assert not torch.equal(first.Q, first.P)
    for matrix in (first.P, first.Q):
        assert_close(matrix.std().item(), 0.1 / 61**0.5, rtol=0.05, atol=0)
    alphas = _model("restricted", d=1, num_layers=400, tied=False).alpha
    assert_close(alphas.std().item(), 0.1, rtol=0.15, atol=0)


def test_hooks_have_the_contracted_names_shapes_and_meanings() -> None:
    context, model = _context(n=4, d=2, seed=0), _model("full", d=2, num_layers=2)
    prompt = model.prompt(context, context.features[:, :2])
    _, cache = model.run_with_cache(prompt, 3)
    shapes = {
        "hook_resid_pre": (3, 7, 5),
        "attn.hook_attn_scores": (3, 7, 7),
        "attn.hook_pattern": (3, 7, 7),
        "hook_attn_out": (3, 7, 5),
        "hook_value": (3, 7),
        "hook_resid_post": (3, 7, 5),
    }
    assert {name: tuple(t.shape) for name, t in cache.items()} == {
        f"blocks.{layer}.{name}": shape for layer in range(2) for name, shape in shapes.items()
    }
    scores, pattern = cache["blocks.1.attn.hook_attn_scores"], cache["blocks.1.attn.hook_pattern"]
    z = cache["blocks.0.hook_resid_post"]
    assert_close(scores[0, 5, 2], z[0, 2] @ model.Q[1] @ z[0, 5])
    assert_close(pattern, torch.cat([scores[..., :4] / 4, torch.zeros(3, 7, 3, dtype=torch.float64)], dim=-1))
    assert_close(cache["blocks.1.hook_resid_post"] - z, cache["blocks.1.hook_attn_out"])
    assert_close(cache["blocks.1.hook_value"], model.read_out(cache["blocks.1.hook_resid_post"]))


def test_patching_clean_values_changes_nothing_and_patching_the_value_is_written_back() -> None:
    context, model = _context(n=4, d=2, seed=0), _model("full", d=2)
    prompt = model.prompt(context)
    clean, cache = model.run_with_cache(prompt)
    for name, activation in cache.items():
        patched = model.run_with_hooks(prompt, fwd_hooks=[(name, lambda t, hook, a=activation: a)])
        assert_close(patched, clean, atol=0, rtol=0)
    shifted = model.run_with_hooks(prompt, fwd_hooks=[("blocks.2.hook_value", lambda t, hook: t + 1)])
    assert_close(shifted, clean + 1)


def test_errors() -> None:
    context = _context(n=4, d=2, seed=0)
    with pytest.raises(
        InputError, match=r"contexts must have the model's 3 features; found 2; linear attention"
    ):
        _model("full", d=3).prompt(context)
    with pytest.raises(
        InputError, match=r"alpha must be one number or one a layer; found 2 for 3 layers; theta_td"
    ):
        theta_td(feature_dim=2, num_layers=3, gamma=0.9, alpha=[1.0, 1.0])
