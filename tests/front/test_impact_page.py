"""The page of the benchmark says of each number what it is; `benchmarks/impact_page.py` on a judgement made by hand."""

from pathlib import Path

import pandas as pd
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
COLUMNS = ["statistic", "predictor", "target", "recipe", "rival", "estimate"]


@pytest.fixture
def page(monkeypatch):
    """The script as a module."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return __import__("impact_page")


@pytest.fixture
def judged():
    """Two rivals, the second one better: impact has a difference to each, as in the table of judgements."""
    final = ("reward + impact", "final_reward", "default")
    rows = [
        ("spearman", "impact", "gain", "fast", "", 0.5),
        ("spearman_difference", "impact", "gain", "fast", "reward", 0.4),
        ("spearman_difference", "impact", "gain", "fast", "entropy", -0.3),
        ("spearman_difference_rechosen", "impact", "gain", "fast", "entropy", -0.3),
        ("spearman", *final, "", 0.7),
        ("spearman_difference", *final, "reward", -0.1),
        ("spearman_difference_rechosen", *final, "reward", -0.1),
        ("spearman", "reward", *final[1:], "", 0.8),
    ]
    return pd.DataFrame(rows, columns=COLUMNS).assign(series="pooled", low=None, high=None)


def test_the_best_rival_is_the_best_one(page, judged) -> None:
    lines = page.secondary(judged, judged).splitlines()
    assert lines[2] == "* impact, recipe fast: 0.500 ; minus the best rival (`entropy`): -0.300 "
    assert lines[3].endswith("minus the best rival (`reward`): -0.100 ; reward alone 0.800 ")
    assert lines[0] == "* update-aligned: not defined"


def test_it_says_which_signal_heads_a_series_and_where_headroom_overshoots(page) -> None:
    rows = [("copy", 20, 0.5, 0.1, 0.4), ("addition", 20, 0.1, None, 1.1), ("addition", 30, 0.2, None, 0.3)]
    points = pd.DataFrame(rows, columns=["series", "step", "reward", "signal_subtractive", "headroom"])
    heads = page.heads(points)
    assert heads.startswith("The signal of `impact` is `subtractive` in 1 series, ")
    assert "`usable` in `addition`, " in heads
    assert "at 1 of 3 checkpoints, at most 1.100 with reward 0.100 (`addition`, step 20)" in page.overshoots(
        points
    )
    assert page.overshoots(points[:1]) == "Headroom is nowhere larger than is possible (1 - reward)."


@pytest.mark.parametrize(
    ("last", "word"),
    [((-0.1, 0.1, 0.0), "Confirmed"), ((0.01, 0.05, 0.03), "Confirmed"), ((0.1, 0.3, 0.2), "Refuted")],
)
def test_credit_is_judged_by_the_rule_of_the_protocol(page, last, word) -> None:
    rows = [("step-1", 0.2, 0.4, 0.3), ("step-2", *last)]
    credit = pd.DataFrame(rows, columns=["checkpoint", "low", "high", "credit_gain"])
    assert page.credit_words(credit).startswith(f"**{word}**")
    none = page.credit_words(credit.assign(low=-0.1))
    assert none.startswith("**Refuted**")
    assert "at no checkpoint" in none
