"""The pages of --help, and their examples, which are parsed and never run."""

import re
import shlex

import pytest
import typer

from valuelens import cli
from valuelens._help import EXAMPLES, SECTIONS, WIDTH

VERBS = [name for name in EXAMPLES if name]
LINES = [line for verb in VERBS for line, _ in EXAMPLES[verb]] + ["valuelens demo", "valuelens doctor"]


@pytest.fixture(scope="module")
def front():
    return typer.main.get_command(cli.app)


def page(front, verb: str, width: int = WIDTH) -> str:
    context = front.make_context("valuelens", [verb], resilient_parsing=True)
    command = front.commands[verb]
    return command.get_help(
        command.context_class(command, info_name=verb, parent=context, terminal_width=width)
    )


def test_every_verb_has_examples_and_is_in_the_list(front):
    assert sorted(front.commands) == sorted(VERBS)
    assert set(SECTIONS) <= set(VERBS)
    assert all(len(EXAMPLES[verb]) >= 2 for verb in VERBS)


@pytest.mark.parametrize("line", LINES)
def test_an_example_parses(front, line):
    program, verb, *arguments = shlex.split(line)
    assert program == "valuelens"
    context = front.make_context("valuelens", [verb, *arguments])
    command = front.commands[verb]
    command.make_context(verb, arguments, parent=context)


def test_an_option_that_is_none_would_be_seen(front):
    command = front.commands["pretrain"]
    with pytest.raises(cli.TyperException, match="--stepz"):
        command.make_context("pretrain", ["--out", "x", "--stepz", "3"])


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_stands_on_the_page_once_and_in_a_section(front, verb):
    text = page(front, verb)
    options = {name for param in front.commands[verb].params for name in param.opts if name[:2] == "--"}
    body = text.split("Examples:")[0]
    for option in options:
        assert len(re.findall(rf"^  {option}\b(?!-)", body, re.MULTILINE)) == 1, option
    known = {param.name for param in front.commands[verb].params}
    for title, names in SECTIONS.get(verb, {}).items():
        assert f"\n{title}:\n" in text
        assert set(names) <= known, title
    for line, what in EXAMPLES[verb]:
        assert line in text
        assert what in text


@pytest.mark.parametrize("width", [78, 100])
@pytest.mark.parametrize("verb", VERBS)
def test_a_page_is_no_wider_than_asked(front, verb, width):
    examples = {line for line, _ in EXAMPLES[verb]}
    wide = [line for line in page(front, verb, width).splitlines() if len(line) > width]
    assert [line for line in wide if line.strip() not in examples] == []


def test_what_stands_for_a_value_is_plain(front):
    usages = {
        "analyze": "valuelens analyze [OPTIONS] [CKPT_OR_RUN]",
        "costates": "valuelens costates [OPTIONS] MODEL",
        "impact": "valuelens impact [OPTIONS] SERIES_OR_MODELS...",
        "report": "valuelens report [OPTIONS] DIR...",
        "doctor": "valuelens doctor [OPTIONS] [MODEL]",
        **{verb: f"valuelens {verb} [OPTIONS]" for verb in ("pretrain", "pretrain-lm", "demo")},
    }
    for verb in VERBS:
        text = page(front, verb)
        assert text.splitlines()[0] == f"Usage: {usages[verb]}"
        assert not re.search(r"[<>{}]", text.split("Examples:")[0].replace("{checkpoint}", "")), verb
    assert "--only NAME,..." in page(front, "analyze")
    assert "[default: 256; at least 2]" in page(front, "analyze")
    assert "--device DEVICE  cpu alone: " in page(front, "analyze")


def test_two_baselines_are_said_to_give_the_same_where_they_do(front):
    text = " ".join(page(front, "costates").split())
    assert (
        "leave-one-out, n/(n-1) times it; without --loss-type and --scale-rewards that factor is put in"
        in text
    )


def test_defaults_stand_in_plain_brackets(front):
    text = " ".join(page(front, "pretrain").split())
    assert "[default: 10; 3 for linear, 4 for transformer]" in text
    assert "default: (" not in text


def test_the_front_page_says_where_to_begin(capsys, monkeypatch):
    pages = []
    for arguments in ([], ["--help"]):
        monkeypatch.setattr("sys.argv", ["valuelens", *arguments])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert not stop.value.code
        pages.append(capsys.readouterr().out)
    assert pages[0] == pages[1]
    begin = pages[0].split("Where to begin:")[1]
    assert begin.index("valuelens demo") < begin.index("valuelens doctor")
    for verb in VERBS:
        assert re.search(rf"^  {verb} +\S.*[.?]$", pages[0], re.MULTILINE), verb
