"""What `valuelens analyze` costs in time and memory; writes `analysis.md` beside this file.

    .venv/bin/python benchmarks/analysis.py --out runs/analysis

Each row is a process of its own, imports and report included, on the default model (seed 0).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd

from valuelens.analyses import ANALYSES
from valuelens.models import icrl

_CHILD = """
import json, resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""


def cost(path: Path, *options: str) -> dict[str, Any]:
    """Seconds, processor seconds and peak memory in MB of one analysis in a new folder."""
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(sys.executable).with_name("valuelens"))
        command = [program, "analyze", str(path), "--out", f"{folder}/out", "--quiet", *options]
        started = time.monotonic()
        done = subprocess.run([sys.executable, "-c", _CHILD, *command], capture_output=True, check=True)
    processor, memory = json.loads(done.stdout)
    return {"seconds": time.monotonic() - started, "processor": processor, "MB": memory}


def main() -> None:
    """Train, analyse, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/analysis"))
    asked = parser.parse_args()
    last = icrl.pretrain(icrl.RunConfig(), asked.out)[0].path
    opaque = icrl.run_config({"model": {"arch": "transformer"}, "train": {"steps": 200}}, where="benchmark")
    transformer = icrl.pretrain(opaque, asked.out.with_name(f"{asked.out.name}-transformer"))[0].path
    everything = ",".join(name for name in ANALYSES if name != "generalisation")
    rows = {
        "everything but generalisation, one checkpoint": cost(last, "--only", everything),
        "everything, one checkpoint": cost(last),
        "everything, one transformer": cost(transformer),
        f"everything, a run of {len(icrl.checkpoint_paths(asked.out))} checkpoints": cost(asked.out),
        **{
            f"`--only {name}`, one {'transformer' if name == 'opaque' else 'checkpoint'}": cost(
                transformer if name == "opaque" else last, "--only", name
            )
            for name in ANALYSES
        },
    }
    frame = pd.DataFrame(rows).T
    frame["of the first row"] = frame.processor / frame.processor.iloc[0]
    frame.index.name = "asked"
    (Path(__file__).parent / "analysis.md").write_text(
        "# What an analysis costs\n\n"
        f"Command: `python benchmarks/analysis.py`, {os.cpu_count()} cores, one process. Default model and options "
        "(256 tasks); imports, figures and report included. A run asks every question of its first, middle and last "
        "checkpoint, emergence of all, identify, opaque and generalisation of the last. The transformer is the default "
        "one after 200 steps.\n\n" + frame.to_markdown(floatfmt=(".1f", ".1f", ".1f", ".0f", ".2f")) + "\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
