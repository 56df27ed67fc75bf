"""What a terminal is shown, and what a file or a pipe is not; the time left, by a clock of our own."""

import contextlib
import io
import os
import pty
import re
import subprocess
import sys
import warnings

import pytest

from valuelens import _verbs
from valuelens._terminal import EVERY, Pace, bar, followed, hushed, painted, phases, rich_output, say, span
from valuelens._writing import one_of
from valuelens.analyses import Result


class Clock:
    """Goes only when it is told to."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


class Screen(io.StringIO):
    """Says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def terminal(monkeypatch) -> Screen:
    """In the place of stderr, in the test itself: pytest puts its own there before each part of one."""
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stderr", made := Screen())
    return made


def test_steady_work_ends_when_it_is_said_to():
    clock = Clock()
    pace = Pace(clock)
    assert pace.left() is None
    for share in (0.0, 0.1, 0.2, 0.3, 0.4):
        pace.note(share)
        clock.time += 6
    assert pace.left() == pytest.approx(60 * 0.6 - 6)  # counted down since the last call
    clock.time += 60
    assert 30 < pace.left() < 200  # late: never below nothing


def test_what_was_there_already_does_not_count_as_speed():
    clock = Clock()
    pace = Pace(clock)
    pace.note(0.5)  # of an earlier call of the verb
    clock.time += 10
    pace.note(0.6)
    assert pace.left() == pytest.approx(40)
    pace = Pace(clock)
    for k in range(11):  # answers that are read, then one that is computed
        pace.note(0.05 * k)
        clock.time += 0.01
    clock.time += 10
    pace.note(0.55)
    assert 60 < pace.left() < 120


def test_only_the_last_minute_counts():
    clock = Clock()
    pace = Pace(clock)
    for k in range(121):  # slow, then twice as fast
        pace.note(k / 400 if k < 60 else (2 * k - 60) / 400)
        clock.time += 1
    assert pace.left() == pytest.approx((1 - 180 / 400) * 200, rel=0.1)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "time left not known yet"),
        (3, "under 10 s left"),
        (44, "40 s left"),
        (150, "2 min left"),
        (7500, "2 h 5 min left"),
    ],
)
def test_a_time_left_is_as_coarse_as_it_is_known(seconds, words):
    assert span(seconds) == words


def test_a_terminal_is_shown_a_bar_with_the_time_left(monkeypatch):
    clock, screen = Clock(), terminal(monkeypatch)
    with bar("pretrain", show=True, now=clock) as told:
        told("seed 0", 0, 100)
        clock.time += 30
        told("seed 0", 50, 100)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "pretrain: seed 0" in text
    assert " 50%" in text
    assert "30 s left" in text


def test_without_a_terminal_there_is_a_plain_line_every_half_minute(capsys):
    clock = Clock()
    with bar("pretrain", show=True, now=clock) as told:
        for k in range(7):
            told("seed 0", 10 * k, 100)
            clock.time += EVERY / 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "valuelens: pretrain: seed 0, 20%, 2 min left",
        "valuelens: pretrain: seed 0, 40%, 90 s left",
        "valuelens: pretrain: seed 0, 60%, 60 s left",
    ]


def test_a_bar_that_is_not_asked_for_says_nothing(monkeypatch):
    screen = terminal(monkeypatch)
    with bar("pretrain", show=False) as told:
        told("seed 0", 1, 2)
    assert screen.getvalue() == ""


def test_parts_add_up_by_their_weights():
    seen = []
    part = phases(lambda what, done, total: seen.append((what, done / total)), {"one": 1, "two": 3})
    part("one", 1, 2)
    part("two", 0, 8)
    part("two", 8, 8)
    part("another", 1, 2)
    assert seen == [("one", 0.125), ("two", 0.25), ("two", 1.0)]


def test_what_follows_a_work_has_its_share():
    seen = []
    first, second = followed(lambda *told: seen.append(told), 0.25)
    first("reading", 0, 0)
    first("asking", 5, 10)
    one = one_of(second, "drawing", 1, 2)
    one(1, 2)
    assert seen == [("reading", 0.0, 0.0), ("asking", 0.375, 1.0), ("drawing", 0.75 + 0.25 * 1.5 / 2, 1.0)]


def test_a_line_of_progress_stands_on_stderr_though_a_library_is_hushed(capsys):
    clock = Clock()
    with bar("costates", show=True, now=clock) as told, contextlib.redirect_stderr(io.StringIO()) as lost:
        told("loading the model", 0, 10)
        clock.time += EVERY
        told("loading the model", 5, 10)
    assert lost.getvalue() == ""
    assert capsys.readouterr().err == "valuelens: costates: loading the model, 50%, 30 s left\n"


def test_colours_are_for_terminals_without_no_color(monkeypatch):
    screen = terminal(monkeypatch)
    assert painted("x", "error", screen) == "\x1b[1;31mx\x1b[0m"
    assert painted("x", "error", io.StringIO()) == "x"
    say("twice\n  told")
    assert screen.getvalue() == "\x1b[33mvaluelens:\x1b[0m twice told\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert not rich_output(screen)
    monkeypatch.setenv("NO_COLOR", "")
    assert rich_output(screen)
    monkeypatch.setenv("TERM", "dumb")
    assert not rich_output(screen)


def test_what_is_printed_meanwhile_goes_to_stderr_from_children_too(capfd):
    with hushed(quiet=False):
        print("from python")
        os.write(1, b"from below\n")
        subprocess.run(["echo", "from a child"], check=True)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("of\ntwo lines", UserWarning, stacklevel=1)
    print("the answer", flush=True)
    out, err = capfd.readouterr()
    assert out == "the answer\n"
    for line in ("from python", "from below", "from a child"):
        assert line in err.splitlines()
    assert "valuelens: warning: of two lines (UserWarning)" in err.splitlines()


def test_quiet_keeps_libraries_silent_and_leaves_no_trace(capfd, monkeypatch):
    monkeypatch.delenv("PYTHONWARNINGS", raising=False)
    with hushed(quiet=True):
        warnings.warn("never seen", UserWarning, stacklevel=1)
        assert os.environ["PYTHONWARNINGS"] == "ignore"
    assert "PYTHONWARNINGS" not in os.environ
    assert capfd.readouterr() == ("", "")


def shown(*arguments: str, **environment: str) -> str:
    """What a pseudo-terminal shows of `valuelens ARGUMENTS`."""
    ours, theirs = pty.openpty()
    code = "from valuelens.cli import main; main()"
    plain = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM")}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=theirs,
        stderr=theirs,
        env={**plain, "TERM": "xterm", **environment},
    )
    os.close(theirs)
    text = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the end, as Linux tells it
            break
        if not piece:
            break
        text += piece
    process.wait()
    os.close(ours)
    return text.decode()


def test_a_real_terminal_is_shown_colours_and_none_with_no_color():
    assert shown("pretrain", "--stepz").startswith("\x1b[1;31mvaluelens:\x1b[0m error: ")
    assert shown("pretrain", "--stepz", NO_COLOR="1").startswith("valuelens: error: ")


def test_the_parts_of_the_demo_add_up(monkeypatch, tmp_path):
    """By their times, each in thousandths, across the processes that they run in."""
    monkeypatch.setattr(_verbs, "Parallel", lambda **_: lambda tasks: [f(*args) for f, args, _ in tasks])
    parts = {"_demo_series": "label-copy", "_demo_part": None}
    for name, fixed in parts.items():
        monkeypatch.setattr(_verbs, name, _ticking(fixed))
    seen = []
    found = _verbs._demo_results(tmp_path, 0, 1, lambda *each: seen.append(each))
    assert list(found) == ["label-copy", "tied", "untied-full"]
    assert seen[-1][1] == seen[-1][2] == sum(_verbs._SECONDS.values())


def _ticking(fixed):
    def part(*arguments):
        share = _verbs._thousandths(arguments[-1], {"train": 250, "rank": 750})
        share("train", 1, 2)
        share("rank", 1, 1)
        return fixed or arguments[0], Result(kind="in-context-rl"), []

    return part
