"""The layer as the papers write it, in columns; hooks, patches, queries and parameterisations."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from valuelens.models.icrl import Context, ModelConfig, SoftmaxTD, theta_star

ARCHS = ("tsm", "dual")
WEIGHTS = ("restricted", "full", "factored")
every_form = pytest.mark.parametrize(
    ("arch", "weights"), [(arch, weights) for arch in ARCHS for weights in WEIGHTS]
)
exactly = {"atol": 0, "rtol": 0}


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def context(*, n=5, d=3, seed=0):
    return Context(
        states=torch.arange(n + 1).expand(2, -1),
        features=normal(2, n + 1, d, seed=seed),
        rewards=normal(2, n, seed=seed + 1),
        gamma=0.8,
    )


def model(arch="tsm", weights="full", *, d=3, num_layers=3, tied=False, seed=0, scale=4.0):
    """Random weights, larger than the initial ones so that every term of a layer counts."""
    config = ModelConfig(arch=arch, weights=weights, num_layers=num_layers, tied=tied)
    g = torch.Generator().manual_seed(seed)
    made = SoftmaxTD(config, feature_dim=d, gamma=0.8, generator=g).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(scale)
    return made


def layer_in_columns(model, layer, Z, n):
    """Z + V Z K' (+ gamma V_target Z K' Pi, or the shift module), one context, n sources."""
    A, V, gamma, D, pos = model.A[layer], model.V[layer], model.gamma, *Z.shape
    K, Pi = torch.zeros(2, pos, pos, dtype=torch.float64)
    for j in range(pos):
        for i in range(n):
            K[j, i] = torch.exp(Z[:, i] @ A @ Z[:, j])
        K[j] = K[j] / K[j].sum()
    for j in range(n):
        Pi[j + 1, j] = 1
    Y = Z + V @ Z @ K.T
    if model.V_target is not None:
        return Y + gamma * model.V_target[layer] @ Z @ K.T @ Pi
    Y = Y.clone()
    Y[D - 2] = gamma * Y[D - 1].clone() @ Pi
    return Y


@every_form
@settings(max_examples=8)
@given(n=st.integers(1, 6), d=st.integers(1, 4), extra=st.integers(0, 3), seed=st.integers(0, 999))
def test_a_layer_is_the_papers_formula_from_any_residual_stream(arch, weights, n, d, extra, seed):
    learner = model(arch, weights, d=d, seed=seed, scale=2.0)
    prompt = 0.5 * normal(2, n + 1 + extra, d + 3, seed=seed)
    with torch.no_grad():
        values, cache = learner.run_with_cache(prompt, 1 + extra)
        for b in range(2):
            Z = prompt[b].T
            for layer in range(3):
                Z = layer_in_columns(learner, layer, Z, n)
                assert_close(cache[f"blocks.{layer}.hook_resid_post"][b].T, Z, atol=1e-10, rtol=1e-10)
            assert_close(values[b], Z[-1, n:], atol=1e-10, rtol=1e-10)


@every_form
@settings(max_examples=8)
@given(n=st.integers(1, 6), extra=st.integers(1, 4), seed=st.integers(0, 999))
def test_extra_queries_change_nothing_else(arch, weights, n, extra, seed):
    learner, given_context = model(arch, weights, seed=seed), context(n=n, seed=seed)
    queries = normal(2, extra, 3, seed=seed + 2)
    with torch.no_grad():
        plain, few = learner.run_with_cache(learner.prompt(given_context))
        more, many = learner.run_with_cache(learner.prompt(given_context, queries), 1 + extra)
    assert_close(more[:, :1], plain, atol=1e-12, rtol=1e-12)
    for name, activation in few.items():
        kept = many[name][:, : n + 1]
        kept = kept[..., : n + 1] if "attn.hook" in name else kept
        assert_close(kept, activation, atol=1e-12, rtol=1e-12)


@every_form
def test_a_query_that_repeats_S_n_returns_its_value(arch, weights):
    learner, one = model(arch, weights), context()
    values = learner(learner.prompt(one, one.features[:, -1:]), 2)
    assert_close(values[:, 1], values[:, 0], atol=1e-12, rtol=1e-12)
    assert_close(learner.values(one, one.features[:, -1:]), values[:, 1:])


@every_form
def test_hooks_have_the_contracted_names_and_shapes(arch, weights):
    learner, one = model(arch, weights, num_layers=2), context(n=4)
    _, cache = learner.run_with_cache(learner.prompt(one, one.features[:, :2]), 3)
    shapes = {
        "hook_resid_pre": (2, 7, 6),
        "attn.hook_attn_scores": (2, 7, 7),
        "attn.hook_pattern": (2, 7, 7),
        "hook_attn_out": (2, 7, 6),
        "hook_value": (2, 7),
        "hook_target": (2, 7),
        "hook_resid_post": (2, 7, 6),
    }
    assert {name: tuple(activation.shape) for name, activation in cache.items()} == {
        f"blocks.{layer}.{name}": shape for layer in range(2) for name, shape in shapes.items()
    }


@every_form
def test_hooks_mean_what_they_say(arch, weights):
    learner, one = model(arch, weights, num_layers=2), context(n=4)
    with torch.no_grad():
        _, cache = learner.run_with_cache(learner.prompt(one))
    before, after = cache["blocks.0.hook_resid_post"], cache["blocks.1.hook_resid_post"]
    assert_close(cache["blocks.1.hook_resid_pre"], before, **exactly)
    scores, pattern = cache["blocks.1.attn.hook_attn_scores"], cache["blocks.1.attn.hook_pattern"]
    assert_close(scores[0, 3, 1], before[0, 1] @ learner.A[1].detach() @ before[0, 3])
    assert_close(scores[..., -1], torch.full((2, 5), -torch.inf, dtype=torch.float64))
    assert_close(pattern, scores.softmax(-1))
    assert_close(cache["blocks.1.hook_value"], after[..., -1], **exactly)
    assert_close(cache["blocks.1.hook_value"], learner.read_out(after), **exactly)
    assert_close(cache["blocks.1.hook_target"], after[..., -2], **exactly)
    kept = [0, 1, 2, 3, 5] if arch == "tsm" else list(range(6))  # the shift module overwrites target memory
    assert_close((after - before)[..., kept], cache["blocks.1.hook_attn_out"][..., kept])


@every_form
def test_patching_every_clean_value_restores_the_clean_output(arch, weights):
    learner, one = model(arch, weights), context()
    prompt = learner.prompt(one, one.features[:, :2])
    clean, cache = learner.run_with_cache(prompt, 3)
    corrupt = learner.prompt(context(seed=7), one.features[:, :2])
    for name, activation in cache.items():
        hooks = [(name, lambda t, hook, a=activation: a)]
        assert_close(learner.run_with_hooks(prompt, 3, fwd_hooks=hooks), clean, **exactly)
        if "hook_resid" in name:
            assert_close(learner.run_with_hooks(corrupt, 3, fwd_hooks=hooks), clean, **exactly)


@pytest.mark.parametrize("name", ["hook_value", "hook_attn_out", "attn.hook_pattern", "hook_resid_pre"])
@pytest.mark.parametrize("arch", ARCHS)
def test_a_patch_has_an_effect(arch, name):
    learner = model(arch)
    prompt = learner.prompt(context())
    patch = [(f"blocks.1.{name}", lambda t, hook: t + 1)]
    with pytest.raises(AssertionError, match="not close"):
        assert_close(learner.run_with_hooks(prompt, fwd_hooks=patch), learner(prompt))


@pytest.mark.parametrize("arch", ARCHS)
def test_patching_the_value_keeps_target_memory_consistent_in_tsm_only(arch):
    learner = theta_star(feature_dim=3, num_layers=2, gamma=0.8, arch=arch)
    prompt, patched = learner.prompt(context()), normal(2, 6, seed=3)
    seen = {}
    hooks = [
        ("blocks.0.hook_value", lambda t, hook: patched),
        ("blocks.0.hook_resid_post", lambda t, hook: seen.update(resid=t)),
    ]
    learner.run_with_hooks(prompt, fwd_hooks=hooks)
    target, current = seen["resid"][..., -2], seen["resid"][..., -1]
    assert_close(current, patched, **exactly)
    consistent = 0.8 * torch.cat([current[:, 1:], torch.zeros(2, 1).double()], dim=1)
    if arch == "tsm":
        assert_close(target, consistent)
    else:
        with pytest.raises(AssertionError, match="not close"):
            assert_close(target, consistent)


def memories(consistent):
    """A prompt with v_0 = noise; target memory gamma v_0(S_{j+1}), or noise as well."""
    prompt = theta_star(feature_dim=3, num_layers=1, gamma=0.8).prompt(context())
    prompt[..., -1] = normal(2, 6, seed=5)
    prompt[..., -2] = normal(2, 6, seed=6)
    if consistent:
        prompt[:, :-1, -2] = 0.8 * prompt[:, 1:, -1]
        prompt[:, -1, -2] = 0
    return prompt


def test_the_forms_agree_if_the_memories_start_consistent_and_differ_if_not():
    tsm, dual = (theta_star(feature_dim=3, num_layers=3, gamma=0.8, alpha=0.7, arch=arch) for arch in ARCHS)
    assert_close(tsm(memories(consistent=True)), dual(memories(consistent=True)), atol=1e-10, rtol=1e-10)
    with pytest.raises(AssertionError, match="not close"):
        assert_close(tsm(memories(consistent=False)), dual(memories(consistent=False)))


@pytest.mark.parametrize("arch", ARCHS)
def test_overwriting_the_query_column_changes_the_context_from_layer_2_on(arch):
    learner, one = theta_star(feature_dim=3, num_layers=2, gamma=0.8, arch=arch), context()
    other = Context(
        states=one.states,
        features=torch.cat([one.features[:, :-1], normal(2, 1, 3, seed=9)], dim=1),
        rewards=one.rewards,
        gamma=0.8,
    )
    (_, a), (_, b) = (learner.run_with_cache(learner.prompt(each)) for each in (one, other))
    assert_close(a["blocks.0.hook_value"][:, :-1], b["blocks.0.hook_value"][:, :-1])
    with pytest.raises(AssertionError, match="not close"):
        assert_close(a["blocks.1.hook_value"][:, :-1], b["blocks.1.hook_value"][:, :-1])


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("arch", ARCHS)
def test_factored_weights_are_merged_as_in_the_papers(arch, tied):
    """A = W_K W_Q' / sqrt(d_head), V = (W_V W_O)': row-vector scores (z_dest W_Q)(z_src W_K)' / sqrt(d_head)."""
    learner = model(arch, "factored", tied=tied)
    z_src, z_dest = normal(2, 6)
    for layer in range(3):
        own = 0 if tied else layer
        q, k = z_dest @ learner.W_Q[own], z_src @ learner.W_K[own]
        assert_close(z_src @ learner.A[layer] @ z_dest, q @ k / math.sqrt(6))
        assert_close(learner.V[layer] @ z_src, z_src @ learner.W_V[own] @ learner.W_O[own])
        if learner.V_target is not None:
            expected = z_src @ learner.W_V_target[own] @ learner.W_O_target[own]
            assert_close(learner.V_target[layer] @ z_src, expected)


@pytest.mark.parametrize("weights", ["restricted", "factored"])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("tied", [True, False])
def test_full_with_the_same_matrices_is_the_same_model(arch, weights, tied):
    learner, full = model(arch, weights, tied=tied), model(arch, "full")
    with torch.no_grad():
        full.A_full.copy_(learner.A)
        full.V_full.copy_(learner.V)
        if learner.V_target is not None:
            full.V_full_target.copy_(learner.V_target)
    prompt = learner.prompt(context())
    assert_close(full(prompt), learner(prompt), atol=1e-10, rtol=1e-10)
    assert_close(learner.run(prompt, full.matrices()), learner(prompt), atol=1e-10, rtol=1e-10)


def test_support_is_where_random_weights_are_not_zero():
    for arch in ARCHS:
        for weights in WEIGHTS:
            learner = model(arch, weights)
            nonzero = {name: (matrix != 0).all(0).double() for name, matrix in learner.matrices().items()}
            assert_close(learner.support(), nonzero)


@every_form
@pytest.mark.parametrize("tied", [True, False])
def test_every_parameter_is_stored_once_a_layer_and_used(arch, weights, tied):
    learner = model(arch, weights, tied=tied)
    names = {"restricted": ["A_features", "w"], "full": ["A_full", "V_full"]}
    stored = names.get(weights, ["W_Q", "W_K", "W_V", "W_O"])
    heads = [f"{name}_target" for name in stored if name[:3] in ("w", "V_f", "W_V", "W_O")]
    assert sorted(learner.state_dict()) == sorted(stored + (heads if arch == "dual" else []))
    assert {len(parameter) for parameter in learner.parameters()} == {1 if tied else 3}
    learner(learner.prompt(context())).square().sum().backward()
    for name, parameter in learner.named_parameters():
        assert parameter.grad is not None, name
        used = [bool(grad.any()) for grad in parameter.grad]
        last_target_head = name.endswith("_target") and not tied
        assert used == [True, True, not last_target_head][: len(used)], name


def test_initial_parameters_come_from_the_generator_at_the_stated_scale():
    first, again, other = (model(d=30, seed=seed, scale=1) for seed in (0, 0, 1))
    assert_close(first.A, again.A, **exactly)
    assert not torch.equal(first.A, other.A)
    assert_close(first.A.std().item(), 0.1 / math.sqrt(33), rtol=0.05, atol=0)
    assert_close(first.V.std().item(), 0.1 / math.sqrt(33), rtol=0.05, atol=0)
    restricted = model(weights="restricted", d=30, num_layers=200, scale=1)
    assert_close(restricted.A_features.std().item(), 0.1 / math.sqrt(30), rtol=0.05, atol=0)
    assert_close(restricted.w.std().item(), 0.1, rtol=0.1, atol=0)
    factored = model(weights="factored", d=30, scale=1)
    assert_close(factored.W_Q.std().item(), 0.5 / math.sqrt(33), rtol=0.05, atol=0)
