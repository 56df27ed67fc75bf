"""Shares of hops add up, and stand for gradients: against sums over hops by hand."""

from typing import Any

import pytest
import torch

from valuelens.analyses import CostateConfig, Result, costates
from valuelens.models import InputError
from valuelens.probe import Relaxation, TargetProbability, hop_batches, sequences

ALL = CostateConfig(objective="reward", layers=("0", "L//2", "L"), tolerance=0.0, micro_batch=5)


@pytest.fixture(scope="module")
def result(copier: Any) -> Result:
    return costates(copier.model, copier.sample(), ALL, task=copier.task)


def test_findings_are_ratios_of_the_sums_over_hops(copier: Any, result: Result) -> None:
    rollouts = copier.sample()
    batch = sequences(rollouts.prompt_ids, rollouts.completion_ids)
    objective = TargetProbability(targets=torch.tensor(rollouts.targets))
    (found,) = hop_batches(
        copier.model.model,
        batch,
        objective,
        layers=[0, 2, 4],
        relaxation=Relaxation(tolerance=0.0),
        micro_batch=32,
    )
    values = found.values.double().movedim(2, 0)
    for layer, hops in zip((0, 2, 4), values, strict=True):
        total = hops.sum(1)
        for hop in range(2):
            share = (hops[:, hop] * total).sum() / total.square().sum()
            (finding,) = result.find("hop_share", layer=layer, hop=hop)
            assert finding.estimate == pytest.approx(float(share), rel=1e-4)
        (gap,) = result.find("gap_relaxed", layer=layer)
        assert gap.estimate == pytest.approx(
            float((total - hops[:, 0]).norm() / total.norm()), rel=1e-4, abs=1e-6
        )
        (cosine,) = result.find("cosine", layer=layer, against="relaxed")
        expected = torch.cosine_similarity(hops[:, 0].flatten(), total.flatten(), dim=0)
        assert cosine.estimate == pytest.approx(float(expected), rel=1e-5)


def test_shares_add_up_and_nothing_remains_after_all_hops(result: Result) -> None:
    for layer in (0, 2, 4):
        shares = [each.estimate for each in result.find("hop_share", layer=layer)]
        assert len(shares) == 2  # two tokens: the last one carries no credit of logits
        assert sum(shares) == pytest.approx(1)  # type: ignore[arg-type]
        assert result.find("remainder", layer=layer)[0].estimate == 0
    table = result.tables["hops"]
    for _, part in table[table.state == 0].groupby("layer"):
        assert part.share.sum() == pytest.approx(1)
    assert result.find("gap_relaxed", layer=0)[0].estimate > 0.01  # type: ignore[operator]
    assert "of the relaxed sum over hops at layer 0" in result.verdict


def test_hops_cut_short_say_what_is_left(copier: Any) -> None:
    config = CostateConfig(objective="reward", layers=("0",), max_hops=0)
    result = costates(copier.model, copier.sample(), config)
    (share,), (remainder,) = result.find("hop_share"), result.find("remainder")
    assert share.estimate == pytest.approx(1)
    assert remainder.estimate is None
    assert remainder.reasons["estimate"] == "too few hops to tell what is left"


def test_the_surrogate_has_no_hops(copier: Any) -> None:
    result = costates(copier.model, copier.sample(), CostateConfig())
    assert not result.find("hop_share")
    assert "hops" not in result.tables


@pytest.mark.parametrize(("field", "option"), [("max_hops", "--max-hops"), ("tolerance", "--tolerance")])
def test_what_cannot_be_followed_is_refused(field: str, option: str) -> None:
    with pytest.raises(InputError, match=f"{option} must be at least 0; found -1"):
        CostateConfig(**{field: -1})
