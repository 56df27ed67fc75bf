"""Sentences from constructed findings."""

import pytest

from valuelens.analyses import Control, Finding, Result
from valuelens.analyses._costate_verdict import costate_verdict

WHY = {"interval": "made up", "control": "made up", "estimate": "made up"}


def finding(name: str, estimate: object, **changes: object) -> Finding:
    plain: dict[str, object] = {"unit": "1", "n": 4, "definition": "choice", "reasons": WHY}
    return Finding(name=name, estimate=estimate, **{**plain, **changes})  # type: ignore[arg-type]


def result(*findings: Finding) -> Result:
    return Result(kind="costates", findings=findings)


def test_a_certain_signal_is_told_with_what_it_takes() -> None:
    at = {"layer": 1}
    said = costate_verdict(
        result(
            finding("diagnosis", "Rewards differ within every one of 4 groups."),
            finding(
                "signal_to_noise",
                0.1,
                index=at,
                interval=(0.05, 0.2),
                control=Control(name="permuted", estimate=0.001),
            ),
            finding("rollouts_needed", 42.6, index=at),
            finding("locality", 0.25, index={"layer": 0}),
            finding("locality", 0.5, index=at),
            finding("cosine", 0.93, index={**at, "against": "enumerated"}),
        )
    )
    assert said == (
        "Rewards differ within every one of 4 groups. At layer 1 the costate of one rollout has signal-to-noise 0.1 "
        "(permuted advantages: 0.001); the mean of about 43 rollouts of a prompt would have cosine .9 with the value "
        "gradient. The share of costates that comes from a state's own token: 25% at layer 0, 50% at layer 1. Beside "
        "the enumerated value gradient the mean costate has cosine 0.93 at layer 1."
    )


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        (None, "groups are too few to be sure of a value signal"),
        ((-0.01, 0.2), "no value signal is certain above the noise"),
    ],
)
def test_a_signal_that_may_be_none_is_not_claimed(interval: tuple[float, float] | None, words: str) -> None:
    said = costate_verdict(
        result(
            finding("signal_to_noise", 0.1, index={"layer": 2}, interval=interval),
            finding("rollouts_needed", 42.6, index={"layer": 2}),
        )
    )
    assert said == f"At layer 2 {words}: signal-to-noise 0.1."


def test_nothing_is_said_of_what_was_not_measured() -> None:
    assert costate_verdict(result()) == ""
    said = costate_verdict(
        result(
            finding("signal_to_noise", None, index={"layer": 0}), finding("locality", 1.0, index={"layer": 0})
        )
    )
    assert said == (
        "At layer 0 the costates of a group do not differ. The share of costates that comes from a state's own token: "
        "100% at layer 0."
    )


def test_a_gap_of_more_than_all_is_a_difference() -> None:
    at = {"layer": 1, "against": "enumerated"}
    said = costate_verdict(
        result(
            finding("gap_relaxed", 1.4, index={"layer": 0}),
            finding("cosine", 0.5, index=at),
            finding("gap_discrete", 1.2, index=at, control=Control(name="noise", estimate=0.1)),
        )
    )
    assert said == (
        "Without the sampling path it differs by 140% of the relaxed sum over hops at layer 0. Beside the enumerated "
        "value gradient the mean costate has cosine 0.50 at layer 1 and differs by 120% of it (noise alone: 10%)."
    )
