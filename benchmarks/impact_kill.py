"""Kill `valuelens impact` at 20 moments, go on, and compare with a run that was left alone; writes `impact_kill.md`.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/impact_kill.py

Three checkpoints of a small series (none of the protocol's), one RL seed. Each run is a process group of its own and
gets SIGKILL as a whole, after a share of the time that the run left alone took. Runs are forked from a process that has
the libraries loaded, so that the moments fall into the work and not into imports; some use two worker processes.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

SEED, KILLS, TWO_JOBS = 7, 20, 2
SERIES = (
    *("--task", "label-copy", "--num-items", "8", "--num-labels", "4", "--num-pairs", "3"),
    *("--num-layers", "1", "--d-model", "32", "--num-heads", "2", "--steps", "200", "--num-checkpoints", "3"),
)
RANKING = ("--rl-seeds", "1", "--recipe", "fast", "--num-prompts", "8", "--num-generations", "8", "--quiet")
SERVE = "--serve"
KINDS = (
    *("*/cache/*.json", "*/tables/*.parquet", "*/arrays.safetensors", "*/result.json"),
    *("*/figures/*.svg", "*/report.html"),
)
"""Patterns of the paths of each kind of file."""
HALF = ".valuelens-tmp-*-new-*"


class Runs:
    """A process with the libraries loaded that runs the command line in forks of itself."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, __file__, SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._line()

    def run(self, *arguments: object, kill_after: float | None = None, fault: str = "") -> tuple[int, float]:
        """Exit status (-9 if it was killed) and seconds of a verb.

        Args:
            arguments: Of the command line.
            kill_after: Seconds after which its process group is killed.
            fault: It kills itself when the first file with a path of this pattern is written and not yet renamed.
        """
        assert self._server.stdin is not None
        asked = [fault, *(str(each) for each in arguments)]
        print(json.dumps(asked), file=self._server.stdin, flush=True)
        group, started = int(self._line()), time.monotonic()
        if kill_after is not None:
            time.sleep(kill_after)
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.killpg(group, signal.SIGKILL)
        status = int(self._line())
        return status, time.monotonic() - started

    def close(self) -> None:
        """End the process."""
        self._server.communicate()

    def _line(self) -> str:
        assert self._server.stdout is not None
        return self._server.stdout.readline().strip()


@contextlib.contextmanager
def runs() -> Iterator[Runs]:
    """The process, ended with the block."""
    made = Runs()
    try:
        yield made
    finally:
        made.close()


def serve() -> None:
    """Fork for each line of arguments; say the process group, then the exit status."""
    import valuelens._impact_verbs
    import valuelens._lm_verbs  # noqa: F401
    from valuelens.cli import main as command_line

    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.setsid()
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, 0)
            os.dup2(nowhere, 1)
            fault, *arguments = json.loads(line)
            if fault:
                _break_renames(fault)
            sys.argv = ["valuelens", *arguments]
            command_line()
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _break_renames(fault: str) -> None:
    rename = os.replace

    def broken(source: Path, target: Path) -> None:
        if fnmatch(str(target), fault):
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)

    os.replace = broken  # type: ignore[assignment]


def trace(out: Path) -> dict[str, str]:
    """Every file of a result folder and the sha256 of what it holds besides provenance."""
    files = {file.relative_to(out).as_posix(): file for file in sorted(out.rglob("*")) if file.is_file()}
    return {name: hashlib.sha256(_bare(file)).hexdigest() for name, file in files.items()}


def _bare(file: Path) -> bytes:
    content = file.read_bytes()
    if file.name == "result.json" or file.parent.name == "cache":
        return json.dumps({**json.loads(content), "provenance": None}).encode()
    if file.suffix == ".html":  # it shows the command, when and how long
        content = re.sub(
            rb"<dt>(Command|Finished|Took)</dt>\s*<dd[^>]*>.*?</dd>", b"", content, flags=re.DOTALL
        )
        content = re.sub(rb"<bdi>(command|finished|seconds\w*)</bdi></th><td[^>]*>[^<]*</td>", b"", content)
    return content


@dataclass(frozen=True, kw_only=True, slots=True)
class Kill:
    """What was there when a run was killed, and what became of it.

    Attributes:
        share: Of the time of a whole run.
        jobs: Processes.
        killed: It had not ended before.
        entries: Finished answers.
        half: Files that were being written.
        files: Other files of the result.
        status: Exit status of the run that went on.
        kept: No finished answer was touched again.
        differing: Files that are not as in the run left alone.
    """

    share: float
    jobs: int
    killed: bool
    entries: int
    half: int
    files: int
    status: int
    kept: bool
    differing: tuple[str, ...]


def killed(made: Runs, asked: Sequence[object], whole: tuple[Path, float], share: float, jobs: int) -> Kill:
    """Kill a run after its share of the seconds of a whole one, go on, and compare the two."""
    out = whole[0].with_name(f"killed-{share:.4f}")
    asked = (*asked, "--jobs", jobs, "--out", out)
    status, _ = made.run(*asked, kill_after=share * whole[1])
    there = [file for file in out.rglob("*") if file.is_file()] if out.exists() else []
    half = [file for file in there if fnmatch(file.name, HALF)]
    entries = {file: file.read_bytes() for file in there if fnmatch(str(file), "*/cache/[!.]*")}
    again, _ = made.run(*asked)
    return Kill(
        share=share,
        jobs=jobs,
        killed=status == -signal.SIGKILL,
        entries=len(entries),
        half=len(half),
        files=sum(not file.name.startswith(".") for file in there) - len(entries),
        status=again,
        kept=all(file.read_bytes() == content for file, content in entries.items()),
        differing=differing(trace(out), trace(whole[0])),
    )


def faulted(made: Runs, asked: Sequence[object], whole: Path, kind: str) -> tuple[int, int, tuple[str, ...]]:
    """Files left half-written by a fault, exit status of the run that went on, and files that then differ.

    The answers of the run left alone are there but for one, so that the fault comes soon.
    """
    out = whole.with_name(f"fault-{KINDS.index(kind)}")
    shutil.copytree(whole / "cache", out / "cache")
    min((out / "cache").iterdir()).unlink()
    asked = (*asked, "--jobs", 1, "--out", out)
    assert made.run(*asked, fault=kind)[0] == -signal.SIGKILL
    half = len(list(out.rglob(HALF)))
    status, _ = made.run(*asked)
    return half, status, differing(trace(out), trace(whole))


def differing(found: dict[str, str], wanted: dict[str, str]) -> tuple[str, ...]:
    """Files that one of two has alone, or that differ."""
    return tuple(sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name)))


Faults = dict[str, tuple[int, int, tuple[str, ...]]]


def table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    """A table of Markdown."""
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] * len(head), *rows))


def report(kills: Sequence[Kill], faults: Faults, seconds: dict[int, float], count: int) -> str:
    """The page."""
    head = (
        *("share of the run", "processes", "killed", "answers there", "files half written", "other files"),
        *("exit of the run that went on", "an answer touched again", "files that differ"),
    )
    rows = [
        [
            *(f"{each.share:.3f}", each.jobs, "yes" if each.killed else "had ended"),
            *(each.entries, each.half, each.files, each.status),
            *("no" if each.kept else "YES", ", ".join(each.differing) or "none"),
        ]
        for each in kills
    ]
    sound = sum(not each.differing and each.kept and not each.status for each in kills)
    whole = sum(not status and not names for _, status, names in faults.values())
    times = ", ".join(f"{value:.0f} s with {jobs}" for jobs, value in seconds.items())
    faulty = [
        [kind, half, status, ", ".join(names) or "none"] for kind, (half, status, names) in faults.items()
    ]
    return f"""# Killed runs go on

`OMP_NUM_THREADS=1 .venv/bin/python benchmarks/impact_kill.py`: `valuelens impact` on three checkpoints with one RL
seed, killed with its whole process group (SIGKILL) after shares of the run drawn from seed {SEED}, then started again.
**{sound} of {len(kills)}** ended as the run that was left alone: the same {count} files, byte for byte outside
provenance (result.json and cache entries without their `provenance`; the report without command and times), and no
finished answer computed again. A run left alone took {times} processes, on a machine with other work.

{table(head, rows)}

## Faults between write and rename

The run kills itself when the first file of a kind is written and not yet renamed, and is started again: **{whole} of
{len(faults)}** ended as the run that was left alone, and nothing half-written stayed.

{table(("file", "files half written", "exit of the run that went on", "files that differ"), faulty)}
"""


def main() -> None:
    """Run, kill, go on, compare, write."""
    draw = random.Random(SEED)
    shares = [draw.random() for _ in range(KILLS)]
    with tempfile.TemporaryDirectory() as folder, runs() as made:
        series = Path(folder, "series")
        assert made.run("pretrain-lm", *SERIES, "--quiet", "--out", series)[0] == 0
        asked, whole = ("impact", series, *RANKING), {}
        for jobs in (1, 2):
            out = Path(folder, f"whole-{jobs}")
            status, seconds = made.run(*asked, "--jobs", jobs, "--out", out)
            assert status == 0
            whole[jobs] = (out, seconds)
        assert not (names := differing(trace(whole[1][0]), trace(whole[2][0]))), names
        faults = {kind: faulted(made, asked, whole[1][0], kind) for kind in KINDS}
        print(faults, flush=True)
        kills = []
        for number, share in enumerate(shares):
            jobs = 2 if number < TWO_JOBS else 1
            kills.append(killed(made, asked, whole[jobs], share, jobs))
            print(kills[-1], flush=True)
        count = len(trace(whole[1][0]))
    text = report(kills, faults, {jobs: seconds for jobs, (_, seconds) in whole.items()}, count)
    Path(__file__).with_suffix(".md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(SERVE, action="store_true", help=argparse.SUPPRESS)
    serve() if parser.parse_args().serve else main()
