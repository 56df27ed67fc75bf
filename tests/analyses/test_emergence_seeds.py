"""What the seeds of a run say together, on steps written by hand."""

import math

import pandas as pd
import pytest
from torch.testing import assert_close

from valuelens.analyses import Control, Finding, emergence
from valuelens.analyses._emergence_seeds import mean_curves, over_seeds


def dated(**steps: list[int | None]) -> list[Finding]:
    return [
        Finding(
            name="emergence_step",
            estimate=step,
            unit="optimiser steps",
            n=4,
            definition="choice",
            index={"property": name, "seed": seed},
            control=Control(name="ends", estimate=[0.0, 1.0]),
            reasons={"interval": "one run", "estimate": "never"},
        )
        for name, by_seed in steps.items()
        for seed, step in enumerate(by_seed)
    ]


def one(found: list[Finding], name: str, **index: str) -> Finding:
    (finding,) = [f for f in found if f.name == name and index.items() <= f.index.items()]
    return finding


def test_the_mean_is_geometric_and_its_interval_students() -> None:
    finding = one(over_seeds(dated(a=[9, 99, 99, 999, 99])), "emergence_over_seeds")
    assert_close(finding.estimate, 99.0)
    half = (
        2.7764451 * math.log(10) * math.sqrt(0.5) / math.sqrt(5)
    )  # t_4 at 0.975; logs 1, 2, 2, 3, 2 in tens
    assert finding.interval is not None
    assert_close(finding.interval, (100 * math.exp(-half) - 1, 100 * math.exp(half) - 1))
    assert finding.n == 5


def test_the_control_counts_seeds_that_have_it_from_the_start() -> None:
    finding = one(over_seeds(dated(a=[0, 0, 5, 5, 5])), "emergence_over_seeds")
    assert finding.control is not None
    assert finding.control.estimate == 0.4


@pytest.mark.parametrize(
    ("steps", "key", "why"),
    [
        ([5, None, 7, 8, 9], "estimate", "it lasts on 4 of 5 seeds only, from step 5, 7, 8, 9"),
        ([None] * 5, "estimate", "it lasts on 0 of 5 seeds only"),
        ([5, 6, 7, 8], "interval", "fewer than 5 seeds"),
        ([5] * 5, "interval", "every seed has it from the same checkpoint on"),
    ],
)
def test_what_cannot_be_said_has_a_reason(steps: list[int | None], key: str, why: str) -> None:
    finding = one(over_seeds(dated(a=steps)), "emergence_over_seeds")
    assert finding.reasons[key] == why
    assert (finding.estimate is None) == (key == "estimate")
    assert finding.interval is None


def test_properties_stand_by_their_median() -> None:
    found = over_seeds(dated(never=[1, None, None], late=[9, 1, 9], early=[2, 2, None], tie=[9, 9, 8]))
    assert one(found, "emergence_order").estimate == ["early", "late", "tie"]


def test_a_tie_of_medians_goes_to_the_smaller_mean() -> None:
    found = over_seeds(dated(a=[9, 9, 99], b=[1, 9, 9]))
    assert one(found, "emergence_order").estimate == ["b", "a"]


def test_agreement_counts_ties_apart() -> None:
    found = over_seeds(dated(a=[1, 1, 5, 2, 9], b=[2, 2, 5, 1, 7]))
    finding = one(found, "emergence_precedes", first="a", second="b")
    assert finding.estimate == 0.4
    assert finding.control is not None
    assert finding.control.estimate == [0.2, 0.4]
    assert finding.interval is not None
    low, high = finding.interval  # Clopper-Pearson: each tail has probability 0.025
    tail = sum(math.comb(5, k) * low**k * (1 - low) ** (5 - k) for k in (2, 3, 4, 5))
    assert_close(tail, 0.025, atol=1e-6, rtol=0)
    assert_close(
        sum(math.comb(5, k) * high**k * (1 - high) ** (5 - k) for k in (0, 1, 2)), 0.025, atol=1e-6, rtol=0
    )


def test_few_seeds_agree_without_an_interval() -> None:
    finding = one(over_seeds(dated(a=[1, 1], b=[2, 2])), "emergence_precedes")
    assert (finding.estimate, finding.interval) == (1, None)
    assert finding.reasons["interval"] == "fewer than 5 seeds"


def test_a_single_seed_has_an_order_and_nothing_else() -> None:
    found = over_seeds(dated(a=[3], b=[1], c=[None]))
    assert [finding.name for finding in found] == ["emergence_order"]
    assert found[0].estimate == ["b", "a"]
    table = pd.DataFrame({"seed": 0, "step": [0, 1], "signs": [0.0, 1.0]})
    assert [each["what"] for each in emergence(table).skipped] == ["emergence over seeds"]


def test_where_nothing_lasts_there_is_no_order() -> None:
    finding = one(over_seeds(dated(a=[None, None, 1])), "emergence_order")
    assert finding.estimate is None
    assert finding.reasons["estimate"] == "no property lasts on the median seed"


def curves(seeds: int) -> pd.DataFrame:
    rows = [
        {"seed": seed, "step": step, "msve_ratio": 10.0**seed, "w_R": float(seed), "effective_discount": 1.0}
        for seed in range(seeds)
        for step in ((0, 1) if seed else (0, 1, 2))
    ]
    return mean_curves(pd.DataFrame(rows))


def test_mean_curves_use_the_scale_that_is_drawn() -> None:
    table = curves(5).set_index(["quantity", "step"])
    assert set(table.index) == {(name, step) for name in ("msve_ratio", "w_R") for step in (0, 1)}
    assert_close(float(table.loc[("msve_ratio", 0), "mean"]), 100.0)
    assert_close(float(table.loc[("w_R", 1), "mean"]), 2.0)
    half = 2.7764451 * math.sqrt(2.5) / math.sqrt(5)
    assert_close(float(table.loc[("w_R", 1), "high"]), 2 + half)
    assert_close(float(table.loc[("msve_ratio", 0), "low"]), 10 ** (2 - half), rtol=1e-6, atol=0)


def test_mean_curves_of_few_seeds_have_no_interval() -> None:
    table = curves(4)
    assert table["mean"].notna().all()
    assert table["low"].isna().all()
