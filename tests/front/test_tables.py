"""Tables on a terminal are no wider than it is, and no number is lost, there or in a pipe."""

import io
import re
import sys

import pandas as pd
import pytest

from valuelens._tables import fitted, result_lines
from valuelens.analyses import Control, Finding, Result

_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


class Screen(io.StringIO):
    """Says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch):
    """`terminal(columns)`: stdout becomes one of this width."""

    def become(columns: int) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "stdout", Screen())

    return become


@pytest.fixture
def result():
    findings = [
        Finding(
            name="signal_to_noise",
            estimate=1.2345 + k,
            unit="1",
            n=8,
            definition="choice",
            index={"objective": "surrogate", "layer": k, "at": "the first state of a completion"},
            interval=(0.5125 + k, 2.5625 + k),
            control=Control(name="rewards that are shuffled within their group", estimate=0.125 + k),
        )
        for k in range(3)
    ]
    alone = {
        "unit": "1",
        "n": 8,
        "definition": "choice",
        "reasons": dict.fromkeys(("interval", "control"), "none"),
    }
    findings.append(Finding(name="hop_share", estimate=[0.0625 + k for k in range(20)], **alone))
    findings += [
        Finding(
            name="diagnosis", estimate=f"Rewards differ within group {k} of all.", index={"layer": k}, **alone
        )
        for k in range(2)
    ]
    return Result(kind="costates", findings=tuple(findings), verdict="It was found out.")


def numbers(text: str) -> list[str]:
    return sorted(_NUMBER.findall(text))


def test_a_pipe_gets_every_number_and_word(result):
    text = "\n".join(result_lines(result))
    assert numbers(text) == sorted(
        [f"{x + k:.4g}" for k in range(3) for x in (1.2345, 0.5125, 2.5625, 0.125)]
        + [f"{0.0625 + k:.4g}" for k in range(20)]
    )
    for k in range(2):
        assert f"diagnosis layer {k}: Rewards differ within group {k} of all." in text
    assert text.endswith("\n\n" + "\n".join(result.readable()[1]))
    assert result_lines(result, quiet=True) == ["It was found out."]


@pytest.mark.parametrize("columns", [50, 80, 150, 400])
def test_a_terminal_gets_as_many_in_its_width(result, terminal, columns):
    piped = numbers("\n".join(result_lines(result)))
    terminal(columns)
    text = result_lines(result)[0]
    assert numbers(text) == piped
    assert max(map(len, text.splitlines())) <= columns
    assert text.startswith("finding ") == (columns >= 150)


def test_a_table_that_is_a_little_too_wide_goes_on_in_the_next_line_of_its_cells(result, terminal):
    few = Result(kind="costates", findings=result.findings[:3])
    whole = result_lines(few)[0]
    terminal(max(map(len, whole.splitlines())) - 10)
    text = result_lines(few)[0]
    assert text.startswith("finding ")
    assert len(text.splitlines()) == 7
    assert numbers(text) == numbers(whole)
    assert text.split() != whole.split()
    assert sorted(text.split()) == sorted(whole.split())


@pytest.mark.parametrize("columns", [40, 60, 200])
def test_columns_of_numbers_stand_in_blocks_below_one_another(terminal, columns):
    table = pd.DataFrame(
        {"checkpoint": ["step-1", "step-2"], **{f"score {k}": [k + 0.25, k + 0.5] for k in range(9)}}
    )
    whole = fitted(table)
    terminal(columns)
    text = fitted(table)
    assert numbers(text) == numbers(whole)
    assert max(map(len, text.splitlines())) <= columns
    assert text.count("step-1") == {40: 3, 60: 2, 200: 1}[columns]
    assert (text == whole) == (columns == 200)
