"""The worked example of docs/extending.md, taken out of the page: installed, tested, asked, and found in a report."""

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from valuelens import cli
from valuelens.analyses import load_result
from valuelens.models.icrl import RunConfig, save_checkpoint, theta_star

pytestmark = pytest.mark.xdist_group("extending")  # one install for all

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
FILES = dict(
    re.findall(r"\*\*`([\w.]+)`\*\*\n\n```\w+\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S)
)
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index")

Call = Callable[..., tuple[str, str]]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that pip installed the page's files into."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    for name, text in FILES.items():
        (source / name).write_text(text, encoding="utf-8")
    install = (sys.executable, *PIP, "--no-build-isolation", "--target", str(target), str(source))
    subprocess.run(install, check=True, capture_output=True)
    return target


@pytest.fixture
def call(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Run the command line with the package installed, in an empty folder; returns stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(package)

    def run(*arguments: str) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["valuelens", *arguments])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert stop.value.code == 0
        told = capsys.readouterr()
        return told.out, told.err

    return run


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """theta*, which puts states in the right order."""
    config = RunConfig.model_validate({"model": {"num_layers": 6}})
    model = theta_star(feature_dim=4, num_layers=6, gamma=0.5, alpha=0.8, sharpness=6.0)
    save_checkpoint(tmp_path / "model", model, config, step=0)
    return "model"


def test_the_page_has_one_file_its_test_and_one_line() -> None:
    assert list(FILES) == ["valuelens_order.py", "test_valuelens_order.py", "pyproject.toml"]
    assert FILES["pyproject.toml"].rstrip().splitlines()[-1] == 'order = "valuelens_order:QUESTION"'


@pytest.mark.slow
def test_the_test_of_the_example_passes(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(package)
    tests: dict[str, object] = {}
    exec(FILES["test_valuelens_order.py"], tests)
    found = [test for name, test in tests.items() if name.startswith("test_")]
    assert len(found) == 2
    for test in found:
        assert callable(test)
        test()


@pytest.mark.slow
def test_the_example_is_asked_and_reported(
    call: Call, package: Path, checkpoint: str, tmp_path: Path
) -> None:
    assert "order" in call("analyze", "--list")[0].split()
    asked = ("analyze", checkpoint, "--only", "order", "--num-tasks", "64", "--out", "results", "--json")
    out, err = call(*asked)
    told = f"valuelens: the analysis order of valuelens-order 0.1 was imported from {package / 'valuelens_order.py'}"
    assert err.splitlines() == [told]
    summary = json.loads(out)
    assert summary["provenance"]["installed"]["order"]["code"] == "valuelens_order:QUESTION"
    result = load_result(tmp_path / "results")
    assert [f.index["layer"] for f in result.find("order.agreement")] == list(range(6))
    last = result.find("order.agreement")[-1]
    assert last.interval is not None
    assert last.control is not None
    assert last.interval[0] > last.control.estimate
    assert result.verdict.startswith(
        f"Its values put states in order with rank agreement {last.estimate:.2f}"
    )
    assert (tmp_path / "results" / "figures" / "order_agreement.svg").exists()
    call("report", "results", "--out", "page.html")
    for name in ("page.html", "results/report.html"):
        page = (tmp_path / name).read_text(encoding="utf-8")
        assert "Order of states</h" in page
        assert "To improve a policy only the order counts." in page
        assert "values of a context&#39;s states agree with the true ones in rank by" in page
        assert "Rank agreement of read-out and true values after every layer." in page
        assert "Ranks are blind to scale" in page
        assert "Other findings" not in page


@pytest.mark.slow
def test_a_mistyped_name_is_told_and_changed_code_is_another_request(
    call: Call, package: Path, checkpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AssertionError):
        call("analyze", checkpoint, "--only", "ordre")
    assert "found 'ordre' (did you mean order?)" in capsys.readouterr().err
    asked = ("analyze", checkpoint, "--only", "order", "--num-tasks", "8", "--out", "again", "--quiet")
    call(*asked)
    code = package / "valuelens_order.py"
    before = code.read_text(encoding="utf-8")
    code.write_text(f"{before}\n# changed\n", encoding="utf-8")
    with pytest.raises(AssertionError):
        call(*asked)
    assert (
        "a result of the same request is continued: installed.order.sha256 must be" in capsys.readouterr().err
    )
    code.write_text(before, encoding="utf-8")


def test_without_the_package_its_findings_stand_in_raw_words() -> None:
    from valuelens.analyses import Control, Finding, Result
    from valuelens.analyses.report import sentence

    importlib.invalidate_caches()
    control = Control(name="chance", estimate=0.1)
    finding = Finding(
        name="elsewhere.some_number",
        estimate=0.5,
        unit="1",
        n=8,
        definition="choice",
        interval=(0.4, 0.6),
        control=control,
    )
    assert Result(kind="in-context-rl", findings=(finding,)).summary()
    assert sentence(finding).startswith("The model's elsewhere some number is 0.50")
