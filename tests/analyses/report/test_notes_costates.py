"""Caveats of costates stand where they apply and nowhere else."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from valuelens.analyses import Result
from valuelens.analyses.report._notes import definitions, limitations, notes

Make = Callable[..., Result]


def noted(result: Result, section: str = "costates") -> str:
    return " ".join(notes(section, result.findings, result.provenance))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({}, "the only state that a group shares"),
        ({}, "Straight-through hops must not be added"),
        ({"objective": "reward"}, "lacks the path through sampling"),
        ({"layers": (0, 4), "num_layers": 4}, "state after the final norm"),
        ({"enumerated": True}, "compare it with the gap that noise alone would give"),
        ({"weights": "advantages as logged: their scale is lost"}, "Scale lost"),
        ({"rollouts": {"advantages_scaled": True}}, "Scale lost"),
        ({"dtype": "measured in bfloat16"}, "reduced precision"),
        ({"loss_type": "dapo"}, "costates carry its factors"),
    ],
)
def test_a_caveat_stands_only_where_it_applies(language_result: Make, made: dict, words: str) -> None:
    assert words in noted(language_result(**made))
    if made:
        assert words not in noted(language_result())


def test_the_two_objectives_are_not_mixed(language_result: Make) -> None:
    assert "Straight-through" not in noted(language_result(objective="reward"))


def test_states_of_prompts_are_told_apart(language_result: Make) -> None:
    result = language_result((0,))
    norms = [replace(f, control=None, reasons={"control": "-"}) for f in result.find("costate_norm")]
    told = noted(replace(result, findings=(*norms, *result.find("objective"))))
    assert "states of the prompt, before the start state" in told
    assert "states of the prompt, before the start state" not in noted(result)


def test_flat_groups_are_counted(language_result: Make) -> None:
    words = "Groups with equal rewards are counted"
    assert words in noted(language_result(flat=0.5), "diagnosis")
    varied = language_result()
    findings = [replace(f, estimate=0.0) if f.name == "frac_reward_zero_std" else f for f in varied.findings]
    assert words not in noted(replace(varied, findings=tuple(findings)), "diagnosis")


def test_limitations_are_those_of_the_kind_and_name_every_choice(language_result: Make) -> None:
    result = language_result(enumerated=True)
    told = " ".join((*limitations(result), *definitions(result, "choice")))
    assert "Markov" not in told
    assert "One policy on these prompts and rollouts" in told
    choices = {f.name for f in result.findings if f.definition == "choice"}
    assert choices == {"signal_to_noise", "rollouts_needed", "locality", "log_prob_mismatch"}
    for words in (
        "signal-to-noise (the unbiased",
        "rollouts needed (for cosine 0.9",
        "locality (the inner product",
        "log-probability mismatch (the median",
        "factors (normalisers) multiply them",
    ):
        assert words in told
    assert "signal-to-noise" not in " ".join(definitions(language_result(flat=1.0), "choice"))
