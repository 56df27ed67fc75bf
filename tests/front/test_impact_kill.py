"""A ranking that is killed goes on as if nothing had been; `benchmarks/impact_kill.py` at three moments."""

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SHARES = (0.15, 0.5, 0.85)


@pytest.fixture
def kill(monkeypatch):
    """The script as a module."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return __import__("impact_kill")


@pytest.mark.slow
def test_a_ranking_that_is_killed_or_faults_ends_as_if_left_alone(kill, tmp_path):
    series, whole = tmp_path / "series", tmp_path / "whole"
    with kill.runs() as made:
        assert made.run("pretrain-lm", *kill.SERIES, "--quiet", "--out", series)[0] == 0
        asked = ("impact", series, *kill.RANKING)
        status, seconds = made.run(*asked, "--jobs", 1, "--out", whole)
        assert status == 0
        kills = [kill.killed(made, asked, (whole, seconds), share, 1) for share in SHARES]
        faults = {kind: kill.faulted(made, asked, whole, kind) for kind in kill.KINDS}
    assert faults == dict.fromkeys(kill.KINDS, (1, 0, ()))
    assert [(each.status, each.kept, each.differing) for each in kills] == [(0, True, ())] * 3
    assert kills[0].killed
    assert any(file.suffix == ".svg" for file in whole.rglob("*"))
