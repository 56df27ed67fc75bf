"""A question of a ranking is asked of texts and rollouts that the checkpoint was not trained on."""

from typing import Any

import pytest
import torch

from valuelens.analyses.impact import _parts
from valuelens.analyses.impact._parts import _HELD_OUT_SEED, _HELD_OUT_TEXTS
from valuelens.models.lm import LMCorpusConfig, pretraining_task


def first(seed: int) -> float:
    return float(torch.rand(1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))


def test_held_out_texts_are_of_no_training() -> None:
    """torch keeps 32 bits of a seed: 2**40 is 0, the first seed that anybody trains with."""
    assert first(_HELD_OUT_SEED) not in [first(seed) for seed in range(100)]
    assert first(2**40) == first(0)


def test_held_out_texts_do_not_repeat_the_first_batches_of_training() -> None:
    task, training = pretraining_task("addition"), torch.Generator().manual_seed(0)
    read = {text for _ in range(10) for text in task.corpus(32, 0.2, training)}
    held_out, other = (
        task.corpus(_HELD_OUT_TEXTS, 0.2, torch.Generator().manual_seed(seed))
        for seed in (_HELD_OUT_SEED, 12345)
    )
    shared, chance = (sum(text in read for text in texts) for texts in (held_out, other))
    assert shared < 2 * chance + 8  # 83 of 256 if they were drawn with the seed of training


@pytest.mark.parametrize(("task", "ends"), [("addition", True), ("label-copy", False)])
def test_held_out_texts_end_as_those_of_training(
    monkeypatch: pytest.MonkeyPatch, copier: Any, task: str, *, ends: bool
) -> None:
    asked: list[tuple[int, bool]] = []

    def loss(model: object, texts: list[str], *, ends: bool) -> float:
        asked.append((len(texts), ends))
        return 0.5

    monkeypatch.setattr(_parts, "held_out_loss", loss)
    corpus = LMCorpusConfig(task=task, shuffled=0.2).resolved().model_dump(mode="json")
    assert _parts._held_out_loss(copier.model, corpus) == 0.5
    assert asked == [(_HELD_OUT_TEXTS, ends)]
