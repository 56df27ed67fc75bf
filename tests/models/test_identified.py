"""Entries without effect, named one by one (theory A8), and their masks against differences of the output."""

import pytest
import torch
from torch.testing import assert_close

from valuelens.models.icrl import Context, ModelConfig, SoftmaxTD, identified_entries

D_FEATURES, D = 2, 5
REWARD, TARGET, CURRENT = 2, 3, 4
MEMORIES = [TARGET, CURRENT]


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def context(n=6):
    return Context(
        states=torch.zeros(4, n + 1, dtype=torch.int64),
        features=normal(4, n + 1, D_FEATURES),
        rewards=normal(4, n, seed=1),
        gamma=0.8,
    )


def learner(arch="tsm", weights="full", *, num_layers=3, tied=False):
    config = ModelConfig(arch=arch, weights=weights, num_layers=num_layers, tied=tied)
    g = torch.Generator().manual_seed(0)
    return SoftmaxTD(config, feature_dim=D_FEATURES, gamma=0.8, generator=g).double()


def masks(model):
    return identified_entries(model, model.prompt(context()), torch.Generator().manual_seed(0))


def own(model):
    """Masks within what the parameterisation lets vary."""
    return {name: mask & model.support()[name].bool() for name, mask in masks(model).items()}


@pytest.mark.parametrize("arch", ["tsm", "dual"])
@pytest.mark.parametrize("weights", ["restricted", "full", "factored"])
def test_memories_are_empty_at_the_input_of_untied_layers(arch, weights):
    found = masks(learner(arch, weights))
    assert not found["V"][0, CURRENT, MEMORIES].any()  # w_T and w_C
    assert bool(found["V"][0, CURRENT, REWARD])
    assert not found["A"][0, MEMORIES].any()
    assert not found["A"][0, :, MEMORIES].any()
    assert found["A"][0, :D_FEATURES, :D_FEATURES].all()
    for layer in (1, 2):
        assert found["V"][layer, CURRENT, REWARD:].all()
        assert found["A"][layer, :D_FEATURES, :D_FEATURES].all()


def test_full_untied_layers_use_the_memories_from_the_second_on():
    found = masks(learner())["A"]
    assert found[1, MEMORIES, :D_FEATURES].all()
    assert found[1, :D_FEATURES, MEMORIES].all()


@pytest.mark.parametrize("weights", ["restricted", "full", "factored"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_target_row_of_tsm_has_no_effect_anywhere(weights, tied):
    assert not masks(learner(weights=weights, tied=tied))["V"][:, TARGET].any()


@pytest.mark.parametrize("weights", ["restricted", "full", "factored"])
def test_the_last_target_head_has_no_effect(weights):
    found = masks(learner("dual", weights))["V_target"]
    assert not found[-1].any()
    assert bool(found[0, TARGET, REWARD])
    assert found[1, TARGET, REWARD:].all()


def test_the_last_layer_writes_what_nobody_reads():
    found = masks(learner("dual"))["V"]
    assert not found[-1, :CURRENT].any()
    assert found[-1, CURRENT].all()
    assert found[1, :CURRENT].any(-1).all()


@pytest.mark.parametrize("arch", ["tsm", "dual"])
def test_restricted_with_one_layer_identifies_w_R_and_the_feature_block_only(arch):
    found = own(learner(arch, "restricted", num_layers=1))
    V, A = torch.zeros(2, 1, D, D, dtype=torch.bool)
    V[0, CURRENT, REWARD] = True
    A[0, :D_FEATURES, :D_FEATURES] = True
    assert_close((found["V"], found["A"]), (V, A))


def test_tied_layers_share_one_mask_and_identify_every_weight():
    found = own(learner(weights="restricted", tied=True))
    for mask in found.values():
        assert_close(mask, mask[:1].expand_as(mask))
    support = learner(weights="restricted").support()
    assert_close(found["V"][0], support["V"].bool())
    assert_close(found["A"][0], support["A"].bool())


def test_the_models_own_weights_do_not_count():
    model = learner()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert_close(masks(model), masks(learner()))


@pytest.mark.parametrize("arch", ["tsm", "dual"])
@pytest.mark.parametrize("weights", ["restricted", "full"])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_an_entry_counts_exactly_if_changing_it_changes_the_output(arch, weights, num_layers):
    """At other random weights of the same form, one entry at a time."""
    model = learner(arch, weights, num_layers=num_layers)
    prompt = model.prompt(context())
    drawn = {
        name: model.support()[name] * normal(num_layers, D, D, seed=seed)
        for seed, name in enumerate(model.matrices())
    }
    clean, found = model.run(prompt, drawn), masks(model)
    for name, matrix in drawn.items():
        effects = torch.zeros_like(matrix, dtype=torch.bool)
        for place in torch.cartesian_prod(*map(torch.arange, matrix.shape)).tolist():
            changed = matrix.clone()
            changed[tuple(place)] += 0.1
            output = model.run(prompt, {**drawn, name: changed})
            effects[tuple(place)] = (output - clean).abs().max() > 1e-9
        assert_close(found[name], effects)
