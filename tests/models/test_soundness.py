"""A model is tried: gradients reach its first block, padding changes nothing, and no token sees those behind it."""

import copy

import torch

from valuelens.models.lm import LanguageModel, soundness


def spoiled(language_model, change):
    """The same language model with a model that a function has changed."""
    model = copy.deepcopy(language_model.model)
    change(model)
    parts = {
        name: getattr(language_model, name) for name in ("tokenizer", "name", "family", "sha256", "origin")
    }
    return LanguageModel(model=model, **parts)


def test_every_family_is_sound(tiny_language_model, family):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        found = soundness(tiny_language_model(family, dtype=dtype))
        assert len(found.gradients) == 4
        assert all(0.1 < each < 1e3 for each in found.gradients)
        assert found.padding < found.tolerance / 3
        assert found.future == 0


def test_gradients_do_not_need_trainable_parameters(tiny_language_model):
    frozen = tiny_language_model("llama")
    thawed = spoiled(frozen, lambda model: model.requires_grad_(True))
    assert soundness(frozen).gradients == soundness(thawed).gradients
    assert all(parameter.grad is None for parameter in thawed.model.parameters())


def test_a_detached_block_shows(tiny_language_model):
    def detach(model):
        model.model.layers[1].register_forward_pre_hook(lambda block, args: (args[0].detach(), *args[1:]))

    frozen = tiny_language_model("llama")
    assert soundness(spoiled(frozen, detach)).gradients == (0.0,) * 4
    thawed = spoiled(frozen, lambda model: (detach(model), model.requires_grad_(True)))
    found = soundness(thawed).gradients
    assert found[:2] == (0.0, 0.0)
    assert min(found[2:]) > 0


def test_attention_that_looks_ahead_or_at_padding_shows(tiny_language_model):
    def shift(model):
        model.model.layers[1].register_forward_hook(lambda block, args, out: out + out.mean(1, keepdim=True))

    found = soundness(spoiled(tiny_language_model("llama"), shift))
    assert found.future > found.tolerance
    assert found.padding > found.tolerance
