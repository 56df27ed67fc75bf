"""Caveats of a ranking stand where they apply and nowhere else."""

from collections.abc import Callable

import pytest

from valuelens.analyses import Result
from valuelens.analyses.report._notes import definitions, limitations, notes

Make = Callable[..., Result]


@pytest.mark.parametrize(
    ("section", "made", "words"),
    [
        ("choice", {"seeds": 0}, "advice without evidence"),
        ("arc", {"seeds": 1, "checkpoints": 6}, "One RL seed: no interval"),
        ("judgement", {"checkpoints": 6}, "so below 8 none is given"),
    ],
)
def test_a_caveat_stands_only_where_it_applies(
    ranked_result: Make, section: str, made: dict, words: str
) -> None:
    def noted(result: Result) -> str:
        return " ".join(notes(section, result.findings, result.provenance))

    assert words in noted(ranked_result(**made))
    assert words not in noted(ranked_result())


def test_notes_on_gains_need_gains(ranked_result: Make) -> None:
    with_gains, without = (
        " ".join(notes("judgement", each.findings, {})) for each in (ranked_result(), ranked_result(seeds=0))
    )
    for words in ("blocks of neighbours", "Neither is to be reached here", "about -.4 by construction"):
        assert words in with_gains
    assert "blocks of neighbours" not in without


def test_the_score_is_said_to_foretell_nothing_that_was_not_shown(ranked_result: Make) -> None:
    result = ranked_result()
    told = " ".join(notes("choice", result.findings, result.provenance))
    assert "The score is meant to foretell the gain." in told


def test_limitations_are_those_of_the_kind_and_name_every_choice(ranked_result: Make) -> None:
    result = ranked_result()
    told = " ".join((*limitations(result), *definitions(result, "choice")))
    for words in (
        "Evidence is from small models",
        "It cannot tell exploration",
        "our definitions",
        "score (signal x headroom)",
        "regret (against the best checkpoint",
    ):
        assert words in told
    assert "Markov" not in told
    assert "One policy on these prompts" not in told
