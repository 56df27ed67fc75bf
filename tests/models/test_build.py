"""Repeating the layer of a tied model."""

import pytest
import torch
from torch.testing import assert_close

from valuelens.models.icrl import ModelConfig, TaskConfig, build, deeper, task_sampler
from valuelens.models.icrl._mrp import context_of

TASK = TaskConfig(num_states=5, context_length=7)
FORMS = [
    ("tsm", "restricted"),
    ("tsm", "full"),
    ("tsm", "factored"),
    ("dual", "restricted"),
    ("dual", "full"),
    ("linear", "restricted"),
    ("linear", "full"),
]


@pytest.mark.parametrize(("arch", "weights"), FORMS)
def test_a_deeper_copy_is_the_model_built_that_deep(arch: str, weights: str) -> None:
    def built(num_layers: int) -> torch.nn.Module:
        config = ModelConfig(arch=arch, weights=weights, num_layers=num_layers, tied=True)
        return build(config, TASK, torch.Generator().manual_seed(3)).double()

    mrp, states = task_sampler(TASK, torch.Generator()).sample(3, 7, torch.Generator(), torch.float64)
    prompt, shallow = built(2).prompt(context_of(mrp, states)), built(2)
    copy = deeper(shallow, 6)
    assert_close(copy(prompt), built(6)(prompt))
    assert not torch.equal(copy(prompt), shallow(prompt))
    with torch.no_grad():
        next(copy.parameters()).zero_()
    assert_close(shallow(prompt), built(2)(prompt))  # a copy


def test_a_single_layer_can_be_repeated_tied_or_not() -> None:
    for arch in ("dual", "linear"):
        tied, untied = (
            build(ModelConfig(arch=arch, num_layers=1, tied=tied), TASK, torch.Generator().manual_seed(0))
            for tied in (True, False)
        )
        for name, matrix in deeper(tied, 3).matrices().items():
            assert_close(deeper(untied, 3).matrices()[name], matrix)


def test_untied_layers_cannot_be_repeated() -> None:
    model = build(ModelConfig(num_layers=2, tied=False), TASK, torch.Generator())
    with pytest.raises(ValueError, match="only tied layers can be repeated; found untied layers; deeper"):
        deeper(model, 3)
