"""The standard transformer against torch's own encoder, and who sees whom."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from valuelens.models._errors import InputError
from valuelens.models.icrl._config import ModelConfig
from valuelens.models.icrl._mrp import Context
from valuelens.models.icrl._transformer import Transformer

D_MODEL, HEADS, LAYERS, N, FEATURES = 12, 3, 2, 6, 2


def _context(n: int = N, seed: int = 0, batch: int = 3) -> Context:
    generator = torch.Generator().manual_seed(seed)
    return Context(
        states=torch.arange(n + 1).expand(batch, -1),
        features=torch.randn(batch, n + 1, FEATURES, generator=generator, dtype=torch.float64),
        rewards=torch.randn(batch, n, generator=generator, dtype=torch.float64),
        gamma=0.9,
    )


def _model(seed: int = 0, *, context_length: int = N, **config: Any) -> Transformer:
    """A small float64 model far from its initial parameters, so that every part matters."""
    sizes = {"arch": "transformer", "num_layers": LAYERS, "num_heads": HEADS, "d_model": D_MODEL}
    generator = torch.Generator().manual_seed(seed)
    model = Transformer(
        ModelConfig.model_validate(sizes | config),
        feature_dim=FEATURES,
        context_length=context_length,
        gamma=0.9,
        generator=generator,
    ).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def _torch_layer(block: nn.Module) -> nn.TransformerEncoderLayer:
    layer = nn.TransformerEncoderLayer(
        D_MODEL,
        HEADS,
        4 * D_MODEL,
        0.0,
        "gelu",
        batch_first=True,
        norm_first=True,
        dtype=torch.float64,
    )
    attn, mlp = block.attn, block.mlp
    merged = [W.permute(0, 2, 1).reshape(D_MODEL, D_MODEL) for W in (attn.W_Q, attn.W_K, attn.W_V)]
    copies = {
        "self_attn.in_proj_weight": torch.cat(merged),
        "self_attn.in_proj_bias": torch.cat([b.flatten() for b in (attn.b_Q, attn.b_K, attn.b_V)]),
        "self_attn.out_proj.weight": attn.W_O.reshape(D_MODEL, D_MODEL).T,
        "self_attn.out_proj.bias": attn.b_O,
        "linear1.weight": mlp.W_in.T,
        "linear1.bias": mlp.b_in,
        "linear2.weight": mlp.W_out.T,
        "linear2.bias": mlp.b_out,
        "norm1.weight": block.ln1.w,
        "norm1.bias": block.ln1.b,
        "norm2.weight": block.ln2.w,
        "norm2.bias": block.ln2.b,
    }
    layer.load_state_dict(copies)
    return layer


def _torch_values(model: Transformer, prompt: Tensor, mask: Tensor | None) -> Tensor:
    """Values of every column."""
    resid = prompt @ model.W_E + model.b_E + model.W_pos[: prompt.shape[1]]
    for block in model.blocks:
        resid = _torch_layer(block)(resid, src_mask=mask)
    final = nn.functional.layer_norm(resid, (D_MODEL,), model.ln_final.w, model.ln_final.b)
    return (final @ model.W_U + model.b_U)[..., 0]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_equals_torchs_encoder(seed: int, causal: bool) -> None:
    model = _model(seed, causal=causal)
    prompt = model.prompt(_context(seed=seed))
    mask = torch.ones(N + 1, N + 1).triu(1).bool() if causal else None
    expected = _torch_values(model, prompt, mask)
    values, cache = model.run_with_cache(prompt)
    assert_close(values, expected[:, -1:], atol=1e-10, rtol=1e-10)
    last = cache[f"blocks.{LAYERS - 1}.hook_resid_post"]
    assert_close(model.read_out(last), expected, atol=1e-10, rtol=1e-10)


def test_rms_norm_divides_by_the_root_mean_square() -> None:
    model = _model(normalization="rms")
    _, cache = model.run_with_cache(model.prompt(_context()))
    resid = cache["blocks.0.hook_resid_mid"]
    expected = resid / (resid.square().mean(-1, keepdim=True) + 1e-5).sqrt() * model.blocks[0].ln2.w
    assert_close(cache["blocks.0.ln2.hook_normalized"], expected)
    assert not any(name.endswith(("ln1.b", "ln2.b", "ln_final.b")) for name in model.state_dict())


@pytest.mark.parametrize("positions", [True, False])
def test_only_positions_tell_the_order_of_transitions(positions: bool) -> None:
    model = _model(positions=positions)
    prompt = model.prompt(_context())
    order = torch.cat([torch.randperm(N, generator=torch.Generator().manual_seed(1)), torch.tensor([N])])
    if positions:
        with pytest.raises(AssertionError, match="not close"):
            assert_close(model(prompt[:, order]), model(prompt))
    else:
        assert_close(model(prompt[:, order]), model(prompt), atol=1e-10, rtol=1e-10)


config_draws = {
    "causal": st.booleans(),
    "positions": st.booleans(),
    "normalization": st.sampled_from(["layer", "rms"]),
    "n": st.integers(1, N),
    "seed": st.integers(0, 2**16),
}


@settings(max_examples=20, deadline=None)
@given(**config_draws, num_extra=st.integers(1, 3))
def test_extra_queries_change_nothing(
    causal: bool, positions: bool, normalization: str, n: int, seed: int, num_extra: int
) -> None:
    model = _model(seed, causal=causal, positions=positions, normalization=normalization)
    context = _context(n, seed)
    extra = torch.randn(
        3, num_extra, FEATURES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    value, clean = model.run_with_cache(model.prompt(context))
    with_extra, cache = model.run_with_cache(model.prompt(context, extra), 1 + num_extra)
    assert_close(with_extra[:, :1], value, atol=1e-10, rtol=1e-10)
    last = f"blocks.{LAYERS - 1}.hook_resid_post"
    assert_close(cache[last][:, : n + 1], clean[last], atol=1e-10, rtol=1e-10)
    alone = torch.cat([model.values(context, extra[:, i : i + 1]) for i in range(num_extra)], dim=1)
    assert_close(model.values(context, extra), alone, atol=1e-10, rtol=1e-10)


@settings(max_examples=20, deadline=None)
@given(**config_draws)
def test_an_extra_query_that_repeats_the_query_returns_its_value(
    causal: bool, positions: bool, normalization: str, n: int, seed: int
) -> None:
    model = _model(seed, causal=causal, positions=positions, normalization=normalization)
    context = _context(n, seed)
    again = context.features[:, -1:]
    assert_close(model.values(context, again), model(model.prompt(context)), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(
    ("causal", "expected"),
    [
        (False, ["11100", "11100", "11100", "11010", "11001"]),
        (True, ["10000", "11000", "11100", "11010", "11001"]),
    ],
)
def test_who_sees_whom(causal: bool, expected: list[str]) -> None:
    model = _model(causal=causal)
    context = _context(2)
    _, cache = model.run_with_cache(model.prompt(context, context.features[:, :2]), 3)
    table = torch.tensor([[float(c) for c in row] for row in expected])
    for layer in range(LAYERS):
        pattern = cache[f"blocks.{layer}.attn.hook_pattern"]
        assert_close((pattern > 0).float(), table.expand(pattern.shape))
        assert_close(pattern.sum(-1), torch.ones(pattern.shape[:-1], dtype=torch.float64))


def test_causal_columns_do_not_depend_on_later_rewards() -> None:
    context, k = _context(), 3
    later = context.rewards.clone()
    later[:, k] += 1
    changed = Context(states=context.states, features=context.features, rewards=later, gamma=context.gamma)
    name = f"blocks.{LAYERS - 1}.hook_resid_post"
    for causal in (True, False):
        model = _model(causal=causal)
        before, after = (model.run_with_cache(model.prompt(c))[1][name] for c in (context, changed))
        moved = (before - after).abs().amax(dim=(0, 2)) > 1e-9
        assert moved.tolist() == [not causal] * k + [True] * (N + 1 - k)


@pytest.mark.parametrize("normalization", ["layer", "rms"])
def test_patching_clean_values_changes_nothing_and_noise_something(normalization: str) -> None:
    model = _model(normalization=normalization, causal=True)
    prompt = model.prompt(_context(), _context(1).features)
    clean, cache = model.run_with_cache(prompt, 3)
    assert set(cache) == set(model.hook_dict)
    for name, activation in cache.items():
        same = model.run_with_hooks(prompt, 3, fwd_hooks=[(name, lambda t, hook, a=activation: a)])
        assert_close(same, clean, atol=0, rtol=0)
        other = model.run_with_hooks(
            prompt, 3, fwd_hooks=[(name, lambda t, hook: t + t.detach().sin().nan_to_num())]
        )
        with pytest.raises(AssertionError, match="not close"):
            assert_close(other, clean)


@pytest.mark.parametrize("config", [{}, {"normalization": "rms", "positions": False, "causal": True}])
def test_every_parameter_gets_a_gradient(config: dict[str, Any]) -> None:
    model = _model(**config)
    model(model.prompt(_context())).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        # A key bias shifts all scores of a query alike, which softmax does not see: its gradient is rounding.
        assert (parameter.grad.norm() > 1e-9) != name.endswith("b_K"), name


def test_initial_parameters_come_from_the_generator_at_the_stated_scale() -> None:
    def fresh(seed: int) -> dict[str, Tensor]:
        config = ModelConfig(arch="transformer", num_layers=2)
        generator = torch.Generator().manual_seed(seed)
        model = Transformer(config, feature_dim=20, context_length=30, gamma=0.5, generator=generator)
        return dict(model.named_parameters())

    first, again, other = fresh(0), fresh(0), fresh(1)
    for name, parameter in first.items():
        assert_close(parameter, again[name], atol=0, rtol=0)
        leaf = name.rsplit(".", 1)[-1]
        if leaf.startswith("W"):
            assert not torch.equal(parameter, other[name])
            std = 0.01 if leaf in ("W_O", "W_out") else 0.02
            assert_close(parameter.std().item(), std, rtol=0.2, atol=0)
        else:
            assert_close(parameter.detach(), torch.full_like(parameter, float(leaf == "w")), atol=0, rtol=0)


@pytest.mark.parametrize("positions", [True, False])
def test_hooks_have_the_contracted_names_and_shapes(positions: bool) -> None:
    model = _model(positions=positions)
    _, cache = model.run_with_cache(model.prompt(_context(4), _context(1).features), 3)
    resid, head, square = (3, 7, D_MODEL), (3, 7, HEADS, D_MODEL // HEADS), (3, HEADS, 7, 7)
    block = {
        "hook_resid_pre": resid,
        "hook_resid_mid": resid,
        "hook_resid_post": resid,
        "hook_attn_out": resid,
        "hook_mlp_out": resid,
        "ln1.hook_normalized": resid,
        "ln2.hook_normalized": resid,
        **{f"attn.hook_{name}": head for name in "qkvz"},
        "attn.hook_attn_scores": square,
        "attn.hook_pattern": square,
    }
    expected = {"hook_embed": resid, "ln_final.hook_normalized": resid}
    expected |= {"hook_pos_embed": resid} if positions else {}
    expected |= {f"blocks.{layer}.{name}": shape for layer in range(LAYERS) for name, shape in block.items()}
    assert {name: tuple(t.shape) for name, t in cache.items()} == expected


def test_errors() -> None:
    with pytest.raises(
        InputError, match=r"contexts must have at most 4 transitions; found 6; transformer, positions"
    ):
        _model(context_length=4)(_model().prompt(_context(6)))
    _model(context_length=4, positions=False)(_model().prompt(_context(6)))
    context = _context()
    wide = Context(
        states=context.states,
        features=torch.cat([context.features] * 2, dim=-1),
        rewards=context.rewards,
        gamma=0.9,
    )
    with pytest.raises(
        InputError, match=r"contexts must have the model's 2 features; found 4; transformer, context"
    ):
        _model().prompt(wide)
