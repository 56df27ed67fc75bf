"""Pictures of the report of every case of the browser tests, for people to look at; no part of CI.

    python benchmarks/report_pictures.py --out pictures [--only default two]

Each case is written as HTML and photographed whole, with everything folded as it opens: at 360 and 1440 pixels, in
light and in dark, and as it is printed (the width between the margins of A4). The columns of a picture are the page
from its top, TALL pixels each. Needs Chromium and its driver; about two minutes on an idle machine.
"""

import argparse
import base64
import io
import runpy
import shutil
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver

from valuelens.analyses.report import write_report

TESTS = Path(__file__).parents[1] / "tests"
TALL, GAP = 2600, 8
VIEWS = {
    "360-light": (360, "", "light"),
    "360-dark": (360, "", "dark"),
    "1440-light": (1440, "", "light"),
    "1440-dark": (1440, "", "dark"),
    "print": (672, "print", "light"),
}


def main() -> None:
    """Write the pictures that the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the pictures")
    parser.add_argument("--only", nargs="*", default=[], help="cases; all of them without it")
    parser.add_argument(
        "--views", nargs="*", default=list(VIEWS), choices=VIEWS, help="all of them without it"
    )
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    simulated = runpy.run_path(str(TESTS / "analyses" / "report" / "conftest.py"))
    cases = runpy.run_path(str(TESTS / "front" / "browser" / "cases.py"))["cases"](
        simulated["made"], simulated["ranked"]
    )
    with _chromium() as window:
        for name in given.only or cases:
            place = given.out / name.replace(" ", "-")
            report = write_report(cases[name](), place.with_suffix(".html"))
            for view in given.views:
                print(_photographed(window, report, view), flush=True)


def _chromium() -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
    ):
        options.add_argument(argument)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def _photographed(window: webdriver.Chrome, report: Path, view: str) -> Path:
    width, media, scheme = VIEWS[view]

    def ask(command: str, **given: Any) -> Any:
        return window.execute_cdp_cmd(command, given)

    ask(
        "Emulation.setEmulatedMedia",
        media=media,
        features=[{"name": "prefers-color-scheme", "value": scheme}],
    )
    ask(
        "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
    )
    window.get(report.as_uri())
    height = window.execute_script("return document.documentElement.scrollHeight")
    ask(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=1,
        mobile=width < 600,
    )
    columns = []
    for top in range(0, height, TALL):
        clip = {"x": 0, "y": top, "width": width, "height": min(TALL, height - top), "scale": 1}
        shot = base64.b64decode(ask("Page.captureScreenshot", format="png", clip=clip)["data"])
        columns.append(Image.open(io.BytesIO(shot)))
    whole = Image.new("RGB", (len(columns) * (width + GAP) - GAP, min(TALL, height)), "gray")
    for number, column in enumerate(columns):
        whole.paste(column, (number * (width + GAP), 0))
    picture = report.with_name(f"{report.stem}-{view}.png")
    whole.save(picture)
    return picture


if __name__ == "__main__":
    main()
