"""Do predictors rank the checkpoints of a series as RL does, and does a score do it better than the best rival?

Shape legend: `predictor`, `series`, `resample`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from valuelens.analyses.impact._outcomes import Panel
from valuelens.analyses.impact._predictors import PRIMARY, rivals
from valuelens.analyses.impact._rows import NO_SPREAD, POOLED, Resampling, interval_of, row, too_few
from valuelens.probe import partial_rank_correlations, rank_correlations

_Floats = NDArray[np.float64]
_Rows = list[dict[str, Any]]

MISSING = "not known at every checkpoint"
CONSTANT = "it is the same at all checkpoints"
EXPLAINED = "R_0 leaves nothing of its ranks, or of the target's, to be explained"
NO_SERIES = "no series can be correlated"


@dataclass(frozen=True, kw_only=True, slots=True)
class Correlations:
    """Rank correlations of predictors with one target of one recipe.

    Attributes:
        rows: Of the table of judgements.
        best_rival: Rival with the largest pooled correlation; none where nothing was correlated.
    """

    rows: _Rows
    best_rival: str | None


def correlations(found: Sequence[Panel], target: str, recipe: str, *, main: bool, seed: int) -> Correlations:
    """Spearman's correlation, the partial one given R_0, and differences to rivals, within series and pooled.

    Pooled is the mean over series of the correlation within a series, so that differences between series count for
    nothing. A predictor that does not vary within a series ranks nothing there and counts 0 in that mean, as does a
    resample in which one of the two does not vary (our definitions). Gains are means over RL seeds: their noise lowers
    every correlation, and no interval holds it apart.

    Args:
        found: The series.
        target: `gain` or `final_reward`.
        recipe: Of RL.
        main: Whether the recipe is the main one, whose gain is the primary target.
        seed: Of the resampling.
    """
    names = list(dict.fromkeys(str(name) for panel in found for name in panel.x[target]))
    usable = [panel for panel in found if not _unusable(panel, target)]
    drawn = Resampling([len(panel.table) for panel in usable], seed)
    cells = {"target": target, "recipe": recipe}
    rows: _Rows = [
        row(statistic, name, panel.series, n=len(panel.table), reason=_unusable(panel, target), **cells)
        for statistic in _MEASURES
        for panel in found
        if _unusable(panel, target)
        for name in names
    ]
    plain, given = (_Ranked(usable, names, target, drawn, measure) for measure in _MEASURES.values())
    best = plain.best(rivals(names))
    why = "; ".join(dict.fromkeys(_unusable(panel, target) for panel in found)) or NO_SERIES
    for statistic, ranked in (("spearman", plain), ("spearman_partial", given)):
        rows += [{**each, **cells} for each in ranked.within(statistic)]
        for each in ranked.pooled(statistic, "" if usable else why):
            primary = main and target == "gain" and (statistic, each["predictor"]) == ("spearman", PRIMARY)
            rows.append({**each, **cells, "primary": primary})
    for each in plain.differences(rivals(names), best):
        primary = main and target == "gain" and each["rival"] == best and each["predictor"] == PRIMARY
        rows.append({**each, **cells, "primary": primary and each["statistic"] == "spearman_difference"})
    return Correlations(rows=rows, best_rival=best)


def _unusable(panel: Panel, target: str) -> str:
    values = panel.table[target].to_numpy(dtype=float)
    same = "" if np.ptp(values) > 0 else f"{target.replace('_', ' ')} is the same at all checkpoints"
    return too_few(len(values)) or same


_Measure = Callable[[_Floats, _Floats, _Floats, _Floats], _Floats]


def _given_nothing(x: _Floats, y: _Floats, reward: _Floats, times: _Floats) -> _Floats:
    return rank_correlations(x, y, times)


def _given_reward(x: _Floats, y: _Floats, reward: _Floats, times: _Floats) -> _Floats:
    return partial_rank_correlations(x, y, reward, times)


_MEASURES: dict[str, _Measure] = {"spearman": _given_nothing, "spearman_partial": _given_reward}


class _Ranked:
    """Correlations of every predictor within every series that can be correlated, and in every resample."""

    def __init__(
        self, usable: list[Panel], names: list[str], target: str, drawn: Resampling, measure: _Measure
    ) -> None:
        self.names, self.drawn, self.series = names, drawn, [panel.series for panel in usable]
        shape = (len(names), len(usable))
        self.estimate, self.reason = np.full(shape, np.nan), np.full(shape, "", dtype=object)
        self.blocks: list[_Floats] = []
        self.naive: list[_Floats] = []
        for place, panel in enumerate(usable):
            x = panel.x[target].reindex(columns=names).to_numpy(dtype=np.float64).T
            y, reward = (panel.table[name].to_numpy(dtype=np.float64) for name in (target, "reward"))
            missing = ~np.isfinite(x).all(-1)
            x = np.where(missing[:, None], 0.0, x)
            estimate = measure(x, y, reward, np.ones((1, len(y))))[:, 0]
            self.reason[:, place] = np.select(
                [missing, np.ptp(x, axis=-1) == 0, ~np.isfinite(estimate)], [MISSING, CONSTANT, EXPLAINED], ""
            )
            self.estimate[:, place] = np.where(missing, np.nan, np.nan_to_num(estimate))
            self.blocks.append(np.nan_to_num(measure(x, y, reward, drawn.blocks[place])))
            self.naive.append(np.nan_to_num(measure(x, y, reward, drawn.naive[place])))
        self.mean = self.estimate.mean(-1) if usable else np.full(len(names), np.nan)
        self.said = [self._why(place) for place in range(len(names))]
        self.draws = drawn.pooled(np.nan_to_num(self.estimate), self.blocks)
        self.naive_draws = np.mean(self.naive, axis=0) if usable else None

    def _why(self, place: int) -> str:
        """Why a predictor has no pooled correlation: it is missing somewhere, or says nothing anywhere."""
        reasons = list(self.reason[place])
        return MISSING if MISSING in reasons else str(reasons[0]) if reasons and all(reasons) else ""

    def best(self, among: list[str]) -> str | None:
        """The one with the largest pooled correlation; the first of equals."""
        known = [name for name in among if self.series and not self.said[self.names.index(name)]]
        return max(known, key=lambda name: float(self.mean[self.names.index(name)]), default=None)

    def within(self, statistic: str) -> _Rows:
        rows = []
        for column, series in enumerate(self.series):
            sizes = self.drawn.sizes[column], self.drawn.block_units[column]
            for place, name in enumerate(self.names):
                why = str(self.reason[place, column])
                limits = {} if why else _limits(self.blocks[column][place], self.naive[column][place], sizes)
                estimate = np.nan if why else self.estimate[place, column]
                rows.append(
                    row(statistic, name, series, estimate=estimate, n=sizes[0], **{"reason": why, **limits})
                )
        return rows

    def pooled(self, statistic: str, nothing: str) -> _Rows:
        rows, n = [], sum(self.drawn.sizes)
        for place, name in enumerate(self.names):
            why = nothing or self.said[place]
            limits = {} if why else self._pooled_limits(partial(np.take, indices=place, axis=0))
            estimate = np.nan if why else self.mean[place]
            rows.append(row(statistic, name, POOLED, estimate=estimate, n=n, **{"reason": why, **limits}))
        return rows

    def differences(self, rival_names: list[str], best: str | None) -> _Rows:
        """Of each other predictor to the best rival, chosen once or in each resample, and of the primary one to all."""
        known = [place for place, name in enumerate(self.names) if self.series and not self.said[place]]
        among = [place for place in known if self.names[place] in rival_names]
        rows: _Rows = []
        if best is None:
            return rows
        top = self.names.index(best)
        for place in known:
            name = self.names[place]
            if name in rival_names:
                continue
            for other in among if name == PRIMARY else [top]:
                rows.append(self._difference("spearman_difference", place, other, [other]))
            rows.append(self._difference("spearman_difference_rechosen", place, top, among))
        return rows

    def _difference(self, statistic: str, place: int, other: int, among: list[int]) -> dict[str, Any]:
        return row(
            statistic,
            self.names[place],
            POOLED,
            rival=self.names[other],
            estimate=self.mean[place] - self.mean[other],
            n=sum(self.drawn.sizes),
            **self._pooled_limits(lambda draws: draws[place] - draws[among].max(0)),
        )

    def _pooled_limits(self, of: Callable[[_Floats], _Floats]) -> dict[str, Any]:
        naive = np.empty((len(self.names), 0)) if self.naive_draws is None else self.naive_draws
        return _limits(of(self.draws), of(naive), (sum(self.drawn.sizes), self.drawn.units))


def _limits(draws: _Floats, naive: _Floats, units: tuple[int, int]) -> dict[str, Any]:
    """Limits with checkpoints (naive) and with what is independent as the unit."""
    interval = interval_of(draws, units[1])
    return {
        "interval": interval,
        "naive": interval_of(naive, units[0]),
        "reason": "" if interval else NO_SPREAD,
    }
