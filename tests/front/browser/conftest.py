"""Reports of every case, written once, and a browser that looks at them: on a phone, a desk, in the dark, on paper."""

import importlib.util
import os
import runpy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait

from valuelens.analyses import Result
from valuelens.analyses.report import write_report

HERE = Path(__file__).parent
SIMULATED = HERE.parents[1] / "analyses" / "report" / "conftest.py"
WIDTHS = (360, 1440)
PAPER = 672
"""Pixels between the margins of A4: 210 mm less twice 16."""


@dataclass(frozen=True, slots=True)
class Case:
    """Results and the report that was written of them."""

    results: dict[str, Result]
    report: Path


@dataclass(frozen=True, slots=True)
class Viewer:
    """The browser, at a report."""

    window: webdriver.Chrome
    axe: str

    def open(self, report: Path) -> "Viewer":
        self.window.get(report.as_uri())
        return self

    def resize(self, width: int, height: int = 900) -> "Viewer":
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        WebDriverWait(self.window, 10).until(lambda _: self("return innerWidth") == width)
        return self

    def scheme(self, name: str) -> "Viewer":
        wanted = {"name": "prefers-color-scheme", "value": name}
        self.window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [wanted]})
        return self

    def paper(self) -> "Viewer":
        self.window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
        return self.resize(PAPER)

    def unfold(self, *, yes: bool = True) -> "Viewer":
        self("document.querySelectorAll('details').forEach(each => each.open = arguments[0])", yes)
        return self

    def __call__(self, script: str, *given: Any) -> Any:
        return self.window.execute_script(script, *given)

    def audit(self) -> dict[str, Any]:
        """What axe finds in the page by all its rules but contrast; each drawing counts as one picture."""
        return self._axe({"rules": {"color-contrast": {"enabled": False}}})

    def contrast(self) -> dict[str, Any]:
        """What axe finds of colours, the drawings put away: it reads no text on them, and they slow it."""
        put_away = "const s = new CSSStyleSheet(); s.replaceSync('svg > * {display: none}'); "
        self(put_away + "document.adoptedStyleSheets = [s]")
        return self._axe({"runOnly": ["color-contrast"]})

    def _axe(self, options: dict[str, Any]) -> dict[str, Any]:
        if not self("return 'axe' in window"):
            self(self.axe)
        run = (
            "axe.run({exclude: [['svg > *']]}, arguments[0]).then(arguments[1], e => arguments[1](String(e)))"
        )
        return self.window.execute_async_script(run, {"resultTypes": ["violations"], **options})


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, from a package that wraps it; a failure without it under CI, else a skip."""
    package = importlib.util.find_spec("axe_playwright_python")  # importing it would need playwright
    if package is None or package.origin is None:
        reason = "needs axe: pip install --no-deps axe-playwright-python==0.1.8"
        pytest.fail(reason) if "CI" in os.environ else pytest.skip(reason)
    return Path(package.origin).with_name("axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def viewer(offline_browser: webdriver.Chrome, axe: str) -> Iterator[Viewer]:
    """The browser, which is given back as it was."""
    offline_browser.set_script_timeout(120)
    yield Viewer(offline_browser, axe)
    offline_browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    offline_browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture(scope="session")
def case(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """`case("default")`: its results and its report."""
    simulated = runpy.run_path(str(SIMULATED))
    cases = runpy.run_path(str(HERE / "cases.py"))["cases"]
    makers: Mapping[str, Callable[[], dict[str, Result]]] = cases(simulated["made"], simulated["ranked"])
    folder, made = tmp_path_factory.mktemp("reports"), dict[str, Case]()

    def one(name: str) -> Case:
        if name not in made:
            results = makers[name]()
            made[name] = Case(results, write_report(results, folder / f"{len(made)}.html"))
        return made[name]

    return one
