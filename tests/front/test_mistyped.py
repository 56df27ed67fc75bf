"""A mistyped command line is told in plain words, in the manner of every other error."""

import pytest
from typer.exceptions import TyperException

from valuelens._mistyped import mistyped

OPTION = "an option must be one of those of"
VERBS = "pretrain, analyze, pretrain-lm, costates, impact, report, demo, doctor"


@pytest.mark.parametrize(
    ("arguments", "said", "page"),
    [
        ("frobnicate", f"a verb must be one of {VERBS}; found 'frobnicate'", ""),
        ("reprot", f"a verb must be one of {VERBS}; found 'reprot' (did you mean report?)", ""),
        ("--versoin", f"{OPTION} valuelens; found --versoin (did you mean --version?)", ""),
        ("pretrain --stepz 3", f"{OPTION} pretrain; found --stepz (did you mean --steps?)", "pretrain"),
        ("demo --xyz", f"{OPTION} demo; found --xyz", "demo"),
        ("--quiet demo", "options of demo must stand behind it; found --quiet before it", "demo"),
        ("--out=x demo", "options of demo must stand behind it; found --out before it", "demo"),
        ("costates", "costates needs MODEL; found none", "costates"),
        ("pretrain", "pretrain needs --out; found none", "pretrain"),
        ("costates a b c", "costates takes no more arguments; found b c too", "costates"),
        ("analyze --only", "--only needs a value; found none", "analyze"),
        ("pretrain --tied=7", "--tied takes no value; found one", "pretrain"),
        ("analyze --num-tasks 1", "--num-tasks must be at least 2; found '1'", "analyze"),
        ("analyze --jobs x", "--jobs must be an integer; found 'x'", "analyze"),
        ("impact s --beta x", "--beta must be a number; found 'x'", "impact"),
    ],
)
def test_a_mistake_is_told_as_what_must_hold_what_was_found_and_where(valuelens, arguments, said, page):
    see = " ".join(["see valuelens", *page.split(), "--help"])
    assert valuelens(*arguments.split()) == (2, "", f"valuelens: error: {said}; {see}\n")


def test_a_path_that_may_not_be_read_is_told_as_such():
    error = TyperException("Invalid value for 'DIR...': Path '/closed/it's' is not readable.")
    said = "DIR... must be readable; found that /closed/it's is not; see valuelens report --help"
    assert mistyped(error, ["report"], ["report", "/closed/it's"]) == said


def test_what_a_parser_may_say_besides_is_passed_on():
    said = mistyped(TyperException("Something else."), ["demo"], ["demo"])
    assert said == "the command line must be understood; found Something else; see valuelens demo --help"
