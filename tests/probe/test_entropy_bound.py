"""The identity of theory B5, both forms of the bound, and that a wrong temperature does not go unnoticed."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from valuelens.models.control import DoubleWell, ShiftPolicy, local_derivatives, rollout
from valuelens.probe import (
    BoundForm,
    Crossings,
    EntropyBound,
    Relaxation,
    RelaxedCredit,
    Sampling,
    Sequences,
    TargetProbability,
    closed_loop,
    costate_recursion,
    crossed,
    crossings,
    dense_jacobians,
    edited_stream,
    entropy_bound,
    gini,
    hop_batches,
    language_costates,
    one_step_bound,
    relaxed_credit,
    sampled_logits,
    sequences,
    spectral_ceiling,
    state_logits,
)

TinyModel = Callable[..., Any]
LAYERS = (0, 1, 2)
FORMS: tuple[BoundForm, ...] = ("step", "entropy")
distributions = st.lists(st.floats(-30, 30), min_size=1, max_size=12).map(
    lambda logits: torch.tensor(logits, dtype=torch.float64).softmax(-1)
)


def unrolled(model: Any, batch: Sequences, objective: TargetProbability) -> RelaxedCredit:
    """Straight-through tokens one after another; shifts of the streams and embeddings are shared by all passes."""
    embedding = model.get_input_embeddings()
    tokens = embedding(batch.input_ids)
    shifts = {layer: torch.zeros_like(tokens).requires_grad_() for layer in LAYERS}
    at_embeddings = torch.zeros_like(tokens).requires_grad_()

    def logits(fed: Tensor) -> Tensor:
        edits = {layer: lambda stream, by=shift: stream + by for layer, shift in shifts.items()}
        with edited_stream(model, edits):
            return state_logits(model, batch, fed)

    every = torch.arange(batch.valid.shape[1])
    carried = torch.zeros_like(tokens)
    for k in every.tolist():
        z = logits(tokens + at_embeddings + carried)[:, k]
        p = sampled_logits(z, objective.sampling).softmax(-1)
        table = embedding(torch.arange(p.shape[-1]))
        place = torch.zeros(tokens.shape[:2]).scatter(1, batch.states[:, k : k + 1] + 1, 1.0)
        fed = ((p - p.detach()) @ table)[:, None] * place[..., None]
        carried = carried + fed * batch.valid[:, k, None, None]
    value = objective.values(logits(tokens + at_embeddings + carried), batch).sum()
    *streams, to_embeddings = torch.autograd.grad(value, [*shifts.values(), at_embeddings])
    found = language_costates(model, batch, objective, layers=LAYERS)
    states = batch.states[..., None].expand(-1, -1, tokens.shape[-1])
    relaxed = torch.stack([stream.gather(1, states) for stream in streams], dim=1)
    valid = batch.valid
    return RelaxedCredit(
        empirical=found.values,
        relaxed=relaxed * valid[:, None, :, None],
        embeddings=to_embeddings.gather(1, states + 1) * valid[..., None],
        valid=valid,
    )


class Case(NamedTuple):
    """A batch of unequal rollouts with all that a bound is made of."""

    model: Any
    batch: Sequences
    credit: RelaxedCredit
    jacobians: Tensor
    objective: TargetProbability

    def crossings(self, sampling: Sampling) -> Crossings:
        return crossings(self.model, self.batch, self.credit.embeddings, sampling)

    def bound(self, sampling: Sampling) -> EntropyBound:
        norms = torch.linalg.matrix_norm(self.jacobians, ord=2)
        return entropy_bound(self.credit, self.crossings(sampling), norms)


@pytest.fixture(
    scope="module", params=[Sampling(temperature=0.6), Sampling(temperature=1.4, top_k=4)], ids=str
)
def sampling(request: pytest.FixtureRequest) -> Sampling:
    found: Sampling = request.param
    return found


@pytest.fixture(scope="module")
def case(float64_net: TinyModel, sampling: Sampling) -> Case:
    """Rollouts of tokens that all samplings could have drawn, a batch of them padded, one as long as a state."""
    generator = torch.Generator().manual_seed(1)
    model = float64_net(seed=2)
    lengths = [(3, 5), (1, 4), (2, 1), (2, 5)] * 8
    prompts = [torch.randint(5, (p,), generator=generator).tolist() for p, _ in lengths]
    completions: list[list[int]] = [[] for _ in lengths]
    for k in range(5):
        for prompt, completion, (_, length) in zip(prompts, completions, lengths, strict=True):
            if k < length:
                z = sampled_logits(model(torch.tensor([prompt + completion])).logits[0, -1], sampling)
                completion.append(int(torch.multinomial(z.softmax(-1), 1, generator=generator)))
    batch = sequences(prompts, completions)
    targets = torch.randint(5, batch.valid.shape, generator=generator)
    objective = TargetProbability(targets=targets, sampling=sampling)
    credit = unrolled(model, batch, objective)
    return Case(model, batch, credit, dense_jacobians(model, batch, layers=LAYERS), objective)


def test_what_crosses_tokens_is_all_that_is_missing(case: Case, sampling: Sampling) -> None:
    """The identity, to 1e-9, where the gap is no rounding."""
    missing = case.credit.relaxed - case.credit.empirical
    found = crossed(case.jacobians, case.crossings(sampling))
    torch.testing.assert_close(
        found, missing, rtol=0, atol=1e-9 * float(case.credit.relaxed.norm(dim=-1).max())
    )
    assert float(missing.norm() / case.credit.relaxed.norm()) > 0.1


def test_neither_form_is_violated_and_how_tight_they_are_is_told(case: Case, sampling: Sampling) -> None:
    found = case.bound(sampling)
    for form in FORMS:
        assert not bool(found.violations(form).any())
        tightness = found.tightness(form)
        # behind a rollout's last token there is nothing to cross
        last = torch.zeros_like(case.batch.valid).scatter(1, case.batch.completion_length[:, None] - 1, 1.0)
        assert bool(tightness[(~case.batch.valid | last.bool())[:, None].expand_as(tightness)].isnan().all())
        assert 0.01 < float(tightness.nanmedian()) < 1
    assert bool((found.entropy >= found.step * (1 - 1e-12)).all())


@pytest.mark.parametrize("max_hops", [0, 1, 5])
def test_hops_give_the_same_credit_and_hold_if_some_are_left_out(
    case: Case, sampling: Sampling, max_hops: int
) -> None:
    relaxation = Relaxation(sampling=sampling, max_hops=max_hops, tolerance=0.0)
    options = {"layers": LAYERS, "relaxation": relaxation, "micro_batch": 64}
    (hops,) = hop_batches(case.model, case.batch, case.objective, **options)
    credit = relaxed_credit(hops, case.batch)
    if max_hops == 5:
        for name in ("empirical", "relaxed", "embeddings"):
            torch.testing.assert_close(getattr(credit, name), getattr(case.credit, name), rtol=0, atol=1e-10)
    sent = crossings(case.model, case.batch, credit.embeddings, sampling)
    missing = credit.relaxed - credit.empirical
    torch.testing.assert_close(crossed(case.jacobians, sent), missing, rtol=0, atol=1e-10)
    assert bool(missing.any()) == (max_hops > 0)


@pytest.mark.parametrize("factor", [2.0, 10.0])
def test_a_wrong_temperature_is_caught(case: Case, sampling: Sampling, factor: float) -> None:
    """Planted: a bound of hotter sampling is too small; the identity sees it at once."""
    planted = Sampling(temperature=factor * sampling.temperature, top_k=sampling.top_k)
    missing = case.credit.relaxed - case.credit.empirical
    wrong = crossed(case.jacobians, case.crossings(planted))
    assert float((wrong - missing).norm() / missing.norm()) > 0.1
    found = case.bound(planted)
    assert int(found.violations("step").sum()) > 0
    if factor == 10:
        assert int(found.violations("entropy").sum()) > 0


def test_a_bound_of_norms_that_are_too_small_is_caught(case: Case, sampling: Sampling) -> None:
    norms = torch.linalg.matrix_norm(case.jacobians, ord=2)
    of_itself = norms * torch.eye(norms.shape[-1])
    assert bool(entropy_bound(case.credit, case.crossings(sampling), of_itself).violations("step").any())


def test_only_states_that_were_asked_for_are_judged(case: Case, sampling: Sampling) -> None:
    asked = torch.zeros(case.jacobians.shape[:3], dtype=torch.bool)
    asked[1, :, 1] = True
    nothing = torch.zeros(case.jacobians.shape[:4], dtype=torch.float64)
    found = entropy_bound(case.credit, case.crossings(sampling), nothing, asked=asked)
    assert found.violations("step").nonzero().tolist() == [[1, layer, 1] for layer in range(3)]
    assert found.tightness("step").isinf().nonzero().tolist() == [[1, layer, 1] for layer in range(3)]


def test_rounding_is_no_violation() -> None:
    one = torch.ones(1, 1, 1, 1)
    credit = RelaxedCredit(
        empirical=one, relaxed=one + 1e-6, embeddings=one[0], valid=torch.ones(1, 1, dtype=torch.bool)
    )
    nothing = Crossings(push=0 * one[0], ceiling=0 * one[0, 0])
    found = entropy_bound(credit, nothing, one)
    assert not bool(found.violations("entropy").any())
    assert bool(found.tightness("entropy").isnan().all())
    far = RelaxedCredit(empirical=one, relaxed=one + 1e-3, embeddings=one[0], valid=credit.valid)
    assert bool(entropy_bound(far, nothing, one).violations("entropy").all())


@given(distributions)
def test_gini_bounds_the_spectrum_and_entropy_bounds_gini(p: Tensor) -> None:
    largest = float(torch.linalg.eigvalsh(p.diag() - p.outer(p)).max())
    entropy = float(torch.special.entr(p).sum())
    assert largest <= float(spectral_ceiling(p)) + 1e-12
    assert float(spectral_ceiling(p)) <= min(float(gini(p)), 0.5)
    assert float(gini(p)) <= entropy / (2 * math.log(2)) + 1e-12


def test_the_inequalities_are_equalities_for_a_coin() -> None:
    p = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    largest = torch.linalg.eigvalsh(p.diag() - p.outer(p)).max()
    entropy = torch.special.entr(p).sum()
    for found in (largest, spectral_ceiling(p), gini(p), entropy / (2 * math.log(2))):
        assert float(found) == pytest.approx(0.5, abs=1e-12)
    assert float(spectral_ceiling(torch.full((9,), 1 / 9))) == 0.5 < float(gini(torch.full((9,), 1 / 9)))


def test_a_crossing_takes_no_notice_of_tokens_that_cannot_be_drawn(case: Case) -> None:
    """And never exceeds its ceiling."""
    greedy = case.crossings(Sampling(top_k=1))
    assert float(greedy.lengths.abs().max()) == float(greedy.ceiling.max()) == 0
    for sampling in (Sampling(top_k=2), Sampling(top_p=0.7), Sampling(temperature=0.2)):
        found = case.crossings(sampling)
        assert bool((found.lengths <= found.ceiling * (1 + 1e-12)).all())
        assert float(found.lengths.max()) > 0
    two = case.crossings(Sampling(top_k=2))
    top = state_logits(case.model, case.batch).topk(2)
    at_two = case.model.get_input_embeddings()(top.indices) @ case.credit.embeddings[..., None]
    apart = (at_two[..., 0, 0] - at_two[..., 1, 0]).abs() / 2**0.5
    expected = torch.where(case.batch.valid, spectral_ceiling(top.values.softmax(-1)) * apart, 0.0)
    torch.testing.assert_close(two.ceiling, expected)


def test_the_textbook_form_holds_where_paths_skip_no_step(generator: torch.Generator) -> None:
    """A controlled system: what is missing without the policy's response comes through every state in between."""
    system = DoubleWell()
    policy = ShiftPolicy(torch.nn.Linear(1, 1), noise="gaussian", scale=0.3).double()
    start, noise = (
        torch.randn(64, 1, generator=generator).double(),
        torch.randn(64, 12, 1, generator=generator).double(),
    )
    at = local_derivatives(system, policy, rollout(system, policy, start, 0.3 * noise))
    gamma = system.gamma
    whole = costate_recursion(
        closed_loop(at.reward_state[:, :, None], at.reward_action[:, :, None], at.mean_state)[:, :, 0],
        closed_loop(at.dynamics_state, at.dynamics_action, at.mean_state),
        gamma=gamma,
    )
    held = costate_recursion(at.reward_state, at.dynamics_state, gamma=gamma)
    through = at.reward_action + gamma * torch.einsum("btsa,bts->bta", at.dynamics_action, whole[:, 1:])
    pushes = torch.einsum("btas,bta->bts", at.mean_state, through).norm(dim=-1)
    rho = gamma * torch.linalg.matrix_norm(at.dynamics_state, ord=2).amax(1)
    error = (whole - held)[:, :-1].norm(dim=-1)
    rounding = (
        1e-12 * whole.abs().max()
    )  # the error is a difference of costates, and at the last step it is the bound
    assert bool((error <= one_step_bound(pushes, rho) + rounding).all())
    assert not bool((error <= one_step_bound(pushes, 0.5 * rho)).all())
