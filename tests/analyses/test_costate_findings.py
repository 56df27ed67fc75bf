"""Findings from constructed sums: norms, localities and noise by hand, and what is said where nothing can be."""

import math

import pandas as pd
import pytest
import torch

from valuelens.analyses._costate_findings import (
    locality_findings,
    norm_findings,
    positions_table,
    signal_findings,
)
from valuelens.analyses._costate_measures import Measured
from valuelens.analyses._group_means import Starts, group_means
from valuelens.probe import TokenScores

VALID = torch.tensor([[True, True], [True, False], [True, True], [True, True]])
GROUP = torch.tensor([0, 0, 1, 1])


@pytest.fixture
def found() -> Measured:
    squares = torch.tensor([[[4.0, 1]], [[1, 0]], [[2, 2]], [[0, 4]]]).double()
    return Measured(
        layers=(3,),
        valid=VALID,
        squares=squares,
        own_squares=squares / 4,
        inner=squares / 2,
        start=torch.ones(4, 1, 2).double(),
        mean_square=torch.tensor([[[3.0, 0]], [[1, 2]]]).double(),
        trace=torch.tensor([[[2.0, 0]], [[1, 1]]]).double(),
        count=torch.tensor([[2.0, 1], [2, 2]]).double(),
    )


def test_norms_are_root_mean_squares_over_states(found: Measured) -> None:
    (finding,) = norm_findings(found, {"objective": "surrogate"}, GROUP, 0)
    assert finding.estimate == pytest.approx(math.sqrt(14 / 7))
    assert finding.control is not None
    assert finding.control.estimate == pytest.approx(math.sqrt(14 / 7 / 4))
    assert finding.index == {"objective": "surrogate", "layer": 3}


def test_locality_stands_beside_evenly_spread_credit(found: Measured) -> None:
    (finding,) = locality_findings(found, {"objective": "surrogate"}, GROUP, 0)
    assert finding.estimate == pytest.approx(0.5)
    assert finding.control is not None
    # 1/2 of what stands at state 0 of two tokens, all of what stands at the last state
    assert finding.control.estimate == pytest.approx((4 / 2 + 1 + 1 + 2 / 2 + 2 + 4) / 14)


def test_the_table_tells_states_one_by_one(found: Measured) -> None:
    scores = TokenScores(
        log_prob=torch.zeros(4, 2),
        entropy=torch.tensor([[1.0, 2], [3, 0], [1, 1], [1, 3]]),
        rounded=torch.zeros(4, 2, dtype=torch.bool),
    )
    table = positions_table(found, scores, prompt=False)
    expected = pd.DataFrame(
        {
            "layer": [3, 3],
            "state": [0, 1],
            "n": [4, 3],
            "norm": [math.sqrt(7 / 4), math.sqrt(7 / 3)],
            # |mean|^2 - trace / n: 3 - 1 and 1 - 1/2; at state 1 the first group has one rollout, and no covariance
            "mean_norm": [math.sqrt(2.5 / 2), math.sqrt(1.5)],
            "signal_to_noise": [2.5 / 3, 1.5],
            "locality": [0.5, 0.5],
            "entropy": [1.5, 2.0],
        }
    )
    pd.testing.assert_frame_equal(table, expected, check_dtype=False)
    assert positions_table(found, scores, prompt=True).entropy.isna().all()


def starts(costates: torch.Tensor, group: torch.Tensor) -> Starts:
    return Starts(
        costates=costates[:, None].double(),
        scale=torch.ones(len(costates)).double(),
        group=group,
        layers=(0,),
        baseline=None,
    )


def test_signal_noise_and_rollouts_needed_hang_together(generator: torch.Generator) -> None:
    """A mean of 1 along one axis and noise of 1 along each of ten: signal-to-noise .1, so 42.6 rollouts."""
    costates = torch.randn(64 * 50, 10, generator=generator) + torch.eye(10)[0]
    means = group_means(starts(costates, torch.arange(50).repeat_interleave(64)), None)
    signal, error, needed = signal_findings(means, {"objective": "reward"}, 0)
    assert signal.estimate == pytest.approx(0.1, rel=0.05)
    assert signal.interval is not None
    assert signal.interval[0] < 0.1 < signal.interval[1]
    assert error.estimate == pytest.approx(math.sqrt(10 / 64), rel=0.02)
    assert error.control is not None
    assert error.control.estimate == pytest.approx(1, rel=0.03)
    assert needed.estimate == pytest.approx(0.81 / 0.19 / signal.estimate)  # type: ignore[operator]
    assert needed.interval is not None
    assert needed.interval[0] < needed.estimate < needed.interval[1]  # type: ignore[operator]
    assert signal.control is None
    assert (
        signal.reasons["control"]
        == "no advantages of whole completions, in groups of more than two, to permute"
    )


def test_without_signal_no_number_of_rollouts_is_named() -> None:
    """Two opposite costates a group: no mean, so |mean|^2 - trace / n is negative."""
    costates = torch.tensor([[1.0, 0], [-1, 0], [0, 2], [0, -2]])
    signal, _, needed = signal_findings(group_means(starts(costates, GROUP), None), {}, 0)
    assert signal.estimate < 0  # type: ignore[operator]
    assert needed.estimate is None
    assert needed.reasons["estimate"] == "no signal above the noise was found"


def test_costates_that_do_not_differ_have_no_noise_to_compare_with() -> None:
    signal, _, needed = signal_findings(group_means(starts(torch.zeros(4, 2), GROUP), None), {}, 0)
    assert signal.estimate is None
    assert needed.estimate is None


def test_costates_that_differ_by_rounding_do_not_differ(generator: torch.Generator) -> None:
    """The reward of one token says the same of every rollout: its signal-to-noise was 3e15 to 1e18, or missing."""
    costates = torch.randn(4, 8, generator=generator).repeat_interleave(16, dim=0)
    group = torch.arange(4).repeat_interleave(16)
    for size in (1.0, 1e-12):
        means = group_means(starts(size * costates, group), None)
        signal, _, needed = signal_findings(means, {}, 0)
        assert (signal.estimate, signal.interval) == (None, None)
        assert signal.reasons["estimate"] == "costates of a group do not differ"
        assert needed.estimate == 1.0
        assert bool(means.own.signal_to_noise.isposinf().all())


def test_rollouts_needed_and_their_interval_are_at_least_one(generator: torch.Generator) -> None:
    costates = torch.ones(64, 3) + 0.01 * torch.randn(64, 3, generator=generator)
    means = group_means(starts(costates, torch.arange(64) // 8), None)
    (needed,) = (f for f in signal_findings(means, {}, 0) if f.name == "rollouts_needed")
    assert (needed.estimate, needed.interval) == (1.0, (1.0, 1.0))
