"""Shares of heads that sum to what locality leaves, and an ablation that agrees with them on a trained model."""

from pathlib import Path
from typing import Any

import pytest
import torch

from valuelens.analyses import CostateConfig, Result, costates
from valuelens.analyses._costate_measures import Request
from valuelens.analyses._head_credit import head_credit
from valuelens.probe import Surrogate, TargetProbability, sequences


def request_of(model: Any, rollouts: Any, **changes: Any) -> Request:
    batch = sequences(rollouts.prompt_ids, rollouts.completion_ids)
    fields: dict[str, Any] = {
        "language_model": model,
        "batch": batch,
        "group": rollouts.group,
        "objective": TargetProbability(targets=torch.tensor(rollouts.targets)),
        "scale": torch.ones(len(rollouts)),
        "layers": [0, 2, 4],
        "positions": "completion",
        "micro_batch": 64,
    }
    return Request(**{**fields, **changes})


def found_in(copier: Any, **changes: Any) -> Result:
    rollouts = copier.sample(num_prompts=6, num_generations=4)
    return head_credit(request_of(copier.model, rollouts, **changes), {"objective": "reward"}, seed=1)


@pytest.fixture(scope="module")
def result(copier: Any) -> Result:
    return found_in(copier)


def test_shares_of_heads_are_what_locality_leaves(copier: Any, result: Result) -> None:
    rollouts, table = copier.sample(num_prompts=6, num_generations=4), result.tables["heads"]
    config = CostateConfig(objective="reward", layers=("0", "2"))
    local = costates(copier.model, rollouts, config).find("locality")
    for layer, locality in zip((0, 2), local, strict=True):
        shares = table[table.layer == layer].share
        assert len(shares) == (4 - layer) * 2 * 2
        assert float(shares.sum()) == pytest.approx(1 - float(locality.estimate), abs=1e-5)  # type: ignore[arg-type]


def test_the_largest_are_named_beside_an_even_spread(copier: Any, result: Result) -> None:
    result.summary()  # fits the schema
    for layer in (0, 2):
        table = result.tables["heads"]
        table = table[table.layer == layer].sort_values("share", ascending=False)
        findings = result.find("head_share", layer=layer, objective="reward")
        assert len(findings) == 3
        for finding, (_, row) in zip(findings, table.iterrows(), strict=False):
            assert [finding.index[key] for key in ("block", "head", "path")] == [
                row.block,
                row["head"],
                row.path,
            ]
            assert finding.estimate == pytest.approx(row.share)
            assert finding.control is not None
            assert finding.control.estimate == pytest.approx(table.share.mean())
            assert finding.interval is not None
            assert finding.interval[0] < row.share < finding.interval[1]
    assert found_in(copier, layers=[4]).findings == ()


def test_shares_are_weighed_as_costates_are(copier: Any) -> None:
    """The scale of a rollout multiplies its costates, as a weight in the surrogate would."""
    rollouts = copier.sample(num_prompts=3)
    scale = torch.linspace(-1, 1, len(rollouts))
    weights = torch.ones(len(rollouts), 1).expand(-1, 2)
    plain, weighed = (
        head_credit(
            request_of(copier.model, rollouts, objective=Surrogate(weights=each), scale=by, layers=[0]), {}
        ).tables["heads"]
        for each, by in ((weights, scale), (weights * scale[:, None], torch.ones(len(rollouts))))
    )
    torch.testing.assert_close(
        torch.tensor(plain.share.to_numpy()), torch.tensor(weighed.share.to_numpy()), rtol=1e-4, atol=1e-6
    )


def test_early_states_are_the_first_half(copier: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two states the first one counts: its |lambda|^2, and what is lost of it when every head is cut."""
    from valuelens.analyses import _head_credit
    from valuelens.probe import language_costates, own_token_batches

    monkeypatch.setattr(_head_credit, "_TENTH", 1)  # all heads are the top, no other is left
    rollouts = copier.sample(num_prompts=4, num_generations=4)
    weights = torch.tensor([[1.0, 10.0]]).expand(len(rollouts), 2)
    request = request_of(copier.model, rollouts, layers=[0], objective=Surrogate(weights=weights))
    top, _ = head_credit(request, {}).find("head_ablation", way="credit cut")
    asked = (copier.model.model, request.batch, request.objective)
    whole = language_costates(*asked, layers=[0]).values[:, 0, 0]
    own = torch.cat([each.values for each in own_token_batches(*asked, layers=[0])])[:, 0, 0]
    odd = torch.tensor(rollouts.group) % 2 == 1
    kept = own[odd].square().sum() / whole[odd].square().sum()
    assert top.estimate == pytest.approx(1 - float(kept), abs=1e-5)
    assert top.n == 2
    assert top.control is not None
    assert top.control.estimate == pytest.approx(0, abs=1e-4)


def test_one_group_is_not_split(copier: Any) -> None:
    rollouts = copier.sample(num_prompts=1)
    result = head_credit(request_of(copier.model, rollouts, layers=[0]), {})
    assert len(result.find("head_share")) == 3
    assert result.find("head_share")[0].reasons["interval"].startswith("too few groups")
    assert result.find("head_ablation") == []


@pytest.mark.slow
def test_heads_that_carry_credit_take_it_with_them(tmp_path: Path) -> None:
    """A model that has learned to copy: with its top head cut the prompt loses more than with random ones.

    Heads are chosen on other prompts than they are judged on. To ablate outputs proves nothing here: the copy fails, no
    probability is near 1 any more, and costates grow (sixfold; twentyfold without random heads).
    """
    from valuelens.models.lm import (
        GenerateConfig,
        LabelCopy,
        LMCorpusConfig,
        LMModelConfig,
        LMRunConfig,
        LMTrainConfig,
        generate,
        load_language_model,
        pretrain_lm,
    )

    sizes = {"num_items": 3, "num_labels": 3, "num_pairs": 3}
    config = LMRunConfig(
        corpus=LMCorpusConfig(task="label-copy", shuffled=0.2, sizes=sizes),
        model=LMModelConfig(num_layers=2, d_model=32, num_heads=4),
        train=LMTrainConfig(steps=300, num_checkpoints=2, learning_rate=0.003),
    )
    (last,) = pretrain_lm(config, tmp_path / "series")
    model = load_language_model(last)
    rollouts = generate(model, LabelCopy(**sizes), GenerateConfig(num_prompts=32, num_generations=4))
    request = request_of(model, rollouts, layers=[0], positions="prompt", micro_batch=64)
    result = head_credit(request, {"objective": "reward", "at": "prompt"})
    top, more = result.find("head_ablation", way="credit cut")
    assert top.control is not None
    assert top.estimate > 0.5 > 0.3 > top.control.estimate  # type: ignore[operator]
    assert more.interval is not None
    assert more.interval[0] > 0.2
    share = result.find("head_share")[0]
    assert f"{share.index['block']}.{share.index['head']}" == top.index["heads"]
    assert share.estimate > 2 * share.control.estimate  # type: ignore[operator, union-attr]
