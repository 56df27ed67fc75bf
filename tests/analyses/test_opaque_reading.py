"""The reading follows from the findings by its thresholds."""

import pytest

from valuelens.analyses import Control, Finding
from valuelens.analyses._opaque_reading import reading
from valuelens.analyses._opaque_rules import SOFTMAX

NOT_SO = {"interval": "made up"}


def made(name: str, estimate: float, index: dict, interval: tuple | None, control: object) -> Finding:
    return Finding(
        name=name,
        estimate=estimate,
        unit="1",
        n=8,
        definition="choice",
        index=index,
        interval=interval,
        control=Control(name="made up", estimate=control),
        reasons={} if interval else NOT_SO,
    )


def findings(
    *, error: float = 0.01, r2: float = 0.98, blank: float = 0.9, gap: float = 0.05, iterate: int = 1
) -> list[Finding]:
    value = {"layer": 1, "quantity": "v_l(S_j)", "rule": SOFTMAX, "iterate": iterate}
    return [
        made("returned_rule_error", error, {"rule": SOFTMAX, "steps": 3}, (error, error), 1.0),
        made("decodability", r2, value, (r2 - 0.01, r2 + 0.01), [0.0, 0.0]),
        made("selectivity", r2 - blank, value | {"against": "an untrained network"}, None, blank),
        made(
            "patch_response",
            gap,
            {"layer": 1, "memory": "current", "response": "returned values"},
            (gap - 0.01, gap + 0.01),
            [1.2, 0.9],
        ),
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "decodable; patches move downstream as TD predicts"),
        ({"gap": 0.095}, "decodable; patches move downstream in part as TD predicts"),
        ({"gap": 0.895}, "decodable; patches move downstream not as TD predicts"),
        ({"r2": 0.955}, f"not decodable: no layer shows iterates of {SOFTMAX} before its last step"),
        ({"blank": 0.965}, f"not decodable: no layer shows iterates of {SOFTMAX} before its last step"),
        ({"iterate": 3}, f"not decodable: no layer shows iterates of {SOFTMAX} before its last step"),
        ({"error": 0.06}, f"not decodable: {SOFTMAX} does not describe what is returned"),
    ],
)
def test_each_threshold_decides(changes: dict, words: str) -> None:
    found = reading(findings(**changes), 8)
    assert found.estimate == words
    assert (found.name, found.n, found.definition) == ("opaque_reading", 8, "choice")


def test_a_memory_that_could_not_be_patched_says_nothing() -> None:
    why = dict.fromkeys(("estimate", "interval", "control"), "made up")
    absent = Finding(
        name="patch_response",
        estimate=None,
        unit="1",
        n=0,
        definition="choice",
        index={"layer": 1, "memory": "target", "response": "returned values"},
        reasons=why,
    )
    assert str(reading([*findings(), absent], 8).estimate).endswith("as TD predicts")
    alone = [f for f in findings() if f.name != "patch_response"]
    assert str(reading([*alone, absent], 8).estimate).endswith("not as TD predicts")
