"""Is the score any good: every predictor of gain against what RL gained, over the whole series, in one table."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from valuelens.analyses.impact._choices import choices
from valuelens.analyses.impact._correlations import correlations
from valuelens.analyses.impact._outcomes import OUTCOMES, in_order, joined_gains, outcomes, panels, recipes
from valuelens.analyses.impact._predictions import PREDICTIONS, errors, predictions
from valuelens.analyses.impact._rows import JUDGEMENT
from valuelens.analyses.impact._tables import empty

TARGETS = ("gain", "final_reward")


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """What realised gains say of the scores.

    Attributes:
        table: Columns JUDGEMENT.
        predictions: Columns PREDICTIONS.
        outcomes: Columns OUTCOMES: means over RL seeds.
        recipes: Of RL, the main one first; empty without gains.
        best_rivals: By recipe and target, the rival with the largest pooled correlation, where there is one.
    """

    table: pd.DataFrame
    predictions: pd.DataFrame
    outcomes: pd.DataFrame
    recipes: tuple[str, ...]
    best_rivals: Mapping[tuple[str, str], str]


def judgement(scores: pd.DataFrame, gains: pd.DataFrame, *, seed: int = 0) -> Judgement:
    """Compare every predictor with every target, for each recipe.

    The primary comparison, fixed in advance, is that of `impact` and the best rival by their pooled correlation with
    gain under the main recipe; everything else is exploratory.

    Args:
        scores: Table of scores (columns SCORES) of one or several series.
        gains: Table of gains (columns GAINS); it may be empty.
        seed: Of the resampling.

    Raises:
        InputError: Gains are of no scored checkpoint, or it is not clear of which.
    """
    scores = in_order(scores)
    if gains.empty:
        return _nothing()
    runs = joined_gains(scores, gains)
    gained = outcomes(scores, runs)
    rows: list[dict[str, Any]] = []
    foretold: list[pd.DataFrame] = []
    best: dict[tuple[str, str], str] = {}
    for recipe in recipes(runs):
        found = panels(scores, runs, gained, recipe)
        if not found:  # credit was cut in all of its runs
            continue
        for target in TARGETS:
            correlated = correlations(found, target, recipe, main=recipe == recipes(runs)[0], seed=seed)
            rows += correlated.rows
            if correlated.best_rival is not None:
                best[recipe, target] = correlated.best_rival
        foretold.append(predictions(found, recipe))
        rows += errors(foretold[-1], found, seed=seed)
        rows += [each for target in TARGETS for each in choices(found, target, recipe, seed=seed)]
    return Judgement(
        table=pd.DataFrame(rows, columns=list(JUDGEMENT)),
        predictions=pd.concat(foretold, ignore_index=True) if foretold else empty(PREDICTIONS),
        outcomes=gained,
        recipes=tuple(recipes(runs)),
        best_rivals=best,
    )


def _nothing() -> Judgement:
    table, foretold, gained = (empty(columns) for columns in (JUDGEMENT, PREDICTIONS, OUTCOMES))
    return Judgement(table=table, predictions=foretold, outcomes=gained, recipes=(), best_rivals={})
