"""Findings from tables with a known answer."""

import math

import numpy as np
import pandas as pd
import pytest

from valuelens.analyses._entropy_bound_findings import (
    correlation_findings,
    path_findings,
    tightness_findings,
)


def states(count: int = 60) -> pd.DataFrame:
    """Gaps that fall with entropy at each position, while both rise along the rollout."""
    random = np.random.default_rng(0)
    rows = [
        {"row": row, "group": row, "layer": 1, "state": k, "ahead": 4 - k, "entropy": k + random.normal()}
        for row in range(count)
        for k in range(5)
    ]
    table = pd.DataFrame(rows)
    table["gap"] = np.where(table.ahead > 0, 10 * table.state - (table.entropy - table.state), 0.0)
    for form, tight in (("step", 0.5), ("entropy", 0.1)):
        table[f"{form}_tightness"] = np.where(table.ahead > 0, tight * (1 + table.row / count), np.nan)
        table[f"{form}_violated"] = (table.row == 0) & (form == "step")
    return table


def test_a_correlation_that_position_hides_has_its_sign() -> None:
    (found,) = correlation_findings(states(), 0)
    assert found.n == 240
    assert found.interval is not None
    assert found.control is not None
    assert found.interval[1] < -0.3
    assert found.control.estimate > 0.3  # type: ignore[operator]


def test_without_variation_there_is_a_reason() -> None:
    (flat,) = correlation_findings(states().assign(gap=1.0), 0)
    assert (flat.estimate, flat.interval, flat.control and flat.control.estimate) == (None, None, None)
    assert set(flat.reasons) == {"estimate", "interval", "control"}
    (few,) = correlation_findings(states(1), 0)
    assert few.estimate is None


def test_the_median_and_the_violations_are_told() -> None:
    step, entropy = tightness_findings(states(), "whole", 0)
    table = states()
    assert step.estimate == pytest.approx(table.step_tightness.median())
    assert (step.n, step.control and step.control.estimate) == (240, 5)
    assert entropy.estimate == pytest.approx(table.entropy_tightness.median())
    assert entropy.control is not None
    assert entropy.control.estimate == 0
    (nothing, _) = tightness_findings(states().assign(step_tightness=np.nan), "power iteration", 0)
    assert nothing.estimate is None
    assert nothing.reasons["estimate"] == "no credit crosses a sampled token"


def test_paths_to_later_states_stand_beside_those_to_a_state_itself() -> None:
    pairs = [(row, k, s) for row in range(4) for k in range(3) for s in range(k, 3)]
    paths = pd.DataFrame([{"row": row, "layer": 1, "source": k, "target": s} for row, k, s in pairs])
    later = paths.source < paths.target
    paths["attention"] = np.where(later, 2.0 + paths.row, 7.0)
    paths["sampling"], paths["cosine"] = np.where(later, 1.0, 0.0), np.where(later, 0.5, 0.0)
    attention, sampling, cosine = path_findings(paths, 2, 0)
    assert (attention.estimate, attention.control and attention.control.estimate) == (3.5, 7.0)
    assert (sampling.estimate, sampling.control and sampling.control.estimate) == (1.0, 3.5)
    assert (cosine.estimate, cosine.n, sampling.interval) == (0.5, 12, None)
    assert attention.interval is not None
    assert cosine.control is not None
    assert cosine.control.estimate == pytest.approx(2 / math.pi)  # of an angle
    alone, *_ = path_findings(paths[~later], 2, 0)
    assert alone.estimate is None
