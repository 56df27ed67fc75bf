"""Figures of training: how each property moves over optimiser steps, every seed and their mean."""

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from valuelens.analyses._result import Result
from valuelens.analyses.report._style import (
    BLUE,
    GREEN,
    GREY,
    INK,
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

NEAR = 0.1
"""How near the effective discount must come to gamma."""

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
    _emerged(ax, result, "MSVE", "msve_vs_constant")
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
    _emerged(ax, result, "kernel diagonal", "kernel_diagonal_mean")
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
        _curves(ax, result, column, color, line, label)
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
        _emerged(ax, result, "cosine", "weight_cosine")
        named_line(ax, COSINE, f"{COSINE} (our criterion for the cosine)", place=0.62)
    _curves(ax, result, "within_chain_r2", BLUE, "-", "within-chain R2")
    _emerged(ax, result, "within-chain", "within_chain_r2")
    named_line(ax, WITHIN, f"{WITHIN} (our criterion for R2)", place=0.62, above=False)
    ax.legend(loc="lower right")
    return _finished(ax, result, "cosine and within-chain R2", "1 is agreement")


def discount_figure(ax: Axes, result: Result) -> Axes:
    """Effective discount of the last layer over training, with the band around gamma that counts as near.

    Args:
        ax: Where to draw.
        result: Of a run, with the table `emergence`.
    """
    _curves(ax, result, "effective_discount", BLUE)
    _emerged(ax, result, "effective discount", "effective_discount")
    gamma = discount_of(result)
    if gamma is not None:
        ax.axhspan(gamma - NEAR, gamma + NEAR, color=GREY, alpha=0.15, linewidth=0)
        named_line(ax, gamma, f"gamma, with the {NEAR} around it (our criterion)", place=0.75)
        ax.set_ylim(gamma - 1.5, gamma + 1.5)
    return _finished(ax, result, "effective discount", "gamma w_T / |w_C|")


def population_figure(ax: Axes, result: Result) -> Axes:
    """Spectral radius of the population map and margin of Assumption 5.1 in the median task, over training.

    Args:
        ax: Where to draw.
        result: Of a run, with the table `emergence`.
    """
    if "population_radius" in _table(result):
        _curves(ax, result, "population_radius", BLUE, "-", "spectral radius")
        _emerged(ax, result, "the population map", "population_radius")
        named_line(ax, 1, "below, the map contracts", place=0.6, above=False)
    _curves(ax, result, "assumption_margin", ORANGE, "--", "margin of Assumption 5.1")
    _emerged(ax, result, "Assumption 5.1", "assumption_margin")
    named_line(ax, 0, "above, the assumption holds", place=0.6)
    ax.legend(loc="center right", bbox_to_anchor=(1, 0.6))
    return _finished(ax, result, "the map of endless contexts", "in the median task")


def training_panels(result: Result) -> list[Callable[[Axes, Result], Axes]]:
    """The figures for which the table `emergence` has columns; no weights where none are identified.

    Args:
        result: Of a run.
    """
    columns, signs = set(_table(result)), result.find("sign_pattern")
    if signs and all(finding.estimate == "unidentified" for finding in signs):
        columns -= {"w_R", "weight_cosine", "effective_discount", "assumption_margin"}
    panels = {
        value_error_figure: "msve_vs_constant",
        update_weights_figure: "w_R",
        diagonal_figure: "kernel_diagonal_mean",
        agreement_figure: "within_chain_r2",
        discount_figure: "effective_discount",
        population_figure: "assumption_margin",
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
    """Every seed; several ones thin, below their mean and its interval."""
    runs = list(_runs(result))
    thin: dict[str, Any] = {"linewidth": 0.8, "markersize": 3, "alpha": 0.6} if len(runs) > 1 else {}
    for number, (marker, run) in enumerate(runs):
        ax.plot(
            run["step"],
            run[column],
            color=color,
            marker=marker,
            linestyle=line or LINES[number % len(LINES)],
            label=label if label and number == 0 else f"_{label}",
            **thin,
        )
    if len(runs) > 1 and "emergence_mean" in result.tables:
        table = result.tables["emergence_mean"]
        mean = table[table["quantity"] == column]  # none of a ratio whose denominator crosses 0
        ax.plot(
            mean["step"],
            mean["mean"],
            color=color,
            linestyle=line or "-",
            linewidth=2.4,
            alpha=0.9,
            label="_mean over seeds",
        )
        ax.fill_between(mean["step"], mean["low"], mean["high"], color=color, alpha=0.18, linewidth=0)


def _emerged(ax: Axes, result: Result, start: str, column: str) -> None:
    """A ring on the curve of every seed where the property whose name starts so begins to last."""
    table = _table(result)
    for finding in result.find("emergence_step"):
        if str(finding.index["property"]).startswith(start) and isinstance(finding.estimate, int):
            there = table[(table["seed"] == finding.index["seed"]) & (table["step"] == finding.estimate)]
            ax.plot(
                there["step"],
                there[column],
                color=INK,
                marker="o",
                markersize=8,
                mfc="none",
                linestyle="none",
            )


def _finished(ax: Axes, result: Result, title: str, unit: str) -> Axes:
    ax.set_xscale("symlog", linthresh=1)
    ax.set_xlim(-0.2, 1.4 * max(1, int(_table(result)["step"].max())))
    plain_ticks(ax, "x")
    ax.set(title=title, ylabel=unit, xlabel="optimiser steps")
    return ax
