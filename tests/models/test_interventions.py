"""Interventions by submodule name: what they change, what they leave behind (nothing), and what they refuse."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from valuelens.models import InputError, ablated, denoised, noised, patched
from valuelens.models.icrl import ModelConfig, Transformer, theta_star


class Pair(nn.Module):
    """Returns its input twice over, as a tuple."""

    def forward(self, x: Tensor) -> tuple[Tensor, str]:
        return 2 * x, "kept"


class Plain(nn.Module):
    """No hook points: two linear maps, an unused one, and a submodule that returns a tuple."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.first, self.second, self.unused = (nn.Linear(4, 4).double() for _ in range(3))
        self.pair = Pair()
        for layer in (self.first, self.second):
            nn.init.normal_(layer.weight, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        doubled, word = self.pair(self.second(torch.tanh(self.first(x))))
        assert word == "kept"
        return doubled.sum(-1)


def batch(seed: int = 0, *shape: int) -> Tensor:
    return torch.randn(*(shape or (3, 4)), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def transformer() -> tuple[Transformer, Tensor]:
    config = ModelConfig(arch="transformer", num_layers=2, num_heads=2, d_model=8)
    generator = torch.Generator().manual_seed(1)
    model = Transformer(config, feature_dim=2, context_length=5, gamma=0.5, generator=generator).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5, generator=generator)
    return model, batch(2, 3, 6, 4)


def outputs(module: nn.Module, names: list[str], *inputs: Any) -> dict[str, Tensor]:
    """Recorded by hand, without the code under test."""
    seen: dict[str, Tensor] = {}
    handles = [
        module.get_submodule(name).register_forward_hook(
            lambda _, __, output, name=name: seen.update({name: output})
        )
        for name in names
    ]
    module(*inputs)
    for handle in handles:
        handle.remove()
    return {name: seen[name].detach() for name in names}


def hooks_of(module: nn.Module) -> int:
    return sum(len(each._forward_hooks) for each in module.modules())


def test_patching_the_clean_value_restores_the_clean_output_exactly() -> None:
    model, clean = transformer()
    corrupted, name = batch(5, 3, 6, 4), "blocks.1.hook_resid_post"
    assert not torch.equal(model(clean), model(corrupted))
    with patched(model, outputs(model, [name], clean)):
        assert torch.equal(model(corrupted), model(clean))


def test_a_part_is_patched_alone() -> None:
    model, clean = transformer()
    name = "blocks.0.hook_resid_pre"
    other = outputs(model, [name], batch(5, 3, 6, 4))[name]
    for part in (np.s_[:, 2], np.s_[..., 5], np.s_[:, 2, 5], np.s_[:, 1:3]):
        expected = outputs(model, [name], clean)[name].clone()
        expected[part] = other[part]
        with patched(model, {name: other[part]}, part=part):
            got = outputs(model, [name, "blocks.1.hook_resid_post"], clean)
        assert torch.equal(got[name], expected)
        with patched(model, {name: expected}):
            assert torch.equal(
                outputs(model, list(got), clean)["blocks.1.hook_resid_post"], got[list(got)[1]]
            )


def test_a_function_may_write_into_what_it_is_given() -> None:
    plain, x = Plain(), batch()
    kept = outputs(plain, ["first"], x)["first"]

    def write(part: Tensor) -> Tensor:
        part[0] = 7.0
        return part

    with patched(plain, {"first": write}, part=np.s_[..., 1]):
        got = outputs(plain, ["first"], x)["first"]
    expected = kept.clone()
    expected[0, 1] = 7.0
    assert torch.equal(got, expected)
    assert torch.equal(outputs(plain, ["first"], x)["first"], kept)


def write_into(part: Tensor) -> Tensor:
    part += 1
    return part


def test_what_passes_through_a_hook_point_is_left_alone_elsewhere() -> None:
    """A hook point returns the very tensor that it is given: patching it must not change that tensor."""

    class Beside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tap = nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            return 10 * self.tap(x) + x

    for replacement in (write_into, torch.full((3,), 5.0, dtype=torch.float64)):
        module, x = Beside(), batch()
        expected = 11 * x
        patch = x[:, 1] + 1 if callable(replacement) else replacement
        expected[:, 1] = 10 * patch + x[:, 1]
        with patched(module, {"tap": replacement}, part=np.s_[:, 1]):
            assert_close(module(x), expected)
        assert torch.equal(x, batch())


def test_of_a_tuple_the_first_entry_is_replaced() -> None:
    plain, x = Plain(), batch()
    with patched(plain, {"pair": torch.ones(3, 4, dtype=torch.float64)}):
        assert_close(plain(x), torch.full((3,), 4.0, dtype=torch.float64))


def test_gradients_flow_through_what_is_put_in_and_not_past_it() -> None:
    plain, x = Plain(), batch().requires_grad_()
    value = batch(1).requires_grad_()
    with patched(plain, {"first": value}):
        plain(x).sum().backward()
    assert x.grad is None
    slope = 1 - torch.tanh(value.detach()).square()
    assert_close(value.grad, 2 * slope * plain.second.weight.detach().sum(0))


def test_zero_ablation_of_attention_equals_a_model_without_it() -> None:
    model, prompt = transformer()
    bare, _ = transformer()
    for block in bare.blocks:
        nn.init.zeros_(block.attn.W_O)
        nn.init.zeros_(block.attn.b_O)
    with ablated(model, ["blocks.0.hook_attn_out", "blocks.1.hook_attn_out"]):
        assert_close(model(prompt), bare(prompt), rtol=0, atol=1e-12)


def test_zero_ablation_of_one_head_equals_a_model_without_it() -> None:
    model, prompt = transformer()
    bare, _ = transformer()
    nn.init.zeros_(bare.blocks[0].attn.W_O[1])
    with ablated(model, ["blocks.0.attn.hook_z"], part=np.s_[:, :, 1]):
        assert_close(model(prompt), bare(prompt), rtol=0, atol=1e-12)


@pytest.mark.parametrize("part", [..., np.s_[..., 2]])
def test_mean_ablation_leaves_what_contexts_share(part: Any) -> None:
    plain, x, reference = Plain(), batch(), batch(9, 5, 4)
    own, foreign = (outputs(plain, ["first"], each)["first"] for each in (x, reference))
    for by, source in (("mean", own), ({"first": foreign}, foreign)):
        expected = own.clone()
        expected[part] = source.mean(0).expand_as(own)[part]
        with ablated(plain, ["first"], by=by, part=part):
            assert_close(outputs(plain, ["first"], x)["first"], expected)


def test_the_inner_block_has_the_last_word_and_any_may_be_left_first() -> None:
    plain, x = Plain(), batch()
    kept = outputs(plain, ["first"], x)["first"]
    outer = patched(plain, {"first": lambda out: out + 1})
    inner = patched(plain, {"first": lambda out: 10 * out})
    outer.__enter__()
    inner.__enter__()
    assert_close(outputs(plain, ["first"], x)["first"], 10 * (kept + 1))
    outer.__exit__(None, None, None)
    assert_close(outputs(plain, ["first"], x)["first"], 10 * kept)
    inner.__exit__(None, None, None)
    assert torch.equal(outputs(plain, ["first"], x)["first"], kept)
    assert hooks_of(plain) == 0


def explode(_: Tensor) -> Tensor:
    raise RuntimeError("in the forward pass")


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("enter", "act", "error"),
    [
        (lambda plain: patched(plain, {"first": lambda out: out}), lambda plain: plain(batch()), None),
        (lambda plain: patched(plain, {"first": explode}), lambda plain: plain(batch()), RuntimeError),
        (lambda plain: patched(plain, {"first": batch()}), lambda _: interrupt(), KeyboardInterrupt),
        (lambda plain: ablated(plain, ["first", "unused"]), lambda plain: plain(batch()), InputError),
        (lambda plain: ablated(plain, ["first", "nowhere"]), lambda plain: plain(batch()), InputError),
    ],
)
def test_no_hook_stays_behind(
    enter: Callable[[nn.Module], Any],
    act: Callable[[nn.Module], object],
    error: type[BaseException] | None,
) -> None:
    plain = Plain()
    with pytest.raises(error) if error else nullcontext(), enter(plain):
        act(plain)
    assert hooks_of(plain) == 0


def test_hook_points_work_beside_the_hooks_of_transformer_lens() -> None:
    model = theta_star(feature_dim=2, num_layers=2, gamma=0.5)
    prompt = batch(0, 2, 4, 5)
    with patched(model, {"blocks.0.hook_value": lambda value: value + 1}):
        _, cache = model.run_with_cache(prompt)
        _, again = model.run_with_cache(prompt)
    _, clean = model.run_with_cache(prompt)
    assert_close(cache["blocks.0.hook_value"], clean["blocks.0.hook_value"] + 1)
    assert_close(again["blocks.1.hook_value"], cache["blocks.1.hook_value"])
    assert hooks_of(model) == 0


FIRST = {"read": lambda output: output[:, 0]}


def test_denoising_everything_restores_and_noising_everything_destroys() -> None:
    model, clean = transformer()
    corrupted = batch(5, 3, 6, 4)
    names = ["hook_embed", "blocks.1.hook_resid_post"]
    for measure in (denoised, noised):
        for name, share in measure(model, (clean,), (corrupted,), names, **FIRST).items():
            assert_close(share, torch.ones_like(share), rtol=0, atol=1e-12 if "resid" in name else 1e-9)


def test_a_linear_path_restores_its_share() -> None:
    """Of a sum of two maps each restores and destroys its own part of the difference."""

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = (nn.Linear(4, 1, bias=False).double() for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            return (self.a(x) + self.b(x))[:, 0]

    module, clean, corrupted = Sum(), batch(0), batch(1)
    parts = {name: module.get_submodule(name)(clean - corrupted)[:, 0].detach() for name in ("a", "b")}
    for measure in (denoised, noised):
        shares = measure(module, (clean,), (corrupted,), ["a", "b"], read=lambda output: output)
        for name, share in shares.items():
            assert_close(share, parts[name] / (parts["a"] + parts["b"]))


def test_a_part_restores_no_more_than_it_holds() -> None:
    model = theta_star(feature_dim=2, num_layers=2, gamma=0.5)
    clean, corrupted = batch(0, 2, 4, 5), batch(1, 2, 4, 5)
    name = "blocks.1.hook_value"
    last = denoised(model, (clean,), (corrupted,), [name], part=np.s_[:, -1], **FIRST)[name]
    other = denoised(model, (clean,), (corrupted,), [name], part=np.s_[:, 0], **FIRST)[name]
    assert_close(last, torch.ones_like(last))
    assert_close(other, torch.zeros_like(other))


def constant(output: Tensor) -> Tensor:
    return torch.ones_like(output)


def twice(output: Tensor) -> Tensor:
    return output[:, None]


def run(manager: Any, plain: nn.Module) -> None:
    with manager:
        plain(batch())


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (
            lambda plain: run(patched(plain, {"frist": batch()}), plain),
            "an intervention must name a submodule; found no 'frist' among first, second, unused, pair; Plain",
        ),
        (
            lambda plain: run(patched(plain, {"first": batch()[:2]}), plain),
            "what is put in must be (3, 4) torch.float64; found (2, 4) torch.float64; submodule first",
        ),
        (
            lambda plain: run(patched(plain, {"first": batch().float()}), plain),
            "what is put in must be (3, 4) torch.float64; found (3, 4) torch.float32; submodule first",
        ),
        (
            lambda plain: run(patched(plain, {"first": batch()}, part=np.s_[:, 9]), plain),
            "a part must lie in an output of shape (3, 4); found index 9 is out of bounds",
        ),
        (
            lambda plain: run(patched(plain, {"unused": batch()}), plain),
            "every submodule must be reached by a call inside the block; found it idle; submodule unused",
        ),
        (
            lambda plain: run(ablated(plain, ["first"], by={"second": batch()}), plain),
            "a reference run must hold every name that is ablated; found no first; ablated, by",
        ),
        (
            lambda plain: run(ablated(plain, ["first"], by={"first": batch(0, 2, 5)}), plain),
            "a reference must be (4,) behind its batch axis; found (5,); submodule first",
        ),
        (
            lambda plain: denoised(plain, (batch(),), (batch(1),), ["first"], read=constant),
            "the metric must differ between clean and corrupted; found 1 twice on context 0; read",
        ),
        (
            lambda plain: noised(plain, (batch(),), (batch(1),), ["first"], read=twice),
            "the metric must be one number for each context; found shapes (3, 1) and (3, 1); read",
        ),
    ],
)
def test_what_does_not_fit_is_refused(act: Callable[[nn.Module], object], text: str) -> None:
    plain = Plain()
    with pytest.raises(InputError) as caught:
        act(plain)
    assert str(caught.value).startswith(text)
    assert hooks_of(plain) == 0


def test_a_submodule_that_runs_twice_is_no_place_for_denoising() -> None:
    layer = nn.Linear(4, 4).double()
    looped = nn.Sequential(layer, layer)
    with pytest.raises(InputError, match="must be reached once by a call; found a second time; submodule 0"):
        denoised(looped, (batch(),), (batch(1),), ["0"], read=lambda output: output.sum(-1))


def test_what_returns_no_tensor_is_refused() -> None:
    class Word(nn.Module):
        def forward(self, x: Tensor) -> str:
            return "word"

    module = nn.Sequential(Word())
    with (
        pytest.raises(InputError, match="or a tuple that begins with one; found str; submodule 0"),
        patched(module, {"0": batch()}),
    ):
        module(batch())
