"""docs/interoperability.md is true today: what it reads is read without us, and what it wraps has our numbers."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from valuelens import cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "interoperability.md").read_text(encoding="utf-8")
SECTIONS = dict(zip(*[iter(re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)[1:])] * 2, strict=True))

WITHOUT_US = """
import sys
for name in ("valuelens", "torch"):
    sys.modules[name] = None  # importing it is an error
"""
SAID = """
assert result["verdict"] and len(findings) == len(result["findings"]) > 10
assert set(axes) == set(arrays) and all(len(axes[name].split()) == array.ndim for name, array in arrays.items())
assert set(tables["emergence"].columns) >= {"seed", "step"}
assert metrics.step.max() == 40 and config["step"] == 40 and "A" in "".join(weights)
print("read")
"""


def blocks(text: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands at the head of the page were run."""
    made = tmp_path_factory.mktemp("with-others")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        for command in blocks(PAGE, "sh")[0].splitlines():
            patch.setattr(sys, "argv", [*shlex.split(command), "--quiet"])
            with pytest.raises(SystemExit) as stop:
                cli.main()
            assert not stop.value.code, command
    return made


@pytest.mark.slow
def test_results_are_read_without_us(folder: Path) -> None:
    code = "\n".join([WITHOUT_US, *blocks(SECTIONS["Results in pandas and numpy"]), SAID])
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("read\n")


@pytest.mark.slow
def test_models_run_in_other_libraries(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"__name__": "page"}
    source = "from pathlib import Path\nimport pandas as pd\n"
    source += "\n".join(
        block for title, text in SECTIONS.items() if "pandas" not in title for block in blocks(text)
    )
    (folder / "page.py").write_text(source)  # nnsight reads the source of what it traces
    exec(compile(source, str(folder / "page.py"), "exec"), names)
    once, inside, added = (names[name] for name in ("once", "inside", "added"))
    assert_close(inside, once, rtol=0, atol=0)
    assert_close(added, once, rtol=0, atol=0)
    assert not torch.equal(once, names["values"])
    assert_close(names["patched"], once, rtol=0, atol=0)
    assert_close(names["model"](names["prompt"]), names["values"], rtol=0, atol=0)  # the hooks are gone
    assert list(names["few"]) == ["blocks.0.hook_value", "blocks.1.hook_value"]
    assert_close(names["beliefs"], names["few"]["blocks.1.hook_value"], rtol=0, atol=0)
    assert set(names["gradients"]) == {"blocks.0.hook_value", "blocks.1.hook_resid_pre"}
    assert all(bool(each.any()) for each in names["gradients"].values())
    assert names["labels"][:2] == ["embed", "pos_embed"]
    assert len(names["labels"]) == 2 + 2 * 4
    assert len(names["found"]) == 4
    assert names["lens"].to_tokens("i0 L1").tolist() == [[2, 5]]
