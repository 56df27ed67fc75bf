"""A ranking of checkpoints as its figures and tables need it: one row a checkpoint, in the order of pretraining."""

import math
from collections.abc import Sequence
from typing import Any, TypeGuard

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from valuelens.analyses._result import Finding, Result
from valuelens.analyses.report._numbers import readable
from valuelens.analyses.report._predictors import RECOMMENDS, TARGETS, checkpoint_name

DRAWN = 8
"""Series that a figure has room for; of more, the first so many are drawn, and tables have them all."""

_OVER_SEEDS = ("gain", "gain_cut", "final_reward")
_NAMED = 7
"""Names that an axis has room for."""


def series_names(result: Result) -> list[str]:
    """The series of a ranking, in order.

    Args:
        result: Of kind `impact`.
    """
    return [str(name) for name in result.tables["scores"]["series"].drop_duplicates()]


def drawn_series(result: Result) -> list[str]:
    """Those that figures show.

    Args:
        result: Of kind `impact`.
    """
    return series_names(result)[:DRAWN]


def has_gains(result: Result) -> bool:
    """Whether any gain was realised.

    Args:
        result: Of kind `impact`.
    """
    return any(is_number(f.estimate) for f in result.find("gain"))


def checkpoints(result: Result, series: str) -> pd.DataFrame:
    """Scores, gains and intervals of a series, a row a checkpoint, by step where steps are known.

    Added to the columns of `scores`: `place` on the axis, `stepped` if that is a step, `name` to print, `gain`,
    `gain_cut`, ... each with `_low` and `_high`, and whether it is recommended: `best_for_gain`,
    `best_for_final_reward`. NaN where a number is not there.

    Args:
        result: Of kind `impact`.
        series: One of `series_names`.
    """
    scores = result.tables["scores"]
    table = scores[scores["series"].astype(str) == series].reset_index(drop=True)
    table["checkpoint"] = table["checkpoint"].astype(str)
    steps = pd.to_numeric(table["step"], errors="coerce")
    stepped = bool(steps.notna().all() and steps.is_unique)
    if stepped:
        table = table.assign(step=steps).sort_values("step").reset_index(drop=True)
        table["place"] = table["step"].astype(float)
    else:
        table["place"] = [float(k + 1) for k in range(len(table))]
    table["stepped"] = stepped
    table["name"] = [checkpoint_name(label) for label in table["checkpoint"]]
    for name in _OVER_SEEDS:
        mine = _by_checkpoint(result, name, series, table["checkpoint"].tolist())
        table[name] = [_number(f) for f in mine]
        table[f"{name}_low"], table[f"{name}_high"] = zip(*(_ends(f) for f in mine), strict=True)
    for target in TARGETS:
        table[f"best_for_{target}"] = table["checkpoint"] == recommended(result, series, target)
    return table


def recommended(result: Result, series: str, target: str = "gain") -> str:
    """The checkpoint of a series that the score recommends; empty where there is none.

    Args:
        result: Of kind `impact`.
        series: One of `series_names`.
        target: For the most `gain`, or the most `final_reward`.
    """
    found = [f.estimate for f in result.find("recommended", **_by(target)) if of_series(f, series)]
    return found[0] if found and isinstance(found[0], str) else ""


def largest(table: pd.DataFrame, column: str) -> dict[str, Any] | None:
    """The row with the largest number in a column, the earliest of equals; none if there is no number.

    Args:
        table: Of `checkpoints`.
        column: Which.
    """
    rows = [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]
    return max(
        (row for row in rows if is_number(row[column])), key=lambda row: float(row[column]), default=None
    )


def pretraining_axis(ax: Axes, table: pd.DataFrame) -> None:
    """The x axis of checkpoints: logarithmic in steps where these are known, else their order by name.

    Args:
        ax: Whose axis.
        table: Of `checkpoints`.
    """
    ax.xaxis.set_minor_locator(NullLocator())
    places = table["place"].tolist()
    names = dict(zip(places, table["name"].tolist(), strict=True))
    ax.fmt_xdata = lambda x: names[min(names, key=lambda place: abs(place - x))]  # marks may be set beside
    if not table["stepped"].all():
        shown = _few(range(len(places)))
        tilt: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
        ax.set_xticks([places[k] for k in shown], [table["name"][k] for k in shown], **tilt)
        ax.set(xlabel="checkpoint, in order", xlim=(0.5, len(places) + 0.5))
        return
    positive = [place for place in places if place > 0]
    if positive and max(positive) > 3 * min(positive):
        least = min(positive)
        if min(places) > 0:
            ax.set_xscale("log")
        else:
            ax.set_xscale("symlog", linthresh=least, linscale=0.4)
    ax.xaxis.set_major_locator(FixedLocator([places[k] for k in _few(range(len(places)))]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _step(x)))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("pretraining step")


def is_number(estimate: object) -> TypeGuard[float]:
    """Whether an estimate is a finite number.

    Args:
        estimate: Of a finding.
    """
    return isinstance(estimate, int | float) and not isinstance(estimate, bool) and math.isfinite(estimate)


def _few(places: Sequence[int]) -> list[int]:
    count = len(places)
    step = max(1, math.ceil((count - 1) / (_NAMED - 1)))
    return sorted({count - 1 - k * step for k in range(_NAMED) if k * step < count})


def _step(x: float) -> str:
    return f"{x / 1000:g}k" if x >= 10_000 and x % 100 == 0 else readable(round(x))


def _by(target: str) -> dict[str, str]:
    return {"predictor": RECOMMENDS[target], "target": target}


def _by_checkpoint(result: Result, name: str, series: str, labels: list[str]) -> list[Finding | None]:
    """Of several recipes the first found, which is the main one."""
    found: dict[str, Finding] = {}
    for finding in result.find(name):
        if of_series(finding, series):
            found.setdefault(str(finding.index.get("checkpoint")), finding)
    return [found.get(label) for label in labels]


def of_series(finding: Finding, series: str) -> bool:
    """Whether a finding is of this series: it is named, or it is the only one.

    Args:
        finding: Of a ranking.
        series: One of `series_names`.
    """
    return str(finding.index.get("series", series)) == series


def _number(finding: Finding | None) -> float:
    return float(finding.estimate) if finding and is_number(finding.estimate) else math.nan


def _ends(finding: Finding | None) -> tuple[float, float]:
    return finding.interval if finding and finding.interval else (math.nan, math.nan)
