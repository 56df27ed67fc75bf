"""Members of the zoo are what they are called, hide what they hide, and depend on their generator alone."""

import pytest
import torch

from valuelens.analyses import identification
from valuelens.models.icrl import (
    KINDS,
    NEGATIVES,
    SoftmaxTD,
    WrappedRules,
    ZooMember,
    ZooTask,
    context_of,
    hard_negative,
    task_sampler,
    zoo_member,
)

each_kind = pytest.mark.parametrize("kind", KINDS)


def drawn(kind: str, seed: int = 100, **zoo: float) -> ZooMember:
    return zoo_member(kind, torch.Generator().manual_seed(seed), zoo=ZooTask(**zoo))  # type: ignore[arg-type]


def values(member: ZooMember) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    n = member.task.context_length
    mrp, states = task_sampler(member.task, generator).sample(3, n, generator, torch.float64)
    context = context_of(mrp, states)
    with torch.no_grad():
        return member.network.values(member.network.module(*member.network.inputs(context, context.features)))


@each_kind
def test_a_member_is_decided_by_its_generator(kind: str) -> None:
    first, again, other = drawn(kind), drawn(kind), drawn(kind, 101)
    assert first.record == again.record
    torch.testing.assert_close(values(first), values(again), rtol=0, atol=0)
    assert first.record != other.record
    assert first.kind == kind
    assert bool(values(first).isfinite().all())


@each_kind
def test_a_network_tells_nothing_but_hooks(kind: str) -> None:
    for seed in range(100, 104):
        member = drawn(kind, seed)
        layers = [slot.layer for slot in member.network.slots if slot.holds != "target"]
        assert layers == list(range(len(layers)))
        residual = {slot.holds == "residual" for slot in member.network.slots}
        assert residual == {bool(member.record["hidden"])}


def test_a_third_of_the_members_is_hidden() -> None:
    hidden = [bool(drawn("linear TD", seed).record["hidden"]) for seed in range(100, 160)]
    assert 0.2 < sum(hidden) / len(hidden) < 0.47
    assert not any(bool(drawn("linear TD", seed, hidden=0.0).record["hidden"]) for seed in range(100, 110))


def test_softmax_td_runs_in_attention_and_other_rules_are_wrapped() -> None:
    attention = drawn("weighted softmax TD", hidden=0.0).network.module
    assert isinstance(attention, SoftmaxTD)
    assert isinstance(drawn("LSTD").network.module, WrappedRules)


def test_linear_td_with_plain_slots_is_wrapped_or_in_linear_attention() -> None:
    made = {str(drawn("linear TD", seed, hidden=0.0).record["made"]) for seed in range(100, 110)}
    assert made == {"wrapped", "linear attention"}
    assert {str(drawn("linear TD", seed, hidden=1.0).record["made"]) for seed in range(100, 105)} == {
        "wrapped"
    }


def test_weight_noise_has_its_size() -> None:
    matrices = {}
    for noise in (0.0, 0.02):
        generator = torch.Generator().manual_seed(104)
        model = zoo_member(
            "weighted softmax TD", generator, zoo=ZooTask(hidden=0.0), noise=noise
        ).network.module
        assert isinstance(model, SoftmaxTD)
        matrices[noise] = model.V.detach()
    clean, noisy = matrices[0.0], matrices[0.02]
    share = (noisy - clean).flatten(1).norm(dim=1) / clean.flatten(1).norm(dim=1)
    torch.testing.assert_close(share, torch.full_like(share, 0.02), rtol=0.5, atol=0)


def test_mixed_members_name_their_two_rules() -> None:
    for seed in range(100, 104):
        made = str(drawn("different rules in different layers", seed).record["made"]).split(", ")
        assert len(set(made)) == 2
        assert set(made) <= set(KINDS)


def named(member: ZooMember) -> str:
    generator = torch.Generator().manual_seed(7)
    n = member.task.context_length
    mrp, states = task_sampler(member.task, generator).sample(64, n, generator, torch.float64)
    return identification(member.network, context_of(mrp, states)).algorithm


@pytest.mark.slow
@each_kind
def test_a_member_is_named_as_what_it_is(kind: str) -> None:
    member = zoo_member(kind, torch.Generator().manual_seed(107), zoo=ZooTask(num_layers=(3, 4)), noise=0.005)
    assert named(member) == kind


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in NEGATIVES if kind != "wrong discount"])
def test_hard_negatives_are_not_softmax_td(kind: str) -> None:
    member = hard_negative(kind, torch.Generator().manual_seed(107), zoo=ZooTask(num_layers=(3, 5)))
    assert named(member) != "weighted softmax TD"
