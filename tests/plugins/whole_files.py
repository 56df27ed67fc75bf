"""Under xdist the tests of a file run in one process, so that what they share is made once; slow files come first.

Files that name the same `xdist_group` stay together too. xdist itself looks for the group at the end of a test's id,
where pytest 9.2 lets nobody write (pytest-xdist, issue 1386).
"""

import functools
import re
from pathlib import Path
from typing import Any

import pytest

try:
    from xdist.scheduler import LoadScopeScheduling
except ImportError:  # tests run without xdist too
    LoadScopeScheduling = object

_GROUP = re.compile(r'xdist_group\("([^"]+)"\)')


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> "WholeFiles":
    config.option.loadscopereorder = False  # it puts first what has most tests, and slow files have few
    return WholeFiles(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With the slow files first, both processes end at about the same time."""
    if hasattr(config, "workerinput"):
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow)


class WholeFiles(LoadScopeScheduling):
    """Hands out files, or all the files of a group."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(self.config.rootpath / nodeid.partition("::")[0])


@functools.cache
def scope(file: Path) -> str:
    """The group that a file of tests names; else the file itself."""
    named = _GROUP.search(file.read_text(encoding="utf-8"))
    return named[1] if named else str(file)
