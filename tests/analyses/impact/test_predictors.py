"""Which predictors there are, how they point, and what they are called."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from valuelens.analyses.impact import RIVALS
from valuelens.analyses.impact._predictors import CLAIMED, of_final_reward, predictors, rivals

Make = Callable[..., Any]


def test_every_variant_is_there_by_name(ranking: Make) -> None:
    scores = ranking([1, 2, 3], [1, 2, 3]).scores
    found = predictors(scores)
    products = [name for name in found if name.startswith("signal_")]
    assert len(products) == 6  # `subtractive` is nowhere a number
    assert "signal_usable x headroom_shortfall" in products
    assert set(found) == {*CLAIMED, *RIVALS, *products}
    np.testing.assert_allclose(
        found["signal_usable x headroom_shortfall"], scores["signal_usable"] * scores["headroom_shortfall"]
    )
    np.testing.assert_allclose(
        found["update_aligned x headroom"], scores["update_aligned"] * scores["headroom"]
    )


def test_only_the_loss_is_turned_round(ranking: Make) -> None:
    scores = ranking([1, 2, 3], [1, 2, 3]).scores
    found = predictors(scores)
    for name in RIVALS:
        np.testing.assert_allclose(found[name], -scores[name] if name == "held_out_loss" else scores[name])


def test_what_is_not_finite_is_missing(ranking: Make) -> None:
    found = predictors(ranking([1, 2, 3], [1, 2, 3], entropy=[1.0, np.inf, 2.0]).scores)
    assert found["entropy"].isna().tolist() == [False, True, False]


def test_final_reward_is_foretold_by_reward_plus_score() -> None:
    table = pd.DataFrame({"impact": [0.1, 0.2], "entropy": [1.0, 2.0]})
    found = of_final_reward(table, pd.Series([0.5, 0.25]))
    assert list(found) == ["reward + impact", "impact", "entropy"]
    assert found["reward + impact"].tolist() == [0.6, 0.45]
    assert rivals(list(found)) == ["entropy"]
