"""Figures of training: how each property moves over optimiser steps, every seed for itself."""

from collections.abc import Callable, Iterator

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from valuelens.analyses._result import Result
from valuelens.analyses.report._style import (
    BLUE,
    GREEN,
    GREY,
    LINES,
    MARKERS,
    ORANGE,
    RED,
    discount_of,
    named_line,
    plain_ticks,
)

TRIPLED, A_THIRD, COSINE, WITHIN = 3, 1 / 3, 0.97, 0.85
"""The thresholds of `emergence`."""

_WEIGHTS = {
    "w_R": ("w_R, on reward", BLUE, "-"),
    "w_T": ("w_T, on target memory", GREEN, "--"),
    "w_C": ("w_C, on current memory", RED, ":"),
}


def value_error_figure(ax: Axes, result: Result) -> Axes:
    """Squared value error as a multiple of the constant predictor's, over training.

    Args:
        ax: Where to draw.
        result: Of a run, with the table `emergence`.
    """
    _curves(ax, result, "msve_vs_constant", BLUE)
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    plain_ticks(ax, "y")
    named_line(ax, 1, "constant predictor (control)")
    named_line(ax, A_THIRD, "a third of it (our criterion)", above=False, place=0.6)
    return _finished(ax, result, "value error at the query", "times the constant predictor's")


def diagonal_figure(ax: Axes, result: Result) -> Axes:
    """Share of its attention that a visited state gives to itself, over training.

    Args:
        ax: Where to draw.
        result: Of a run, with the table `emergence`.
    """
    _curves(ax, result, "kernel_diagonal_mean", BLUE)
    start = float(_table(result).groupby("seed")["kernel_diagonal_mean"].first().mean())
    named_line(ax, TRIPLED * start, "three times the start (our criterion)", place=0.62)
    gamma = discount_of(result)
    if gamma is not None:
        named_line(ax, (1 + gamma) / 2, "(1 + gamma) / 2 of Assumption 5.1", place=0.62)
    ax.set_ylim(0, 1)
    return _finished(ax, result, "kernel diagonal", "mean share of attention")


def update_weights_figure(ax: Axes, result: Result) -> Axes:
    """The update weights of the last layer over training; signs ++- are those of TD.

    Args:
        ax: Where to draw.
        result: Of a run, with the table `emergence`.
    """
    for column, (label, color, line) in _WEIGHTS.items():
        for number, (marker, run) in enumerate(_runs(result)):
            ax.plot(
                run["step"],
                run[column],
                color=color,
                linestyle=line,
                marker=marker,
                label=label if number == 0 else None,
            )
    ax.axhline(0, color=GREY, linewidth=1, zorder=1)
    for number, finding in enumerate(result.find("emergence_step", property="signs ++-")):
        if isinstance(finding.estimate, int):
            once = "signs ++- last from here" if number == 0 else None
            ax.axvline(finding.estimate, color=GREY, linestyle="-.", linewidth=1, zorder=1, label=once)
    ax.legend(loc="upper left")
    return _finished(ax, result, "update weights of the last layer", "weight")


def agreement_figure(ax: Axes, result: Result) -> Axes:
    """Cosine of the update weights with the TD direction and within-chain R2, over training.

    Args:
        ax: Where to draw.
        result: Of a run, with the table `emergence`.
    """
    if "weight_cosine" in _table(result):
        _curves(ax, result, "weight_cosine", ORANGE, "--", "cosine with (1, 1, -1)")
        named_line(ax, COSINE, f"{COSINE} (our criterion for the cosine)", place=0.62)
    _curves(ax, result, "within_chain_r2", BLUE, "-", "within-chain R2")
    named_line(ax, WITHIN, f"{WITHIN} (our criterion for R2)", place=0.62, above=False)
    ax.legend(loc="lower right")
    return _finished(ax, result, "cosine and within-chain R2", "1 is agreement")


def training_panels(result: Result) -> list[Callable[[Axes, Result], Axes]]:
    """The figures for which the table `emergence` has columns; no weights where none are identified.

    Args:
        result: Of a run.
    """
    columns, signs = set(_table(result)), result.find("sign_pattern")
    if signs and all(finding.estimate == "unidentified" for finding in signs):
        columns -= {"w_R", "weight_cosine"}
    panels = {
        value_error_figure: "msve_vs_constant",
        update_weights_figure: "w_R",
        diagonal_figure: "kernel_diagonal_mean",
        agreement_figure: "within_chain_r2",
    }
    return [panel for panel, column in panels.items() if column in columns]


def seed_marks(result: Result) -> list[tuple[int, str]]:
    """Each seed of a run with its marker.

    Args:
        result: Of a run.
    """
    seeds = sorted({int(seed) for seed in _table(result)["seed"]})
    return [(seed, MARKERS[number % len(MARKERS)]) for number, seed in enumerate(seeds)]


def _table(result: Result) -> pd.DataFrame:
    return result.tables["emergence"]


def _runs(result: Result) -> Iterator[tuple[str, pd.DataFrame]]:
    table = _table(result)
    for seed, marker in seed_marks(result):
        yield marker, table[table["seed"] == seed]


def _curves(ax: Axes, result: Result, column: str, color: str, line: str = "", label: str = "") -> None:
    for number, (marker, run) in enumerate(_runs(result)):
        style = line or LINES[number % len(LINES)]
        ax.plot(
            run["step"],
            run[column],
            color=color,
            marker=marker,
            linestyle=style,
            label=label if label and number == 0 else None,
        )


def _finished(ax: Axes, result: Result, title: str, unit: str) -> Axes:
    ax.set_xscale("symlog", linthresh=1)
    ax.set_xlim(-0.2, 1.4 * max(1, int(_table(result)["step"].max())))
    plain_ticks(ax, "x")
    ax.set(title=title, ylabel=unit, xlabel="optimiser steps")
    return ax
