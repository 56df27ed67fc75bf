"""Under CI a test that is skipped, expected to fail or left out fails the run, unless tests/skips.toml lists it.

Works in one process and under xdist: what a worker saw reaches the controller with its last message.
"""

import os
import tomllib
from collections.abc import Iterable
from typing import Any

import pytest

_KEY = "left_out"
_GREEN = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Listed(config), "unlisted-skips-record")


class Listed:
    """What was not run, with the reason; on the controller also what the workers saw."""

    def __init__(self, config: pytest.Config) -> None:
        file = config.rootpath / "tests" / "skips.toml"
        listed = tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        self.allowed: list[dict[str, str]] = listed.get("skip", [])
        self.found: dict[str, str] = {}
        self.worker = hasattr(config, "workerinput")
        self.ci = "CI" in os.environ and not self.worker

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if hasattr(report, "wasxfail"):
            self.found[report.nodeid] = f"expected to fail: {report.wasxfail}"
        elif report.skipped:
            self.found[report.nodeid] = f"skipped: {why(report.longrepr)}"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.found[report.nodeid] = f"skipped: {why(report.longrepr)}"

    def pytest_deselected(self, items: Iterable[pytest.Item]) -> None:
        self.found |= {item.nodeid: "left out by -k or -m" for item in items}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.found |= getattr(node, "workeroutput", {}).get(_KEY, {})

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.worker:
            session.config.workeroutput[_KEY] = self.found
        elif (
            self.ci
            and self.unlisted
            and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.ci:
            return
        terminalreporter.section("tests that did not run")
        for test, reason in sorted(self.found.items()):
            sign = "NOT LISTED in tests/skips.toml" if test in self.unlisted else "listed"
            terminalreporter.line(f"{sign}: {test}: {reason}")
        terminalreporter.line(f"{len(self.found)} did not run, {len(self.unlisted)} of them not listed")

    @property
    def unlisted(self) -> list[str]:
        return [test for test, reason in self.found.items() if not self.is_listed(test, reason)]

    def is_listed(self, test: str, reason: str) -> bool:
        return any(test.startswith(each["test"]) and each["reason"] in reason for each in self.allowed)


def why(reason: object) -> str:
    """pytest's (file, line, reason), in words."""
    return str(reason[2]).removeprefix("Skipped: ") if isinstance(reason, tuple) else str(reason)
