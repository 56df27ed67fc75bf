"""Tightness of the bound, correlation of gap and entropy, and paths between states, end to end on small models."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch

from valuelens.analyses import Finding, Result, _entropy_bound
from valuelens.analyses._costate_measures import Request
from valuelens.analyses._entropy_bound import entropy_bound
from valuelens.models import InputError
from valuelens.probe import (
    PowerIteration,
    Relaxation,
    Sampling,
    Surrogate,
    TargetProbability,
    crossings,
    dense_jacobians,
    hop_batches,
    relaxed_credit,
    sequences,
)

SAMPLING = Sampling(temperature=0.8)
ALL_HOPS = Relaxation(sampling=SAMPLING, max_hops=9, tolerance=0.0)
GROUPS, EACH = 5, 3
CHOSEN = [row for row in range(GROUPS * EACH) if row % EACH < 2 and row != 3]
"""The first two rollouts of each group; of the second group the second and third, as the first is empty."""
CHOSEN = sorted([*CHOSEN, 5])


@pytest.fixture(scope="module")
def asked(tiny_language_model: Callable[..., Any]) -> Request:
    """Groups of three rollouts of unequal length, one of them empty."""
    generator = torch.Generator().manual_seed(4)
    group = [row // EACH for row in range(GROUPS * EACH)]
    prompts = [torch.randint(5, (2 + each % 2,), generator=generator).tolist() for each in group]
    lengths = [0 if row == 3 else 4 + row % 2 for row in range(len(group))]
    completions = [torch.randint(5, (length,), generator=generator).tolist() for length in lengths]
    return Request(
        language_model=tiny_language_model("llama"),
        batch=sequences(prompts, completions),
        group=group,
        objective=TargetProbability(
            targets=torch.randint(5, (15, 5), generator=generator), sampling=SAMPLING
        ),
        scale=torch.ones(len(group)),
        layers=(0, 2, 4),
        positions="completion",
        micro_batch=4,
    )


@pytest.fixture(scope="module")
def result(asked: Request) -> Result:
    return entropy_bound(asked, ALL_HOPS)


def one(result: Result, name: str, **index: int | str) -> Finding:
    (finding,) = result.find(name, **index)
    return finding


def test_every_layer_before_the_last_norm_has_every_finding(result: Result) -> None:
    result.summary()  # fits the schema
    for layer in (0, 2):
        for form in ("step", "entropy"):
            found = one(result, "bound_tightness", layer=layer, form=form, objective="reward")
            assert found.control is not None
            assert found.control.estimate == 0
            assert found.interval is not None
            assert 0 < found.interval[0] <= found.estimate <= found.interval[1] < 1  # type: ignore[operator]
        step, entropy = (
            one(result, "bound_tightness", layer=layer, form=form) for form in ("step", "entropy")
        )
        assert entropy.estimate < step.estimate  # type: ignore[operator]
        for through in ("attention", "sampling"):
            assert one(result, "jacobian_norm", layer=layer, form=through).estimate > 0  # type: ignore[operator]
        assert 0 < one(result, "path_cosine", layer=layer).estimate < 1  # type: ignore[operator]
        assert -1 < one(result, "entropy_correlation", layer=layer).estimate < 1  # type: ignore[operator]
    assert {each.index["layer"] for each in result.findings} == {0, 2}
    assert sorted(set(result.tables["bounds"].row)) == list(range(len(CHOSEN)))


def test_the_states_are_those_of_the_first_rollouts(asked: Request, result: Result) -> None:
    """Gap and tightness of a rollout from the parts, by itself."""
    for row, original in ((0, 0), (2, 4), (5, 7)):
        objective = asked.objective.rows(original, original + 1)
        single = asked.batch.rows(original, original + 1)
        model = asked.language_model.model
        (hops,) = hop_batches(model, single, objective, layers=[2], relaxation=ALL_HOPS)
        credit = relaxed_credit(hops, single)
        error = (credit.relaxed - credit.empirical)[0, 0].double().norm(dim=-1)
        norms = torch.linalg.matrix_norm(dense_jacobians(model, single, layers=[2])[0, 0].double(), ord=2)
        lengths = crossings(model, single, credit.embeddings, SAMPLING).lengths[0].double()
        table = result.tables["bounds"]
        mine = table[(table.row == row) & (table.layer == 2)].sort_values("state")
        assert mine.group.tolist() == [original // EACH] * len(error)
        gap = error / credit.relaxed[0, 0].double().norm(dim=-1)
        torch.testing.assert_close(torch.tensor(mine.gap.to_numpy()), gap, rtol=1e-3, atol=1e-6)
        tightness = torch.tensor(mine.step_tightness.to_numpy())
        torch.testing.assert_close(tightness[:-1], (error / (lengths @ norms))[:-1], rtol=1e-3, atol=1e-6)
        assert bool(tightness[-1].isnan())


@pytest.mark.slow
def test_a_violation_would_be_counted(asked: Request) -> None:
    """Planted: tokens drawn at a tenth of the temperature that the bound is told."""
    planted = Relaxation(sampling=Sampling(temperature=0.08), max_hops=9, tolerance=0.0)
    hot = _entropy_bound.crossings
    try:
        _entropy_bound.crossings = lambda *given: hot(*given[:-1], SAMPLING)  # type: ignore[assignment]
        found = entropy_bound(asked, planted)
    finally:
        _entropy_bound.crossings = hot
    control = one(found, "bound_tightness", layer=2, form="step").control
    assert control is not None
    assert control.estimate > 0  # type: ignore[operator]


@pytest.mark.slow
def test_a_wide_model_is_followed_from_few_states(
    asked: Request, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it were wide: what is found there is what the whole Jacobians give."""
    monkeypatch.setattr(_entropy_bound, "DENSE_WIDTH", 8)
    monkeypatch.setattr(
        _entropy_bound, "_ROUGH", PowerIteration(iterations=60, tolerance=1e-5, micro_batch=8)
    )
    monkeypatch.setattr(_entropy_bound, "_AHEAD", 2)
    seen: list[tuple[str, int, int]] = []
    found = entropy_bound(asked, ALL_HOPS, progress=lambda *done: seen.append(done))
    assert seen == [("entropy bound", done, 10) for done in (4, 8, 10)]
    table, whole = found.tables["bounds"], result.tables["bounds"]
    known = table.step_tightness.notna()
    assert table[known].groupby("layer").size().to_dict() == {2: 4}
    pd.testing.assert_series_equal(
        table[known].step_tightness, whole[known].step_tightness, rtol=1e-3, check_names=False
    )
    pd.testing.assert_series_equal(table.gap, whole.gap, rtol=1e-4)
    assert one(found, "bound_tightness", layer=0, form="step").estimate is None
    assert "lower bounds" in str(one(found, "bound_tightness", layer=2, form="step").control)
    assert {(each.source, each.layer) for each in found.tables["paths"].itertuples()} <= {(1, 2), (2, 2)}


def test_progress_and_what_cannot_be_asked(asked: Request) -> None:
    behind = entropy_bound(replace(asked, layers=(4,)))
    assert behind.findings == ()
    assert [each["why"] for each in behind.skipped] == ["behind the last block no path joins two states"]
    surrogate = Surrogate(weights=torch.ones(15, 5))
    with pytest.raises(InputError, match="one of a differentiable reward; found Surrogate; objective"):
        entropy_bound(replace(asked, objective=surrogate))
