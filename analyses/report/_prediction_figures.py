"""Figures of a ranking against what RL brought: predicted against realised gain, and every predictor's correlation."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import blended_transform_factory

from valuelens.analyses._result import Finding, Result
from valuelens.analyses.impact import RIVALS
from valuelens.analyses.report._hover import known, tell
from valuelens.analyses.report._labels import named_points
from valuelens.analyses.report._numbers import interval_words, readable
from valuelens.analyses.report._predictors import NAMES, OURS, TARGETS, checkpoint_words, predictor_name
from valuelens.analyses.report._ranking import is_number, of_series, recommended
from valuelens.analyses.report._style import BLUE, GREY, INK, ORANGE, SOFT

PUBLISHED = {"gain": (0.60,), "final_reward": (0.73,)}
PILOTS = {
    "impact": (0.84, 0.49, 0.44),
    "update_aligned": (0.86, 0.88, 0.90),
    "reward_std": (0.93, 0.77, 0.57),
}
"""Numbers of others, drawn for orientation and never as a mark to pass: the paper's, and our pilots' with gain."""


def best_rival(result: Result, target: str = "gain") -> str:
    """The rival that the score is compared with: the best by correlation, else one whose choice costs least.

    Args:
        result: With the table `predictions`.
        target: `gain` or `final_reward`.
    """
    found = [f.index.get("rival") for f in result.find("spearman_difference", target=target, chosen="once")]
    return str(found[0]) if found and found[0] else next(iter(cheapest_rivals(result, target)), "reward")


def cheapest_rivals(result: Result, target: str) -> list[str]:
    """The one-line rivals whose choices fall least short of the best checkpoint; several where they are equal.

    Args:
        result: Of kind `impact`.
        target: `gain` or `final_reward`.
    """
    prices = {
        str(f.index["predictor"]): f.estimate
        for f in reversed(result.find("regret", target=target))
        if f.index.get("series", "pooled") == "pooled"
        and f.index["predictor"] in RIVALS
        and isinstance(f.estimate, int | float)
    }
    return [name for name in RIVALS if name in prices and prices[name] == min(prices.values())]


def prediction_figure(ax: Axes, result: Result, series: str, predictor: str) -> Axes:
    """Realised gain by a predictor's rank in its series, every checkpoint by name, with the Spearman correlation.

    Args:
        ax: Where to draw.
        result: With the table `predictions`.
        series: Which.
        predictor: By whose ranks.
    """
    table = predictions(result, series, predictor)
    color = BLUE if predictor == OURS else ORANGE
    ax.vlines(table["rank"], table["gain_low"], table["gain_high"], color=color, linewidth=1, alpha=0.6)
    marker = "D" if predictor == OURS else "s"
    (marks,) = ax.plot(table["rank"], table["gain"], color=color, marker=marker, linestyle="none", zorder=3)
    tell(marks, [checkpoint_words(label) for label in table["checkpoint"]], whole=False)
    chosen = table[table["checkpoint"] == recommended(result, series)]
    ring: dict[str, Any] = {
        "marker": "o",
        "markersize": 12,
        "mfc": "none",
        "mec": INK,
        "linestyle": "none",
        "zorder": 4,
    }
    ax.plot(chosen["rank"], chosen["gain"], **ring, label="recommended")
    ax.axhline(0, color=INK, linewidth=0.8, zorder=1)
    ax.set_xlim(0.3, max(len(table), 1) + 0.7)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    named_points(ax, table["rank"].tolist(), table["gain"].tolist(), table["checkpoint"].tolist())
    ax.set_xlabel(f"rank by {predictor_name(predictor)}")
    ax.set_title(correlation_words(result, series, predictor), fontsize=8.5, fontweight="normal")
    return ax


def predictions(result: Result, series: str, predictor: str) -> pd.DataFrame:
    """Realised gains of a series with the rank of every checkpoint by a predictor; ties share the mean of their ranks.

    Args:
        result: With the table `predictions`.
        series: Which.
        predictor: By whose score.
    """
    table = result.tables["predictions"]
    table = table[(table["series"].astype(str) == series) & (table["predictor"] == predictor)]
    table = table[table["recipe"] == table["recipe"].iloc[0]] if len(table) else table
    table = table.assign(score=pd.to_numeric(table["score"]), checkpoint=table["checkpoint"].astype(str))
    known = table.dropna(subset=["score", "gain"])
    return known.assign(rank=known["score"].rank(method="average"))


def forest_figure(ax: Axes, result: Result, target: str, rows: Sequence[str]) -> Axes:
    """Spearman correlation of every predictor, pooled over series, with its interval; single series as small marks.

    Args:
        ax: Where to draw.
        result: With the table `judgement`.
        target: `gain` or `final_reward`.
        rows: Predictors, from the top.
    """
    judged = correlations(result, target)
    for place, predictor in enumerate(rows):
        _forest_row(ax, judged[judged["predictor"] == predictor], place)
        if target == "gain":
            _pilot_marks(ax, predictor, place)
    for value in PUBLISHED[target]:
        ax.axvline(value, color=GREY, linestyle=(0, (6, 3)), linewidth=1, zorder=1)
        _reference_words(ax, value, f"published {readable(value)}")
    ax.axvline(0, color=INK, linewidth=0.8, zorder=1)
    ax.set(
        xlim=(-1.05, 1.05),
        ylim=(len(rows) - 0.4, -0.9),
        xlabel=f"Spearman correlation with {TARGETS[target]}",
    )
    ax.set_xticks([-1, -0.5, 0, 0.5, 1], ["-1", "-.5", "0", ".5", "1"])
    ax.set_yticks(range(len(rows)), [_row_name(judged, predictor) for predictor in rows])
    ax.grid(visible=False, axis="y")
    return ax


def correlations(result: Result, target: str) -> pd.DataFrame:
    """Spearman correlations of the main recipe with a target.

    Args:
        result: With the table `judgement`.
        target: `gain` or `final_reward`.
    """
    judged = result.tables["judgement"]
    judged = judged[(judged["statistic"] == "spearman") & (judged["target"] == target)]
    recipes = judged["recipe"].drop_duplicates().tolist()
    main = "default" if "default" in recipes or not recipes else recipes[0]
    return judged[judged["recipe"].fillna("") == main] if recipes else judged


def forest_rows(result: Result) -> list[str]:
    """Predictors with a correlation: the score and its rivals; variants stand in a table.

    Args:
        result: With the table `judgement`.
    """
    return [name for name in (*NAMES, f"reward + {OURS}") if name in _correlated(result)]


def variant_rows(result: Result) -> list[str]:
    """All other predictors with a correlation.

    Args:
        result: With the table `judgement`.
    """
    return sorted(_correlated(result) - {*forest_rows(result)})


def correlation_words(result: Result, series: str, predictor: str) -> str:
    """Spearman correlation of a predictor with the gain and its interval, or why there is none.

    Args:
        result: Of kind `impact`.
        series: Of several, this one.
        predictor: Which.
    """
    found = [
        f for f in result.find("spearman", predictor=predictor, target="gain") if _about(f, result, series)
    ]
    if not found:
        return "Spearman: not taken"
    first = found[0]
    if not is_number(first.estimate):
        return f"no correlation: {first.reasons.get('estimate', 'not given')}"
    ends = f" (95 %: {interval_words(*first.interval)})" if first.interval else " (no interval)"
    return f"Spearman {readable(first.estimate)}{ends}"


def forest_legend(figure: Figure) -> None:
    """What the marks of a forest mean, below it.

    Args:
        figure: With the forest.
    """
    marks: dict[str, dict[str, Any]] = {
        "primary comparison": {"marker": "D", "color": BLUE, "markersize": 7.5},
        "exploratory": {"marker": "o", "color": INK, "mfc": "white", "markersize": 5.5},
        "single series": {"marker": "|", "color": GREY},
        "pilots (reference, not a pass mark)": {"marker": "|", "color": ORANGE, "markersize": 11},
        "published (reference, not a pass mark)": {"color": GREY, "linestyle": (0, (6, 3)), "linewidth": 1},
    }
    lines = [Line2D([], [], **{"linestyle": "none", **style}) for style in marks.values()]
    figure.legend(lines, list(marks), loc="outside lower center", ncols=3)


def _correlated(result: Result) -> set[str]:
    known = [correlations(result, target).dropna(subset=["estimate"]) for target in TARGETS]
    return {str(name) for table in known for name in table["predictor"]}


def _forest_row(ax: Axes, judged: pd.DataFrame, place: int) -> None:
    pooled = judged[judged["series"] == "pooled"].dropna(subset=["estimate"])
    each = judged[judged["series"] != "pooled"].dropna(subset=["estimate"])
    each = each if each["series"].nunique() > 1 else each.iloc[:0]
    (singles,) = ax.plot(
        each["estimate"], [place + 0.3] * len(each), color=GREY, marker="|", markersize=6, linestyle="none"
    )
    tell(
        singles,
        [f"{series}: {known(float(x))}" for series, x in zip(each["series"], each["estimate"], strict=True)],
    )
    for row in pooled.to_dict("records"):
        primary = bool(row["primary"])
        color = BLUE if primary else INK
        ax.hlines(
            place - 0.22,
            row["naive_low"],
            row["naive_high"],
            color=GREY,
            linewidth=0.8,
            linestyle=":",
            label="_naive",
        )
        ax.hlines(place, row["low"], row["high"], color=color, linewidth=2.4 if primary else 1.2)
        face: dict[str, Any] = {"mfc": color} if primary else {"mfc": "white"}
        marker, size = ("D", 7.5) if primary else ("o", 5.5)
        (mark,) = ax.plot(
            row["estimate"], place, marker=marker, markersize=size, color=color, zorder=4, **face
        )
        between = f" (95 %: {interval_words(row['low'], row['high'])})" if row["low"] == row["low"] else ""
        tell(mark, [f"{predictor_name(str(row['predictor']))}: {known(float(row['estimate']))}{between}"])


def _pilot_marks(ax: Axes, predictor: str, place: int) -> None:
    for value in PILOTS.get(predictor, ()):
        ax.vlines(value, place - 0.42, place + 0.42, color=ORANGE, linewidth=0.9, zorder=2)


def _reference_words(ax: Axes, value: float, words: str) -> None:
    ax.annotate(
        words,
        (value, 1),
        xycoords=blended_transform_factory(ax.transData, ax.transAxes),
        xytext=(0, 2),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=7.5,
        color=SOFT,
    )


def _row_name(judged: pd.DataFrame, predictor: str) -> str:
    primary = judged.loc[judged["predictor"] == predictor, "primary"].astype(bool).any()
    return predictor_name(predictor) + (" (primary)" if primary else "")


def _about(finding: Finding, result: Result, series: str) -> bool:
    """Of one series the pooled numbers are its own."""
    alone = result.tables["scores"]["series"].nunique() == 1
    return finding.index.get("series") == "pooled" if alone else of_series(finding, series)
