"""Pictures of reports for README and gallery, from real results, in headless Chromium:

valuelens demo --out demo
valuelens costates demo/label-copy/step-00000154 --objective reward --full --num-prompts 8 --out demo/costates
python docs/pictures.py demo
"""

import base64
import io
import shutil
import sys
from pathlib import Path
from tempfile import mkdtemp

from PIL import Image
from selenium import webdriver

import valuelens as vl

FOLDER = Path(__file__).parent / "pictures"
WIDTH, TALLEST, MARGIN = 1100, 620, 8
RESULTS = ("tied-results", "costates", "label-copy-results")


def main(demo: Path) -> None:
    """Write the verdict of the first result, its first cards and all, and the first figure of every section of each.

    Args:
        demo: What the two commands above wrote.
    """
    FOLDER.mkdir(exist_ok=True)
    options = webdriver.ChromeOptions()
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--window-size={WIDTH},1200",
    ):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        for result in RESULTS:
            page = vl.write_report({result: vl.load_result(demo / result)}, Path(mkdtemp()) / "report.html")
            browser.get(page.as_uri())
            if result == RESULTS[0]:
                for name, last in (("report", ".answer"), ("verdict", ".answer:last-child")):
                    below = browser.execute_script(_BELOW, f"section.verdict {last}")
                    _save(browser, "section.verdict", name, tallest=below + MARGIN)
            for name in browser.execute_script(_SECTIONS):
                _save(browser, f"#{name} figure .card", name.partition("-")[2])
    finally:
        browser.quit()


_SECTIONS = """return [...document.querySelectorAll("section.question")]
    .filter(section => section.querySelector("figure .card svg")).map(section => section.id)"""
_BELOW = """const box = selector => document.querySelector(selector).getBoundingClientRect();
    return box(arguments[0]).bottom - box("section.verdict").top"""
_BOX = """const box = document.querySelector(arguments[0]).getBoundingClientRect();
    return {x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height}"""


def _save(browser: webdriver.Chrome, selector: str, name: str, *, tallest: float = TALLEST) -> None:
    where = browser.execute_script(_BOX, selector)
    clip = {**where, "height": min(where["height"], tallest), "scale": 1}
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    picture = Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB")
    picture.save(FOLDER / f"{name}.webp", quality=70, method=6)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
