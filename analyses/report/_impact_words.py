"""What the figures of a ranking show, in sentences: for those who cannot see them, and above the numbers."""

import pandas as pd

from valuelens.analyses._result import Result
from valuelens.analyses.report._learning_figures import learning_panels, learning_series, mean_curves
from valuelens.analyses.report._numbers import interval_words, readable
from valuelens.analyses.report._prediction_figures import (
    best_rival,
    correlation_words,
    correlations,
    forest_rows,
)
from valuelens.analyses.report._predictors import OURS, checkpoint_words, isolated, predictor_name
from valuelens.analyses.report._ranking import (
    checkpoints,
    drawn_series,
    is_number,
    largest,
    of_series,
    series_names,
)

_FLAT = 0.5


def arc_words(result: Result, series: str) -> str:
    """Where signal, headroom, their product and the gain are largest, in a sentence.

    Args:
        result: Of kind `impact`.
        series: One of `series_names`.
    """
    table = checkpoints(result, series)
    parts = {"signal": "signal", "headroom": "headroom", "signal x headroom": "impact"}
    tops = [f"{name} at {where}" for name, column in parts.items() if (where := _where(table, column))]
    told = f"Over {len(table)} checkpoints the largest is: {', '.join(tops)}." if tops else _all_alike(table)
    return f"{_of(result, series)}{told}{_gain_words(table)}"


def flat_words(result: Result, series: str) -> str:
    """How many groups teach nothing over a series, and at which checkpoints RL has little or nothing to learn from.

    Args:
        result: Of kind `impact`.
        series: One of `series_names`.
    """
    table = checkpoints(result, series)
    share = table["frac_reward_zero_std"].astype(float)
    if share.isna().all():
        return f"{_of(result, series)}How many groups have equal rewards is not known."
    low, high = float(share.min()), float(share.max())
    span = readable(low) if low == high else f"from {readable(low)} to {readable(high)}"
    told = f"{_of(result, series)}The share of groups whose rewards are all equal is {span} over the checkpoints."
    return told + _where_flat(table)


def prediction_words(result: Result, series: str) -> str:
    """The correlations that stand above the panels of a series.

    Args:
        result: With the table `predictions`.
        series: One of `series_names`.
    """
    names = (OURS, best_rival(result))
    told = [f"{predictor_name(name)}: {correlation_words(result, series, name)}" for name in names]
    return f"{_of(result, series)}{'; '.join(told)}."


def forest_words(result: Result) -> str:
    """Which predictor correlates most with the gain, how the score does, and how many are compared.

    Args:
        result: With the table `judgement`.
    """
    judged = correlations(result, "gain")
    pooled = judged[judged["series"] == "pooled"].dropna(subset=["estimate"])
    pooled = pooled[pooled["predictor"].isin(forest_rows(result))]
    told = f"{len(forest_rows(result))} predictors, each with its correlation pooled over the series."
    if pooled.empty:
        return told
    best = str(pooled["predictor"].iloc[int(pooled["estimate"].astype(float).argmax())])
    ours = [OURS] if OURS in set(pooled["predictor"]) and best != OURS else []
    said = [_correlation(pooled[pooled["predictor"] == name].iloc[0]) for name in (best, *ours)]
    beside = f"; {said[1]}" if ours else ""
    return f"Most correlated with the realised gain is {said[0]}{beside}. {told}"


def _correlation(row: pd.Series) -> str:
    low, high = float(row["low"]), float(row["high"])
    between = f" (95 %: {interval_words(low, high)})" if low == low else " (no interval)"
    return f"{predictor_name(str(row['predictor']))}, {readable(float(row['estimate']))}{between}"


def remark_words(result: Result) -> list[str]:
    """What is to be said of single checkpoints.

    Args:
        result: Of kind `impact`.
    """
    found = [f for f in result.find("diagnosis") if isinstance(f.estimate, str)]
    places = [
        (str(f.index["series"]) if "series" in f.index else "", str(f.index.get("checkpoint", "")))
        for f in found
    ]
    named = [
        " of ".join(filter(None, (checkpoint_words(label), isolated(series)))) for series, label in places
    ]
    return [f"{place}: {f.estimate}" for place, f in zip(named, found, strict=True)]


def rival_words(result: Result) -> list[str]:
    """Whether the score ranks better than the best rival, as far as the interval of the difference allows.

    Args:
        result: Of kind `impact`.
    """
    found = result.find("spearman_difference", predictor=OURS, target="gain", chosen="once")
    if not found or not is_number(found[0].estimate):
        return []
    rival = predictor_name(str(found[0].index.get("rival")))
    if found[0].interval is None:
        return [
            f"Whether the score ranks better than its best rival, {rival}, has no interval: do not rely on it."
        ]
    low, high = found[0].interval
    if low <= 0 <= high:
        return [
            f"Whether the score ranks better than its best rival, {rival}, cannot be told: the interval of the "
            "difference holds 0."
        ]
    better = "better" if low > 0 else "worse"
    return [f"The score ranks these checkpoints {better} than its best rival, {rival}."]


def learning_words(result: Result) -> str:
    """Where the mean reward of the drawn RL runs starts and ends.

    Args:
        result: With the table `curves`.
    """
    told = []
    for series in learning_series(result)[:3]:
        label, why = learning_panels(result, series)[0]
        ends = [
            f"from {readable(float(mean.iloc[0]))} to {readable(float(mean.iloc[-1]))} with {kind}"
            for kind, mean in mean_curves(result, series, label).items()
        ]
        told.append(
            f"{_of(result, series)}From {checkpoint_words(label)} ({' and '.join(why)}) reward goes {', '.join(ends)}."
        )
    return " ".join(told)


def credit_words(result: Result, series: str) -> str:
    """At how many checkpoints credit through time adds to the gain beyond its interval; empty where it was not cut.

    Args:
        result: Of kind `impact`.
        series: One of `series_names`.
    """
    found = [f for f in result.find("credit_gain") if of_series(f, series) and is_number(f.estimate)]
    found = [f for f in found if f.index.get("recipe") == found[0].index.get("recipe")]
    if not found:
        return ""
    known = [f for f in found if f.interval]
    if not known:
        return f"{_of(result, series)}What credit through time adds to the gain has no interval: one RL seed."
    above = [str(f.index["checkpoint"]) for f in known if f.interval and f.interval[0] > 0]
    below = [f for f in known if f.interval and f.interval[1] < 0]
    told = f"Credit through time adds to the gain beyond its 95 % interval at {len(above)} of {len(found)} checkpoints"
    where = f" ({_listed(above)})" if above else ""
    less = f"; at {len(below)} it takes away from it" if below else ""
    return f"{_of(result, series)}{told}{where}{less}."


def all_series(result: Result) -> str:
    """The arcs of the first series, in words.

    Args:
        result: Of kind `impact`.
    """
    return " ".join(arc_words(result, series) for series in drawn_series(result)[:3])


def _of(result: Result, series: str) -> str:
    return f"{isolated(series)}: " if len(series_names(result)) > 1 else ""


def _where(table: pd.DataFrame, column: str) -> str:
    row = largest(table, column)
    return (
        f"{checkpoint_words(row['checkpoint'])} ({readable(row[column])})" if row and row[column] > 0 else ""
    )


def _all_alike(table: pd.DataFrame) -> str:
    return f"At none of {len(table)} checkpoints is there any signal or headroom."


def _gain_words(table: pd.DataFrame) -> str:
    row = largest(table, "gain")
    if row is None:
        return " No gain was realised here, so nothing says whether this is right."
    low, high = row["gain_low"], row["gain_high"]
    between = f", 95 % {interval_words(low, high)}" if low == low else ""
    return f" RL gained most at {checkpoint_words(row['checkpoint'])} ({readable(row['gain'])}{between})."


def _where_flat(table: pd.DataFrame) -> str:
    share = table["frac_reward_zero_std"].astype(float)
    nothing = table.loc[share == 1, "checkpoint"].tolist()
    little = table.loc[(share >= _FLAT) & (share < 1), "checkpoint"].tolist()
    told = f" At {_listed(nothing)} it is all of them: RL from there learns nothing." if nothing else ""
    return told + (
        f" At {_listed(little)} it is half of them or more: most of the batch is wasted." if little else ""
    )


def _listed(labels: list[str]) -> str:
    words = [checkpoint_words(label) for label in labels]
    shown = words if len(words) <= 6 else [*words[:3], f"{len(words) - 4} more", words[-1]]
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
