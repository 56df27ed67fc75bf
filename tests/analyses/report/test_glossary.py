"""Only words that a report uses are explained, and each is marked once where it first stands."""

import pytest

from valuelens.analyses.report._glossary import TERMS, marked_terms, used_terms


def test_every_term_finds_its_own_name_and_has_its_own_place() -> None:
    assert [
        term.name for term in TERMS if f'href="#{term.anchor}"' not in marked_terms(f"The {term.name} is.")
    ] == []
    assert len({term.anchor for term in TERMS}) == len(TERMS) > 12


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("TD errors and the TD error", 1),
        ("a shop, hoping and hop-by", 0),
        ("NEU & <b>NEU", 1),
        ("the effective discount of theta* with its 95 % interval", 3),
        ("softmax TD, then weighted softmax TD", 1),
    ],
)
def test_terms_are_marked_once_and_the_rest_is_text(text: str, marked: int) -> None:
    html = marked_terms(text)
    assert html.count('<a class="term"') == marked
    assert html.striptags() == text
    assert "<b>" not in html


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("TD error", "moves the value of this state along it"),
        ("signal-to-noise", "over the variance of costates"),
        ("costate", "For the objective `surrogate`, its average over rollouts is how the value changes"),
        ("costate", "for `reward` that average lacks"),
        (
            "weighted softmax TD",
            "With one step size a layer, as in theta*, it keeps the discount of the tasks",
        ),
        ("weighted softmax TD", "With three free weights a layer"),
        ("squared value error", "weighted by the stationary distribution"),
    ],
)
def test_terms_agree_with_the_theory(name: str, said: str) -> None:
    (term,) = (term for term in TERMS if term.name == name)
    assert said in term.text


def test_only_terms_in_the_text_are_used() -> None:
    page = '<svg aria-label="NEU"><text>costate</text></svg><p title="headroom">A control &amp; theta*</p>'
    assert [term.name for term in used_terms(page)] == ["control", "theta*"]
