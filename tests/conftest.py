"""What every test stands on: checked shapes, one thread, hypothesis without a clock, and a browser that tells."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import beartype.typing  # noqa: F401  # CHECK names it
import pytest
import torch
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook
from selenium import webdriver
from selenium.common.exceptions import WebDriverException

# An int may stand for a float, as PEP 484 has it; Self means nothing to a checker that sees one method at a time.
CHECK = "is_pep484_tower=True, hint_overrides=beartype.FrozenDict({beartype.typing.Self: object})"
install_import_hook("valuelens", f"beartype.beartype(conf=beartype.BeartypeConf({CHECK}))")

torch.set_num_threads(1)
settings.register_profile(
    "valuelens",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("valuelens")

QUIET_CHROMIUM = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LOCAL_SCHEMES = ("file:", "data:", "blob:", "about:", "chrome")


@pytest.fixture(scope="session", autouse=True)
def _coarse_landscapes() -> Iterator[None]:
    """Segments and planes of few steps, which still hold theta* and the checkpoint: the same code, ten times faster."""
    from valuelens.analyses import _neu_slices

    with pytest.MonkeyPatch.context() as patch:
        for name in ("_SEGMENT_STEPS", "_PLANE_STEPS", "_COARSE_STEPS"):
            patch.setattr(_neu_slices, name, 5)
        yield


@pytest.fixture
def generator() -> torch.Generator:
    """The source of randomness of a test."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Headless Chromium that records its console and its network; a failure without one under CI, else a skip."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        _no_browser(f"needs Chromium and chromedriver; found {chromium} and {driver}")
    try:
        window = _chromium(chromium, driver, tmp_path_factory.mktemp("chromium"))
    except WebDriverException as error:
        _no_browser(f"Chromium does not start: {error.msg}")
    yield window
    window.quit()


@pytest.fixture
def offline_browser(browser: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser, for pages that must stand alone: a console error or a request beyond the page's files fails."""
    _complaints(browser)
    yield browser
    assert _complaints(browser) == []


def _no_browser(reason: str) -> NoReturn:
    if "CI" in os.environ:
        pytest.fail(reason)
    pytest.skip(reason)


def _chromium(binary: str, driver: str, profile: Path) -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in (*QUIET_CHROMIUM, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))


def _complaints(browser: webdriver.Chrome) -> list[str]:
    """Console errors and requests that left the machine since the last call."""
    errors = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    return errors + [url for url in urls if not url.startswith(LOCAL_SCHEMES)]
