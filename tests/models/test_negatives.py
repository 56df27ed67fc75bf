"""Hard negatives are wrong in exactly the way that they say."""

import pytest
import torch

from valuelens.models.icrl import (
    NEGATIVES,
    SoftmaxTD,
    ZooMember,
    ZooTask,
    at_states,
    context_of,
    hard_negative,
    task_sampler,
)
from valuelens.models.icrl._negatives import ContextMLP
from valuelens.probe import constant_value

SIGNS = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)


def drawn(kind: str, seed: int = 100) -> ZooMember:
    return hard_negative(kind, torch.Generator().manual_seed(seed), zoo=ZooTask(noise=0.0, hidden=0.0))


def rows(member: ZooMember) -> torch.Tensor:
    model = member.network.module
    assert isinstance(model, SoftmaxTD)
    return model.V.detach()[:, -1, -3:]


@pytest.mark.parametrize("seed", range(100, 106))
def test_a_wrong_discount_is_off_by_a_fifth(seed: int) -> None:
    member = drawn("wrong discount", seed)
    w = rows(member)
    discount = member.task.gamma * w[:, 1] / -w[:, 2]
    torch.testing.assert_close((discount - member.task.gamma).abs(), torch.full_like(discount, 0.2))
    assert bool(((discount > 0) & (discount < 1)).all())


@pytest.mark.parametrize("seed", range(100, 106))
def test_a_wrong_sign_is_one_sign(seed: int) -> None:
    w = rows(drawn("wrong sign", seed))
    assert int((w.sign() != SIGNS).sum(1).unique()) == 1


@pytest.mark.parametrize("seed", range(100, 106))
def test_one_layer_behind_the_first_is_corrupted(seed: int) -> None:
    cosine = torch.cosine_similarity(rows(drawn("corrupted layer", seed)), SIGNS[None], dim=1)
    off = cosine < 1 - 1e-9
    assert int(off.sum()) == 1
    assert not bool(off[0])
    assert float(cosine[off]) <= 0.5


@pytest.mark.slow
def test_a_trained_mlp_evaluates_states_and_reads_one_length() -> None:
    member = drawn("trained MLP", 101)
    model, generator = member.network.module, torch.Generator().manual_seed(5)
    assert isinstance(model, ContextMLP)
    n = member.task.context_length
    mrp, states = task_sampler(member.task, generator).sample(256, n, generator, torch.float64)
    context, truth = context_of(mrp, states), at_states(mrp.value, states)
    with torch.no_grad():
        values = model(model.prompt(context, context.features), 2 + n)[:, 1:]
    constant = constant_value(context.rewards, gamma=context.gamma)[:, None]
    assert float((values - truth).square().mean()) < 0.9 * float(truth.square().mean())
    assert float((values - constant).square().mean()) > 1e-4


@pytest.mark.parametrize("kind", [kind for kind in NEGATIVES if kind != "trained MLP"])
def test_negatives_are_decided_by_their_generator(kind: str) -> None:
    first, again = drawn(kind), drawn(kind)
    for one, other in zip(first.network.module.parameters(), again.network.module.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert first.record == again.record
    assert first.kind == kind
